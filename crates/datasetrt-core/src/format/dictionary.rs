//! What Zstandard knows of a cache's payloads beforehand: learnt from the first of them.

use std::fmt;

use zstd::zstd_safe::DDict;

use super::compression::is_no_memory;
use super::record::{no_memory, reserve};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

/// Longer dictionaries are refused unread.
pub const MAX_DICTIONARY_BYTES: usize = 1 << 20;
/// How long a dictionary becomes at most. Twice that made pickles of 1 KiB a thousandth smaller, and each reader holds one.
const LEARNT_BYTES: usize = 64 << 10;
/// Zstandard cannot count what is in less.
const LEAST_BYTES: usize = 8;
/// Zstandard learns from no more of each sample.
pub const LEARNT_FROM_EACH: usize = 128 << 10;

/// What a dictionary takes beside its content, once it is ready.
const DECODER_BYTES: usize = 64 << 10;

/// A dictionary, ready for readers. The empty one is none.
#[derive(Default)]
pub struct Dictionary {
    bytes: Vec<u8>,
    decoder: Option<DDict<'static>>,
}

impl Dictionary {
    /// The dictionary with this content.
    ///
    /// # Errors
    ///
    /// `bad-manifest` if it is too long, or is no dictionary.
    pub fn new(bytes: Vec<u8>) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Dictionary::default());
        }
        if bytes.len() > MAX_DICTIONARY_BYTES {
            return Err(bad(&format!("has {} bytes, more than {MAX_DICTIONARY_BYTES}", bytes.len())));
        }
        // What does not begin with the magic number, or ends there, would be taken for content.
        if !bytes.starts_with(&MAGIC) || bytes.len() < MAGIC_AND_IDENTIFIER_BYTES {
            return Err(bad("is none of Zstandard"));
        }
        // It refuses other bytes in the same words as memory that it does not get.
        memory::ask("a dictionary", bytes.len().saturating_add(DECODER_BYTES))?;
        let decoder = DDict::try_create(&bytes).ok_or_else(|| bad("cannot be used"))?;
        Ok(Dictionary { bytes, decoder: Some(decoder) })
    }

    /// Learns from payloads; the same ones give the same dictionary. Too few of them, or ones that have nothing in
    /// common, give the empty one.
    ///
    /// # Errors
    ///
    /// `io` where memory does not suffice; `bug` if what was learnt cannot be used.
    pub fn learn<'a>(payloads: impl Iterator<Item = &'a [u8]>) -> Result<Self> {
        let (mut all, mut lengths) = (Vec::new(), Vec::new());
        for payload in payloads {
            let (part, _) = payload.split_at(payload.len().min(LEARNT_FROM_EACH));
            reserve(&mut all, part.len())?;
            all.extend_from_slice(part);
            memory::push("records", &mut lengths, part.len())?;
        }
        // It trains on the first three quarters, and divides by how many strings of eight bytes are in there: by none,
        // that ends the process.
        let trained = lengths.get(..lengths.len() * 3 / 4).unwrap_or_default();
        if trained.iter().sum::<usize>() < LEAST_BYTES {
            return Ok(Dictionary::default());
        }
        let learnt = match zstd::dict::from_continuous(&all, &lengths, LEARNT_BYTES) {
            Ok(learnt) => learnt,
            // Less memory must not give other bytes.
            Err(e) if is_no_memory(&e) => return Err(no_memory(all.len())),
            // There is too little to learn from, which it says in many ways.
            Err(_) => Vec::new(),
        };
        Dictionary::new(learnt).map_err(|e| Error::new(ErrorKind::Bug, e.message()))
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What decompresses with it.
    pub(super) fn decoder(&self) -> Option<&DDict<'static>> {
        self.decoder.as_ref()
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({} bytes)", self.bytes.len())
    }
}

/// `ZSTD_MAGIC_DICTIONARY`, little-endian.
const MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();
const MAGIC_AND_IDENTIFIER_BYTES: usize = MAGIC.len() + 4;

fn bad(why: &str) -> Error {
    let message = format!("the dictionary in manifest.json {why}; rebuild the cache with on_stale='rebuild'");
    Error::new(ErrorKind::BadManifest, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn payloads(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|n| format!("the label of sample {n} is {}", n % 10).into_bytes()).collect()
    }

    #[test]
    fn the_same_payloads_give_the_same_dictionary() {
        let payloads = payloads(2000);
        let learn = || Dictionary::learn(payloads.iter().map(Vec::as_slice)).unwrap();
        assert!(learn().decoder().is_some());
        assert_eq!(learn().bytes(), learn().bytes());
    }

    #[test]
    fn any_few_bytes_can_be_learnt_from_or_not() {
        for count in 0..50_usize {
            for length in 0..4 {
                for late in [0, 9, 400] {
                    let payload = |n: usize| vec![n as u8; if n * 4 < count * 3 { length } else { late }];
                    let payloads: Vec<_> = (0..count).map(payload).collect();
                    Dictionary::learn(payloads.iter().map(Vec::as_slice)).unwrap();
                }
            }
        }
    }

    #[test]
    fn what_nothing_can_be_learnt_from_gives_none() {
        for payloads in [payloads(0), payloads(1), vec![Vec::new(); 100]] {
            let learnt = Dictionary::learn(payloads.iter().map(Vec::as_slice)).unwrap();
            assert_eq!(learnt.bytes(), b"");
        }
    }

    #[test]
    fn what_is_only_the_beginning_of_a_dictionary_is_refused() {
        for length in 1..MAGIC_AND_IDENTIFIER_BYTES {
            let bytes = [&MAGIC[..], &[0; 4]].concat()[..length].to_vec();
            assert_eq!(Dictionary::new(bytes).unwrap_err().kind(), ErrorKind::BadManifest, "{length}");
        }
    }

    #[test]
    fn a_dictionary_has_a_largest_size() {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(MAX_DICTIONARY_BYTES + 1, 0);
        assert_eq!(Dictionary::new(bytes).unwrap_err().kind(), ErrorKind::BadManifest);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_dictionary_or_refused(bytes in prop::collection::vec(any::<u8>(), 1..200), real: bool, flip: prop::sample::Index) {
            let mut bytes = [&MAGIC[..], &bytes].concat();
            if real {
                let payloads = payloads(500);
                bytes = Dictionary::learn(payloads.iter().map(Vec::as_slice)).unwrap().bytes().to_vec();
                let at = flip.index(bytes.len().min(300));
                bytes[at] ^= 1;
            }
            if let Err(error) = Dictionary::new(bytes) {
                prop_assert_eq!(error.kind(), ErrorKind::BadManifest);
            }
        }
    }
}
