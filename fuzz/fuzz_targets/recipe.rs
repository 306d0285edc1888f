//! The bytes of a pickled dataset: any, and with a header that names a real cache.
#![no_main]

use std::sync::LazyLock;

use datasetrt_core::ErrorKind;
use datasetrt_core::read::{Dataset, ReadOptions};
use datasetrt_fuzz::golden_folder;
use libfuzzer_sys::fuzz_target;

static HEADER: LazyLock<String> = LazyLock::new(|| {
    let dataset = Dataset::open(&[golden_folder("plain")], ReadOptions::default()).expect("golden");
    let recipe = dataset.recipe().expect("it can be pickled");
    String::from_utf8(recipe[8..].to_vec()).expect("JSON, without a body")
});

/// The engine answers a panic of Arrow's general reader with an error; every other one ends the fuzzer.
static HOOK: LazyLock<()> = LazyLock::new(|| {
    let ends = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|place| place.file().contains("/arrow-")) {
            ends(panic);
        }
    }));
});

fn follow(recipe: &[u8]) {
    LazyLock::force(&HOOK);
    let dataset = match Dataset::from_recipe(recipe) {
        Ok(dataset) => dataset,
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::Bug, "{error}");
            return;
        }
    };
    let again = Dataset::from_recipe(&dataset.recipe().expect("it can be pickled")).expect("ours");
    let fingerprint = |dataset: &Dataset| dataset.fingerprint().expect("it has one");
    assert_eq!(fingerprint(&again), fingerprint(&dataset));
    for row in 0..dataset.len().min(20) {
        let global = dataset.global(row).expect("in range");
        dataset.read_payload(global).expect("the cache is sound");
    }
    for batch in dataset.export().expect("one value a row") {
        batch.expect("it can be exported");
    }
}

// Up to the first NUL: what follows `"rows":` in the header; after it: rows, weights and columns, unpacked.
fuzz_target!(|data: &[u8]| {
    follow(data);
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (rows, rest) = data.split_at(end);
    let Some((before, _)) = HEADER.split_once("\"rows\":") else { return };
    let body = rest.get(1..).unwrap_or_default();
    let stated = format!(",\"body_bytes\":{}}}", body.len());
    let header = [before.as_bytes(), b"\"rows\":", rows, stated.as_bytes()].concat();
    let mut recipe = (header.len() as u64).to_le_bytes().to_vec();
    recipe.extend(header);
    if !body.is_empty() {
        recipe.extend(stored_frame(body));
    }
    follow(&recipe);
});

/// A Zstandard frame with one raw block: what the fuzzer changes reaches the other side unchanged.
fn stored_frame(body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(1 << 16)];
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend(&((body.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    frame.extend(body);
    frame
}
