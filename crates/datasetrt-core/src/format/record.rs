//! One record: checksum, tag, length where compressed, stored bytes.

use std::sync::Arc;

use super::checksum::{Identity, RecordHasher, record_checksum};
use super::compression::{self, Compression, Compressor, TAG_RAW};
use super::dictionary::Dictionary;
use crate::error::{Error, ErrorKind, Result};

/// Frame bytes before the stored bytes of a raw record.
pub const RAW_FRAME_BYTES: usize = 9;
/// Frame bytes before the stored bytes of a compressed record.
pub const PACKED_FRAME_BYTES: usize = RAW_FRAME_BYTES + 8;

/// Appends `payload` as a raw record whose checksum [`seal_raw`] fills in later.
///
/// # Errors
///
/// `io` where memory does not suffice; nothing is appended then.
pub fn append_unsealed(payload: &[u8], out: &mut Vec<u8>) -> Result<()> {
    reserve(out, RAW_FRAME_BYTES.saturating_add(payload.len()))?;
    out.extend_from_slice(&[0; RAW_FRAME_BYTES]);
    out.extend_from_slice(payload);
    Ok(())
}

/// Room for so many more bytes, or a typed error where memory does not suffice.
pub(crate) fn reserve(out: &mut Vec<u8>, bytes: usize) -> Result<()> {
    out.try_reserve(bytes).map_err(|_| no_memory(bytes))
}

/// The error where memory does not suffice to write.
pub(super) fn no_memory(bytes: usize) -> Error {
    let message = format!(
        "not enough memory for {bytes} more bytes of records; free memory, write smaller samples, or lower queue_bytes"
    );
    Error::no_memory(message)
}

/// Fills in the checksum of a raw record in place.
pub fn seal_raw(record_key: u64, sample_id: u64, frame: &mut [u8]) {
    let Some((head, stored)) = frame.split_at_mut_checked(RAW_FRAME_BYTES) else { return };
    let length = stored.len() as u64;
    let identity =
        Identity { record_key, sample_id, tag: TAG_RAW, payload_bytes: length, stored_bytes: length };
    head[..8].copy_from_slice(&record_checksum(identity, stored).to_le_bytes());
}

/// Appends the record of `payload`, compressed where that makes it smaller.
pub fn append_packed(
    record_key: u64,
    sample_id: u64,
    payload: &[u8],
    method: Compression,
    compressor: &mut Compressor,
    out: &mut Vec<u8>,
) -> Result<()> {
    let Some(stored) = compressor.compress(payload)? else {
        let start = out.len();
        append_unsealed(payload, out)?;
        seal_raw(record_key, sample_id, &mut out[start..]);
        return Ok(());
    };
    let identity = Identity {
        record_key,
        sample_id,
        tag: method.tag(),
        payload_bytes: payload.len() as u64,
        stored_bytes: stored.len() as u64,
    };
    reserve(out, PACKED_FRAME_BYTES + stored.len())?;
    out.extend_from_slice(&record_checksum(identity, &stored).to_le_bytes());
    out.push(method.tag());
    out.extend_from_slice(&identity.payload_bytes.to_le_bytes());
    out.extend_from_slice(&stored);
    Ok(())
}

/// What a cache allows its records to be; the same for all of them.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The cache's record key.
    pub record_key: u64,
    /// The cache's compression: decides which tags can occur.
    pub compression: Compression,
    /// What the compression needs to know, if it is one with a dictionary.
    pub dictionary: Option<Arc<Dictionary>>,
    /// No payload is longer than the whole cache's payload bytes.
    pub max_payload_bytes: u64,
}

/// A record whose frame is plausible and whose checksum is still to be compared.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    expected: u64,
    identity: Identity,
    dictionary: Option<&'a Dictionary>,
    stored: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits the bytes of one record. Lengths are checked against `rules` before they are used.
    pub fn parse(rules: &'a Rules, sample_id: u64, record: &'a [u8]) -> Result<Self> {
        let short = || bad(sample_id, format!("record has {} bytes, too few for its frame", record.len()));
        let (checksum, rest) = record.split_first_chunk::<8>().ok_or_else(short)?;
        let (&tag, rest) = rest.split_first().ok_or_else(short)?;
        let (payload_bytes, stored) = if tag == TAG_RAW {
            (rest.len() as u64, rest)
        } else if tag == rules.compression.tag() {
            let (length, stored) = rest.split_first_chunk::<8>().ok_or_else(short)?;
            (u64::from_le_bytes(*length), stored)
        } else {
            return Err(bad(
                sample_id,
                format!("record tag {tag} does not belong to compression '{}'", rules.compression.method()),
            ));
        };
        if payload_bytes > rules.max_payload_bytes {
            return Err(too_long(rules, sample_id, payload_bytes));
        }
        if payload_bytes > compression::largest_payload(tag, stored.len() as u64) {
            return Err(bad(
                sample_id,
                format!(
                    "record states {payload_bytes} payload bytes, which {} stored bytes of {} cannot hold",
                    stored.len(),
                    rules.compression.method()
                ),
            ));
        }
        let identity = Identity {
            record_key: rules.record_key,
            sample_id,
            tag,
            payload_bytes,
            stored_bytes: stored.len() as u64,
        };
        let dictionary = rules.dictionary.as_deref();
        Ok(Frame { expected: u64::from_le_bytes(*checksum), identity, dictionary, stored })
    }

    /// Length of the payload before compression.
    pub fn payload_bytes(&self) -> u64 {
        self.identity.payload_bytes
    }

    /// Compares the checksum.
    pub fn verify(self) -> Result<Verified<'a>> {
        compare(&self.identity, self.expected, self.stored)?;
        Ok(Verified(self))
    }

    /// Verifies, then writes the payload to `out`, which has exactly [`Frame::payload_bytes`] bytes.
    pub fn unpack(self, out: &mut [u8]) -> Result<()> {
        self.verify()?.unpack(out)
    }
}

/// A record whose checksum was compared.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a>(Frame<'a>);

impl Verified<'_> {
    /// Length of the payload before compression.
    pub fn payload_bytes(&self) -> u64 {
        self.0.payload_bytes()
    }

    /// Writes the payload to `out`, which has exactly [`Verified::payload_bytes`] bytes.
    pub fn unpack(&self, out: &mut [u8]) -> Result<()> {
        let Verified(frame) = self;
        if out.len() as u64 != frame.identity.payload_bytes {
            let message = format!("{} bytes wanted, the record states {}", out.len(), self.payload_bytes());
            return Err(bad_kind(ErrorKind::Decompression, frame.identity.sample_id, message));
        }
        if frame.identity.tag == TAG_RAW && out.len() == frame.stored.len() {
            out.copy_from_slice(frame.stored);
            return Ok(());
        }
        compression::decompress(frame.identity.tag, frame.dictionary, frame.stored, out)
            .map_err(|e| bad_kind(e.kind(), frame.identity.sample_id, e.message().to_owned()))
    }
}

/// Verifies a raw record whose frame and payload were read to different places.
pub fn verify_raw(rules: &Rules, sample_id: u64, head: &[u8; RAW_FRAME_BYTES], payload: &[u8]) -> Result<()> {
    let identity = raw_identity(rules, sample_id, payload.len() as u64)?;
    let expected = raw_checksum(sample_id, head)?;
    judge(&identity, expected, || record_checksum(identity, payload))
}

/// Verifies a raw record whose payload comes piece by piece, each while it is still in the processor's cache.
pub struct RawVerifier {
    identity: Identity,
    hasher: RecordHasher,
}

impl RawVerifier {
    /// Begins with a record of so many bytes of payload.
    ///
    /// # Errors
    ///
    /// `bad-record` if that is more than the whole cache has.
    pub fn new(rules: &Rules, sample_id: u64, payload_bytes: u64) -> Result<Self> {
        let identity = raw_identity(rules, sample_id, payload_bytes)?;
        Ok(RawVerifier { identity, hasher: RecordHasher::new(identity) })
    }

    /// Takes the next bytes of the payload.
    pub fn update(&mut self, piece: &[u8]) {
        if VERIFIES {
            self.hasher.update(piece);
        }
    }

    /// Compares everything taken so far with the frame.
    ///
    /// # Errors
    ///
    /// `bad-record` if the frame is not one of a raw record, `record-checksum` if it is one of other bytes.
    pub fn finish(self, head: &[u8; RAW_FRAME_BYTES]) -> Result<()> {
        let expected = raw_checksum(self.identity.sample_id, head)?;
        judge(&self.identity, expected, || self.hasher.finish())
    }
}

fn raw_identity(rules: &Rules, sample_id: u64, bytes: u64) -> Result<Identity> {
    if bytes > rules.max_payload_bytes {
        return Err(too_long(rules, sample_id, bytes));
    }
    let record_key = rules.record_key;
    Ok(Identity { record_key, sample_id, tag: TAG_RAW, payload_bytes: bytes, stored_bytes: bytes })
}

/// The checksum in the frame of a raw record.
fn raw_checksum(sample_id: u64, head: &[u8; RAW_FRAME_BYTES]) -> Result<u64> {
    let [a, b, c, d, e, f, g, h, tag] = *head;
    if tag != TAG_RAW {
        return Err(bad(sample_id, format!("record tag {tag} does not belong to compression 'none'")));
    }
    Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

/// False only in a build that `benchmarks/verification` makes to measure what verification costs. Decided when the
/// engine is compiled: nothing turns it off in a build that verifies, and [`crate::RELEASE`] says so in one that
/// does not.
pub(crate) const VERIFIES: bool = option_env!("DATASETRT_BENCH_WITHOUT_VERIFICATION").is_none();

fn compare(identity: &Identity, expected: u64, stored: &[u8]) -> Result<()> {
    judge(identity, expected, || record_checksum(*identity, stored))
}

fn judge(identity: &Identity, expected: u64, checksum: impl FnOnce() -> u64) -> Result<()> {
    if !VERIFIES {
        return Ok(());
    }
    let found = checksum();
    if found == expected {
        return Ok(());
    }
    Err(bad_kind(
        ErrorKind::RecordChecksum,
        identity.sample_id,
        format!("checksum {found:016x} found, {expected:016x} expected"),
    ))
}

fn too_long(rules: &Rules, sample_id: u64, length: u64) -> Error {
    bad(
        sample_id,
        format!("record states {length} payload bytes, the whole cache has {}", rules.max_payload_bytes),
    )
}

fn bad(sample_id: u64, message: String) -> Error {
    bad_kind(ErrorKind::BadRecord, sample_id, message)
}

fn bad_kind(kind: ErrorKind, sample_id: u64, message: String) -> Error {
    Error::new(kind, message).at_sample(sample_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(compression: Compression) -> Rules {
        let dictionary = compression.has_dictionary().then(|| Arc::new(learnt()));
        Rules { record_key: 77, compression, dictionary, max_payload_bytes: 1 << 20 }
    }

    fn learnt() -> Dictionary {
        let payloads: Vec<String> = (0..300).map(|n| format!("{n} bottles of beer on the wall")).collect();
        Dictionary::learn(payloads.iter().map(String::as_bytes)).unwrap()
    }

    fn pack(compression: Compression, sample: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut compressor = Compressor::new(compression, learnt().bytes()).unwrap();
        append_packed(77, sample, payload, compression, &mut compressor, &mut out).unwrap();
        out
    }

    fn unpack(compression: Compression, sample: u64, record: &[u8]) -> Result<Vec<u8>> {
        let rules = rules(compression);
        let frame = Frame::parse(&rules, sample, record)?;
        let mut out = vec![0; usize::try_from(frame.payload_bytes()).unwrap()];
        frame.unpack(&mut out)?;
        Ok(out)
    }

    fn methods() -> impl Strategy<Value = Compression> {
        prop_oneof![
            Just(Compression::None),
            Just(Compression::Lz4),
            Just(Compression::Zstd { level: 1 }),
            Just(Compression::ZstdDictionary { level: 1 })
        ]
    }

    proptest! {
        #[test]
        fn records_round_trip(method in methods(), sample: u64, byte: u8, noise in prop::collection::vec(any::<u8>(), 0..40), run in 0usize..500) {
            let mut payload = vec![byte; run];
            payload.extend(noise);
            let record = pack(method, sample, &payload);
            prop_assert_eq!(unpack(method, sample, &record).unwrap(), payload);
            prop_assert!(unpack(method, sample ^ 1, &record).is_err());
        }

        #[test]
        fn any_bytes_are_refused_without_panic(method in methods(), record in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(unpack(method, 3, &record).is_err());
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let zstd = [Compression::Zstd { level: 3 }, Compression::ZstdDictionary { level: 3 }];
        for method in [Compression::None, Compression::Lz4].into_iter().chain(zstd) {
            let record = pack(method, 5, &[9; 100]);
            for bit in 0..record.len() * 8 {
                let mut flipped = record.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(unpack(method, 5, &flipped).is_err(), "{method:?} bit {bit}");
            }
            for cut in 0..record.len() {
                assert!(unpack(method, 5, &record[..cut]).is_err(), "{method:?} cut {cut}");
            }
        }
    }

    #[test]
    fn the_stated_length_decides_and_not_the_callers() {
        let mut record = pack(Compression::Lz4, 5, &[1; 100]);
        record[9..17].copy_from_slice(&99u64.to_le_bytes());
        let identity = Identity {
            record_key: 77,
            sample_id: 5,
            tag: Compression::Lz4.tag(),
            payload_bytes: 99,
            stored_bytes: (record.len() - PACKED_FRAME_BYTES) as u64,
        };
        let checksum = record_checksum(identity, &record[PACKED_FRAME_BYTES..]);
        record[..8].copy_from_slice(&checksum.to_le_bytes());
        let rules = rules(Compression::Lz4);
        let frame = Frame::parse(&rules, 5, &record).unwrap();
        for length in [99, 100] {
            let error = frame.unpack(&mut vec![0; length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Decompression, "{length}");
        }
    }

    #[test]
    fn a_payload_larger_than_the_cache_is_refused_before_allocation() {
        let mut record = pack(Compression::Lz4, 0, &[1; 100]);
        record[9..17].copy_from_slice(&u64::MAX.to_le_bytes());
        let rules = rules(Compression::Lz4);
        let error = Frame::parse(&rules, 0, &record).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadRecord);
    }

    #[test]
    fn a_payload_that_its_stored_bytes_cannot_hold_is_refused_before_allocation() {
        let dictionary = Compression::ZstdDictionary { level: 3 };
        for (method, ratio) in
            [(Compression::Lz4, 255), (Compression::Zstd { level: 3 }, 32_768), (dictionary, 32_768)]
        {
            let rules = Rules { max_payload_bytes: u64::MAX, ..rules(method) };
            let mut record = pack(method, 0, &[1; 100]);
            let stored = (record.len() - PACKED_FRAME_BYTES) as u64;
            record[9..17].copy_from_slice(&(stored * ratio).to_le_bytes());
            assert!(Frame::parse(&rules, 0, &record).is_ok());
            record[9..17].copy_from_slice(&(stored * ratio + 1).to_le_bytes());
            let error = Frame::parse(&rules, 0, &record).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadRecord);
            assert!(error.message().contains("cannot hold"), "{error}");
        }
    }
}
