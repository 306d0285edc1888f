//! Orders look random: chi-square tests with fixed seeds, so that each either always passes or never.
//!
//! A score is in standard deviations; a sound generator exceeds [`LIMIT`] once in 150,000 scores. These
//! tests have been seen to fail for: seed and epoch added, epoch or stream left out, three rounds of
//! Philox, six rounds of the network, a network that only multiplies, Fisher and Yates with a wrong
//! bound either way, prefix sums in single precision, keys multiplied by weights, unshuffled windows.

use super::{EpochOrder, Sampler};
use std::collections::BTreeMap;
use std::sync::Arc;

const LIMIT: f64 = 4.5;
const SIZES: [u64; 8] = [2, 3, 5, 8, 17, 100, 1025, 4096];

/// How far counts are from what is expected (Wilson and Hilferty's normal form of chi-square).
fn score(observed: &[u64], expected: &[f64]) -> f64 {
    assert_eq!(observed.len(), expected.len());
    assert!(expected.iter().all(|count| *count >= 5.0), "too few draws for chi-square");
    let terms = observed.iter().zip(expected).map(|(o, e)| (*o as f64 - e).powi(2) / e);
    let free = observed.len() as f64 - 1.0;
    let width = 2.0 / (9.0 * free);
    ((terms.sum::<f64>() / free).cbrt() - (1.0 - width)) / width.sqrt()
}

#[track_caller]
fn assert_distribution(observed: &[u64], probabilities: &[f64], what: &str) {
    let total = observed.iter().sum::<u64>() as f64;
    let whole: f64 = probabilities.iter().sum();
    let expected: Vec<f64> = probabilities.iter().map(|p| total * p / whole).collect();
    let score = score(observed, &expected);
    assert!(score.abs() < LIMIT, "{what}: score {score:.1}");
}

#[track_caller]
fn assert_uniform(values: impl Iterator<Item = u64>, cells: u64, what: &str) {
    let mut observed = vec![0; cells as usize];
    values.for_each(|value| observed[value as usize] += 1);
    assert_distribution(&observed, &vec![1.0; cells as usize], what);
}

/// Equal entries of unrelated permutations: one a pair on average, Poisson distributed.
#[track_caller]
fn assert_unrelated(pairs: impl Iterator<Item = (Vec<u64>, Vec<u64>)>, what: &str) {
    let (mut count, mut equal) = (0.0, 0.0);
    for (a, b) in pairs {
        count += 1.0;
        equal += a.iter().zip(&b).filter(|(a, b)| a == b).count() as f64;
    }
    let score: f64 = (equal - count) / f64::sqrt(count);
    assert!(score.abs() < LIMIT, "{what}: {equal} equal entries in {count} pairs");
}

fn shuffle(seed: u64, rows: u64, epoch: u64) -> EpochOrder {
    Sampler::Shuffle { seed }.bind(rows, None).unwrap().epoch(epoch).unwrap()
}

fn listed(order: &EpochOrder, rows: u64) -> Vec<u64> {
    let mut out = vec![0; rows as usize];
    order.fill(0, &mut out).unwrap();
    out
}

#[test]
fn every_row_is_equally_likely_at_every_position() {
    for rows in SIZES {
        let runs = 20 * rows.max(200);
        for position in [0, rows / 2, rows - 1] {
            let over_seeds = (0..runs).map(|seed| shuffle(seed, rows, 0).at(position).unwrap());
            assert_uniform(over_seeds, rows, &format!("seeds, {rows} rows, position {position}"));
            let over_epochs = (0..runs).map(|epoch| shuffle(7, rows, epoch).at(position).unwrap());
            assert_uniform(over_epochs, rows, &format!("epochs, {rows} rows, position {position}"));
        }
    }
}

#[test]
fn every_position_is_equally_likely_for_every_row() {
    for rows in SIZES {
        let runs = 20 * rows.max(200);
        let positions = (0..runs).map(|seed| shuffle(seed, rows, 1).position_of(rows / 3).unwrap());
        assert_uniform(positions, rows, &format!("{rows} rows"));
    }
}

#[test]
fn all_orders_of_a_few_rows_are_equally_likely() {
    for (rows, orders) in [(2, 2), (3, 6), (4, 24), (5, 120)] {
        let runs = 500 * orders;
        let over_seeds: fn(u64, u64) -> EpochOrder = |rows, i| shuffle(i, rows, 0);
        let over_epochs: fn(u64, u64) -> EpochOrder = |rows, i| shuffle(0, rows, i);
        let once: fn(u64, u64) -> EpochOrder =
            |rows, i| weighted(i, None, false, &vec![0.7; rows as usize], 0);
        for (name, order) in [("seeds", over_seeds), ("epochs", over_epochs), ("once", once)] {
            let mut counts = BTreeMap::<_, u64>::new();
            (0..runs).for_each(|i| *counts.entry(listed(&order(rows, i), rows)).or_default() += 1);
            let counts: Vec<u64> = counts.into_values().collect();
            assert_eq!(counts.len() as u64, orders, "{name}, {rows} rows");
            assert_distribution(&counts, &vec![1.0; counts.len()], &format!("{name}, {rows} rows"));
        }
    }
}

#[test]
fn neighbouring_seeds_and_epochs_are_unrelated() {
    for (rows, side) in [(17, 50), (1025, 16), (5000, 8)] {
        let order = |seed, epoch| listed(&shuffle(seed, rows, epoch), rows);
        let places: Vec<_> = (0..side).flat_map(|s| (0..side).map(move |e| (s, e))).collect();
        let pairs = |step: fn(u64, u64) -> [(u64, u64); 2]| {
            places.iter().map(move |&(s, e)| {
                let [a, b] = step(s, e);
                (order(a.0, a.1), order(b.0, b.1))
            })
        };
        assert_unrelated(pairs(|s, e| [(s, e), (s + 1, e)]), "seeds");
        assert_unrelated(pairs(|s, e| [(s, e), (s, e + 1)]), "epochs");
        // The same sum of seed and epoch: where they are added, these are the same order.
        assert_unrelated(pairs(|s, e| [(s + 1, e), (s, e + 1)]), "sums of seed and epoch");
    }
}

/// The smallest network has 33 * 32 digits; it is where too few rounds show the most.
const SMALLEST: u64 = 1025;
const LEFT_DIGITS: u64 = 33;
const RIGHT_DIGITS: u64 = 32;

/// How often the left and the right digits of pairs of rows differ by each amount.
fn digit_steps(pairs: impl Iterator<Item = (u64, u64)>) -> [Vec<u64>; 2] {
    let (mut left, mut right) = (vec![0; LEFT_DIGITS as usize], vec![0; RIGHT_DIGITS as usize]);
    for (a, b) in pairs {
        left[((b / RIGHT_DIGITS + LEFT_DIGITS - a / RIGHT_DIGITS) % LEFT_DIGITS) as usize] += 1;
        right[((b % RIGHT_DIGITS + RIGHT_DIGITS - a % RIGHT_DIGITS) % RIGHT_DIGITS) as usize] += 1;
    }
    [left, right]
}

/// Neighbours in the table, and rows that share a digit of the network, end up anywhere.
#[test]
fn neighbouring_positions_are_unrelated() {
    let orders: Vec<_> = (0..2000).map(|seed| listed(&shuffle(seed, SMALLEST, 0), SMALLEST)).collect();
    let distinct = (0..SMALLEST).flat_map(|a| (0..SMALLEST).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let shares = digit_steps(distinct).map(|counts| counts.iter().map(|c| *c as f64).collect::<Vec<_>>());
    for lag in [1, 2, RIGHT_DIGITS - 1, RIGHT_DIGITS, RIGHT_DIGITS + 1, 2 * RIGHT_DIGITS] {
        let pairs: Vec<(u64, u64)> = orders
            .iter()
            .flat_map(|rows| rows.iter().copied().zip(rows[lag as usize..].iter().copied()))
            .collect();
        let steps = pairs.iter().map(|(a, b)| (b + SMALLEST - a) % SMALLEST - 1);
        assert_uniform(steps, SMALLEST - 1, &format!("lag {lag}"));
        let found = digit_steps(pairs.into_iter());
        for (found, shares) in found.iter().zip(&shares) {
            assert_distribution(found, shares, &format!("{} digits, lag {lag}", found.len()));
        }
    }
}

#[test]
fn a_large_order_has_no_trend() {
    const ROWS: u64 = 1 << 18;
    let order = listed(&shuffle(1, ROWS, 0), ROWS);
    let middle = (ROWS - 1) as f64 / 2.0;
    let variance = (ROWS * ROWS - 1) as f64 / 12.0;
    for lag in [1, 2, 511, 512, 513, 1024] {
        let products =
            order.iter().zip(&order[lag..]).map(|(a, b)| (*a as f64 - middle) * (*b as f64 - middle));
        let score = products.sum::<f64>() / variance / (ROWS as f64).sqrt();
        assert!(score.abs() < LIMIT, "lag {lag}: score {score:.1}");
    }
    let cells = order
        .chunks(1 << 12)
        .zip(0..)
        .flat_map(|(part, at)| part.iter().map(move |row| at * 64 + (row >> 12)));
    assert_uniform(cells, 64 * 64, "where each part of the order lies");
}

fn block_shuffle(seed: u64, block_samples: u64, window_blocks: u64, rows: u64, epoch: u64) -> EpochOrder {
    let sampler = Sampler::BlockShuffle { seed, block_samples, window_blocks };
    sampler.bind(rows, None).unwrap().epoch(epoch).unwrap()
}

#[test]
fn blocks_and_samples_in_windows_are_equally_likely() {
    // 9 blocks of 8 rows and one of 4; windows of 4, 4 and 2 blocks.
    let first = |position: u64| (0..20_000).map(move |i| block_shuffle(i, 8, 4, 76, 0).at(position).unwrap());
    for position in [0, 40, 75] {
        assert_uniform(first(position), 76, &format!("position {position}"));
    }
    // The order of two blocks of two rows within their window: all 24 are equally likely.
    let mut counts = BTreeMap::<_, u64>::new();
    for seed in 0..24_000 {
        *counts.entry(listed(&block_shuffle(seed, 2, 2, 4, 3), 4)).or_default() += 1;
    }
    assert_eq!(counts.len(), 24);
    assert_distribution(&counts.into_values().collect::<Vec<_>>(), &[1.0; 24], "one window");
}

#[test]
fn neighbouring_windows_epochs_and_seeds_of_blocks_are_unrelated() {
    const WINDOW: u64 = 100;
    // One block a window, so that rows modulo its size are the order inside the window.
    let within = |seed, epoch| {
        let order = listed(&block_shuffle(seed, WINDOW, 1, 20 * WINDOW, epoch), 20 * WINDOW);
        let inside = |window: &[u64]| window.iter().map(|row| row % WINDOW).collect::<Vec<_>>();
        order.chunks(WINDOW as usize).map(inside).collect::<Vec<_>>()
    };
    let windows = within(0, 0);
    let pairs = windows.iter().zip(&windows[1..]).map(|(a, b)| (a.clone(), b.clone()));
    assert_unrelated(pairs, "windows");
    for (name, (seed, epoch)) in [("epochs", (0, 1)), ("seeds", (1, 0))] {
        assert_unrelated(within(0, 0).into_iter().zip(within(seed, epoch)), name);
    }
    assert_unrelated(within(1, 0).into_iter().zip(within(0, 1)), "sums of seed and epoch");
}

fn weighted(seed: u64, draws: Option<u64>, replacement: bool, weights: &[f64], epoch: u64) -> EpochOrder {
    let sampler = Sampler::Weighted { seed, num_samples: draws, replacement };
    sampler.bind(weights.len() as u64, Some(Arc::new(weights.to_vec()))).unwrap().epoch(epoch).unwrap()
}

#[test]
fn draws_follow_the_weights() {
    let weights: Vec<f64> = (0..150).map(|row| 1.0 + f64::from(row % 7)).collect();
    let over_positions = listed(&weighted(3, Some(100_000), true, &weights, 0), 100_000);
    let over_epochs = (0..100_000).map(|epoch| weighted(3, None, true, &weights, epoch).at(5).unwrap());
    for (name, rows) in [("positions", over_positions), ("epochs", over_epochs.collect())] {
        let mut observed = vec![0; weights.len()];
        rows.into_iter().for_each(|row| observed[row as usize] += 1);
        assert_distribution(&observed, &weights, name);
    }
}

#[test]
fn neighbouring_draws_are_independent() {
    let draw = |seed, epoch| listed(&weighted(seed, Some(40_001), true, &[1.0; 8], epoch), 40_001);
    let base = draw(0, 0);
    for (name, other) in [("positions", &base[1..]), ("seeds", &draw(1, 0)), ("epochs", &draw(0, 1))] {
        assert_uniform(base.iter().zip(other).map(|(a, b)| a * 8 + b), 64, name);
    }
    let sums = draw(1, 0).into_iter().zip(draw(0, 1)).map(|(a, b)| a * 8 + b);
    assert_uniform(sums, 64, "sums of seed and epoch");
}

/// In single precision a sum of 2^24 does not grow by a half; other samplers fail here.
#[test]
fn weights_are_honoured_above_two_to_the_24_rows() {
    const HEAD: usize = 1 << 24;
    const TAIL: usize = 1 << 20;
    let mut weights = vec![1.0; HEAD];
    weights.extend((0..TAIL).map(|row| if row % 2 == 0 { 0.5 } else { 1.5 }));
    let draws = 64_000;
    let rows = listed(&weighted(5, Some(draws), true, &weights, 2), draws);

    // Eighths of the head, then the even and the odd rows of each quarter of the tail.
    let cell = |row: usize| match row.checked_sub(HEAD) {
        None => row / (HEAD / 8),
        Some(row) => 8 + row / (TAIL / 4) * 2 + row % 2,
    };
    let (mut observed, mut expected) = (vec![0; 16], vec![0.0; 16]);
    rows.into_iter().for_each(|row| observed[cell(row as usize)] += 1);
    weights.iter().enumerate().for_each(|(row, weight)| expected[cell(row)] += weight);
    assert_distribution(&observed, &expected, "head and tail");
}

#[test]
fn draws_without_replacement_follow_the_weights_that_are_left() {
    let weights = [1.0, 2.0, 5.0];
    let (mut observed, mut expected) = (vec![0; 6], vec![0.0; 6]);
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (order, expected) in orders.iter().zip(&mut expected) {
        let [first, second] = [weights[order[0] as usize], weights[order[1] as usize]];
        *expected = first / 8.0 * second / (8.0 - first);
    }
    for epoch in 0..30_000 {
        let drawn = listed(&weighted(1, None, false, &weights, epoch), 3);
        observed[orders.iter().position(|order| order[..] == drawn).unwrap()] += 1;
    }
    assert_distribution(&observed, &expected, "all three");

    let firsts = (0..30_000).map(|seed| weighted(seed, Some(1), false, &weights, 0).at(0).unwrap());
    let mut observed = [0; 3];
    firsts.for_each(|row| observed[row as usize] += 1);
    assert_distribution(&observed, &weights, "the first");
}

#[test]
fn transform_seeds_are_spread_and_distinct() {
    let order = |seed| Sampler::Shuffle { seed }.bind(100, None).unwrap();
    let over_positions = (0..20_000).map(|position| order(1).transform_seed(0, position));
    let over_epochs = (1..20_000).map(|epoch| order(1).transform_seed(epoch, 0));
    let over_seeds = (2..20_000).map(|seed| order(seed).transform_seed(0, 0));
    let mut seeds: Vec<u64> = over_positions.chain(over_epochs).chain(over_seeds).collect();
    for bit in 0..64 {
        let ones = seeds.iter().filter(|seed| *seed >> bit & 1 == 1).count() as f64;
        let half = seeds.len() as f64 / 2.0;
        let expected = if bit == 63 { 0.0 } else { half };
        assert!((ones - expected).abs() < LIMIT * half.sqrt(), "bit {bit}: {ones} ones");
    }
    assert_uniform(seeds.iter().map(|seed| seed >> 53), 1024, "upper bits");
    let count = seeds.len();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), count);
}

#[test]
fn substitutes_are_equally_likely_rows() {
    let order = Sampler::Sequential.bind(17, None).unwrap();
    assert_uniform((0..20_000).map(|attempt| order.substitute(0, 5, attempt)), 17, "attempts");
    assert_uniform((0..20_000).map(|position| order.substitute(0, position, 0)), 17, "positions");
    let pairs = (0..40_000).map(|at| order.substitute(1, at, 0) * 17 + order.substitute(1, at, 1));
    assert_uniform(pairs, 17 * 17, "two attempts");
}
