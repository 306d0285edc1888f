//! Compression of single records, with the decompressed size known and enforced.

use std::cell::RefCell;

use zstd::zstd_safe::DCtx;
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;

use super::dictionary::Dictionary;
use super::record::{no_memory, reserve};
use crate::error::{Error, ErrorKind, Result};

/// How a cache's records are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Stored as they are.
    None,
    /// LZ4 blocks.
    Lz4,
    /// Zstandard frames at a level.
    Zstd {
        /// 1 (fast) to 22 (small).
        level: i32,
    },
    /// Zstandard frames made with a dictionary that was learnt from the cache's first samples.
    ZstdDictionary {
        /// 1 (fast) to 22 (small).
        level: i32,
    },
}

/// The record tag of bytes stored as they are.
pub const TAG_RAW: u8 = 0;
/// The record tag of an LZ4 block.
pub const TAG_LZ4: u8 = 1;
/// The record tag of a Zstandard frame.
pub const TAG_ZSTD: u8 = 2;
/// The record tag of a Zstandard frame made with the cache's dictionary.
pub const TAG_ZSTD_DICTIONARY: u8 = 3;

/// An LZ4 block gives at most 255 bytes for each of its own: that many in each byte of a match's length.
const LZ4_LARGEST_RATIO: u64 = 255;
/// A Zstandard frame gives at most 128 KiB for a block of 4 bytes, which repeats one byte.
const ZSTD_LARGEST_RATIO: u64 = 128 * 1024 / 4;

/// The longest payload that so many stored bytes can hold. A record that states more is forged or
/// damaged, which is known before memory is taken for it.
pub fn largest_payload(tag: u8, stored_bytes: u64) -> u64 {
    match tag {
        TAG_LZ4 => stored_bytes.saturating_mul(LZ4_LARGEST_RATIO),
        TAG_ZSTD | TAG_ZSTD_DICTIONARY => stored_bytes.saturating_mul(ZSTD_LARGEST_RATIO),
        _ => stored_bytes,
    }
}

/// The level that `zstd` means without one: the library's own default.
pub const DEFAULT_ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// The method and level behind their names in the manifest and the configuration.
    pub fn parse(method: &str, level: Option<i64>) -> Result<Self> {
        let refuse = |why: String| Err(Error::new(ErrorKind::InvalidArgument, why));
        match (method, level) {
            ("none", None) => Ok(Compression::None),
            ("lz4", None) => Ok(Compression::Lz4),
            ("zstd", level) => Ok(Compression::Zstd { level: zstd_level(level)? }),
            ("zstd-dictionary", level) => Ok(Compression::ZstdDictionary { level: zstd_level(level)? }),
            ("none" | "lz4", Some(level)) => refuse(format!(
                "compression '{method}' takes no level, got {level}; leave compression_level unset"
            )),
            _ => refuse(format!(
                "compression '{method}' is unknown; choose 'none', 'lz4', 'zstd' or 'zstd-dictionary'"
            )),
        }
    }

    /// The name in the manifest.
    pub fn method(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd { .. } => "zstd",
            Compression::ZstdDictionary { .. } => "zstd-dictionary",
        }
    }

    /// The level in the manifest.
    pub fn level(self) -> Option<i64> {
        match self {
            Compression::Zstd { level } | Compression::ZstdDictionary { level } => Some(i64::from(level)),
            Compression::None | Compression::Lz4 => None,
        }
    }

    /// The tag of a record that this method made smaller.
    pub fn tag(self) -> u8 {
        match self {
            Compression::None => TAG_RAW,
            Compression::Lz4 => TAG_LZ4,
            Compression::Zstd { .. } => TAG_ZSTD,
            Compression::ZstdDictionary { .. } => TAG_ZSTD_DICTIONARY,
        }
    }

    /// Whether the cache has a dictionary.
    pub fn has_dictionary(self) -> bool {
        matches!(self, Compression::ZstdDictionary { .. })
    }
}

fn zstd_level(level: Option<i64>) -> Result<i32> {
    match level {
        None => Ok(DEFAULT_ZSTD_LEVEL),
        Some(level @ 1..=22) => Ok(i32::try_from(level).unwrap_or(DEFAULT_ZSTD_LEVEL)),
        Some(level) => {
            let message = format!("zstd level {level} is out of range; choose 1 to 22");
            Err(Error::new(ErrorKind::InvalidArgument, message))
        }
    }
}

/// Compresses payloads one after the other, keeping its tables between them.
pub struct Compressor {
    method: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    /// A compressor for one thread. `dictionary` is what the method's dictionary holds, empty without one.
    pub fn new(method: Compression, dictionary: &[u8]) -> Result<Self> {
        let zstd = match method {
            Compression::Zstd { level } => Some(zstd::bulk::Compressor::new(level).map_err(failed)?),
            Compression::ZstdDictionary { level } => {
                let mut zstd = zstd::bulk::Compressor::with_dictionary(level, dictionary).map_err(failed)?;
                // The manifest has the one that there is: four bytes a record saved.
                zstd.include_dictid(false).map_err(failed)?;
                Some(zstd)
            }
            Compression::None | Compression::Lz4 => None,
        };
        Ok(Compressor { method, zstd })
    }

    /// The compressed payload, or `None` where it would not be smaller.
    pub fn compress(&mut self, payload: &[u8]) -> Result<Option<Vec<u8>>> {
        // The frame of a compressed record is 8 bytes longer than that of a raw one.
        let smaller = |packed: Vec<u8>| (packed.len() + 8 < payload.len()).then_some(packed);
        match (self.method, &mut self.zstd) {
            (Compression::Lz4, _) => {
                let mut packed = room(lz4_flex::block::get_maximum_output_size(payload.len()))?;
                let length = lz4_flex::block::compress_into(payload, &mut packed);
                packed.truncate(length.map_err(|e| failed(std::io::Error::other(e)))?);
                Ok(smaller(packed))
            }
            (_, Some(zstd)) => {
                let mut packed = room(zstd::zstd_safe::compress_bound(payload.len()))?;
                let length = zstd.compress_to_buffer(payload, &mut packed[..]);
                packed.truncate(length.map_err(|e| of_zstd(e, payload.len()))?);
                Ok(smaller(packed))
            }
            _ => Ok(None),
        }
    }
}

/// Room for a compressed payload.
fn room(bytes: usize) -> Result<Vec<u8>> {
    let mut packed = Vec::new();
    reserve(&mut packed, bytes)?;
    packed.resize(bytes, 0);
    Ok(packed)
}

fn of_zstd(source: std::io::Error, bytes: usize) -> Error {
    if is_no_memory(&source) { no_memory(bytes) } else { failed(source) }
}

/// Whether Zstandard, which allocates by itself, found too little memory.
pub(crate) fn is_no_memory(source: &std::io::Error) -> bool {
    let code = source.get_ref().and_then(|inner| inner.downcast_ref::<zstd::Error>());
    source.kind() == std::io::ErrorKind::OutOfMemory
        || code.is_some_and(|code| code.is(ZSTD_ErrorCode::ZSTD_error_memory_allocation))
}

fn failed(source: std::io::Error) -> Error {
    Error::new(ErrorKind::Bug, format!("compression failed: {source}; please report this"))
}

thread_local! {
    /// Made once a thread: a fresh one costs more than a small record.
    static ZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Decompresses into `out`, which has exactly the stated length; anything else is an error.
pub fn decompress(tag: u8, dictionary: Option<&Dictionary>, stored: &[u8], out: &mut [u8]) -> Result<()> {
    let written = match (tag, dictionary) {
        (TAG_LZ4, _) => lz4_flex::block::decompress_into(stored, out).ok(),
        (TAG_ZSTD, _) => with_zstd(|zstd| zstd.decompress(out, stored).ok()),
        (TAG_ZSTD_DICTIONARY, Some(dictionary)) => match dictionary.decoder() {
            Some(decoder) => with_zstd(|zstd| zstd.decompress_using_ddict(out, stored, decoder).ok()),
            None => with_zstd(|zstd| zstd.decompress(out, stored).ok()),
        },
        _ => None,
    };
    if written == Some(out.len()) {
        return Ok(());
    }
    let found = written.map_or_else(|| "an invalid stream".to_owned(), |n| format!("{n} bytes"));
    Err(Error::new(
        ErrorKind::Decompression,
        format!("decompression gave {found}, {} bytes expected", out.len()),
    ))
}

/// Runs `work` with this thread's context; none where memory does not suffice for one.
fn with_zstd(work: impl FnOnce(&mut DCtx<'static>) -> Option<usize>) -> Option<usize> {
    ZSTD.with_borrow_mut(|context| {
        if context.is_none() {
            *context = DCtx::try_create();
        }
        context.as_mut().and_then(work)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [Compression; 3] =
        [Compression::Lz4, Compression::Zstd { level: 3 }, Compression::ZstdDictionary { level: 3 }];

    fn learnt() -> Dictionary {
        let samples: Vec<Vec<u8>> =
            (0..500).map(|n| format!("{{'name': 'sample {n}', 'split': 'train'}}").into()).collect();
        Dictionary::learn(samples.iter().map(Vec::as_slice)).unwrap()
    }

    #[test]
    fn round_trip_and_wrong_lengths() {
        let payload = vec![5u8; 10_000];
        let learnt = learnt();
        for method in METHODS {
            let packed =
                Compressor::new(method, learnt.bytes()).unwrap().compress(&payload).unwrap().unwrap();
            let mut out = vec![0; payload.len()];
            decompress(method.tag(), Some(&learnt), &packed, &mut out).unwrap();
            assert_eq!(out, payload);
            for wrong in [payload.len() - 1, payload.len() + 1, 0] {
                let out = &mut vec![0; wrong];
                let error = decompress(method.tag(), Some(&learnt), &packed, out).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Decompression);
            }
            assert!(decompress(method.tag(), Some(&learnt), &packed[..packed.len() / 2], &mut out).is_err());
        }
    }

    #[test]
    fn a_dictionary_is_what_makes_small_payloads_small_and_what_they_need() {
        let payload = b"{'name': 'sample 77', 'split': 'train'}";
        let learnt = learnt();
        let method = Compression::ZstdDictionary { level: 3 };
        let packed = Compressor::new(method, learnt.bytes()).unwrap().compress(payload).unwrap().unwrap();
        assert!(packed.len() < payload.len() / 2, "{} bytes", packed.len());
        assert_eq!(Compressor::new(method, &[]).unwrap().compress(payload).unwrap(), None);
        let mut out = vec![0; payload.len()];
        decompress(method.tag(), Some(&learnt), &packed, &mut out).unwrap();
        assert_eq!(out, payload);
        for other in [None, Some(&Dictionary::default())] {
            let wrong = decompress(method.tag(), other, &packed, &mut out);
            assert!(wrong.is_err() || out != payload);
        }
    }

    #[test]
    fn what_does_not_shrink_stays_raw() {
        for method in METHODS {
            assert_eq!(Compressor::new(method, &[]).unwrap().compress(b"").unwrap(), None);
            assert_eq!(Compressor::new(method, &[]).unwrap().compress(b"abcdefgh").unwrap(), None);
        }
    }

    #[test]
    fn the_most_compressible_payloads_keep_the_largest_ratio() {
        let learnt = learnt();
        for method in [
            Compression::Lz4,
            Compression::Zstd { level: 1 },
            Compression::Zstd { level: 22 },
            Compression::ZstdDictionary { level: 22 },
        ] {
            for length in [20, 64, 1000, 128 * 1024, 1 << 20, (64 << 20) + 1] {
                let packed =
                    Compressor::new(method, learnt.bytes()).unwrap().compress(&vec![0; length]).unwrap();
                let Some(packed) = packed else { continue };
                let largest = largest_payload(method.tag(), packed.len() as u64);
                assert!(length as u64 <= largest, "{method:?} {length} bytes in {}", packed.len());
            }
        }
    }

    #[test]
    fn names_and_levels_are_checked() {
        assert!(Compression::parse("zstd", Some(23)).is_err());
        assert!(Compression::parse("lz4", Some(1)).is_err());
        assert!(Compression::parse("gzip", None).is_err());
        assert_eq!(Compression::parse("zstd", None).unwrap().level(), Some(3));
    }
}
