//! `manifest.json`: the model, its exact text, and every rule that a reader relies on.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::checksum::{Digest, hex, parse_digest, parse_hex};
use super::compression::Compression;
use super::record::RAW_FRAME_BYTES;
use super::shard::{HEADER_BYTES, TRAILER_BYTES};
use super::{VERSION, index, names};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

/// Larger manifests are refused unread.
pub const MAX_BYTES: u64 = 256 << 20;

const FORMAT: &str = "datasetrt-cache";

/// A column of the metadata as the manifest records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The column's name.
    pub name: String,
    /// `bool`, `int64`, `float64` or `string`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// How many samples have no value.
    pub null_count: u64,
}

/// A file with the hash that is compared at open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Size in bytes.
    pub bytes: u64,
    /// XXH3-128 of the whole file.
    pub xxh3: u128,
}

/// A shard as the manifest records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardEntry {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of records.
    pub samples: u64,
    /// The digest in its trailer.
    pub blake3: Digest,
}

/// What a cache is. Values that come out of [`Manifest::decode`] keep every rule of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The source's name.
    pub name: String,
    /// The source's fingerprint.
    pub fingerprint: Option<String>,
    /// The codec that packed the payloads.
    pub codec: Option<String>,
    /// How records are compressed.
    pub compression: Compression,
    /// What [`Compression::ZstdDictionary`] compresses with; empty with other methods, or without one.
    pub dictionary: Vec<u8>,
    /// Enters every record's checksum.
    pub record_key: u64,
    /// Number of samples.
    pub sample_count: u64,
    /// Sum of the payloads' lengths.
    pub payload_bytes: u64,
    /// The metadata columns in order.
    pub columns: Vec<Column>,
    /// `metadata.arrow`.
    pub metadata: FileEntry,
    /// `index.bin`.
    pub index: FileEntry,
    /// The shards in order.
    pub shards: Vec<ShardEntry>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    format: String,
    version: u64,
    name: String,
    fingerprint: Option<String>,
    codec: Option<String>,
    compression: CompressionText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dictionary: Option<String>,
    record_key: String,
    sample_count: u64,
    payload_bytes: u64,
    columns: Vec<Column>,
    metadata: FileText,
    index: FileText,
    shards: Vec<ShardText>,
}

#[derive(Serialize, Deserialize)]
struct CompressionText {
    method: String,
    level: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct FileText {
    bytes: u64,
    xxh3: String,
}

#[derive(Serialize, Deserialize)]
struct ShardText {
    bytes: u64,
    samples: u64,
    blake3: String,
}

/// The two members that are looked at before anything else.
#[derive(Deserialize)]
struct Version {
    format: String,
    version: u64,
}

/// The number that enters every record's checksum: known before the first sample.
pub fn record_key(name: &str, fingerprint: Option<&str>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"datasetrt record key 1\0");
    hasher.update(name.as_bytes());
    hasher.update(b"\0");
    hasher.update(fingerprint.unwrap_or_default().as_bytes());
    let mut word = [0; 8];
    word.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(word)
}

/// The identifier of a cache: the start of its manifest's checksum.
pub fn cache_id(checksum: &Digest) -> String {
    hex(&checksum[..8])
}

fn tail(checksum: &Digest) -> String {
    format!(",\n  \"cache_id\": \"{}\",\n  \"checksum\": \"{}\"\n}}\n", cache_id(checksum), hex(checksum))
}

impl Manifest {
    /// The file's bytes and its checksum.
    pub fn encode(&self) -> Result<(Vec<u8>, Digest)> {
        let text = Text {
            format: FORMAT.to_owned(),
            version: u64::from(VERSION),
            name: self.name.clone(),
            fingerprint: self.fingerprint.clone(),
            codec: self.codec.clone(),
            compression: CompressionText {
                method: self.compression.method().to_owned(),
                level: self.compression.level(),
            },
            dictionary: self.compression.has_dictionary().then(|| BASE64.encode(&self.dictionary)),
            record_key: format!("{:016x}", self.record_key),
            sample_count: self.sample_count,
            payload_bytes: self.payload_bytes,
            columns: self.columns.clone(),
            metadata: file_text(self.metadata),
            index: file_text(self.index),
            shards: self.shards.iter().map(shard_text).collect(),
        };
        let mut bytes = serde_json::to_vec_pretty(&text)
            .map_err(|e| Error::new(ErrorKind::Bug, format!("manifest cannot be written: {e}")))?;
        // The closing brace belongs to the tail.
        bytes.truncate(bytes.len().saturating_sub(2));
        let checksum = *blake3::hash(&bytes).as_bytes();
        bytes.extend_from_slice(tail(&checksum).as_bytes());
        Ok((bytes, checksum))
    }

    /// The manifest behind a file's bytes, checked completely, and its checksum.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Digest)> {
        let body_bytes = bytes.len().checked_sub(tail(&[0; 32]).len());
        let (body, found) = match body_bytes {
            Some(at) => bytes.split_at(at),
            None => return Err(unsealed(bytes)),
        };
        let checksum = *blake3::hash(body).as_bytes();
        if found != tail(&checksum).as_bytes() {
            return Err(unsealed(bytes));
        }
        // Text, its parts and what becomes of them; a dictionary is the largest.
        memory::ask("a manifest", bytes.len().saturating_mul(4))?;
        let version: Version = parse(bytes)?;
        if version.format != FORMAT {
            return Err(bad(format!("format is '{}', '{FORMAT}' expected", shortened(&version.format))));
        }
        if version.version != u64::from(VERSION) {
            return Err(unsupported(version.version));
        }
        let manifest = Manifest::from_text(parse(bytes)?)?;
        manifest.check()?;
        Ok((manifest, checksum))
    }

    fn from_text(text: Text) -> Result<Self> {
        let shards = text.shards.into_iter().map(|s| {
            let blake3 =
                parse_digest(&s.blake3).ok_or_else(|| bad("a shard's blake3 is not 64 hex digits"))?;
            Ok(ShardEntry { bytes: s.bytes, samples: s.samples, blake3 })
        });
        let key = parse_hex(&text.record_key, 16).and_then(|k| u64::try_from(k).ok());
        let compression = Compression::parse(&text.compression.method, text.compression.level)
            .map_err(|e| bad(e.message()))?;
        Ok(Manifest {
            name: text.name,
            fingerprint: text.fingerprint,
            codec: text.codec,
            compression,
            dictionary: dictionary(compression, text.dictionary)?,
            record_key: key.ok_or_else(|| bad("record_key is not 16 hex digits"))?,
            sample_count: text.sample_count,
            payload_bytes: text.payload_bytes,
            columns: text.columns,
            metadata: file_entry(&text.metadata)?,
            index: file_entry(&text.index)?,
            shards: shards.collect::<Result<_>>()?,
        })
    }

    /// Every rule that later code relies on, so that it can add and multiply without a second look.
    fn check(&self) -> Result<()> {
        names::check_name(&self.name).map_err(|e| bad(e.message()))?;
        let mut samples = 0u64;
        let mut stored = 0u64;
        let frame = RAW_FRAME_BYTES as u64;
        let fixed = (HEADER_BYTES + TRAILER_BYTES) as u64;
        for (ordinal, shard) in self.shards.iter().enumerate() {
            let least = shard.samples.checked_mul(frame).and_then(|n| n.checked_add(fixed));
            if shard.samples == 0
                || least.is_none_or(|least| shard.bytes < least)
                || shard.bytes > i64::MAX as u64
            {
                return Err(bad(format!(
                    "shard {ordinal} cannot have {} samples in {} bytes",
                    shard.samples, shard.bytes
                )));
            }
            samples = samples.checked_add(shard.samples).ok_or_else(|| bad("sample counts overflow"))?;
            stored = stored.checked_add(shard.bytes).ok_or_else(|| bad("shard sizes overflow"))?;
        }
        if samples != self.sample_count || samples == 0 || samples > i64::MAX as u64 {
            return Err(bad(format!("sample_count is {}, the shards hold {samples}", self.sample_count)));
        }
        if index::file_bytes(samples) != Some(self.index.bytes) {
            return Err(bad(format!(
                "index.bin cannot have {} bytes for {samples} samples",
                self.index.bytes
            )));
        }
        if self.metadata.bytes > i64::MAX as u64 || self.columns.iter().any(|c| c.null_count > samples) {
            return Err(bad("a size or null count is impossible"));
        }
        Ok(())
    }

    /// Sum of the shards' file sizes.
    pub fn stored_bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.bytes).sum()
    }
}

fn dictionary(compression: Compression, text: Option<String>) -> Result<Vec<u8>> {
    match (compression.has_dictionary(), text) {
        (false, None) => Ok(Vec::new()),
        (true, Some(text)) => {
            BASE64.decode(text).map_err(|e| bad(format!("the dictionary is no Base64: {e}")))
        }
        (true, None) => Err(bad("it has no dictionary")),
        (false, Some(_)) => Err(bad(format!("compression '{}' has no dictionary", compression.method()))),
    }
}

fn file_text(entry: FileEntry) -> FileText {
    FileText { bytes: entry.bytes, xxh3: format!("{:032x}", entry.xxh3) }
}

fn file_entry(text: &FileText) -> Result<FileEntry> {
    let xxh3 = parse_hex(&text.xxh3, 32).ok_or_else(|| bad("an xxh3 is not 32 hex digits"))?;
    Ok(FileEntry { bytes: text.bytes, xxh3 })
}

fn shard_text(entry: &ShardEntry) -> ShardText {
    ShardText { bytes: entry.bytes, samples: entry.samples, blake3: hex(&entry.blake3) }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))
}

/// Why a manifest without a matching checksum was refused: another format altogether, or damage.
fn unsealed(bytes: &[u8]) -> Error {
    match serde_json::from_slice::<Version>(bytes) {
        Ok(v) if v.format == FORMAT && v.version > u64::from(VERSION) => unsupported(v.version),
        Ok(v) if v.format != FORMAT => {
            Error::new(ErrorKind::NotACache, "manifest.json was not written by datasetrt; check the path")
        }
        _ => Error::new(
            ErrorKind::ManifestChecksum,
            "manifest.json is damaged: it does not match its own checksum; restore it, or rebuild the cache with on_stale='rebuild'",
        ),
    }
}

fn unsupported(version: u64) -> Error {
    Error::new(
        ErrorKind::UnsupportedVersion,
        format!(
            "cache has format version {version}, this release reads version {VERSION}; upgrade datasetrt, or rebuild the cache with on_stale='rebuild'"
        ),
    )
}

fn bad(message: impl AsRef<str>) -> Error {
    Error::new(
        ErrorKind::BadManifest,
        format!(
            "manifest.json is not valid: {}; rebuild the cache with on_stale='rebuild'",
            message.as_ref()
        ),
    )
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        Manifest {
            name: "train".into(),
            fingerprint: Some("v1".into()),
            codec: None,
            compression: Compression::Zstd { level: 3 },
            dictionary: Vec::new(),
            record_key: record_key("train", Some("v1")),
            sample_count: 3,
            payload_bytes: 30,
            columns: vec![Column { name: "é".into(), type_name: "int64".into(), null_count: 1 }],
            metadata: FileEntry { bytes: 10, xxh3: 1 },
            index: FileEntry { bytes: 56, xxh3: u128::MAX },
            shards: vec![
                ShardEntry { bytes: 200, samples: 2, blake3: [1; 32] },
                ShardEntry { bytes: 200, samples: 1, blake3: [2; 32] },
            ],
        }
    }

    fn kind_of(manifest: &Manifest) -> Option<ErrorKind> {
        Manifest::decode(&manifest.encode().unwrap().0).err().map(|e| e.kind())
    }

    #[test]
    fn round_trip_and_plain_json() {
        let (bytes, checksum) = sample().encode().unwrap();
        assert_eq!(Manifest::decode(&bytes), Ok((sample(), checksum)));
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(json["cache_id"], cache_id(&checksum));
        assert_eq!(json["checksum"], hex(&checksum));
        assert_eq!(json.get("dictionary"), None);
    }

    #[test]
    fn a_dictionary_goes_with_its_method_alone() {
        let compression = Compression::ZstdDictionary { level: 3 };
        for dictionary in [vec![], vec![0, 255, 7], vec![9; 100_000]] {
            let manifest = Manifest { compression, dictionary, ..sample() };
            let (bytes, checksum) = manifest.encode().unwrap();
            assert_eq!(Manifest::decode(&bytes), Ok((manifest, checksum)));
        }
        let reworded = |manifest: &Manifest, from: &str, to: &str| {
            let text = String::from_utf8(manifest.encode().unwrap().0).unwrap();
            let (body, _) = text.split_at(text.len() - tail(&[0; 32]).len());
            assert!(body.contains(from));
            let body = body.replace(from, to).into_bytes();
            let sealed = [&body, tail(blake3::hash(&body).as_bytes()).as_bytes()].concat();
            Manifest::decode(&sealed).unwrap_err()
        };
        let with = Manifest { compression, dictionary: vec![1; 4], ..sample() };
        for (from, to, why) in [
            ("\"zstd-dictionary\"", "\"zstd\"", "compression 'zstd' has no dictionary"),
            ("\"dictionary\": \"AQEBAQ==\"", "\"other\": 1", "it has no dictionary"),
            ("AQEBAQ==", "AQEBA===", "no Base64"),
            ("AQEBAQ==", "AQ EBAQ==", "no Base64"),
        ] {
            let error = reworded(&with, from, to);
            assert!(error.kind() == ErrorKind::BadManifest && error.message().contains(why), "{error}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let (bytes, _) = sample().encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..cut]).is_err(), "cut {cut}");
        }
    }

    #[test]
    fn sound_text_with_impossible_values_is_refused() {
        let bad = Some(ErrorKind::BadManifest);
        assert_eq!(kind_of(&Manifest { sample_count: 4, ..sample() }), bad);
        assert_eq!(kind_of(&Manifest { sample_count: 0, shards: vec![], ..sample() }), bad);
        assert_eq!(kind_of(&Manifest { name: "../x".into(), ..sample() }), bad);
        assert_eq!(kind_of(&Manifest { index: FileEntry { bytes: 57, xxh3: 0 }, ..sample() }), bad);
        let huge = ShardEntry { bytes: u64::MAX, samples: u64::MAX / 9, blake3: [0; 32] };
        assert_eq!(kind_of(&Manifest { shards: vec![huge, huge], ..sample() }), bad);
        assert_eq!(kind_of(&sample()), None);
    }

    #[test]
    fn versions_and_strangers_are_told_apart() {
        let reseal = |text: String| {
            let body = text.as_bytes();
            let mut bytes = body.to_vec();
            bytes.extend_from_slice(tail(blake3::hash(body).as_bytes()).as_bytes());
            bytes
        };
        let newer = reseal("{\n  \"format\": \"datasetrt-cache\",\n  \"version\": 2".into());
        assert_eq!(Manifest::decode(&newer).unwrap_err().kind(), ErrorKind::UnsupportedVersion);
        let other = br#"{"format": "other", "version": 1}"#;
        assert_eq!(Manifest::decode(other).unwrap_err().kind(), ErrorKind::NotACache);
        assert_eq!(Manifest::decode(b"").unwrap_err().kind(), ErrorKind::ManifestChecksum);
    }
}
