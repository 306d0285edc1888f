//! Draws by weight: independent ones, and each row at most once.
//!
//! Everything is in `f64` by single operations in a stated order, so that every platform and every
//! release draws the same rows.

use super::rng::Words;
use crate::error::{Result, invalid};
use crate::memory;

/// What messages call the tables that have an item for each row.
const DRAWS: &str = "tables for Weighted";
/// 2^53: random fractions are multiples of its inverse.
const FRACTIONS: u64 = 1 << 53;
/// Sums outside this range would make keys and products overflow or lose digits.
const TOTAL_RANGE: std::ops::RangeInclusive<f64> = 1e-280..=1e280;

/// Checks weights against the rows that they belong to.
pub(super) fn check_weights(weights: &[f64], rows: u64) -> Result<()> {
    let given = weights.len();
    if given as u64 != rows {
        return Err(invalid(format!("{given} weights for {rows} rows; give one weight a row")));
    }
    if let Some(row) = weights.iter().position(|weight| !(weight.is_finite() && *weight > 0.0)) {
        let weight = weights[row];
        return Err(invalid(format!(
            "the weight of row {row} is {weight}; weights must be finite and greater than 0, \
             filter out rows to skip"
        )));
    }
    let total = weights.iter().fold(0.0, |sum, weight| sum + weight);
    if rows > 0 && !TOTAL_RANGE.contains(&total) {
        return Err(invalid(format!(
            "the weights sum to {total:e}, which is not between 1e-280 and 1e280; \
             multiply all of them by one factor"
        )));
    }
    Ok(())
}

/// What draws with replacement look up: a row owns the part of `[0, total)` up to its prefix sum.
#[derive(Debug)]
pub(super) enum WeightTable {
    /// Every weight is 1.0: the prefix sum of row `i` is `i + 1`.
    Equal { rows: u64 },
    /// One prefix sum a row, and the last one of every group again: those few stay in the
    /// processor's cache, so that a search in a large table waits for memory once and not twenty times.
    PrefixSums { sums: Vec<f64>, groups: Vec<f64> },
}

/// Prefix sums in a group.
const GROUP: usize = 64;

impl WeightTable {
    /// The table of checked weights.
    pub(super) fn new(rows: u64, weights: Option<&[f64]>) -> Result<Self> {
        let Some(weights) = weights else {
            return Ok(WeightTable::Equal { rows });
        };
        let mut sums = memory::list(DRAWS, rows as usize)?;
        let mut sum = 0.0;
        // One after the other: a tree-shaped sum would round differently.
        sums.extend(weights.iter().map(|weight| {
            sum += weight;
            sum
        }));
        let mut groups = memory::list(DRAWS, sums.len().div_ceil(GROUP))?;
        groups.extend(sums.chunks(GROUP).filter_map(|group| group.last().copied()));
        Ok(WeightTable::PrefixSums { sums, groups })
    }

    /// The row that is drawn at a position; there is at least one row.
    pub(super) fn draw(&self, words: &Words, position: u64) -> u64 {
        let fraction = words.bits53(position) as f64 / FRACTIONS as f64;
        match self {
            WeightTable::Equal { rows } => ((fraction * *rows as f64) as u64).min(rows - 1),
            WeightTable::PrefixSums { sums, groups } => {
                let target = fraction * sums.last().copied().unwrap_or(0.0);
                // Rounding may lift the target to the total itself; that is still the last row.
                first_above(target, sums, groups) as u64
            }
        }
    }
}

/// The index of the first prefix sum greater than `target`, or of the last one.
fn first_above(target: f64, sums: &[f64], groups: &[f64]) -> usize {
    let begin = GROUP * groups.partition_point(|sum| *sum <= target);
    let group = sums.iter().skip(begin).take(GROUP);
    // Counting all of them asks memory for the whole group at once; a search would wait three times.
    let within = group.filter(|sum| **sum <= target).count();
    (begin + within).min(sums.len() - 1)
}

/// The first `count` rows of a random order by weight: exponential keys, smallest first.
pub(super) fn draw_once(words: &Words, rows: u64, weights: Option<&[f64]>, count: u64) -> Result<Vec<u64>> {
    let mut keyed: Vec<(u64, u64)> = memory::list(DRAWS, usize::try_from(rows).unwrap_or(usize::MAX))?;
    keyed.extend((0..rows).map(|row| {
        let weight = weights.and_then(|weights| weights.get(row as usize)).unwrap_or(&1.0);
        let key = exponential(words.bits53(row) + 1) / weight;
        // Keys are not negative, so their bits sort as they do; equal keys sort by row.
        (key.to_bits(), row)
    }));
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(keyed.len());
    if 0 < count && count < keyed.len() {
        keyed.select_nth_unstable(count - 1);
    }
    keyed.truncate(count);
    keyed.sort_unstable();
    let mut drawn = memory::list(DRAWS, count)?;
    drawn.extend(keyed.iter().map(|(_, row)| *row));
    Ok(drawn)
}

/// An exponentially distributed number, `-ln(v / 2^53)` for `1 <= v <= 2^53`.
///
/// The logarithms of platforms and libraries differ in the last bit, and may differ again in their
/// next release; an order must not. So this is its own: the series of the inverse hyperbolic
/// tangent, with an argument small enough that eleven terms reach double precision.
pub(super) fn exponential(v: u64) -> f64 {
    let exponent = v.ilog2();
    let mut mantissa = v as f64 / (1_u64 << exponent) as f64;
    let mut power = f64::from(exponent) - 53.0;
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        power += 1.0;
    }
    let f = mantissa - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let mut series = 1.0 / 21.0;
    for divisor in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * z + 1.0 / divisor;
    }
    0.0 - (power * std::f64::consts::LN_2 + 2.0 * s * series)
}

#[cfg(test)]
mod tests {
    use super::super::rng::Purpose;
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_exponential_is_a_logarithm_to_the_last_digits() {
        assert_eq!(exponential(FRACTIONS).to_bits(), 0);
        let mut v = 1_u64;
        while v < FRACTIONS {
            for v in [v, v + v / 3, v + v / 2, 2 * v - 1] {
                let (ours, std) = (exponential(v), -(v as f64 / FRACTIONS as f64).ln());
                assert!((ours - std).abs() <= 4.0 * f64::EPSILON * std, "{v}: {ours:e} and {std:e}");
            }
            v *= 2;
        }
    }

    #[test]
    fn a_table_of_ones_is_the_formula_for_equal_weights() {
        for rows in [1, 2, 3, 1000, 4097] {
            let table = WeightTable::new(rows, Some(&vec![1.0; rows as usize])).unwrap();
            let formula = WeightTable::new(rows, None).unwrap();
            let words = Words::new(rows, Purpose::Weighted, 1);
            for position in 0..2000 {
                assert_eq!(table.draw(&words, position), formula.draw(&words, position));
            }
        }
    }

    #[test]
    fn a_search_by_groups_is_a_plain_search() {
        for rows in [1_usize, 2, 63, 64, 65, 127, 128, 129, 1000] {
            // Weights that vanish beside their sum make prefix sums that are equal.
            let weights: Vec<f64> = (0..rows).map(|i| if i % 3 == 0 { 1.0 } else { 1e-40 }).collect();
            let WeightTable::PrefixSums { sums, groups } =
                WeightTable::new(rows as u64, Some(&weights)).unwrap()
            else {
                panic!("given weights need a table");
            };
            for target in sums.iter().flat_map(|sum| [sum - 0.5, *sum, sum + 0.5]) {
                let plain = sums.iter().position(|sum| *sum > target).unwrap_or(rows - 1);
                assert_eq!(first_above(target, &sums, &groups), plain, "{target} of {rows}");
            }
        }
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        let error = draw_once(&Words::new(0, Purpose::Once, 0), 1 << 60, None, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().contains("bytes of tables for Weighted"), "{error}");
    }
}
