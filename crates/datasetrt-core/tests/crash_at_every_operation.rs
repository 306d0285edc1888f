//! Stops, fails or tears a write at each of its storage operations. Afterwards there is no cache or a
//! whole one, what was there before still opens, and the next write gives the bytes of an undisturbed one.
#![expect(clippy::unwrap_used, reason = "a test: a failure is its message")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datasetrt_core::ErrorKind;
use datasetrt_core::format::compression::Compression;
use datasetrt_core::metadata::Value;
use datasetrt_core::read::{Cache, Progress, ReadOptions};
use datasetrt_core::store::Storage;
use datasetrt_core::store::fault::{Fault, FaultStorage};
use datasetrt_core::store::local::Local;
use datasetrt_core::write::{WriteOptions, Writer};

const SAMPLES: u64 = 30;

fn options(root: &Path, fingerprint: Option<&str>, replace: bool) -> WriteOptions {
    WriteOptions {
        root: root.to_owned(),
        name: "c".into(),
        fingerprint: fingerprint.map(str::to_owned),
        codec: None,
        schema: None,
        compression: Compression::None,
        max_shard_bytes: 2000,
        threads: Some(1),
        queue_bytes: 1,
        replace,
    }
}

/// Writes the cache; every sample is a chunk of its own, so that the faults hit many states.
fn write(options: WriteOptions, storage: Arc<dyn Storage>) -> datasetrt_core::Result<()> {
    let seed = options.fingerprint.as_ref().map_or(0, String::len) as u64;
    let mut writer = Writer::begin(options, storage)?;
    for sample in writer.resumed().samples..SAMPLES {
        writer.push(&[(sample + seed) as u8; 150], &[("id", Value::Int(sample as i64))], sample)?;
        writer.flush()?;
    }
    writer.finish().map(drop)
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for sub in ["", "shards"] {
        for name in Local.list(&folder.join(sub)).unwrap() {
            let path = folder.join(sub).join(&name);
            if path.is_file() {
                found.insert(format!("{sub}/{name}"), std::fs::read(path).unwrap());
            }
        }
    }
    found
}

struct Silent;

impl Progress for Silent {
    fn advance(&mut self, _bytes: u64) -> datasetrt_core::Result<()> {
        Ok(())
    }
}

/// The files of a cache that is whole, or nothing if there is none.
fn whole_or_none(folder: &Path) -> Option<BTreeMap<String, Vec<u8>>> {
    match Cache::open(folder, ReadOptions::default()) {
        Ok(cache) => {
            assert_eq!(cache.verify(&mut Silent).unwrap(), []);
            Some(files(folder))
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            None
        }
    }
}

fn undisturbed() -> Arc<dyn Storage> {
    Arc::new(FaultStorage::new(Fault::None, 0))
}

fn operations_of(run: impl Fn(Arc<dyn Storage>) -> datasetrt_core::Result<()>) -> u64 {
    let counting = FaultStorage::new(Fault::None, 0);
    run(Arc::new(counting.clone())).unwrap();
    counting.operations()
}

/// A failed operation may be any, a sync among them.
const FAULTS: [Fault; 5] = [
    Fault::Stop,
    Fault::Tear,
    Fault::Fail(ErrorKind::Io),
    Fault::Fail(ErrorKind::NoSpace),
    Fault::Short(ErrorKind::NoSpace),
];

fn every_fault_of_a_first_write(fingerprint: Option<&str>) {
    let clean = tempfile::tempdir().unwrap();
    let operations = operations_of(|storage| write(options(clean.path(), fingerprint, false), storage));
    assert!(operations > 50, "{operations}");
    let expected = files(&clean.path().join("c"));
    for fault in FAULTS {
        for at in 0..operations {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("c");
            let result =
                write(options(root.path(), fingerprint, false), Arc::new(FaultStorage::new(fault, at)));
            let found = whole_or_none(&folder);
            if result.is_ok() {
                assert!(found.is_some(), "{fault:?} at {at}: finished, and nothing is there");
            }
            match found {
                Some(found) => assert_eq!(found, expected, "{fault:?} at {at}"),
                None => write(options(root.path(), fingerprint, false), undisturbed()).unwrap(),
            }
            assert_eq!(files(&folder), expected, "{fault:?} at {at}: after the next write");
        }
    }
}

#[test]
fn a_write_that_can_be_resumed() {
    every_fault_of_a_first_write(Some("v1"));
}

#[test]
fn a_write_that_begins_anew() {
    every_fault_of_a_first_write(None);
}

#[test]
fn a_rebuild_keeps_the_old_cache_or_has_the_new_one() {
    let prepare = || {
        let root = tempfile::tempdir().unwrap();
        write(options(root.path(), Some("v1"), false), undisturbed()).unwrap();
        root
    };
    let clean = prepare();
    let old = files(&clean.path().join("c"));
    let operations = operations_of(|storage| write(options(clean.path(), Some("another"), true), storage));
    let new = files(&clean.path().join("c"));
    assert_ne!(old, new);
    for fault in FAULTS {
        for at in 0..operations {
            let root = prepare();
            let folder = root.path().join("c");
            let storage = Arc::new(FaultStorage::new(fault, at));
            let result = write(options(root.path(), Some("another"), true), storage);
            let found = whole_or_none(&folder);
            // Between the two renames of a file system without an exchange there is no cache; the next writer repairs it.
            if let Some(found) = found {
                assert!(found == new || (found == old && result.is_err()), "{fault:?} at {at}");
            } else {
                assert!(result.is_err(), "{fault:?} at {at}");
            }
            write(options(root.path(), Some("another"), true), undisturbed()).unwrap();
            assert_eq!(files(&folder), new, "{fault:?} at {at}: after the next write");
            assert_eq!(Local.list(root.path()).unwrap(), ["c"], "{fault:?} at {at}");
        }
    }
}
