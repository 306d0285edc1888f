//! What the fuzz targets share: the golden caches in memory, files of a cache with checksums made
//! right again, and a reader of everything.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use datasetrt_core::Result;
use datasetrt_core::format::checksum::{FileHasher, Identity, record_checksum, xxh3_64};
use datasetrt_core::format::manifest::{FileEntry, Manifest, ShardEntry};
use datasetrt_core::format::shard::{HEADER_BYTES, Header, TRAILER_BYTES, Trailer};
use datasetrt_core::metadata::write_segment;
use datasetrt_core::read::{Arrangement, Cache, Dataset, Places, Progress, ReadOptions, Survey};

/// The golden caches by name.
pub const GOLDEN: [&str; 9] = [
    "empty-payloads",
    "larger-than-a-shard",
    "lz4",
    "many-shards",
    "no-metadata",
    "nulls",
    "one-sample",
    "plain",
    "zstd",
];

/// Where the golden caches are.
pub fn golden_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/caches/format-1").join(name)
}

/// The files of a cache by their path inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

impl Files {
    /// Reads the files of a cache.
    pub fn load(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        for sub in ["", "shards"] {
            for entry in fs::read_dir(folder.join(sub)).expect("the folder is there") {
                let path = entry.expect("it can be listed").path();
                if path.is_file() {
                    let name = path.strip_prefix(folder).expect("below").to_str().expect("plain").to_owned();
                    files.insert(name, fs::read(&path).expect("it can be read"));
                }
            }
        }
        Files(files)
    }

    /// Writes them into an empty folder.
    pub fn store(&self, folder: &Path) {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder.join("shards")).expect("scratch space");
        for (name, bytes) in &self.0 {
            fs::write(folder.join(name), bytes).expect("scratch space");
        }
    }

    /// Makes every checksum right for the bytes as they are, so that the parsers behind them are reached.
    /// `manifest` keeps what it says of names, columns, counts and compression.
    pub fn seal(&mut self, mut manifest: Manifest, seal_records: bool) {
        let rows: Vec<u64> =
            datasetrt_core::format::index::decode_rows(self.0["index.bin"].get(32..).unwrap_or_default());
        let mut first = 0u64;
        for (ordinal, entry) in manifest.shards.iter_mut().enumerate() {
            let name = format!("shards/{ordinal:06}.bin");
            let Some(bytes) = self.0.get_mut(&name) else { continue };
            if bytes.len() >= HEADER_BYTES + TRAILER_BYTES {
                if seal_records {
                    seal_records_of(bytes, &rows, first, entry.samples, manifest.record_key);
                }
                let header =
                    Header { record_key: manifest.record_key, ordinal: ordinal as u64, first_sample: first };
                bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
                let offset = bytes.len() - TRAILER_BYTES;
                let digest = *blake3::hash(&bytes[..offset]).as_bytes();
                let trailer = Trailer { records: entry.samples, offset: offset as u64, digest };
                bytes[offset..].copy_from_slice(&trailer.encode());
                *entry = ShardEntry { bytes: bytes.len() as u64, samples: entry.samples, blake3: digest };
            }
            first = first.saturating_add(entry.samples);
        }
        manifest.index = entry_of(&self.0["index.bin"]);
        manifest.metadata = entry_of(&self.0["metadata.arrow"]);
        let (text, _) = manifest.encode().expect("a manifest can be written");
        self.0.insert("manifest.json".into(), text);
    }
}

fn seal_records_of(shard: &mut [u8], rows: &[u64], first: u64, samples: u64, key: u64) {
    let mut start = HEADER_BYTES;
    let end_of_records = shard.len() - TRAILER_BYTES;
    for sample in first..first.saturating_add(samples.min(1000)) {
        let Some(end) = rows.get(sample as usize).and_then(|end| usize::try_from(*end).ok()) else { return };
        if end > end_of_records || start > end {
            return;
        }
        seal_record(&mut shard[start..end], sample, key);
        start = end;
    }
}

/// Writes the checksum that a record would have if its other bytes were meant.
pub fn seal_record(record: &mut [u8], sample_id: u64, record_key: u64) {
    let Some((checksum, rest)) = record.split_first_chunk_mut::<8>() else { return };
    let Some((&mut tag, rest)) = rest.split_first_mut() else { return };
    let (payload_bytes, stored): (u64, &[u8]) = match tag {
        0 => (rest.len() as u64, rest),
        _ => match rest.split_first_chunk::<8>() {
            Some((length, stored)) => (u64::from_le_bytes(*length), stored),
            None => return,
        },
    };
    let identity = Identity { record_key, sample_id, tag, payload_bytes, stored_bytes: stored.len() as u64 };
    *checksum = record_checksum(identity, stored).to_le_bytes();
}

/// A file's entry in a manifest.
pub fn entry_of(bytes: &[u8]) -> FileEntry {
    let mut hasher = FileHasher::default();
    hasher.update(bytes);
    FileEntry { bytes: bytes.len() as u64, xxh3: hasher.finish() }
}

/// A manifest's body with the tail that fits it; written from the format's document.
pub fn seal_manifest(body: &[u8]) -> Vec<u8> {
    let digest = blake3::hash(body).to_hex();
    let tail = format!(",\n  \"cache_id\": \"{}\",\n  \"checksum\": \"{digest}\"\n}}\n", &digest[..16]);
    [body, tail.as_bytes()].concat()
}

/// The last eight bytes of a block of 64 made the checksum of those before.
pub fn seal_block(block: &mut [u8; 64]) {
    let checksum = xxh3_64(&block[..56]);
    block[56..].copy_from_slice(&checksum.to_le_bytes());
}

/// Everything that a dataset delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// One for each sample.
    pub payloads: Vec<Vec<u8>>,
    /// The metadata as bytes: equal where every cell is, NaN included.
    pub metadata: Vec<u8>,
}

/// Does nothing with progress.
pub struct Silent;

impl Progress for Silent {
    fn advance(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
}

/// What reading a cache in every way gave.
#[derive(Debug)]
pub struct Reading {
    /// What `verify` found.
    pub problems: Vec<datasetrt_core::Error>,
    /// Each payload, or why not.
    pub payloads: Vec<Result<Vec<u8>>>,
    /// The metadata as bytes, or why not.
    pub metadata: Result<Vec<u8>>,
}

/// What a check tells that needs no cache that opens.
pub fn survey(folder: &Path) -> Vec<datasetrt_core::Error> {
    match Survey::of(folder) {
        Ok(survey) => survey.verify(&mut Silent).expect("nobody stops it"),
        Err(error) => vec![error],
    }
}

/// Opens a cache and reads it in every way; `most` bounds the samples that are read one by one.
pub fn read(folder: &Path, most: u64) -> Result<Reading> {
    let cache = Cache::open(folder, ReadOptions::default())?;
    let problems = cache.verify(&mut Silent)?;
    let dataset = Dataset::open(&[folder], ReadOptions { max_open_shards: 2 })?;
    let payloads: Vec<_> = (0..dataset.len().min(most)).map(|row| dataset.read_payload(row)).collect();
    let rows: Vec<u64> = (0..payloads.len() as u64).collect();
    match dataset.read_payloads(&rows, &Arrangement::default(), &mut || Ok(())) {
        Ok(found) => {
            let Places::Rows(starts) = found.places else { panic!("columns where none were asked for") };
            for (one, (start, length)) in payloads.iter().zip(starts.iter().zip(&found.lengths)) {
                let part = &found.buffer.as_slice()[*start..start + length];
                assert_eq!(one.as_ref().expect("one by one as well"), part);
            }
        }
        Err(failure) => {
            let first = payloads.iter().position(Result::is_err);
            assert!(first.is_some(), "a batch fails where no sample does: {failure:?}");
        }
    }
    Ok(Reading { problems, payloads, metadata: metadata_bytes(&dataset) })
}

fn metadata_bytes(dataset: &Dataset) -> Result<Vec<u8>> {
    // One batch after the other: a forged table may have many rows.
    let mut bytes = Vec::new();
    for batch in dataset.export()? {
        for column in batch?.columns() {
            column.to_data().validate_full().expect("what is exported keeps Arrow's rules");
        }
    }
    let rows: Vec<u64> = (0..dataset.len().min(4096)).collect();
    write_segment(&mut bytes, &[dataset.metadata(&rows, &dataset.globals(&rows)?)?])?;
    Ok(bytes)
}

/// Reads a sound cache.
pub fn whole(folder: &Path) -> Whole {
    let found = read(folder, u64::MAX).expect("it opens");
    assert_eq!(found.problems, []);
    Whole {
        payloads: found.payloads.into_iter().map(|p| p.expect("it reads")).collect(),
        metadata: found.metadata.expect("it reads"),
    }
}

/// A folder in memory if the system has one.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("scratch space")
}
