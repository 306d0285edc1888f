//! `index.bin` of any content in an otherwise sound cache whose manifest vouches for it.
#![no_main]

use std::fs;
use std::sync::LazyLock;

use datasetrt_core::format::manifest::Manifest;
use datasetrt_fuzz::{Files, GOLDEN, Whole, entry_of, golden_folder, read, scratch, whole};
use libfuzzer_sys::fuzz_target;

struct Case {
    folder: std::path::PathBuf,
    manifest: Manifest,
    whole: Whole,
}

static CASES: LazyLock<(tempfile::TempDir, Vec<Case>)> = LazyLock::new(|| {
    let root = scratch();
    let case = |name: &&str| {
        let files = Files::load(&golden_folder(name));
        let folder = root.path().join(name);
        files.store(&folder);
        let (manifest, _) = Manifest::decode(&files.0["manifest.json"]).expect("golden");
        Case { whole: whole(&folder), folder, manifest }
    };
    let cases = GOLDEN.iter().map(case).collect();
    (root, cases)
});

// The first byte chooses the cache and whether the header is made right; the rest are the file.
fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let (_, cases) = &*CASES;
    let case = &cases[usize::from(*choice) % cases.len()];
    let mut bytes = bytes.to_vec();
    if choice & 0x80 == 0 {
        let header = datasetrt_core::format::index::encode_header(case.manifest.sample_count);
        bytes.splice(..bytes.len().min(32), header);
        bytes.resize(32 + 8 * case.manifest.sample_count as usize, 0);
    }
    let mut manifest = case.manifest.clone();
    manifest.index = entry_of(&bytes);
    fs::write(case.folder.join("index.bin"), &bytes).expect("scratch space");
    fs::write(case.folder.join("manifest.json"), manifest.encode().expect("it can be written").0)
        .expect("scratch space");
    let Ok(found) = read(&case.folder, u64::MAX) else { return };
    // The records are sound: whatever place the index names, a sample is its own bytes or an error.
    for (found, expected) in found.payloads.iter().zip(&case.whole.payloads) {
        if let Ok(found) = found {
            assert_eq!(found, expected);
        }
    }
    let lost = found.payloads.iter().any(Result::is_err);
    assert_eq!(lost, !found.problems.is_empty(), "verify and reading disagree: {:?}", found.problems);
    assert_eq!(found.metadata.expect("it is sound"), case.whole.metadata);
});
