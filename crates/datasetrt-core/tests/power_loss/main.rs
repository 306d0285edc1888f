//! The power fails at each operation of a write, and takes any part of what was not synced with it. Afterwards
//! there is no cache or a whole one, what was there before still opens, a cache whose writer returned is there,
//! and the next write gives the bytes of an undisturbed one.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test: a failure is its message")]

mod model;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datasetrt_core::format::compression::Compression;
use datasetrt_core::metadata::Value;
use datasetrt_core::read::{Cache, Progress, ReadOptions};
use datasetrt_core::store::Storage;
use datasetrt_core::store::local::Local;
use datasetrt_core::write::{WriteOptions, Writer, clean};
use datasetrt_core::{ErrorKind, Result};

use model::{Content, PowerStorage, Tree, lay_out};

const SAMPLES: u64 = 9;
type Files = BTreeMap<String, Vec<u8>>;

/// An empty folder, in memory where that is possible: what is durable is the model's to say.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

/// What is written: sources with another fingerprint have other payloads; the shard size is part of what has to
/// agree for a write to be resumed, and no part of the record key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    fingerprint: &'static str,
    max_shard_bytes: u64,
}

const FIRST: Variant = Variant { fingerprint: "v1", max_shard_bytes: 700 };
const OTHER: Variant = Variant { fingerprint: "another", max_shard_bytes: 700 };
const NARROW: Variant = Variant { fingerprint: "v1", max_shard_bytes: 500 };

/// Two folders that do not exist at first.
fn root(base: &Path) -> PathBuf {
    base.join("made").join("by-us")
}

fn target(base: &Path) -> PathBuf {
    root(base).join("c")
}

fn options(base: &Path, variant: Variant, replace: bool) -> WriteOptions {
    WriteOptions {
        root: root(base),
        name: "c".into(),
        fingerprint: Some(variant.fingerprint.into()),
        codec: None,
        schema: None,
        compression: Compression::None,
        max_shard_bytes: variant.max_shard_bytes,
        threads: Some(1),
        queue_bytes: 1,
        by_item: false,
        replace,
    }
}

/// Writes the cache, each sample a chunk of its own; the number of samples that were there already.
fn write(base: &Path, storage: &PowerStorage, variant: Variant, replace: bool) -> Result<u64> {
    let mut writer = Writer::begin(options(base, variant, replace), Arc::new(storage.clone()))?;
    let resumed = writer.resumed().samples;
    for sample in resumed..SAMPLES {
        let payload = [sample as u8 + variant.fingerprint.len() as u8; 150];
        writer.push(&payload, &[("id", Value::Int(sample as i64))], sample)?;
        writer.flush()?;
    }
    writer.finish().map(|_| resumed)
}

fn files(cache: &Path) -> Files {
    let mut found = Files::new();
    for sub in ["", "shards"] {
        for name in Local.list(&cache.join(sub)).unwrap() {
            let path = cache.join(sub).join(&name);
            if path.is_file() {
                found.insert(format!("{sub}/{name}"), std::fs::read(path).unwrap());
            }
        }
    }
    found
}

/// The files of an undisturbed cache.
fn expected(variant: Variant) -> Files {
    let base = folder();
    write(base.path(), &PowerStorage::new(base.path()), variant, false).unwrap();
    files(&target(base.path()))
}

struct Silent;

impl Progress for Silent {
    fn advance(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// The files of a cache that is whole, or nothing if there is none.
fn whole_or_none(path: &Path, case: &str) -> Option<Files> {
    match Cache::open(path, ReadOptions::default()) {
        Ok(cache) => {
            assert_eq!(cache.verify(&mut Silent).unwrap(), [], "{case}");
            Some(files(path))
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{case}: {error}");
            None
        }
    }
}

/// Writes again after a loss, undisturbed, and compares.
fn write_again(base: &Path, variant: Variant, expected: &Files, case: &str) -> u64 {
    let resumed = write_as_well(base, variant, expected, case);
    assert_eq!(Local.list(&root(base)).unwrap(), ["c"], "{case}: after the next write");
    resumed
}

/// The same; what a rebuild that became another cache is resumed from may stay.
fn write_as_well(base: &Path, variant: Variant, expected: &Files, case: &str) -> u64 {
    // Where the cache is there already, this writer only removes what is left beside it.
    let replace = files(&target(base)) != *expected;
    let resumed = match write(base, &PowerStorage::new(base), variant, replace) {
        Ok(resumed) => resumed,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{case}: {error}");
            SAMPLES
        }
    };
    let found = whole_or_none(&target(base), case);
    assert!(found.as_ref() == Some(expected), "{case}: the next write gave other files");
    resumed
}

/// Which pending changes of names survive.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Nothing,
    All,
    AllBut(usize),
    Only(usize),
}

impl Kept {
    fn every(pending: usize) -> impl Iterator<Item = Kept> {
        let single = (0..pending).flat_map(|one| [Kept::AllBut(one), Kept::Only(one)]);
        [Kept::Nothing, Kept::All].into_iter().chain(single)
    }

    fn keeps(self, change: usize) -> bool {
        match self {
            Kept::Nothing => false,
            Kept::All => true,
            Kept::AllBut(one) => change != one,
            Kept::Only(one) => change == one,
        }
    }
}

/// Every operation, and every loss of [`Kept`] with every fate of the content; equal states are tried once.
fn at_every_operation(
    prepare: impl Fn() -> (tempfile::TempDir, PowerStorage),
    variant: Variant,
    replace: bool,
    check: impl Fn(&Path, bool, &str),
) -> (usize, usize) {
    let (base, storage) = prepare();
    storage.stop_at(None);
    write(base.path(), &storage, variant, replace).unwrap();
    let operations = storage.operations();
    assert!(operations.len() > 60, "{operations:?}");
    let mut seen: HashSet<(Tree, bool)> = HashSet::new();
    for at in 0..=operations.len() {
        let (base, storage) = prepare();
        storage.stop_at(Some(at));
        let returned = write(base.path(), &storage, variant, replace).is_ok();
        for kept in Kept::every(storage.pending()) {
            for content in Content::ALL {
                let tree = storage.after_loss(&mut |n| kept.keeps(n), &mut || content);
                if !seen.insert((tree.clone(), returned)) {
                    continue;
                }
                let next = operations.get(at).map_or("the end", String::as_str);
                let case = format!("before operation {at} ({next}), names {kept:?}, content {content:?}");
                let after = folder();
                lay_out(&tree, after.path());
                check(after.path(), returned, &case);
            }
        }
    }
    (operations.len(), seen.len())
}

fn fresh() -> (tempfile::TempDir, PowerStorage) {
    let base = folder();
    let storage = PowerStorage::new(base.path());
    (base, storage)
}

fn with_cache(variant: Variant) -> (tempfile::TempDir, PowerStorage) {
    let (base, storage) = fresh();
    write(base.path(), &storage, variant, false).unwrap();
    let storage = PowerStorage::new(base.path());
    (base, storage)
}

#[test]
fn a_first_write() {
    let whole = expected(FIRST);
    let (operations, states) = at_every_operation(fresh, FIRST, false, |base, returned, case| {
        let found = whole_or_none(&target(base), case);
        assert!(found.is_some() || !returned, "{case}: the writer returned, and nothing is there");
        assert!(found.is_none_or(|found| found == whole), "{case}: another cache");
        write_again(base, FIRST, &whole, case);
    });
    println!("{operations} operations, {states} states");
}

fn every_loss_of_a_rebuild(exchanges: bool) {
    let (old, new) = (expected(FIRST), expected(OTHER));
    assert_ne!(old, new);
    let prepare = || {
        let (base, storage) = with_cache(FIRST);
        let storage = if exchanges { storage } else { storage.without_exchange() };
        (base, storage)
    };
    let (operations, states) = at_every_operation(prepare, OTHER, true, |base, returned, case| {
        let found = whole_or_none(&target(base), case);
        let is = |files: &Files| found.as_ref() == Some(files);
        // Between the two renames of a file system without an exchange there is none; the next writer repairs it.
        assert!(is(&new) || (!returned && (is(&old) || (found.is_none() && !exchanges))), "{case}");
        write_again(base, OTHER, &new, case);
    });
    println!("{operations} operations, {states} states");
}

#[test]
fn a_rebuild() {
    every_loss_of_a_rebuild(true);
}

#[test]
fn a_rebuild_where_folders_cannot_be_exchanged() {
    every_loss_of_a_rebuild(false);
}

/// What a resumed write relies on is durable: shards that were closed are not written twice.
#[test]
fn closed_shards_outlast_the_power() {
    let (base, storage) = fresh();
    storage.stop_at(None);
    write(base.path(), &storage, FIRST, false).unwrap();
    let operations = storage.operations();
    let index = operations.iter().position(|o| o.starts_with("create ") && o.ends_with("index.bin")).unwrap();
    let whole = expected(FIRST);
    for content in Content::ALL {
        let (base, storage) = fresh();
        storage.stop_at(Some(index));
        write(base.path(), &storage, FIRST, false).unwrap_err();
        let after = folder();
        lay_out(&storage.after_loss(&mut |_| false, &mut || content), after.path());
        assert_eq!(write_again(after.path(), FIRST, &whole, "all shards closed"), SAMPLES, "{content:?}");
        drop(base);
    }
}

/// After a failed sync the kernel forgets what was not written: nothing of that file may be relied on.
#[test]
fn a_failed_sync_that_loses_what_it_should_have_kept() {
    let whole = expected(FIRST);
    let (base, storage) = fresh();
    storage.stop_at(None);
    write(base.path(), &storage, FIRST, false).unwrap();
    let operations = storage.operations();
    let syncs = (0..operations.len()).filter(|at| operations[*at].starts_with("sync "));
    let mut tried = 0;
    for at in syncs {
        let case = format!("operation {at} ({}) failed", operations[at]);
        let (base, storage) = fresh();
        storage.fail_sync_at(at);
        assert!(write(base.path(), &storage, FIRST, false).is_err(), "{case}");
        assert!(whole_or_none(&target(base.path()), &case).is_none(), "{case}");
        write_again(base.path(), FIRST, &whole, &case);
        tried += 1;
    }
    assert!(tried > 8, "{tried}");
}

/// Splitmix64: the same cases in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// One history: writers that are killed, losses of power, a cache that is damaged or taken away, in any order.
struct History {
    random: Random,
    base: tempfile::TempDir,
    storage: PowerStorage,
    exchanges: bool,
    log: Vec<String>,
    /// What may be at the target; `None` is no cache.
    allowed: Vec<Option<Files>>,
    /// A damaged cache, which a rebuild replaces.
    damaged: Option<Files>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let exchanges = random.chance(70);
        let (base, storage) = fresh();
        let storage = if exchanges { storage } else { storage.without_exchange() };
        History {
            random,
            base,
            storage,
            exchanges,
            log: vec![format!("seed {seed}")],
            allowed: vec![None],
            damaged: None,
        }
    }

    fn run(&mut self, variants: &[(Variant, Files)]) {
        for _ in 0..2 + self.random.below(4) {
            match self.random.below(8) {
                0 => self.damage(),
                1 => self.take_away(),
                _ => self.write(variants),
            }
            if self.random.chance(50) {
                self.lose_power();
            }
            self.check();
        }
        let (variant, whole) = &variants[self.random.below(variants.len())];
        self.log.push(format!("at last {variant:?}"));
        let case = self.log.join("; ");
        let base = self.base.path();
        write_as_well(base, *variant, whole, &case);
        if Local.list(&root(base)).unwrap() != ["c"] {
            assert!(
                root(base).join(".c.journal/identity.json").exists(),
                "{case}: nothing to resume was kept"
            );
            clean(&root(base), false).unwrap();
            assert_eq!(Local.list(&root(base)).unwrap(), ["c"], "{case}: after cleaning");
        }
    }

    fn write(&mut self, variants: &[(Variant, Files)]) {
        let (variant, whole) = &variants[self.random.below(variants.len())];
        let stop = self.random.chance(80).then(|| self.random.below(150));
        self.storage.stop_at(stop);
        let replace = target(self.base.path()).exists() || self.random.chance(30);
        let result = write(self.base.path(), &self.storage, *variant, replace);
        self.log.push(format!(
            "{variant:?} replace {replace} until {stop:?}: {:?}",
            result.as_ref().map_err(|e| e.message())
        ));
        if result.is_ok() {
            self.allowed = vec![Some(whole.clone())];
            self.damaged = None;
        } else {
            self.allowed.push(Some(whole.clone()));
            if !self.exchanges {
                self.allowed.push(None);
            }
        }
    }

    fn lose_power(&mut self) {
        let percent = [0, 20, 50, 80, 100][self.random.below(5)];
        let mut other = Random(self.random.next());
        let tree = self.storage.after_loss(&mut |_| self.random.chance(percent), &mut || {
            Content::ALL[other.below(Content::ALL.len())]
        });
        self.log.push(format!("power lost, {percent} % kept"));
        self.start_over(&tree);
    }

    fn start_over(&mut self, tree: &Tree) {
        self.base = folder();
        lay_out(tree, self.base.path());
        let storage = PowerStorage::new(self.base.path());
        self.storage = if self.exchanges { storage } else { storage.without_exchange() };
    }

    /// Flips a bit of a payload, durably.
    fn damage(&mut self) {
        let path = target(self.base.path()).join("shards/000000.bin");
        let Ok(mut bytes) = std::fs::read(&path) else { return };
        self.log.push("damaged".into());
        bytes[100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let tree = PowerStorage::new(self.base.path()).after_loss(&mut |_| true, &mut || Content::Kept);
        self.start_over(&without_locks(tree));
        self.damaged = Some(files(&target(self.base.path())));
        self.allowed = vec![self.damaged.clone()];
    }

    /// Removes the cache, durably, as a user does; the old one too, which would come back.
    fn take_away(&mut self) {
        self.log.push("taken away".into());
        for name in ["c", ".c.replaced"] {
            let cache = root(self.base.path()).join(name);
            if cache.exists() {
                std::fs::remove_dir_all(cache).unwrap();
            }
        }
        let tree = PowerStorage::new(self.base.path()).after_loss(&mut |_| true, &mut || Content::Kept);
        self.start_over(&without_locks(tree));
        self.allowed = vec![None];
        self.damaged = None;
    }

    fn check(&mut self) {
        let case = self.log.join("; ");
        let path = target(self.base.path());
        let now = files(&path);
        if self.damaged.as_ref() == Some(&now) {
            return;
        }
        let found = whole_or_none(&path, &case);
        assert!(self.allowed.contains(&found), "{case}: {}", found.map_or("nothing", |_| "another cache"));
        if found.is_some() {
            self.damaged = None;
        }
    }
}

fn without_locks(mut tree: Tree) -> Tree {
    tree.retain(|path, _| path.extension().is_none_or(|e| e != "lock"));
    tree
}

#[test]
fn any_history() {
    // More of them: DATASETRT_HISTORIES=100000 cargo test --test power_loss.
    let histories = std::env::var("DATASETRT_HISTORIES").map_or(400, |n| n.parse::<u64>().unwrap());
    let variants = [FIRST, OTHER, NARROW].map(|variant| (variant, expected(variant)));
    for seed in 0..histories {
        History::new(seed).run(&variants);
    }
}
