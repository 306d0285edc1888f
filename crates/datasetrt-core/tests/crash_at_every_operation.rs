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
        by_item: false,
        replace,
    }
}

/// The same with a dictionary, which a resumed write has to go on with.
fn learning(root: &Path) -> WriteOptions {
    let compression = Compression::ZstdDictionary { level: 3 };
    WriteOptions { compression, max_shard_bytes: 400, ..options(root, Some("v1"), false) }
}

fn payload(options: &WriteOptions, sample: u64) -> Vec<u8> {
    let seed = options.fingerprint.as_ref().map_or(0, String::len) as u64;
    match options.compression {
        Compression::None => vec![(sample + seed) as u8; 150],
        _ => format!(
            "{{'label': {sample}, 'name': 'sample {sample}', 'split': 'train', 'score': {}}}",
            sample * 7
        )
        .into(),
    }
}

/// Writes the cache; every sample is a chunk of its own, so that the faults hit many states.
fn write(options: WriteOptions, storage: Arc<dyn Storage>) -> datasetrt_core::Result<()> {
    let mut writer = Writer::begin(options.clone(), storage)?;
    for sample in writer.resumed().samples..SAMPLES {
        writer.push(&payload(&options, sample), &[("id", Value::Int(sample as i64))], sample)?;
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

fn every_fault_of_a_first_write(options: impl Fn(&Path) -> WriteOptions) {
    let clean = tempfile::tempdir().unwrap();
    let operations = operations_of(|storage| write(options(clean.path()), storage));
    assert!(operations > 50, "{operations}");
    let expected = files(&clean.path().join("c"));
    for fault in FAULTS {
        for at in 0..operations {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("c");
            let result = write(options(root.path()), Arc::new(FaultStorage::new(fault, at)));
            let found = whole_or_none(&folder);
            if result.is_ok() {
                assert!(found.is_some(), "{fault:?} at {at}: finished, and nothing is there");
            }
            match found {
                Some(found) => assert_eq!(found, expected, "{fault:?} at {at}"),
                None => write(options(root.path()), undisturbed()).unwrap(),
            }
            assert_eq!(files(&folder), expected, "{fault:?} at {at}: after the next write");
        }
    }
}

#[test]
fn a_write_that_can_be_resumed() {
    every_fault_of_a_first_write(|root| options(root, Some("v1"), false));
}

#[test]
fn a_write_that_begins_anew() {
    every_fault_of_a_first_write(|root| options(root, None, false));
}

#[test]
fn a_write_that_learns_a_dictionary_and_can_be_resumed() {
    let root = tempfile::tempdir().unwrap();
    write(learning(root.path()), undisturbed()).unwrap();
    let folder = root.path().join("c");
    assert!(Local.list(&folder.join("shards")).unwrap().len() > 2);
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    assert!(manifest.contains("\"dictionary\": \"N6Qw7"), "it begins with the magic number: {manifest}");
    every_fault_of_a_first_write(learning);
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
