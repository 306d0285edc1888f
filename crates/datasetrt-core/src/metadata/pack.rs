//! Columns in less memory: where few cells of a chunk differ, each different one is kept once.
//!
//! Labels, splits and rounded scores take one or two bytes a row this way, in place of 8 to 20. Each chunk, at most
//! 65,536 rows, is packed by itself, so that two bytes number all of its cells.

use std::hash::Hash;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray};
use arrow_buffer::NullBuffer;
use hashbrown::HashMap;

use super::gather::{Cells, Chunks, IntCells};
use super::types::ColumnType;

impl Chunks {
    /// A column without chunks.
    pub(super) fn empty(ty: ColumnType) -> Self {
        match ty {
            ColumnType::Bool => Chunks::Bool(Vec::new()),
            ColumnType::Int64 => Chunks::Int(Vec::new()),
            ColumnType::Float64 => Chunks::Float(Vec::new()),
            ColumnType::String => Chunks::Str(Vec::new()),
        }
    }

    /// Adds the cells of an array of the column's type, of which nothing is kept. Gives the bytes that they take.
    pub(super) fn push_packed(&mut self, array: &ArrayRef) -> usize {
        match self {
            Chunks::Bool(chunks) => {
                let copy: BooleanArray = array.as_boolean().iter().collect();
                push(chunks, copy, |copy| copy.get_buffer_memory_size())
            }
            Chunks::Int(chunks) => push(chunks, pack_ints(array.as_primitive()), int_bytes),
            Chunks::Float(chunks) => {
                let array = array.as_primitive::<Float64Type>();
                // By their bits: NaNs and zeros stay the ones they are.
                push(chunks, pack::<_, _, Float64Array>(array.iter(), f64::to_bits), bytes)
            }
            Chunks::Str(chunks) => {
                let array = array.as_string::<i64>();
                push(chunks, pack::<_, _, LargeStringArray>(array.iter(), |text| text), bytes)
            }
        }
    }
}

fn push<C>(chunks: &mut Vec<C>, chunk: C, bytes: impl FnOnce(&C) -> usize) -> usize {
    let bytes = bytes(&chunk);
    chunks.push(chunk);
    bytes
}

fn bytes<A: Array>(cells: &Cells<A>) -> usize {
    match cells {
        Cells::Plain(array) => array.get_buffer_memory_size(),
        Cells::Few { numbers, values } => numbers.len() + values.get_buffer_memory_size(),
        Cells::Many { numbers, values } => 2 * numbers.len() + values.get_buffer_memory_size(),
    }
}

fn int_bytes(cells: &IntCells) -> usize {
    match cells {
        IntCells::Cells(cells) => bytes(cells),
        IntCells::Near { offsets, nulls, .. } => {
            2 * offsets.len() + nulls.as_ref().map_or(0, |nulls| nulls.buffer().len())
        }
    }
}

/// Whatever is smallest. Cells with the same key are the same.
fn pack<V: Copy, K: Hash + Eq, A: Array + FromIterator<Option<V>>>(
    cells: impl Iterator<Item = Option<V>> + Clone,
    key: impl Fn(V) -> K,
) -> Cells<A> {
    let mut known: HashMap<Option<K>, u16> = HashMap::new();
    let mut values: Vec<Option<V>> = Vec::new();
    let number = |cell: Option<V>| {
        *known.entry(cell.map(&key)).or_insert_with(|| {
            values.push(cell);
            // Fits: a chunk has at most 65,536 rows.
            (values.len() - 1) as u16
        })
    };
    let numbers: Vec<u16> = cells.clone().map(number).collect();
    let few = values.len() <= 256;
    let worth_it = 4 * values.len() <= numbers.len();
    let values = compact(values.into_iter().collect::<A>());
    let numbered = match few {
        true => Cells::Few { numbers: numbers.iter().map(|number| *number as u8).collect(), values },
        false => Cells::Many { numbers: numbers.into(), values },
    };
    if worth_it {
        return numbered;
    }
    let plain = Cells::Plain(compact(cells.collect::<A>()));
    if bytes(&plain) <= bytes(&numbered) { plain } else { numbered }
}

/// Builders of arrays grow by doubling.
fn compact<A: Array>(mut array: A) -> A {
    array.shrink_to_fit();
    array
}

/// As [`pack`], and by their distance from the least where that is smaller: lengths, or numbers that count up.
fn pack_ints(array: &Int64Array) -> IntCells {
    let packed = IntCells::Cells(pack::<_, _, Int64Array>(array.iter(), |cell| cell));
    let mut least_and_most: Option<(i64, i64)> = None;
    for cell in array.iter().flatten() {
        let (least, most) = least_and_most.unwrap_or((cell, cell));
        least_and_most = Some((least.min(cell), most.max(cell)));
    }
    let narrow = |(least, most): &(i64, i64)| most.abs_diff(*least) <= u64::from(u16::MAX);
    let Some((base, _)) = least_and_most.filter(narrow) else { return packed };
    // Fits: the most does.
    let offset = |cell: Option<i64>| cell.map_or(0, |cell| cell.abs_diff(base) as u16);
    let nulls = array.nulls().map(|nulls| nulls.iter().collect::<NullBuffer>());
    let near = IntCells::Near { base, offsets: array.iter().map(offset).collect(), nulls };
    if int_bytes(&packed) <= int_bytes(&near) { packed } else { near }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::metadata::gather::Spot;
    use crate::metadata::types::{MAX_BATCH_ROWS, Value};

    fn packed(ty: ColumnType, array: ArrayRef) -> (Chunks, usize) {
        let mut chunks = Chunks::empty(ty);
        let bytes = chunks.push_packed(&array);
        // What is kept is what was there.
        let plain = Chunks::new(ty, [&array].into_iter()).unwrap();
        for row in 0..array.len() {
            let spot = Spot { source: 0, chunk: 0, row };
            let same = match (chunks.value(spot), plain.value(spot)) {
                (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
                (a, b) => a == b,
            };
            assert!(same, "row {row}: {:?} is not {:?}", chunks.value(spot), plain.value(spot));
        }
        (chunks, bytes)
    }

    fn ints(cells: impl Iterator<Item = Option<i64>>) -> (IntCells, usize) {
        let (chunks, bytes) = packed(ColumnType::Int64, Arc::new(cells.collect::<Int64Array>()));
        let Chunks::Int(mut chunks) = chunks else { panic!("another type") };
        (chunks.remove(0), bytes)
    }

    const ROWS: i64 = MAX_BATCH_ROWS as i64;

    #[test]
    fn integers_take_as_little_as_they_need() {
        let (labels, bytes) = ints((0..ROWS).map(|n| Some(n * 31 % 256)));
        assert!(matches!(labels, IntCells::Cells(Cells::Few { .. })) && bytes == MAX_BATCH_ROWS + 8 * 256);
        // A null is one more.
        let (labels, _) = ints((0..ROWS).map(|n| (n > 9).then_some(n % 256)));
        assert!(matches!(labels, IntCells::Cells(Cells::Many { .. })));
        let (far, bytes) = ints((0..ROWS).map(|n| Some(n % 300 * i64::from(i32::MAX))));
        assert!(matches!(far, IntCells::Cells(Cells::Many { .. })) && bytes == 2 * MAX_BATCH_ROWS + 8 * 300);
        let (all, bytes) = ints((0..ROWS).map(|n| Some(n + i64::MIN)));
        assert!(matches!(all, IntCells::Near { base: i64::MIN, .. }) && bytes == 2 * MAX_BATCH_ROWS);
        let (top, _) = ints((0..ROWS).map(|n| (n % 5 > 0).then_some(i64::MAX - n)));
        assert!(matches!(top, IntCells::Near { nulls: Some(_), .. }));
        let (ends, _) = ints((0..ROWS).map(|n| Some(if n % 2 == 0 { i64::MIN + n } else { i64::MAX - n })));
        assert!(matches!(ends, IntCells::Cells(Cells::Plain(_))));
        let (none, bytes) = ints((0..ROWS).map(|_| None));
        assert!(matches!(none, IntCells::Cells(Cells::Few { .. })) && bytes < MAX_BATCH_ROWS + 100);
    }

    #[test]
    fn floats_that_are_equal_and_not_the_same_stay_apart() {
        let special = [0.0, -0.0, f64::NAN, -f64::NAN, f64::from_bits(0x7ff8_0000_0000_0001), f64::INFINITY];
        let cells: Float64Array = (0..MAX_BATCH_ROWS).map(|n| special.get(n % 7).copied()).collect();
        let (chunks, bytes) = packed(ColumnType::Float64, Arc::new(cells));
        assert!(matches!(chunks, Chunks::Float(chunks) if matches!(chunks[0], Cells::Few { .. })));
        assert!(bytes < MAX_BATCH_ROWS + 200, "{bytes}");
    }

    proptest! {
        #[test]
        fn whatever_is_packed_is_read_back(
            different in 1u64..400, rows in 0usize..1500, nulls in 1usize..9, spread in 0u32..64, text in "[a-zé]{0,12}",
        ) {
            let cell = |n: usize| (n % 9 < nulls).then_some((n as u64).wrapping_mul(0x9e37_79b9) % different);
            let cells = || (0..rows).map(cell);
            let int = |n: u64| n.wrapping_shl(spread).cast_signed();
            packed(ColumnType::Int64, Arc::new(cells().map(|c| c.map(int)).collect::<Int64Array>()));
            let float = |n: u64| f64::from_bits(n.rotate_right(spread));
            packed(ColumnType::Float64, Arc::new(cells().map(|c| c.map(float)).collect::<Float64Array>()));
            packed(ColumnType::Bool, Arc::new(cells().map(|c| c.map(|n| n % 2 == 0)).collect::<BooleanArray>()));
            let word = |n: u64| format!("{text}{n}");
            packed(ColumnType::String, Arc::new(cells().map(|c| c.map(word)).collect::<LargeStringArray>()));
        }
    }
}
