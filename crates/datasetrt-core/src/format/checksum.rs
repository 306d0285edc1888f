//! The hashes of the format: XXH3 where every read pays, BLAKE3 for digests.

use std::hash::Hasher as _;

use twox_hash::{XxHash3_64, XxHash3_128};

pub use super::xxh3::BlockHasher;
use super::xxh3::{self, LongHasher};

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// What a record's checksum covers beside its stored bytes.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The cache's record key.
    pub record_key: u64,
    /// The sample that the record holds.
    pub sample_id: u64,
    /// How the bytes are stored.
    pub tag: u8,
    /// Length before compression.
    pub payload_bytes: u64,
    /// Length as stored.
    pub stored_bytes: u64,
}

/// XXH3-64 of a header or trailer.
pub fn xxh3_64(data: &[u8]) -> u64 {
    XxHash3_64::oneshot(data)
}

/// The checksum of one record: stored bytes, keyed by what and where they are.
pub fn record_checksum(identity: Identity, stored: &[u8]) -> u64 {
    if xxh3::worthwhile(stored.len() as u64) {
        let mut hasher = LongHasher::new(seed(identity));
        hasher.update(stored);
        return hasher.finish();
    }
    XxHash3_64::oneshot_with_seed(seed(identity), stored)
}

/// The same, fed piece by piece.
pub struct RecordHasher(Implementation);

#[expect(clippy::large_enum_variant, reason = "it lives on the stack of one read")]
enum Implementation {
    Library(XxHash3_64),
    Wide(LongHasher),
}

impl RecordHasher {
    /// Begins the checksum of a record, which is to be fed all its stored bytes.
    pub fn new(identity: Identity) -> Self {
        let seed = seed(identity);
        RecordHasher(if xxh3::worthwhile(identity.stored_bytes) {
            Implementation::Wide(LongHasher::new(seed))
        } else {
            Implementation::Library(XxHash3_64::with_seed(seed))
        })
    }

    /// Adds the next stored bytes.
    pub fn update(&mut self, stored: &[u8]) {
        match &mut self.0 {
            Implementation::Library(hasher) => hasher.write(stored),
            Implementation::Wide(hasher) => hasher.update(stored),
        }
    }

    /// The checksum of everything so far.
    pub fn finish(&self) -> u64 {
        match &self.0 {
            Implementation::Library(hasher) => hasher.finish(),
            Implementation::Wide(hasher) => hasher.finish(),
        }
    }
}

fn seed(identity: Identity) -> u64 {
    let mut words = [0u8; 40];
    let fields = [
        identity.record_key,
        identity.sample_id,
        u64::from(identity.tag),
        identity.payload_bytes,
        identity.stored_bytes,
    ];
    for (place, field) in words.chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    XxHash3_64::oneshot(&words)
}

/// XXH3-128 of a file, fed piece by piece.
#[derive(Default)]
pub struct FileHasher(OfFile);

#[derive(Default)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack of one pass over a file")]
enum OfFile {
    #[default]
    Unfed,
    Library(XxHash3_128),
    Wide(LongHasher),
}

impl FileHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        if let (OfFile::Unfed, false) = (&self.0, data.is_empty()) {
            self.0 = match xxh3::worthwhile(data.len() as u64) {
                true => OfFile::Wide(LongHasher::new(0)),
                false => OfFile::Library(XxHash3_128::default()),
            };
        }
        match &mut self.0 {
            OfFile::Unfed => (),
            OfFile::Library(hasher) => hasher.write(data),
            OfFile::Wide(hasher) => hasher.update(data),
        }
    }

    /// The hash of everything so far.
    pub fn finish(&self) -> u128 {
        match &self.0 {
            OfFile::Unfed => XxHash3_128::oneshot(&[]),
            OfFile::Library(hasher) => hasher.finish_128(),
            OfFile::Wide(hasher) => hasher.finish_128(),
        }
    }
}

/// Bytes as lower-case hexadecimal text.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The digest behind 64 lower-case hexadecimal digits.
pub fn parse_digest(text: &str) -> Option<Digest> {
    let mut digest = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (place, pair) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *place = parse_hex(std::str::from_utf8(pair).ok()?, 2)?.try_into().ok()?;
    }
    Some(digest)
}

/// The number behind exactly `digits` lower-case hexadecimal digits.
pub fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let plain =
        text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if plain { u128::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_identity_matters() {
        let base = Identity { record_key: 1, sample_id: 2, tag: 0, payload_bytes: 3, stored_bytes: 3 };
        let reference = record_checksum(base, b"abc");
        let changed = [
            Identity { record_key: 9, ..base },
            Identity { sample_id: 3, ..base },
            Identity { tag: 1, ..base },
            Identity { payload_bytes: 4, ..base },
            Identity { stored_bytes: 4, ..base },
        ];
        assert!(changed.iter().all(|&other| record_checksum(other, b"abc") != reference));
        assert_ne!(record_checksum(base, b"abd"), reference);
    }

    #[test]
    fn parts_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..20_000u32).map(|n| (n * 7) as u8).collect();
        for length in [0, 1, 16, 17, 128, 129, 240, 241, 255, 256, 257, 1024, 1025, 5000, 8191, 8192, 20_000]
        {
            for cut in [0, 1, length / 3, length] {
                let cut = cut.min(length);
                let stored_bytes = length as u64;
                let identity =
                    Identity { record_key: 1, sample_id: 2, tag: 0, payload_bytes: 3, stored_bytes };
                let whole = record_checksum(identity, &bytes[..length]);
                let mut hasher = RecordHasher::new(identity);
                for part in [&bytes[..cut], &[], &bytes[cut..length]] {
                    hasher.update(part);
                }
                assert_eq!(hasher.finish(), whole, "{length} {cut}");
            }
        }
    }

    #[test]
    fn files_have_the_hash_of_the_library_however_they_come() {
        let bytes: Vec<u8> = (0..40_000u32).map(|n| (n * 7) as u8).collect();
        for length in [0, 1, 1024, 8191, 8192, 8193, 16_384, 40_000] {
            for first in [0, 1, 1024, 8192, 9000] {
                let (first, later) = bytes[..length].split_at(length.min(first));
                let mut hasher = FileHasher::default();
                [first, &[], later].iter().for_each(|piece| hasher.update(piece));
                assert_eq!(
                    hasher.finish(),
                    XxHash3_128::oneshot(&bytes[..length]),
                    "{length} {}",
                    first.len()
                );
            }
        }
    }

    #[test]
    fn hex_round_trips_and_refuses_other_spellings() {
        let digest = *blake3::hash(b"x").as_bytes();
        assert_eq!(parse_digest(&hex(&digest)), Some(digest));
        assert_eq!(parse_digest(&hex(&digest).to_uppercase()), None);
        assert_eq!(parse_hex("+f", 2), None);
        assert_eq!(parse_hex("0f", 2), Some(15));
    }
}
