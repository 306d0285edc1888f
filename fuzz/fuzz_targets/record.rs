//! Records and the blocks at both ends of a shard: any bytes, and any bytes with the checksum that fits them.
#![no_main]

use std::sync::{Arc, LazyLock};

use datasetrt_core::format::compression::Compression;
use datasetrt_core::format::dictionary::Dictionary;
use datasetrt_core::format::record::{Frame, RAW_FRAME_BYTES, RawVerifier, Rules, verify_raw};
use datasetrt_core::format::shard::{Header, Trailer};
use datasetrt_fuzz::{seal_block, seal_record};
use libfuzzer_sys::fuzz_target;

/// One that was learnt, as in a cache.
static LEARNT: LazyLock<Arc<Dictionary>> = LazyLock::new(|| {
    let payloads: Vec<String> = (0..500).map(|n| format!("{n} bottles of beer on the wall")).collect();
    Arc::new(Dictionary::learn(payloads.iter().map(String::as_bytes)).expect("it can be learnt"))
});

const KEY: u64 = 0x0123_4567_89ab_cdef;

fn unpack(rules: &Rules, record: &[u8]) -> bool {
    let Ok(frame) = Frame::parse(rules, 3, record) else { return false };
    let length = usize::try_from(frame.payload_bytes()).expect("bounded by the rules");
    assert!(frame.payload_bytes() <= rules.max_payload_bytes);
    let sound = frame.verify().is_ok();
    let mut payload = vec![0; length];
    let unpacked = frame.unpack(&mut payload).is_ok();
    assert!(sound || !unpacked, "unpacked without its checksum");
    let mut other = vec![0; length + 1];
    assert!(frame.unpack(&mut other).is_err(), "unpacked into another length");
    if let Some((head, payload)) = record.split_first_chunk::<RAW_FRAME_BYTES>() {
        let raw = verify_raw(rules, 3, head, payload).is_ok();
        assert_eq!(raw, unpacked && head[8] == 0);
        // In two parts, as columns arrive.
        let in_parts = RawVerifier::new(rules, 3, payload.len() as u64).and_then(|mut verifier| {
            let (one, two) = payload.split_at(payload.len() / 2);
            verifier.update(one);
            verifier.update(two);
            verifier.finish(head)
        });
        assert_eq!(in_parts.is_ok(), raw);
    }
    unpacked
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let (compression, dictionary) = match choice % 4 {
        0 => (Compression::None, None),
        1 => (Compression::Lz4, None),
        2 => (Compression::Zstd { level: 3 }, None),
        _ => (Compression::ZstdDictionary { level: 3 }, Some(Arc::clone(&LEARNT))),
    };
    let rules = Rules { record_key: KEY, compression, dictionary, max_payload_bytes: 1 << 16 };
    unpack(&rules, bytes);
    let mut sealed = bytes.to_vec();
    seal_record(&mut sealed, 3, KEY);
    if unpack(&rules, &sealed) {
        for bit in [0, 63, 64, sealed.len() * 8 - 1] {
            sealed[bit / 8] ^= 1 << (bit % 8);
            assert!(!unpack(&rules, &sealed), "a flipped bit passes");
            sealed[bit / 8] ^= 1 << (bit % 8);
        }
    }
    if let Some(block) = bytes.first_chunk::<64>() {
        for seal in [false, true] {
            let mut block = *block;
            if seal {
                seal_block(&mut block);
            }
            if let Ok(header) = Header::decode(&block) {
                assert_eq!(header.encode(), block);
            }
            if let Ok(trailer) = Trailer::decode(&block) {
                assert_eq!(trailer.encode(), block);
            }
        }
    }
});
