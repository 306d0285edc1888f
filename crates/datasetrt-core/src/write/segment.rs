//! The journal of an unfinished write: one file a durable shard, with that shard's index rows and metadata.
//!
//! A segment is written after its shard was synced. So the shards that have a sound segment are
//! exactly those that a resumed write may keep. Segments are private to the writer: the format of
//! this release only, no part of a published cache.

use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::{Digest, xxh3_64};
use crate::format::manifest::ShardEntry;
use crate::memory;

use super::chunk::Cursor;

/// How segments of all releases begin, so that what another one left is known as ours.
pub(super) const FAMILY: &[u8; 7] = b"DRTSEGM";
const MAGIC: &[u8; 8] = b"DRTSEGM2";
const FIELDS: usize = 7;
const FIXED: usize = 8 + FIELDS * 8 + 32;

/// A durable shard: what the manifest and the index need to know of it, and where to go on after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) entry: ShardEntry,
    pub(super) payload_bytes: u64,
    pub(super) cursor: Cursor,
    /// What its records were compressed with, the same in all segments: a resumed write goes on with it.
    pub(super) dictionary: Vec<u8>,
    /// End offset of each record.
    pub(super) ends: Vec<u64>,
    /// The shard's metadata rows as an Arrow IPC file.
    pub(super) rows: Vec<u8>,
}

impl Segment {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let length = FIXED + self.dictionary.len() + self.ends.len() * 8 + self.rows.len() + 8;
        let mut out = memory::list("the journal", length)?;
        out.extend_from_slice(MAGIC);
        let fields: [u64; FIELDS] = [
            self.entry.bytes,
            self.entry.samples,
            self.payload_bytes,
            self.cursor.item,
            self.cursor.samples,
            self.dictionary.len() as u64,
            self.rows.len() as u64,
        ];
        fields.iter().for_each(|field| out.extend_from_slice(&field.to_le_bytes()));
        out.extend_from_slice(&self.entry.blake3);
        out.extend_from_slice(&self.dictionary);
        self.ends.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
        out.extend_from_slice(&self.rows);
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        Ok(out)
    }

    /// The segment behind `bytes`; anything but exactly one sound segment is an error.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        memory::ask("the journal", bytes.len())?;
        Self::parse(bytes).ok_or_else(|| {
            Error::new(
                ErrorKind::Unfinished,
                "a segment of the unfinished write is damaged; run the write again",
            )
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*checksum) != xxh3_64(content) {
            return None;
        }
        let mut rest = content.strip_prefix(MAGIC)?;
        let mut fields = [0u64; FIELDS];
        for field in &mut fields {
            let (word, others) = rest.split_first_chunk::<8>()?;
            *field = u64::from_le_bytes(*word);
            rest = others;
        }
        let [bytes, samples, payload_bytes, item, item_samples, dictionary_bytes, rows_bytes] = fields;
        let (digest, rest) = rest.split_first_chunk::<32>()?;
        let blake3: Digest = *digest;
        let (dictionary, rest) = rest.split_at_checked(usize::try_from(dictionary_bytes).ok()?)?;
        let ends_bytes = usize::try_from(samples).ok()?.checked_mul(8)?;
        let (ends, rows) = rest.split_at_checked(ends_bytes)?;
        (rows.len() as u64 == rows_bytes).then(|| Segment {
            entry: ShardEntry { bytes, samples, blake3 },
            payload_bytes,
            cursor: Cursor { item, samples: item_samples },
            dictionary: dictionary.to_vec(),
            ends: crate::format::index::decode_rows(ends),
            rows: rows.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let segment = Segment {
            entry: ShardEntry { bytes: 400, samples: 2, blake3: [3; 32] },
            payload_bytes: 9,
            cursor: Cursor { item: 4, samples: 1 },
            dictionary: vec![8; 5],
            ends: vec![80, 336],
            rows: vec![1, 2, 3],
        };
        let bytes = segment.encode().unwrap();
        assert_eq!(Segment::decode(&bytes), Ok(segment));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert!(Segment::decode(&flipped).is_err(), "byte {at}");
            assert!(Segment::decode(&bytes[..at]).is_err(), "cut {at}");
        }
    }
}
