//! `manifest.json`: any bytes, and any body with the tail that fits it.
#![no_main]

use datasetrt_core::format::manifest::Manifest;
use datasetrt_fuzz::seal_manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Manifest::decode(data);
    let sealed = seal_manifest(data);
    let Ok((manifest, checksum)) = Manifest::decode(&sealed) else { return };
    assert_eq!(&checksum, blake3::hash(data).as_bytes());
    // What was accepted is said again in our own words, and means the same.
    let (again, _) = manifest.encode().expect("a decoded manifest can be written");
    let (second, _) = Manifest::decode(&again).expect("what we write we read");
    assert_eq!(second, manifest);
    assert!(manifest.stored_bytes() >= manifest.sample_count);
});
