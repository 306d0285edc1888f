//! Links and other people's files at the names that a writer uses: nothing but what it made is touched.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use super::tests::{files, fill, names_in, options, write};
use super::*;
use crate::store::fault::{Fault, FaultStorage};
use crate::store::local::Local;

/// Folders with a cache's files, which no write may change.
struct Precious {
    folder: tempfile::TempDir,
    before: std::collections::BTreeMap<String, Vec<u8>>,
}

impl Precious {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(options(folder.path(), "real"), 300);
        let before = files(folder.path());
        assert!(before.len() > 5);
        Precious { folder, before }
    }

    fn cache(&self) -> std::path::PathBuf {
        self.folder.path().join("real")
    }

    fn assert_whole(&self, case: &str) {
        assert_eq!(files(self.folder.path()), self.before, "{case}");
    }
}

fn rebuild(root: &Path, name: &str) -> WriteOptions {
    WriteOptions { fingerprint: Some("v2".into()), replace: true, ..options(root, name) }
}

/// Some durable shards of an unfinished write.
fn interrupt(root: &Path, samples: u64) {
    interrupt_with(options(root, "x"), samples);
}

fn interrupt_with(options: WriteOptions, samples: u64) {
    let mut writer = Writer::begin(WriteOptions { queue_bytes: 1, ..options }, Arc::new(Local)).unwrap();
    fill(&mut writer, 0..samples);
    writer.flush().unwrap();
    writer.abort();
}

#[test]
fn a_rebuild_takes_the_place_of_a_link_and_leaves_its_target() {
    let (precious, root) = (Precious::new(), tempfile::tempdir().unwrap());
    symlink(precious.cache(), root.path().join("x")).unwrap();
    write(rebuild(root.path(), "x"), 20);
    precious.assert_whole("the cache itself");
    assert_eq!(names_in(root.path()), ["x"]);
    assert!(!root.path().join("x").is_symlink() && root.path().join("x/manifest.json").exists());

    fs::remove_dir_all(root.path().join("x/shards")).unwrap();
    symlink(precious.cache().join("shards"), root.path().join("x/shards")).unwrap();
    write(rebuild(root.path(), "x"), 30);
    precious.assert_whole("its folder of shards");
    assert_eq!(names_in(root.path()), ["x"]);
    assert!(!root.path().join("x/shards").is_symlink());
}

#[test]
fn a_rebuild_of_a_link_that_stops_anywhere_leaves_its_target() {
    let run = |root: &Path, storage: Arc<dyn Storage>| -> Result<()> {
        let mut writer = Writer::begin(rebuild(root, "x"), storage)?;
        let from = writer.resumed().samples;
        fill(&mut writer, from..40);
        writer.finish().map(drop)
    };
    let (precious, whole) = (Precious::new(), tempfile::tempdir().unwrap());
    let prepare = |root: &Path| symlink(precious.cache(), root.join("x")).unwrap();
    prepare(whole.path());
    let counting = FaultStorage::new(Fault::None, 0);
    run(whole.path(), Arc::new(counting.clone())).unwrap();
    let mut between = 0;
    for at in 0..counting.operations() {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        let _ = run(root.path(), Arc::new(FaultStorage::new(Fault::Stop, at)));
        // Always a cache: the one that the link leads to, or the new one.
        assert!(root.path().join("x/manifest.json").exists(), "stopped at {at}");
        // Where folders cannot be exchanged, a writer may also die between its two renames.
        if at % 2 == 0 && root.path().join("x").is_symlink() && is_staged(root.path()) {
            fs::rename(root.path().join("x"), root.path().join(".x.replaced")).unwrap();
            between += 1;
        }
        run(root.path(), Arc::new(Local)).unwrap();
        assert_eq!(names_in(root.path()), ["x"], "stopped at {at}");
        assert_eq!(files(root.path()), files(whole.path()), "stopped at {at}");
        precious.assert_whole(&format!("stopped at {at}"));
    }
    assert!(between > 0);
}

/// Whether the new cache is complete, and not yet at its place.
fn is_staged(root: &Path) -> bool {
    fs::read_to_string(root.join(".x.partial/manifest.json")).is_ok_and(|text| text.ends_with("}\n"))
}

#[test]
fn a_link_at_a_hidden_name_is_refused_and_not_followed() {
    for part in [".x.partial", ".x.journal", ".x.replaced", ".x.lock"] {
        for published in [false, true] {
            let (precious, root) = (Precious::new(), tempfile::tempdir().unwrap());
            if published {
                write(options(root.path(), "x"), 10);
            }
            symlink(precious.cache(), root.path().join(part)).unwrap();
            let error = Writer::begin(rebuild(root.path(), "x"), Arc::new(Local)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::NameOccupied, "{part}: {error}");
            assert!(error.message().contains(part) && error.message().contains("link"), "{error}");
            assert!(root.path().join(part).is_symlink(), "{part}");
            precious.assert_whole(part);
        }
    }
}

#[test]
fn links_in_an_unfinished_write_are_refused_and_not_followed() {
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 4] = [
        (".x.partial", |root, cache| {
            fs::rename(root.join(".x.partial"), root.join("moved")).unwrap();
            symlink(cache, root.join(".x.partial")).unwrap();
        }),
        (".x.partial/shards", |root, cache| {
            fs::remove_dir_all(root.join(".x.partial/shards")).unwrap();
            symlink(cache.join("shards"), root.join(".x.partial/shards")).unwrap();
        }),
        ("000000.bin", |root, cache| {
            let shard = root.join(".x.partial/shards/000000.bin");
            fs::remove_file(&shard).unwrap();
            symlink(cache.join("shards/000000.bin"), shard).unwrap();
        }),
        ("identity.json", |root, cache| {
            fs::remove_file(root.join(".x.journal/identity.json")).unwrap();
            symlink(cache.join("manifest.json"), root.join(".x.journal/identity.json")).unwrap();
        }),
    ];
    for (name, plant) in plants {
        let (precious, root) = (Precious::new(), tempfile::tempdir().unwrap());
        interrupt(root.path(), 3000);
        plant(root.path(), &precious.cache());
        let before = files(root.path());
        let error = Writer::begin(options(root.path(), "x"), Arc::new(Local)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NameOccupied, "{name}: {error}");
        assert!(error.message().contains(name), "{error}");
        assert_eq!(files(root.path()), before, "{name}");
        precious.assert_whole(name);
    }
}

#[test]
fn a_refused_write_keeps_what_a_rebuild_is_resumed_from() {
    let root = tempfile::tempdir().unwrap();
    write(options(root.path(), "x"), 300);
    interrupt_with(rebuild(root.path(), "x"), 3000);
    let before = files(root.path());
    let error = Writer::begin(options(root.path(), "x"), Arc::new(Local)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(files(root.path()), before);
    let writer = Writer::begin(rebuild(root.path(), "x"), Arc::new(Local)).unwrap();
    assert!(writer.resumed().samples > 0);
}

#[test]
fn a_link_beside_an_interrupted_rebuild_is_refused_and_stays() {
    for part in [".x.partial", ".x.replaced"] {
        let (precious, root) = (Precious::new(), tempfile::tempdir().unwrap());
        write(options(root.path(), "x"), 300);
        interrupt_with(rebuild(root.path(), "x"), 3000);
        if root.path().join(part).exists() {
            fs::rename(root.path().join(part), root.path().join("moved")).unwrap();
        }
        symlink(precious.cache(), root.path().join(part)).unwrap();
        let before = files(root.path());
        for options in [options(root.path(), "x"), rebuild(root.path(), "x")] {
            let error = Writer::begin(options, Arc::new(Local)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::NameOccupied, "{part}: {error}");
            assert!(error.message().contains(part), "{error}");
            assert_eq!(files(root.path()), before, "{part}");
        }
        precious.assert_whole(part);
    }
}

#[test]
fn an_interrupted_beginning_keeps_what_is_there_to_be_resumed() {
    let root = tempfile::tempdir().unwrap();
    interrupt(root.path(), 3000);
    let before = files(root.path());
    let mut asked = 0;
    let mut interrupted = || {
        asked += 1;
        asked == 3
    };
    let begun = Writer::begin_unless(options(root.path(), "x"), Arc::new(Local), &mut interrupted);
    assert_eq!(begun.err().map(|e| e.kind()), Some(ErrorKind::Closed));
    assert_eq!(asked, 3);
    assert_eq!(files(root.path()), before);
}

#[test]
fn a_damaged_shard_is_written_again() {
    let whole = tempfile::tempdir().unwrap();
    write(options(whole.path(), "x"), 3000);
    for at in [0, 70, 2000] {
        let root = tempfile::tempdir().unwrap();
        interrupt(root.path(), 3000);
        let begin = || Writer::begin(options(root.path(), "x"), Arc::new(Local)).unwrap();
        let undamaged = begin();
        let before = undamaged.resumed().samples;
        undamaged.abort();
        let shard = root.path().join(".x.partial/shards/000001.bin");
        let mut bytes = fs::read(&shard).unwrap();
        bytes[at] ^= 1;
        fs::write(&shard, bytes).unwrap();
        let mut writer = begin();
        let resumed = writer.resumed().samples;
        assert!(0 < resumed && resumed < before, "byte {at}: {resumed} of {before}");
        fill(&mut writer, resumed..3000);
        writer.finish().unwrap();
        assert_eq!(files(root.path()), files(whole.path()), "byte {at}");
    }
}

#[test]
fn what_others_put_at_a_hidden_name_stays() {
    let plants = [
        (".x.partial/manifest.json", "mine"),
        (".x.partial/shards/000000.bin", "mine"),
        (".x.partial/index.bin", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0mine"),
        (".x.partial/notes.txt", "mine"),
        (".x.partial", "mine"),
        (".x.journal/identity.json", "mine"),
        (".x.journal/000000.segment", "mine"),
        (".x.journal", "mine"),
        (".x.replaced/manifest.json", "mine"),
        (".x.replaced/thesis.tex", "mine"),
        (".x.lock", "mine"),
    ];
    for (name, text) in plants {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let before = files(root.path());
        let error = Writer::begin(options(root.path(), "x"), Arc::new(Local)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NameOccupied, "{name}: {error}");
        assert!(error.message().contains("move it away"), "{error}");
        assert_eq!(files(root.path()), before, "{name}");
        assert!(!root.path().join("x").exists(), "{name}");
    }
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(".x.replaced")).unwrap();
    let error = Writer::begin(options(root.path(), "x"), Arc::new(Local)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NameOccupied, "{error}");
    assert_eq!(names_in(root.path()), [".x.replaced"]);
}

#[test]
fn a_file_or_a_link_to_one_occupies_the_name() {
    for replace in [false, true] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("x"), "mine").unwrap();
        symlink("x", root.path().join("y")).unwrap();
        symlink("nowhere", root.path().join("z")).unwrap();
        for name in ["x", "y", "z"] {
            let wanted = WriteOptions { replace, ..options(root.path(), name) };
            let error = Writer::begin(wanted, Arc::new(Local)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::NameOccupied, "{name}: {error}");
        }
        assert_eq!(names_in(root.path()), ["x", "y", "z"]);
        assert_eq!(fs::read(root.path().join("x")).unwrap(), b"mine");
    }
}

#[test]
fn what_takes_the_name_during_a_rebuild_stays() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = Writer::begin(rebuild(root.path(), "x"), Arc::new(Local)).unwrap();
    fill(&mut writer, 0..20);
    fs::create_dir(root.path().join("x")).unwrap();
    fs::write(root.path().join("x/index.bin"), "mine").unwrap();
    fs::write(root.path().join("x/notes.txt"), "mine").unwrap();
    let error = writer.finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameOccupied, "{error}");
    assert_eq!(files(&root.path().join("x")).len(), 2);
    let mut writer = Writer::begin(rebuild(root.path(), "y"), Arc::new(Local)).unwrap();
    fill(&mut writer, 0..20);
    fs::write(root.path().join("y"), "mine").unwrap();
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::NameOccupied);
    assert_eq!(fs::read(root.path().join("y")).unwrap(), b"mine");
}

#[test]
fn a_shard_that_goes_away_or_is_cut_during_the_write_is_not_published() {
    type Harm = fn(&Path);
    let harms: [Harm; 3] = [
        |shard| fs::remove_file(shard).unwrap(),
        |shard| fs::File::options().write(true).open(shard).unwrap().set_len(100).unwrap(),
        |shard| {
            fs::remove_file(shard).unwrap();
            fs::create_dir(shard).unwrap();
        },
    ];
    for (number, harm) in harms.into_iter().enumerate() {
        let root = tempfile::tempdir().unwrap();
        let mut writer =
            Writer::begin(WriteOptions { queue_bytes: 1, ..options(root.path(), "x") }, Arc::new(Local))
                .unwrap();
        fill(&mut writer, 0..3000);
        writer.flush().unwrap();
        harm(&root.path().join(".x.partial/shards/000001.bin"));
        let error = writer.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{number}: {error}");
        assert!(error.message().contains("000001.bin"), "{error}");
        assert!(!root.path().join("x").exists(), "{number}");
    }
}

#[test]
fn a_cache_is_no_root() {
    let root = tempfile::tempdir().unwrap();
    write(options(root.path(), "x"), 10);
    let before = files(root.path());
    let error = Writer::begin(options(&root.path().join("x"), "y"), Arc::new(Local)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NameOccupied, "{error}");
    assert_eq!(files(root.path()), before);
}

#[test]
fn other_columns_after_an_interrupted_write_are_explained() {
    let root = tempfile::tempdir().unwrap();
    interrupt(root.path(), 3000);
    let mut writer = Writer::begin(options(root.path(), "x"), Arc::new(Local)).unwrap();
    let error = writer.push(b"p", &[("other", Value::Int(1))], 0).unwrap_err();
    assert!(
        error.message().contains("interrupted write") && error.message().contains("fingerprint"),
        "{error}"
    );
    let mut fresh = Writer::begin(options(root.path(), "z"), Arc::new(Local)).unwrap();
    fresh.push(b"p", &[("id", Value::Int(1))], 0).unwrap();
    let error = fresh.push(b"p", &[("other", Value::Int(1))], 0).unwrap_err();
    assert!(!error.message().contains("interrupted"), "{error}");
}
