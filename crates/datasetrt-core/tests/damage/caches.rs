//! Small caches of every kind: the golden ones, and compressed ones of many shards. Their files in memory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datasetrt_core::format::compression::Compression;
use datasetrt_core::format::index::{HEADER_BYTES as INDEX_HEADER, ROW_BYTES, decode_rows};
use datasetrt_core::format::manifest::Manifest;
use datasetrt_core::format::shard::{HEADER_BYTES, TRAILER_BYTES};
use datasetrt_core::metadata::Value;
use datasetrt_core::store::local::Local;
use datasetrt_core::write::{WriteOptions, Writer};
use tempfile::TempDir;

use crate::reading::Whole;

/// A sound cache: its files, and what it delivers.
pub(crate) struct Sound {
    pub(crate) name: String,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) manifest: Manifest,
    pub(crate) rows: Vec<u64>,
    pub(crate) whole: Whole,
}

/// What the bytes at some place of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Manifest,
    Index,
    Metadata,
    Header { shard: u64 },
    Record { shard: u64, sample: u64, start: u64 },
    Trailer { shard: u64, start: u64 },
}

impl Sound {
    fn load(name: &str, folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        for sub in ["", "shards"] {
            for entry in fs::read_dir(folder.join(sub)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    let inside = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                    files.insert(inside, fs::read(&path).unwrap());
                }
            }
        }
        let (manifest, _) = Manifest::decode(&files["manifest.json"]).unwrap();
        let rows = decode_rows(&files["index.bin"][INDEX_HEADER..]);
        Sound { name: name.to_owned(), files, manifest, rows, whole: Whole::of(folder) }
    }

    /// The part of a file that a byte belongs to.
    pub(crate) fn part(&self, file: &str, at: u64) -> Part {
        match file {
            "manifest.json" => return Part::Manifest,
            "index.bin" => return Part::Index,
            "metadata.arrow" => return Part::Metadata,
            _ => {}
        }
        let shard = shard_of(file);
        if at < HEADER_BYTES as u64 {
            return Part::Header { shard };
        }
        let trailer = (self.files[file].len() - TRAILER_BYTES) as u64;
        if at >= trailer {
            return Part::Trailer { shard, start: trailer };
        }
        let (sample, start, _) = self.records(shard).find(|(_, _, end)| at < *end).unwrap();
        Part::Record { shard, sample, start }
    }

    /// The samples of a shard: the first and one past the last.
    pub(crate) fn samples(&self, shard: u64) -> std::ops::Range<u64> {
        let count = |shards: u64| self.manifest.shards.iter().take(shards as usize).map(|s| s.samples).sum();
        count(shard)..count(shard + 1)
    }

    /// Sample, start and end of each record of a shard.
    pub(crate) fn records(&self, shard: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let mut start = HEADER_BYTES as u64;
        self.samples(shard).map(move |sample| {
            let end = self.rows[sample as usize];
            (sample, std::mem::replace(&mut start, end), end)
        })
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }
}

/// The ordinal in the name of a shard's file.
pub(crate) fn shard_of(file: &str) -> u64 {
    file.trim_start_matches("shards/").trim_end_matches(".bin").parse().unwrap()
}

/// Index bytes with two rows swapped.
pub(crate) fn swap_rows(index: &[u8], first: usize, second: usize) -> Vec<u8> {
    let mut index = index.to_vec();
    for byte in 0..ROW_BYTES {
        index.swap(INDEX_HEADER + first * ROW_BYTES + byte, INDEX_HEADER + second * ROW_BYTES + byte);
    }
    index
}

/// The cache on disk, in a folder of its own, to be damaged and mended.
pub(crate) struct Copy<'a> {
    pub(crate) sound: &'a Sound,
    pub(crate) root: TempDir,
    pub(crate) folder: PathBuf,
}

impl<'a> Copy<'a> {
    pub(crate) fn new(sound: &'a Sound) -> Self {
        let root = scratch();
        let folder = root.path().join(&sound.name);
        let copy = Copy { sound, root, folder };
        copy.mend();
        copy
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    pub(crate) fn write(&self, file: &str, bytes: &[u8]) {
        fs::write(self.path(file), bytes).unwrap();
    }

    /// Changes one byte in place.
    pub(crate) fn set(&self, file: &str, at: u64, byte: u8) {
        let open = fs::OpenOptions::new().write(true).open(self.path(file)).unwrap();
        open.write_all_at(&[byte], at).unwrap();
    }

    /// The whole cache as it was.
    pub(crate) fn mend(&self) {
        remove(&self.folder);
        fs::create_dir_all(self.folder.join("shards")).unwrap();
        self.sound.files.iter().for_each(|(file, bytes)| self.write(file, bytes));
    }

    /// One file as it was, whatever has its name now.
    pub(crate) fn mend_file(&self, file: &str) {
        remove(&self.path(file));
        self.write(file, &self.sound.files[file]);
    }
}

pub(crate) fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::NotFound),
    }
}

/// In memory where there is such a file system: the sweeps write a million files.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Every kind of cache.
pub(crate) fn caches() -> Vec<Sound> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/caches/format-1");
    let folders = fs::read_dir(&golden).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = folders.filter(|path| path.join("manifest.json").is_file()).collect();
    folders.sort();
    let mut caches: Vec<_> =
        folders.iter().map(|f| Sound::load(f.file_name().unwrap().to_str().unwrap(), f)).collect();
    assert!(caches.len() >= 9, "{} golden caches", caches.len());
    let root = scratch();
    for compression in
        [Compression::Lz4, Compression::Zstd { level: 1 }, Compression::ZstdDictionary { level: 1 }]
    {
        let name = format!("{}-many-shards", compression.method());
        write(root.path(), &name, compression);
        caches.push(Sound::load(&name, &root.path().join(&name)));
    }
    caches
}

/// Records that shrink, records that do not, empty ones, and one larger than a shard.
fn write(root: &Path, name: &str, compression: Compression) {
    let options = WriteOptions {
        root: root.to_owned(),
        name: name.to_owned(),
        fingerprint: None,
        codec: None,
        schema: None,
        compression,
        max_shard_bytes: 400,
        threads: Some(1),
        queue_bytes: 1 << 20,
        by_item: false,
        replace: false,
    };
    let mut writer = Writer::begin(options, Arc::new(Local)).unwrap();
    for sample in 0..14u64 {
        let noise = (0..600u64).map(|i| (i * i * 2_654_435_761 + sample * 40_503).to_le_bytes()[2]);
        let payload: Vec<u8> = match sample % 4 {
            0 => vec![sample as u8; 150],
            1 => noise.take(60).collect(),
            2 => Vec::new(),
            _ if sample == 7 => noise.collect(),
            _ => noise.take(20).chain([0; 80]).collect(),
        };
        let text = if sample % 3 == 0 { Value::Null } else { Value::Str("é") };
        writer.push(&payload, &[("id", Value::Int(sample as i64)), ("text", text)], sample).unwrap();
    }
    writer.finish().unwrap();
}
