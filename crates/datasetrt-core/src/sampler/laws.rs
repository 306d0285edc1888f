//! What every order obeys, for all small sizes and for random larger ones.

use super::{EpochOrder, Order, Sampler};
use crate::error::ErrorKind;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Larger than any table, so that networks are tested, and small enough to list.
const LISTABLE: u64 = 20_000;

fn shuffle(seed: u64) -> Sampler {
    Sampler::Shuffle { seed }
}

fn block_shuffle(seed: u64, block_samples: u64, window_blocks: u64) -> Sampler {
    Sampler::BlockShuffle { seed, block_samples, window_blocks }
}

fn weighted(seed: u64, num_samples: Option<u64>, replacement: bool) -> Sampler {
    Sampler::Weighted { seed, num_samples, replacement }
}

fn epoch(sampler: &Sampler, rows: u64, epoch: u64) -> EpochOrder {
    sampler.bind(rows, None).unwrap().epoch(epoch).unwrap()
}

fn listed(order: &EpochOrder, start: u64, count: u64) -> Vec<u64> {
    let mut rows = vec![u64::MAX; count as usize];
    order.fill(start, &mut rows).unwrap();
    rows
}

/// All positions give all rows, `at` agrees with `fill`, and `position_of` undoes both; the last two
/// are looked at in up to 256 places.
fn check_permutation(order: &EpochOrder, rows: u64) {
    let all = listed(order, 0, rows);
    let mut seen = vec![false; rows as usize];
    for row in &all {
        assert!(!std::mem::replace(&mut seen[*row as usize], true), "row {row} comes twice");
    }
    let stride = rows.div_ceil(256).max(1);
    for position in (0..rows).step_by(stride as usize).chain(rows.checked_sub(1)) {
        let row = all[position as usize];
        assert_eq!(order.at(position).unwrap(), row);
        assert_eq!(order.position_of(row).unwrap(), position);
    }
}

#[test]
fn orders_are_permutations_of_every_small_size() {
    for rows in 0..=200 {
        check_permutation(&epoch(&Sampler::Sequential, rows, 0), rows);
        check_permutation(&epoch(&shuffle(rows), rows, 1), rows);
        check_permutation(&epoch(&weighted(3, None, false), rows, 2), rows);
        for (block, window) in [(1, 1), (1, 7), (7, 1), (4, 3), (16, 5), (150, 2), (1000, 1000)] {
            check_permutation(&epoch(&block_shuffle(5, block, window), rows, 3), rows);
        }
    }
}

#[test]
fn sequential_is_the_table() {
    assert_eq!(listed(&epoch(&Sampler::Sequential, 100, 5), 40, 10), (40..50).collect::<Vec<_>>());
}

#[test]
fn sizes_at_the_border_of_tables_are_permutations() {
    for rows in (1000..1100).chain([4095, 4096, 4097]) {
        check_permutation(&epoch(&shuffle(1), rows, 0), rows);
        check_permutation(&epoch(&block_shuffle(1, 1, rows), rows, 0), rows);
        check_permutation(&epoch(&block_shuffle(1, 3, 400), rows * 3 - 1, 0), rows * 3 - 1);
    }
}

/// Any of the samplers that reach every row once, with blocks of all proportions.
fn permuting() -> impl Strategy<Value = Sampler> {
    prop_oneof![
        any::<u64>().prop_map(shuffle),
        (any::<u64>(), 1..300_u64, 1..50_u64).prop_map(|(s, b, w)| block_shuffle(s, b, w)),
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(s, b, w)| block_shuffle(s, b.max(1), w.max(1))),
    ]
}

fn any_sampler() -> impl Strategy<Value = Sampler> {
    prop_oneof![
        permuting(),
        Just(Sampler::Sequential),
        (any::<u64>(), proptest::option::of(1..5000_u64)).prop_map(|(s, n)| weighted(s, n, true)),
        any::<u64>().prop_map(|s| weighted(s, None, false)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn larger_orders_are_permutations(s in permuting(), rows in 1..LISTABLE, e in any::<u64>()) {
        check_permutation(&epoch(&s, rows, e), rows);
    }

    #[test]
    fn any_part_is_a_part_of_the_whole(
        s in any_sampler(), rows in 1..LISTABLE, e in any::<u64>(), cut in any::<(u64, u64)>()
    ) {
        let order = epoch(&s, rows, e);
        let len = s.bind(rows, None).unwrap().len();
        let start = cut.0 % (len + 1);
        let count = cut.1 % (len - start + 1);
        let part = &listed(&order, 0, len)[start as usize..(start + count) as usize];
        prop_assert_eq!(listed(&order, start, count), part);
        if count > 0 {
            prop_assert_eq!(order.at(start).unwrap(), part[0]);
        }
    }

    #[test]
    fn huge_orders_can_be_undone_anywhere(
        s in permuting(), rows in 1_u64..=1 << 63, e in any::<u64>(), picks in any::<[u64; 8]>()
    ) {
        let order = epoch(&s, rows, e);
        for pick in picks {
            let position = pick % rows;
            let row = order.at(position).unwrap();
            prop_assert!(row < rows);
            prop_assert_eq!(order.position_of(row).unwrap(), position);
            let one = listed(&order, position, 1);
            prop_assert_eq!(one, [row]);
        }
    }

    #[test]
    fn a_window_reads_whole_blocks_and_no_others(
        seed in any::<u64>(), rows in 1..3000_u64, block in 1..200_u64, window in 1..20_u64
    ) {
        let all = listed(&epoch(&block_shuffle(seed, block, window), rows, 0), 0, rows);
        let size_of = |number: u64| block.min(rows - number * block);
        let mut rest = all.as_slice();
        let mut seen = BTreeSet::new();
        while !rest.is_empty() {
            // The blocks that fill a window are those of its first rows, up to `window` of them.
            let mut blocks = BTreeSet::new();
            let mut size = 0;
            for number in rest.iter().map(|row| row / block) {
                if (blocks.len() as u64) < window && blocks.insert(number) {
                    size += size_of(number) as usize;
                }
            }
            let (now, later) = rest.split_at(size);
            prop_assert!(now.iter().all(|row| blocks.contains(&(row / block))));
            for number in blocks {
                prop_assert!(seen.insert(number), "block {} is in two windows", number);
            }
            rest = later;
        }
        prop_assert_eq!(seen.len() as u64, rows.div_ceil(block));
    }

    #[test]
    fn draws_are_rows_with_weight(
        seed in any::<u64>(), weights in proptest::collection::vec(1e-30..1e30_f64, 1..200), n in 1..500_u64
    ) {
        let rows = weights.len() as u64;
        let weights = Arc::new(weights);
        let drawn = |n, replacement| {
            let sampler = weighted(seed, Some(n), replacement);
            let order = sampler.bind(rows, Some(Arc::clone(&weights))).unwrap();
            listed(&order.epoch(0).unwrap(), 0, n)
        };
        prop_assert!(drawn(n, true).iter().all(|row| *row < rows));
        let once = |n| drawn(n, false);
        let some = n.min(rows);
        prop_assert_eq!(once(some), &once(rows)[..some as usize], "fewer draws are the first of more");
    }
}

#[test]
fn seeds_and_epochs_give_different_orders() {
    let mut seen = BTreeSet::new();
    let samplers: [fn(u64) -> Sampler; 4] =
        [shuffle, |s| block_shuffle(s, 8, 4), |s| weighted(s, None, true), |s| weighted(s, None, false)];
    for (rows, make) in [(100, samplers), (5000, samplers)].into_iter().flat_map(|(r, m)| m.map(|f| (r, f))) {
        for (seed, number) in (0..8).flat_map(|s| (0..8).map(move |e| (s, e))) {
            assert!(seen.insert(listed(&epoch(&make(seed), rows, number), 0, rows)));
        }
    }
    assert_eq!(seen.len(), 2 * 4 * 64);
}

#[test]
fn orders_are_shared_between_threads_and_clones() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<Sampler>();
    shared::<Order>();
    shared::<EpochOrder>();
}

/// The kind and message of a refusal.
fn refused<T: std::fmt::Debug>(result: crate::error::Result<T>) -> (ErrorKind, String) {
    let error = result.unwrap_err();
    (error.kind(), error.message().to_owned())
}

#[test]
fn arguments_are_checked() {
    use ErrorKind::{Empty, InvalidArgument};
    let some = |weights: &[f64]| Some(Arc::new(weights.to_vec()));
    let draw = weighted(0, None, true);
    let cases = [
        (shuffle(0).bind((1 << 63) + 1, None), InvalidArgument, "9223372036854775809 rows"),
        (block_shuffle(0, 0, 1).bind(5, None), InvalidArgument, "block_samples is 0"),
        (block_shuffle(0, 1, 0).bind(5, None), InvalidArgument, "window_blocks is 0"),
        (weighted(0, Some(0), true).bind(5, None), InvalidArgument, "num_samples is 0"),
        (weighted(0, Some(7), true).bind(0, None), Empty, "num_samples is 7"),
        (weighted(0, Some(u64::MAX), true).bind(5, None), InvalidArgument, "at most 9223372036854775808"),
        (weighted(0, Some(6), false).bind(5, None), InvalidArgument, "ask for at most 5"),
        (draw.bind(3, some(&[1.0, 2.0])), InvalidArgument, "2 weights for 3 rows"),
        (draw.bind(2, some(&[1.0, f64::NAN])), InvalidArgument, "row 1 is NaN"),
        (draw.bind(2, some(&[f64::INFINITY, 1.0])), InvalidArgument, "row 0 is inf"),
        (draw.bind(2, some(&[1.0, 0.0])), InvalidArgument, "row 1 is 0"),
        (draw.bind(2, some(&[1.0, -2.5])), InvalidArgument, "row 1 is -2.5"),
        (draw.bind(2, some(&[1e308, 1e308])), InvalidArgument, "sum to inf"),
        (draw.bind(1, some(&[1e-300])), InvalidArgument, "sum to 1e-300"),
    ];
    for (result, kind, part) in cases {
        let (found, message) = refused(result);
        assert_eq!(found, kind, "{message}");
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn only_weighted_looks_at_weights() {
    assert!(shuffle(0).bind(3, Some(vec![f64::NAN].into())).is_ok());
}

#[test]
fn positions_and_rows_are_checked() {
    for sampler in [Sampler::Sequential, shuffle(1), block_shuffle(1, 2, 2), weighted(1, None, false)] {
        let order = epoch(&sampler, 10, 0);
        let mut out = [7; 3];
        for result in [order.at(10).map(drop), order.fill(8, &mut out), order.fill(u64::MAX, &mut out)] {
            let (kind, message) = refused(result);
            assert_eq!(kind, ErrorKind::IndexOutOfRange);
            assert!(message.ends_with("positions run from 0 to 9"), "{message}");
        }
        assert_eq!(out, [7; 3], "a refused fill changes nothing");
        order.fill(10, &mut []).unwrap();
        let mut found = [0; 5];
        order.look_up(&[9, 0, 1, 2, 9], &mut found).unwrap();
        assert_eq!(found, [9, 0, 1, 2, 9].map(|position| order.at(position).unwrap()));
        assert!(order.look_up(&[1, 10], &mut [0; 2]).is_err());
        assert!(order.look_up(&[u64::MAX, 0], &mut [0; 2]).is_err());
        assert!(order.look_up(&[1], &mut [0; 2]).is_err());
        let (kind, message) = refused(order.position_of(10));
        assert_eq!(
            (kind, message.as_str()),
            (ErrorKind::IndexOutOfRange, "row 10 is not in the dataset; rows run from 0 to 9")
        );
    }
}

#[test]
fn draws_have_no_inverse_but_for_rows_drawn_once() {
    let (kind, message) = refused(epoch(&weighted(1, None, true), 10, 0).position_of(3));
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(message.contains("row 3") && message.contains("replacement=False"), "{message}");

    let once = epoch(&weighted(1, Some(4), false), 10, 0);
    let drawn = listed(&once, 0, 4);
    let other = (0..10).find(|row| !drawn.contains(row)).unwrap();
    let (kind, message) = refused(once.position_of(other));
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(message.contains("the 4 of 10 rows"), "{message}");
}

#[test]
fn orders_of_no_rows_are_empty() {
    for sampler in [
        Sampler::Sequential,
        shuffle(1),
        block_shuffle(1, 2, 2),
        weighted(1, None, true),
        weighted(1, None, false),
    ] {
        let order = sampler.bind(0, None).unwrap();
        assert!(order.is_empty());
        assert_eq!(order.substitute(0, 0, 0), 0);
        let none = order.epoch(0).unwrap();
        none.fill(0, &mut []).unwrap();
        let (kind, message) = refused(none.at(0));
        assert_eq!(kind, ErrorKind::IndexOutOfRange);
        assert!(message.ends_with("it has no positions"), "{message}");
    }
}
