//! The first and the last 64 bytes of a shard.

use super::VERSION;
use super::checksum::{Digest, xxh3_64};
use super::wire::{bytes, put, u32_at, u64_at};
use crate::error::{Error, ErrorKind, Result};

/// Size of the header; the first record begins here.
pub const HEADER_BYTES: usize = 64;
/// Size of the trailer.
pub const TRAILER_BYTES: usize = 64;

const MAGIC: usize = 0;
const HEADER_VERSION: usize = MAGIC + 8;
const RECORD_KEY: usize = HEADER_VERSION + 8;
const ORDINAL: usize = RECORD_KEY + 8;
const FIRST_SAMPLE: usize = ORDINAL + 8;

const RECORDS: usize = MAGIC + 8;
const TRAILER_OFFSET: usize = RECORDS + 8;
const DIGEST: usize = TRAILER_OFFSET + 8;

const CHECKSUM: usize = 56;

/// How a shard begins.
pub const HEADER_MAGIC: &[u8; 8] = b"DRTSHARD";
const TRAILER_MAGIC: &[u8; 8] = b"DRTSHEND";

/// Which shard of which cache a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cache's record key.
    pub record_key: u64,
    /// The shard's place in the cache.
    pub ordinal: u64,
    /// The sample of its first record.
    pub first_sample: u64,
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut block = [0; HEADER_BYTES];
        put(&mut block, MAGIC, HEADER_MAGIC);
        put(&mut block, HEADER_VERSION, &VERSION.to_le_bytes());
        put(&mut block, RECORD_KEY, &self.record_key.to_le_bytes());
        put(&mut block, ORDINAL, &self.ordinal.to_le_bytes());
        put(&mut block, FIRST_SAMPLE, &self.first_sample.to_le_bytes());
        seal(block)
    }

    /// The header behind `block`, if it is one of this version.
    pub fn decode(block: &[u8; HEADER_BYTES]) -> Result<Self> {
        check_seal(block, HEADER_MAGIC, "header")?;
        let version = u32_at(block, HEADER_VERSION);
        if version != VERSION {
            return Err(Error::new(
                ErrorKind::UnsupportedVersion,
                format!(
                    "shard has format version {version}, this release reads {VERSION}; upgrade datasetrt"
                ),
            ));
        }
        let header = Header {
            record_key: u64_at(block, RECORD_KEY),
            ordinal: u64_at(block, ORDINAL),
            first_sample: u64_at(block, FIRST_SAMPLE),
        };
        // Reserved bytes must be zero: otherwise a changed one would pass with a recomputed checksum.
        if header.encode() == *block { Ok(header) } else { Err(damaged("header")) }
    }
}

/// What a finished shard holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Number of records.
    pub records: u64,
    /// Where the trailer begins: the end of the last record.
    pub offset: u64,
    /// BLAKE3 of all bytes before the trailer.
    pub digest: Digest,
}

impl Trailer {
    /// The trailer's bytes.
    pub fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut block = [0; TRAILER_BYTES];
        put(&mut block, MAGIC, TRAILER_MAGIC);
        put(&mut block, RECORDS, &self.records.to_le_bytes());
        put(&mut block, TRAILER_OFFSET, &self.offset.to_le_bytes());
        put(&mut block, DIGEST, &self.digest);
        seal(block)
    }

    /// The trailer behind `block`.
    pub fn decode(block: &[u8; TRAILER_BYTES]) -> Result<Self> {
        check_seal(block, TRAILER_MAGIC, "trailer")?;
        Ok(Trailer {
            records: u64_at(block, RECORDS),
            offset: u64_at(block, TRAILER_OFFSET),
            digest: bytes(block, DIGEST),
        })
    }
}

fn seal(mut block: [u8; 64]) -> [u8; 64] {
    let checksum = xxh3_64(&block[..CHECKSUM]);
    put(&mut block, CHECKSUM, &checksum.to_le_bytes());
    block
}

fn check_seal(block: &[u8; 64], magic: &[u8; 8], what: &str) -> Result<()> {
    let sound =
        bytes::<8, 64>(block, MAGIC) == *magic && u64_at(block, CHECKSUM) == xxh3_64(&block[..CHECKSUM]);
    if sound { Ok(()) } else { Err(damaged(what)) }
}

fn damaged(what: &str) -> Error {
    Error::new(
        ErrorKind::ShardMismatch,
        format!("shard {what} is damaged; restore the file, or remove the cache's folder and write it again"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header { record_key: 0x0123_4567_89ab_cdef, ordinal: 3, first_sample: 99 }
    }

    fn trailer() -> Trailer {
        Trailer { records: 5, offset: 1234, digest: [7; 32] }
    }

    #[test]
    fn blocks_round_trip() {
        assert_eq!(Header::decode(&header().encode()), Ok(header()));
        assert_eq!(Trailer::decode(&trailer().encode()), Ok(trailer()));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        for bit in 0..64 * 8 {
            let flip = |mut block: [u8; 64]| {
                block[bit / 8] ^= 1 << (bit % 8);
                block
            };
            assert!(Header::decode(&flip(header().encode())).is_err(), "header bit {bit}");
            assert!(Trailer::decode(&flip(trailer().encode())).is_err(), "trailer bit {bit}");
        }
    }
}
