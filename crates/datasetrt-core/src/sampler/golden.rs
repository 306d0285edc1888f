//! Orders written once by the plain-Python twin. They must never change: see `docs/sampling.md`.

use super::{Sampler, rng, weighted};
use serde_json::Value;
use std::sync::Arc;

fn document() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/sampler/v1.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(document["version"], 1);
    document
}

/// The cases of one section; an empty section would be a test that cannot fail.
fn section(name: &str, at_least: usize) -> Vec<Value> {
    let cases = document()[name].as_array().unwrap().clone();
    assert!(cases.len() >= at_least, "{} cases of {name}", cases.len());
    cases
}

fn number(case: &Value, field: &str) -> u64 {
    case[field].as_u64().unwrap_or_else(|| panic!("{field} of {case}"))
}

fn numbers<const N: usize>(case: &Value, field: &str) -> [u64; N] {
    let list: Vec<u64> = serde_json::from_value(case[field].clone()).unwrap();
    list.try_into().unwrap()
}

fn sampler_of(case: &Value) -> Sampler {
    let arguments = &case["sampler"];
    let seed = || number(arguments, "seed");
    match arguments["name"].as_str().unwrap() {
        "Sequential" => Sampler::Sequential,
        "Shuffle" => Sampler::Shuffle { seed: seed() },
        "BlockShuffle" => Sampler::BlockShuffle {
            seed: seed(),
            block_samples: number(arguments, "block_samples"),
            window_blocks: number(arguments, "window_blocks"),
        },
        "Weighted" => Sampler::Weighted {
            seed: seed(),
            num_samples: arguments["num_samples"].as_u64(),
            replacement: arguments["replacement"].as_bool().unwrap(),
        },
        other => panic!("no sampler {other}"),
    }
}

fn weights_of(case: &Value, rows: u64) -> Option<Arc<Vec<f64>>> {
    match &case["weights"] {
        Value::Null => None,
        Value::String(formula) => {
            let weight = |row| match formula.as_str() {
                "harmonic" => 1.0 / (row as f64 + 1.0),
                "cycle" => 1.0 + (row % 7) as f64,
                other => panic!("no formula {other}"),
            };
            Some(Arc::new((0..rows).map(weight).collect()))
        }
        list => Some(serde_json::from_value::<Vec<f64>>(list.clone()).unwrap().into()),
    }
}

#[test]
fn philox_is_the_twins() {
    for case in section("philox", 4) {
        let words = rng::philox(numbers(&case, "counter"), numbers(&case, "key"));
        assert_eq!(words, numbers(&case, "words"), "{case}");
    }
}

#[test]
fn exponentials_are_the_twins_to_the_last_bit() {
    for case in section("exponentials", 60) {
        let bits = weighted::exponential(number(&case, "v")).to_bits();
        assert_eq!(bits, number(&case, "bits"), "{case}");
    }
}

#[test]
fn orders_are_the_twins() {
    for case in section("orders", 140) {
        let rows = number(&case, "rows");
        let order = sampler_of(&case).bind(rows, weights_of(&case, rows)).unwrap();
        assert_eq!(order.len(), number(&case, "length"), "{case}");

        let epoch = order.epoch(number(&case, "epoch")).unwrap();
        let expected: Vec<u64> = serde_json::from_value(case["indices"].clone()).unwrap();
        let start = number(&case, "start");
        let mut filled = vec![0; expected.len()];
        epoch.fill(start, &mut filled).unwrap();
        assert_eq!(filled, expected, "{case}");

        for (row, position) in expected.into_iter().zip(start..) {
            assert_eq!(epoch.at(position).unwrap(), row, "{case}");
            if let Ok(found) = epoch.position_of(row) {
                assert_eq!(found, position, "{case}");
            }
        }
    }
}

#[test]
fn transform_seeds_are_the_twins() {
    for case in section("transform_seeds", 6) {
        let order = Sampler::Shuffle { seed: number(&case, "seed") }.bind(10, None).unwrap();
        let seed = order.transform_seed(number(&case, "epoch"), number(&case, "position"));
        assert_eq!(seed, number(&case, "expected"), "{case}");
    }
}

#[test]
fn substitutes_are_the_twins() {
    for case in section("substitutes", 36) {
        let sampler = Sampler::Shuffle { seed: number(&case, "seed") };
        let order = sampler.bind(number(&case, "rows"), None).unwrap();
        let [epoch, position, attempt] = ["epoch", "position", "attempt"].map(|f| number(&case, f));
        assert_eq!(order.substitute(epoch, position, attempt), number(&case, "expected"), "{case}");
    }
}
