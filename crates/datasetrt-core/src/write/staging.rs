//! The hidden folders of an unfinished write: what they are called, what may be kept, what is removed.

use std::path::{Path, PathBuf};

use super::options::Identity;
use super::segment::Segment;
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::Digest;
use crate::format::names;
use crate::format::shard::{TRAILER_BYTES, Trailer};
use crate::store::Storage;
use crate::store::file::ReadFile;
use crate::store::folder::{Entry, look};

pub(super) const IDENTITY: &str = "identity.json";
pub(super) const SEGMENT_SUFFIX: &str = ".segment";
const MAX_IDENTITY_BYTES: u64 = 16 << 20;
pub(super) const MAX_SEGMENT_BYTES: u64 = 1 << 32;

/// The hidden names beside a cache while it is written; see [`Paths`] for what each is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    // In the order in which they are removed: without its journal, a write is not taken for one to resume.
    Journal,
    Partial,
    Replaced,
    Lock,
}

impl Part {
    const ALL: [(Part, &str); 4] = [
        (Part::Journal, "journal"),
        (Part::Partial, "partial"),
        (Part::Replaced, "replaced"),
        (Part::Lock, "lock"),
    ];

    /// Its name beside a cache called `name`.
    pub(super) fn file_name(self, name: &str) -> String {
        let suffix = Part::ALL.iter().find(|(part, _)| *part == self).map_or("", |(_, suffix)| suffix);
        format!(".{name}.{suffix}")
    }

    /// The cache and the part that a name beside it stands for, if it is one of ours.
    pub(super) fn parse(file_name: &str) -> Option<(&str, Part)> {
        let (name, suffix) = file_name.strip_prefix('.')?.rsplit_once('.')?;
        let (part, _) = Part::ALL.iter().find(|(_, known)| *known == suffix)?;
        names::check_name(name).is_ok().then_some((name, *part))
    }
}

/// Every path of one cache that is being written.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    pub(super) root: PathBuf,
    /// Where the cache will be.
    pub(super) target: PathBuf,
    /// Where it is until then.
    pub(super) partial: PathBuf,
    /// What is needed to go on after an interruption.
    pub(super) journal: PathBuf,
    /// The old cache during a rebuild, where folders cannot be exchanged in one step.
    pub(super) replaced: PathBuf,
    /// Held by the one writer.
    pub(super) lock: PathBuf,
}

impl Paths {
    pub(super) fn new(root: &Path, name: &str) -> Self {
        let hidden = |part: Part| root.join(part.file_name(name));
        Paths {
            root: root.to_owned(),
            target: root.join(name),
            partial: hidden(Part::Partial),
            journal: hidden(Part::Journal),
            replaced: hidden(Part::Replaced),
            lock: hidden(Part::Lock),
        }
    }

    pub(super) fn shards(&self) -> PathBuf {
        self.partial.join(names::SHARDS)
    }

    pub(super) fn shard(&self, ordinal: u64) -> PathBuf {
        names::shard_path(&self.partial, ordinal)
    }

    pub(super) fn segment(&self, ordinal: u64) -> PathBuf {
        self.journal.join(format!("{ordinal:06}{SEGMENT_SUFFIX}"))
    }

    pub(super) fn identity(&self) -> PathBuf {
        self.journal.join(IDENTITY)
    }
}

/// Makes the root folder and those above it, and what leads to it durable: a cache in a folder that the power takes
/// away is lost, too.
pub(super) fn create_root(storage: &dyn Storage, root: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut existing = Some(root);
    while let Some(folder) = existing {
        if storage.exists(folder)? {
            break;
        }
        missing.push(folder);
        existing = folder.parent();
    }
    // The deepest one that is there may come from a writer that died before it synced its name. Most often it is not
    // ours: folders above it that cannot be opened are no reason to fail.
    if let Some(above) = existing.and_then(Path::parent) {
        let _ = storage.sync_dir(above);
    }
    for folder in missing.into_iter().rev() {
        storage.create_dir(folder)?;
        if let Some(above) = folder.parent() {
            storage.sync_dir(above)?;
        }
    }
    // One that exists may be a file: the error says so.
    storage.create_dir(root)
}

/// Finds what an interrupted write left: the number of its durable shards and the last segment.
/// Anything else in the hidden folders is removed, so that the write goes on from a clean state.
pub(super) fn adopt(
    storage: &dyn Storage,
    paths: &Paths,
    identity: &Identity,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<(u64, Option<Segment>)> {
    let durable = if is_resumable(storage, paths, identity)? {
        durable_shards(storage, paths, interrupted)?
    } else {
        (0, None)
    };
    if durable.0 == 0 {
        discard(storage, paths)?;
        create(storage, paths, identity)?;
        return Ok((0, None));
    }
    remove_beyond(storage, paths, durable.0)?;
    // A segment that comes back after a loss of power would vouch for a shard that is only half there.
    storage.sync_dir(&paths.journal)?;
    Ok(durable)
}

fn is_resumable(storage: &dyn Storage, paths: &Paths, identity: &Identity) -> Result<bool> {
    let Some(bytes) = storage.read(&paths.identity(), MAX_IDENTITY_BYTES)? else { return Ok(false) };
    // A torn or foreign file is no reason to fail: the write just begins anew.
    Ok(serde_json::from_slice::<Identity>(&bytes).is_ok_and(|found| identity.resumes(&found)))
}

fn create(storage: &dyn Storage, paths: &Paths, identity: &Identity) -> Result<()> {
    storage.create_dir(&paths.shards())?;
    storage.create_dir(&paths.journal)?;
    let text = serde_json::to_vec_pretty(identity)
        .map_err(|e| Error::new(ErrorKind::Bug, format!("the journal cannot be written: {e}")))?;
    let mut sink = storage.create(&paths.root, &paths.identity())?;
    sink.write(&text)?;
    sink.sync()?;
    // What was discarded is gone for good, and what is closed from now on can be found after a loss of power.
    for folder in [&paths.journal, &paths.partial, &paths.root] {
        storage.sync_dir(folder)?;
    }
    Ok(())
}

/// Shards 0, 1, … as long as each has a sound segment and the very bytes that it states: each is read once, because
/// what became of a file since it was synced only its digest tells.
fn durable_shards(
    storage: &dyn Storage,
    paths: &Paths,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<(u64, Option<Segment>)> {
    let mut last = None;
    for ordinal in 0.. {
        if interrupted() {
            let message = "the write was interrupted before it went on; run it again to resume it";
            return Err(Error::new(ErrorKind::Closed, message));
        }
        let Some(bytes) = storage.read(&paths.segment(ordinal), MAX_SEGMENT_BYTES)? else {
            return Ok((ordinal, last));
        };
        let found = Segment::decode(&bytes).and_then(|segment| {
            let sound = shard_matches(&paths.shard(ordinal), &segment)?;
            Ok(sound.then_some(segment))
        });
        match found {
            Ok(Some(segment)) => last = Some(segment),
            // What could not be looked at is not to be written again.
            Err(error) if error.is_no_memory() => return Err(error),
            Ok(None) | Err(_) => return Ok((ordinal, last)),
        }
    }
    Ok((0, None))
}

/// Whether a shard is the one that its segment states; an error is that it cannot be read.
fn shard_matches(path: &Path, segment: &Segment) -> Result<bool> {
    let trailer_of = |file: &ReadFile| {
        let mut block = [0; TRAILER_BYTES];
        let offset = file.bytes().checked_sub(TRAILER_BYTES as u64)?;
        file.read_exact_at(&mut block, offset).ok()?;
        Trailer::decode(&block).ok()
    };
    let file = ReadFile::open(path)?;
    let stated = file.bytes() == segment.entry.bytes
        && trailer_of(&file)
            .is_some_and(|t| t.digest == segment.entry.blake3 && t.records == segment.entry.samples);
    Ok(stated && digest_of(&file)? == segment.entry.blake3)
}

/// The digest of what is before a shard's trailer.
fn digest_of(file: &ReadFile) -> Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut left = file.bytes().saturating_sub(TRAILER_BYTES as u64);
    file.stream(&mut |piece| {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        hasher.update(piece.get(..wanted).unwrap_or_default());
        left -= wanted as u64;
    })?;
    Ok(*hasher.finalize().as_bytes())
}

fn remove_beyond(storage: &dyn Storage, paths: &Paths, shards: u64) -> Result<()> {
    for file in [names::MANIFEST, names::METADATA, names::INDEX] {
        storage.remove_file(&paths.root, &paths.partial.join(file))?;
    }
    for (folder, suffix) in [(paths.shards(), names::SHARD_SUFFIX), (paths.journal.clone(), SEGMENT_SUFFIX)] {
        for name in storage.list(&folder)? {
            if names::ordinal(&name, suffix).is_some_and(|n| n >= shards) {
                storage.remove_file(&paths.root, &folder.join(name))?;
            }
        }
    }
    Ok(())
}

/// Removes an unfinished write: the files that a writer makes, and the folders if nothing else is in them.
pub(super) fn discard(storage: &dyn Storage, paths: &Paths) -> Result<()> {
    // Before the journal, which says whose link it is.
    unlink(storage, paths, &paths.partial)?;
    remove_journal(storage, paths)?;
    remove_cache(storage, paths, &paths.partial)
}

/// Removes a link that had the cache's name until a rebuild took it, for good; what it leads to stays as it is.
pub(super) fn unlink(storage: &dyn Storage, paths: &Paths, link: &Path) -> Result<()> {
    if look(&paths.root, link)? == Some(Entry::Link) {
        storage.remove_file(&paths.root, link)?;
        storage.sync_dir(&paths.root)?;
    }
    Ok(())
}

fn remove_journal(storage: &dyn Storage, paths: &Paths) -> Result<()> {
    // The identity goes first, and for good: without it the rest is not taken for something to resume.
    if storage.exists(&paths.identity())? {
        storage.remove_file(&paths.root, &paths.identity())?;
        storage.sync_dir(&paths.journal)?;
    }
    for name in storage.list(&paths.journal)? {
        if names::ordinal(&name, SEGMENT_SUFFIX).is_some() {
            storage.remove_file(&paths.root, &paths.journal.join(name))?;
        }
    }
    storage.remove_dir(&paths.root, &paths.journal)
}

/// Removes the files of a cache and its folders. What we did not write stays, and is an error. A link in the place
/// of any of them is removed, and not what it leads to.
pub(super) fn remove_cache(storage: &dyn Storage, paths: &Paths, folder: &Path) -> Result<()> {
    let root = &paths.root;
    unlink(storage, paths, folder)?;
    for file in [names::MANIFEST, names::METADATA, names::INDEX] {
        storage.remove_file(root, &folder.join(file))?;
    }
    let shards = folder.join(names::SHARDS);
    if look(root, &shards)? == Some(Entry::Link) {
        storage.remove_file(root, &shards)?;
    }
    for name in storage.list(&shards)? {
        if names::ordinal(&name, names::SHARD_SUFFIX).is_some() {
            storage.remove_file(root, &shards.join(name))?;
        }
    }
    storage.remove_dir(root, &shards)?;
    storage.remove_dir(root, folder)
}
