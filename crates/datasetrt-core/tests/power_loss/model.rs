//! A file system that knows what was synced, and what may be left of it when the power fails.
//!
//! The rules are those of POSIX, harsher than any one file system: what was written to a file since its last
//! sync may be lost, cut, or replaced by zeros in parts; each change of a folder's names since the last sync of that
//! folder may be lost, whatever became of earlier and later ones. A rename and an exchange are one change.
//! Real files are written too, because a writer opens finished ones by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use datasetrt_core::store::local::Local;
use datasetrt_core::store::{Sink, Storage};
use datasetrt_core::{Error, ErrorKind, Result};

type Id = usize;
/// Names that one operation gave or took away.
type Change = Vec<(String, Option<Id>)>;
/// What is below the base folder: bytes of a file, `None` for a folder.
pub(crate) type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

enum Node {
    Folder { synced: BTreeMap<String, Id>, now: BTreeMap<String, Id>, pending: Vec<Change> },
    File { bytes: Vec<u8>, synced: usize },
}

impl Node {
    fn folder() -> Self {
        Node::Folder { synced: BTreeMap::new(), now: BTreeMap::new(), pending: Vec::new() }
    }
}

/// A disk writes whole sectors, or nothing of them.
const SECTOR_BYTES: usize = 512;

/// What becomes of the bytes of a file that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Lost,
    Half,
    Zeros,
    /// The sectors of the first half are zeros, the others are there.
    Hole,
    Kept,
}

impl Content {
    pub(crate) const ALL: [Content; 5] =
        [Content::Lost, Content::Half, Content::Zeros, Content::Hole, Content::Kept];

    fn of(self, bytes: &[u8], synced: usize) -> Vec<u8> {
        let rest = bytes.len() - synced;
        match self {
            Content::Lost => bytes[..synced].to_vec(),
            Content::Half => bytes[..synced + rest / 2].to_vec(),
            Content::Zeros => [&bytes[..synced], &vec![0; rest]].concat(),
            Content::Hole => {
                let end = (synced + rest / 2).next_multiple_of(SECTOR_BYTES).min(bytes.len());
                [&bytes[..synced], &vec![0; end - synced], &bytes[end..]].concat()
            }
            Content::Kept => bytes.to_vec(),
        }
    }
}

struct World {
    nodes: Vec<Node>,
    operations: Vec<String>,
    /// From this operation on nothing happens any more.
    stop: Option<usize>,
    /// A sync that fails, and takes with it what was not synced, as Linux does.
    failing_sync: Option<usize>,
}

/// [`Local`] below a base folder, and what of it is durable.
#[derive(Clone)]
pub(crate) struct PowerStorage {
    base: PathBuf,
    world: Arc<Mutex<World>>,
    exchanges: bool,
}

impl PowerStorage {
    /// Everything below `base` is durable now.
    pub(crate) fn new(base: &Path) -> Self {
        let mut nodes = vec![Node::folder()];
        scan(base, 0, &mut nodes);
        let world = World { nodes, operations: Vec::new(), stop: None, failing_sync: None };
        PowerStorage { base: base.to_owned(), world: Arc::new(Mutex::new(world)), exchanges: true }
    }

    /// A file system without an exchange of names.
    pub(crate) fn without_exchange(mut self) -> Self {
        self.exchanges = false;
        self
    }

    /// The process ends before its operation `at`, counted from now; `None`: it runs on.
    pub(crate) fn stop_at(&self, at: Option<usize>) {
        let mut world = self.world();
        world.operations.clear();
        world.stop = at;
    }

    /// The operation `at`, counted from now, fails if it is a sync of a file.
    pub(crate) fn fail_sync_at(&self, at: usize) {
        let mut world = self.world();
        world.operations.clear();
        world.failing_sync = Some(at);
    }

    /// What was done since the last call of [`PowerStorage::stop_at`].
    pub(crate) fn operations(&self) -> Vec<String> {
        self.world().operations.clone()
    }

    /// Number of changes of names that are not synced; [`PowerStorage::after_loss`] counts them in the same order.
    pub(crate) fn pending(&self) -> usize {
        let mut pending = 0;
        self.after_loss(
            &mut |_| {
                pending += 1;
                true
            },
            &mut || Content::Kept,
        );
        pending
    }

    /// What is there after the power failed: `keeps` says which pending changes survived, `content` what
    /// became of unsynced bytes.
    pub(crate) fn after_loss(
        &self,
        keeps: &mut dyn FnMut(usize) -> bool,
        content: &mut dyn FnMut() -> Content,
    ) -> Tree {
        let world = self.world();
        let mut tree = Tree::new();
        let mut number = 0;
        let mut folders = vec![(PathBuf::new(), 0)];
        while let Some((path, id)) = folders.pop() {
            let Some(Node::Folder { synced, pending, .. }) = world.nodes.get(id) else { continue };
            let mut names = synced.clone();
            for change in pending {
                if keeps(number) {
                    apply(&mut names, change);
                }
                number += 1;
            }
            for (name, id) in names {
                let path = path.join(name);
                match &world.nodes[id] {
                    Node::Folder { .. } => {
                        tree.insert(path.clone(), None);
                        folders.push((path, id));
                    }
                    Node::File { bytes, synced } => {
                        let left =
                            if *synced < bytes.len() { content().of(bytes, *synced) } else { bytes.clone() };
                        tree.insert(path, Some(left));
                    }
                }
            }
        }
        tree
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Counts an operation; whether it may happen.
    fn step(&self, what: &str, path: &Path) -> Result<MutexGuard<'_, World>> {
        let mut world = self.world();
        if world.stop.is_some_and(|at| world.operations.len() >= at) {
            return Err(Error::new(ErrorKind::Io, "the process has ended"));
        }
        let shown = path.strip_prefix(&self.base).unwrap_or(path).display().to_string();
        world.operations.push(format!("{what} {shown}"));
        Ok(world)
    }

    fn parts(&self, path: &Path) -> Option<Vec<String>> {
        let below = path.strip_prefix(&self.base).ok()?;
        Some(below.iter().map(|part| part.to_str().unwrap().to_owned()).collect())
    }
}

impl World {
    fn find(&self, parts: &[String]) -> Option<Id> {
        parts.iter().try_fold(0, |at, name| match &self.nodes[at] {
            Node::Folder { now, .. } => now.get(name).copied(),
            Node::File { .. } => None,
        })
    }

    fn change(&mut self, folder: &[String], change: Change) {
        let id = self.find(folder).unwrap();
        let Node::Folder { now, pending, .. } = &mut self.nodes[id] else {
            panic!("{folder:?} is no folder")
        };
        apply(now, &change);
        pending.push(change);
    }

    fn add(&mut self, path: &[String], node: Node) -> Id {
        let id = self.nodes.len();
        self.nodes.push(node);
        let (name, folder) = path.split_last().unwrap();
        self.change(folder, vec![(name.clone(), Some(id))]);
        id
    }
}

fn apply(names: &mut BTreeMap<String, Id>, change: &Change) {
    for (name, id) in change {
        match id {
            Some(id) => names.insert(name.clone(), *id),
            None => names.remove(name),
        };
    }
}

fn scan(folder: &Path, id: Id, nodes: &mut Vec<Node>) {
    for name in Local.list(folder).unwrap() {
        let path = folder.join(&name);
        let child = nodes.len();
        let is_folder = path.is_dir();
        nodes.push(if is_folder {
            Node::folder()
        } else {
            let bytes = std::fs::read(&path).unwrap();
            Node::File { synced: bytes.len(), bytes }
        });
        let Node::Folder { synced, now, .. } = &mut nodes[id] else { continue };
        synced.insert(name.clone(), child);
        now.insert(name, child);
        if is_folder {
            scan(&path, child, nodes);
        }
    }
}

/// Writes a tree to an empty folder.
pub(crate) fn lay_out(tree: &Tree, base: &Path) {
    for (path, bytes) in tree {
        match bytes {
            None => std::fs::create_dir_all(base.join(path)).unwrap(),
            Some(bytes) => std::fs::write(base.join(path), bytes).unwrap(),
        }
    }
}

struct PowerSink {
    inner: Box<dyn Sink>,
    storage: PowerStorage,
    path: PathBuf,
    id: Id,
}

impl Sink for PowerSink {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        let mut world = self.storage.step("write", &self.path)?;
        self.inner.write(data)?;
        if let Node::File { bytes, .. } = &mut world.nodes[self.id] {
            bytes.extend_from_slice(data);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let mut world = self.storage.step("sync", &self.path)?;
        let failed = world.failing_sync == Some(world.operations.len() - 1);
        if let Node::File { bytes, synced } = &mut world.nodes[self.id] {
            if failed {
                bytes.truncate(*synced);
                std::fs::write(&self.path, bytes).unwrap();
                return Err(Error::new(ErrorKind::Io, "injected: the sync failed"));
            }
            *synced = bytes.len();
        }
        Ok(())
    }
}

impl Storage for PowerStorage {
    fn create_dir(&self, path: &Path) -> Result<()> {
        let mut world = self.step("create_dir", path)?;
        Local.create_dir(path)?;
        let parts = self.parts(path).unwrap();
        for length in 1..=parts.len() {
            if world.find(&parts[..length]).is_none() {
                world.add(&parts[..length], Node::folder());
            }
        }
        Ok(())
    }

    fn create(&self, root: &Path, path: &Path) -> Result<Box<dyn Sink>> {
        let mut world = self.step("create", path)?;
        let inner = Local.create(root, path)?;
        let id = world.add(&self.parts(path).unwrap(), Node::File { bytes: Vec::new(), synced: 0 });
        Ok(Box::new(PowerSink { inner, storage: self.clone(), path: path.to_owned(), id }))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut world = self.step("sync_dir", path)?;
        // A folder above the base was there before, and is not ours.
        let Some(parts) = self.parts(path) else { return Ok(()) };
        let missing = || Error::new(ErrorKind::Io, format!("{} is not there", path.display()));
        let id = world.find(&parts).ok_or_else(missing)?;
        if let Node::Folder { synced, now, pending } = &mut world.nodes[id] {
            synced.clone_from(now);
            pending.clear();
        }
        Ok(())
    }

    fn publish(&self, from: &Path, to: &Path) -> Result<()> {
        let mut world = self.step("publish", to)?;
        Local.publish(from, to)?;
        let (from, to) = (self.parts(from).unwrap(), self.parts(to).unwrap());
        let moved = world.find(&from);
        let (folder, names) = one_folder(&from, &to);
        world.change(folder, vec![(names.0, None), (names.1, moved)]);
        Ok(())
    }

    fn exchange(&self, a: &Path, b: &Path) -> Result<()> {
        let mut world = self.step("exchange", b)?;
        if !self.exchanges {
            return Err(Error::new(ErrorKind::Io, "this file system cannot exchange"));
        }
        Local.exchange(a, b)?;
        let (a, b) = (self.parts(a).unwrap(), self.parts(b).unwrap());
        let (was_a, was_b) = (world.find(&a), world.find(&b));
        let (folder, names) = one_folder(&a, &b);
        world.change(folder, vec![(names.0, was_b), (names.1, was_a)]);
        Ok(())
    }

    fn remove_file(&self, root: &Path, path: &Path) -> Result<()> {
        self.remove("remove_file", path, &|| Local.remove_file(root, path))
    }

    fn remove_dir(&self, root: &Path, path: &Path) -> Result<()> {
        self.remove("remove_dir", path, &|| Local.remove_dir(root, path))
    }

    fn list(&self, path: &Path) -> Result<Vec<String>> {
        let _world = self.step("list", path)?;
        Local.list(path)
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
        let _world = self.step("read", path)?;
        Local.read(path, limit)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let _world = self.step("exists", path)?;
        Local.exists(path)
    }
}

impl PowerStorage {
    fn remove(&self, what: &str, path: &Path, remove: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut world = self.step(what, path)?;
        remove()?;
        let parts = self.parts(path).unwrap();
        if world.find(&parts).is_some() {
            let (name, folder) = parts.split_last().unwrap();
            world.change(folder, vec![(name.clone(), None)]);
        }
        Ok(())
    }
}

fn one_folder<'a>(a: &'a [String], b: &[String]) -> (&'a [String], (String, String)) {
    let ((a_name, folder), (b_name, other)) = (a.split_last().unwrap(), b.split_last().unwrap());
    assert_eq!(folder, other, "a rename between folders would be two changes");
    (folder, (a_name.clone(), b_name.clone()))
}
