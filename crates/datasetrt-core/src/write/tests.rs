use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::format::compression::Compression;
use crate::store::local::Local;

pub(super) fn options(root: &Path, name: &str) -> WriteOptions {
    WriteOptions {
        root: root.to_owned(),
        name: name.into(),
        fingerprint: Some("v1".into()),
        codec: None,
        schema: None,
        compression: Compression::None,
        max_shard_bytes: 4096,
        threads: Some(2),
        queue_bytes: 1 << 20,
        by_item: false,
        replace: false,
    }
}

fn payload(sample: u64) -> Vec<u8> {
    vec![sample as u8; (sample % 97) as usize * 3]
}

pub(super) fn fill(writer: &mut Writer, samples: std::ops::Range<u64>) {
    for sample in samples {
        let text = format!("s{sample}");
        let note = if sample % 3 == 0 { Value::Null } else { Value::Str(&text) };
        if writer
            .push(&payload(sample), &[("id", Value::Int(sample as i64)), ("note", note)], sample)
            .unwrap()
        {
            writer.flush().unwrap();
        }
    }
}

pub(super) fn write(options: WriteOptions, samples: u64) -> Published {
    let mut writer = Writer::begin(options, Arc::new(Local)).unwrap();
    fill(&mut writer, 0..samples);
    writer.finish().unwrap()
}

pub(super) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            let bytes = match std::fs::read_link(&path) {
                Ok(target) => format!("link to {}", target.display()).into_bytes(),
                Err(_) => std::fs::read(&path).unwrap(),
            };
            found.insert(name, bytes);
        }
    }
    found
}

pub(super) fn names_in(folder: &Path) -> Vec<String> {
    Local.list(folder).unwrap()
}

#[test]
fn a_published_cache_leaves_nothing_beside_it() {
    let root = tempfile::tempdir().unwrap();
    let published = write(options(root.path(), "a"), 1000);
    assert_eq!(published.sample_count, 1000);
    assert_eq!(names_in(root.path()), ["a"]);
    assert!(names_in(&root.path().join("a/shards")).len() > 10);
}

#[test]
fn threads_and_compression_do_not_change_what_is_written_twice() {
    for compression in [
        Compression::None,
        Compression::Lz4,
        Compression::Zstd { level: 3 },
        Compression::ZstdDictionary { level: 3 },
    ] {
        let roots: Vec<_> = [1, 3]
            .map(|threads| {
                let root = tempfile::tempdir().unwrap();
                write(
                    WriteOptions { threads: Some(threads), compression, ..options(root.path(), "a") },
                    3000,
                );
                root
            })
            .into();
        assert_eq!(files(roots[0].path()), files(roots[1].path()), "{compression:?}");
    }
}

#[test]
fn an_interrupted_write_resumes_to_the_same_bytes() {
    let whole = tempfile::tempdir().unwrap();
    write(options(whole.path(), "a"), 6000);
    let root = tempfile::tempdir().unwrap();
    // A gate this narrow lets a chunk in only when the one before is written.
    let narrow = || WriteOptions { queue_bytes: 1, ..options(root.path(), "a") };
    for stop in [100, 4500, 5000] {
        let mut writer = Writer::begin(narrow(), Arc::new(Local)).unwrap();
        let from = writer.resumed().samples;
        fill(&mut writer, from..stop.max(from));
        writer.flush().unwrap();
        writer.abort();
    }
    let mut writer = Writer::begin(options(root.path(), "a"), Arc::new(Local)).unwrap();
    let resumed = writer.resumed();
    assert!(resumed.samples > 0 && resumed.cursor == Cursor { item: resumed.samples - 1, samples: 1 });
    fill(&mut writer, resumed.samples..6000);
    writer.finish().unwrap();
    assert_eq!(files(root.path()), files(whole.path()));
}

#[test]
fn a_resumed_write_goes_on_with_the_dictionary_that_the_first_learnt() {
    let of = |root: &Path| WriteOptions {
        compression: Compression::ZstdDictionary { level: 1 },
        max_shard_bytes: 20_000,
        queue_bytes: 1,
        ..options(root, "a")
    };
    // Enough to learn from is there after the first third.
    let push = |writer: &mut Writer, samples: std::ops::Range<u64>| {
        for sample in samples {
            let payload = format!("{{'sample': {sample}, 'label': {}}}", sample % 10).repeat(50);
            if writer.push(payload.as_bytes(), &[], sample).unwrap() {
                writer.flush().unwrap();
            }
        }
    };
    let whole = tempfile::tempdir().unwrap();
    let mut writer = Writer::begin(of(whole.path()), Arc::new(Local)).unwrap();
    push(&mut writer, 0..9000);
    writer.finish().unwrap();
    let root = tempfile::tempdir().unwrap();
    for (stop, resumed) in [(100, false), (1500, false), (6000, true)] {
        let mut writer = Writer::begin(of(root.path()), Arc::new(Local)).unwrap();
        let from = writer.resumed().samples;
        push(&mut writer, from..stop);
        writer.flush().unwrap();
        writer.abort();
        let writer = Writer::begin(of(root.path()), Arc::new(Local)).unwrap();
        assert_eq!(writer.resumed().samples > 0, resumed, "{stop}");
    }
    let mut writer = Writer::begin(of(root.path()), Arc::new(Local)).unwrap();
    let from = writer.resumed().samples;
    push(&mut writer, from..9000);
    writer.finish().unwrap();
    assert_eq!(files(root.path()), files(whole.path()));
}

#[test]
fn a_write_without_fingerprint_or_with_another_configuration_begins_anew() {
    let root = tempfile::tempdir().unwrap();
    let begin = |options| Writer::begin(options, Arc::new(Local)).unwrap();
    for first in [options(root.path(), "a"), WriteOptions { fingerprint: None, ..options(root.path(), "a") }]
    {
        let mut writer = begin(first);
        fill(&mut writer, 0..3000);
        writer.flush().unwrap();
        writer.abort();
        let writer = begin(WriteOptions { max_shard_bytes: 5000, ..options(root.path(), "a") });
        assert_eq!(writer.resumed(), Resumed::default());
        writer.abort();
        assert_eq!(names_in(root.path()), Vec::<String>::new());
    }
}

#[test]
fn taken_names_are_refused_and_nothing_is_lost() {
    let root = tempfile::tempdir().unwrap();
    write(options(root.path(), "a"), 10);
    let kind = |options| Writer::begin(options, Arc::new(Local)).err().map(|e| e.kind());
    assert_eq!(kind(options(root.path(), "a")), Some(ErrorKind::AlreadyExists));
    std::fs::create_dir(root.path().join("b")).unwrap();
    assert_eq!(kind(options(root.path(), "b")), Some(ErrorKind::NameOccupied));
    std::fs::write(root.path().join("a/notes.txt"), "mine").unwrap();
    let rebuild = WriteOptions { replace: true, ..options(root.path(), "a") };
    assert_eq!(kind(rebuild), Some(ErrorKind::NameOccupied));
    assert_eq!(names_in(root.path()), ["a", "b"]);
}

#[test]
fn a_second_writer_is_refused_while_the_first_is_at_work() {
    let root = tempfile::tempdir().unwrap();
    let first = Writer::begin(options(root.path(), "a"), Arc::new(Local)).unwrap();
    let second = Writer::begin(options(root.path(), "a"), Arc::new(Local)).err();
    assert_eq!(second.map(|e| e.kind()), Some(ErrorKind::BeingWritten));
    drop(first);
}

#[test]
fn a_rebuild_replaces_in_one_step() {
    let root = tempfile::tempdir().unwrap();
    write(options(root.path(), "a"), 10);
    let other = WriteOptions { fingerprint: Some("v2".into()), replace: true, ..options(root.path(), "a") };
    write(other, 20);
    assert_eq!(names_in(root.path()), ["a"]);
    let manifest = std::fs::read_to_string(root.path().join("a/manifest.json")).unwrap();
    assert!(manifest.contains("\"sample_count\": 20"), "{manifest}");
}

#[test]
fn no_samples_is_an_error_and_a_record_larger_than_a_shard_is_not() {
    let root = tempfile::tempdir().unwrap();
    let writer = Writer::begin(options(root.path(), "a"), Arc::new(Local)).unwrap();
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(names_in(root.path()), Vec::<String>::new());
    let mut writer = Writer::begin(options(root.path(), "a"), Arc::new(Local)).unwrap();
    for item in 0..3 {
        writer.push(&[7; 10_000], &[], item).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(names_in(&root.path().join("a/shards")).len(), 3);
}
