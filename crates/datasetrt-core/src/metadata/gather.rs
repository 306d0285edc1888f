//! Cells by address: the columns of tables as chunks, and the one loop that copies chosen cells
//! into a new array.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, LargeStringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, LargeStringArray};
use arrow_buffer::NullBuffer;

use super::types::{ColumnType, Value};
use crate::error::Result;
use crate::memory;
use crate::prefetch::prefetch;

/// One column of a table, in the chunks of its file.
#[derive(Debug)]
pub(super) enum Chunks {
    Bool(Vec<BooleanArray>),
    Int(Vec<IntCells>),
    Float(Vec<Cells<Float64Array>>),
    Str(Vec<Cells<LargeStringArray>>),
}

/// The cells of a chunk: as they are, or each different one once and a number for each row.
#[derive(Debug)]
pub(super) enum Cells<A> {
    Plain(A),
    Few { numbers: Box<[u8]>, values: A },
    Many { numbers: Box<[u16]>, values: A },
}

/// The same of integers, or what each of them is more than the least.
#[derive(Debug)]
pub(super) enum IntCells {
    Cells(Cells<Int64Array>),
    Near { base: i64, offsets: Box<[u16]>, nulls: Option<NullBuffer> },
}

impl<A> Cells<A> {
    /// The array that has the cell of a row, and where.
    #[inline]
    fn at(&self, row: usize) -> (&A, usize) {
        match self {
            Cells::Plain(array) => (array, row),
            Cells::Few { numbers, values } => (values, usize::from(numbers[row])),
            Cells::Many { numbers, values } => (values, usize::from(numbers[row])),
        }
    }
}

/// The address of a row: which table, which chunk of it, which row of that. Addresses come from
/// tables, which check them once; the accessors below index without asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) source: usize,
    pub(super) chunk: usize,
    pub(super) row: usize,
}

/// The same column in several tables; a table without it has nulls there.
pub(super) type Sources<'a> = [Option<&'a Chunks>];

impl Chunks {
    /// The column from its arrays; none if an array has another type.
    pub(super) fn new<'a>(ty: ColumnType, mut arrays: impl Iterator<Item = &'a ArrayRef>) -> Option<Self> {
        fn all<'a, A: Clone + 'a>(arrays: impl Iterator<Item = Option<&'a A>>) -> Option<Vec<A>> {
            arrays.map(Option::<&A>::cloned).collect()
        }
        fn plain<A>(arrays: Vec<A>) -> Vec<Cells<A>> {
            arrays.into_iter().map(Cells::Plain).collect()
        }
        let arrays = &mut arrays;
        Some(match ty {
            ColumnType::Bool => Chunks::Bool(all(arrays.map(|a| a.as_boolean_opt()))?),
            ColumnType::Int64 => {
                let cells = plain(all(arrays.map(|a| a.as_primitive_opt()))?);
                Chunks::Int(cells.into_iter().map(IntCells::Cells).collect())
            }
            ColumnType::Float64 => Chunks::Float(plain(all(arrays.map(|a| a.as_primitive_opt()))?)),
            ColumnType::String => Chunks::Str(plain(all(arrays.map(|a| a.as_string_opt()))?)),
        })
    }

    /// The cell at an address.
    pub(super) fn value(&self, spot: Spot) -> Value<'_> {
        let source = &[Some(self)];
        let spot = Spot { source: 0, ..spot };
        match self {
            Chunks::Bool(_) => bool_at(source, spot).map_or(Value::Null, Value::Bool),
            Chunks::Int(_) => int_at(source, spot).map_or(Value::Null, Value::Int),
            Chunks::Float(_) => float_at(source, spot).map_or(Value::Null, Value::Float),
            Chunks::Str(_) => str_at(source, spot).map_or(Value::Null, Value::Str),
        }
    }

    /// Has the processor bring the cell at an address; of text, where it lies.
    pub(super) fn prefetch(&self, spot: Spot) {
        fn bring<T>(places: &[T], at: usize) {
            if let Some(place) = places.get(at) {
                prefetch(place);
            }
        }
        fn bring_cell<A>(cells: Option<&Cells<A>>, row: usize, plain: impl FnOnce(&A)) {
            match cells {
                Some(Cells::Plain(array)) => plain(array),
                Some(Cells::Few { numbers, .. }) => bring(numbers, row),
                Some(Cells::Many { numbers, .. }) => bring(numbers, row),
                None => {}
            }
        }
        let Spot { chunk, row, .. } = spot;
        match self {
            Chunks::Bool(chunks) => {
                if let Some(bits) = chunks.get(chunk).map(BooleanArray::values) {
                    bring(bits.values(), (bits.offset() + row) / 8);
                }
            }
            Chunks::Int(chunks) => match chunks.get(chunk) {
                Some(IntCells::Cells(cells)) => bring_cell(Some(cells), row, |a| bring(a.values(), row)),
                Some(IntCells::Near { offsets, .. }) => bring(offsets, row),
                None => {}
            },
            Chunks::Float(chunks) => bring_cell(chunks.get(chunk), row, |a| bring(a.values(), row)),
            Chunks::Str(chunks) => bring_cell(chunks.get(chunk), row, |a| bring(a.value_offsets(), row)),
        }
    }
}

macro_rules! cell_at {
    ($name:ident, $variant:ident, $cell:ty) => {
        /// The cell at an address: none where it is null, or its table has no such column.
        #[inline]
        pub(super) fn $name<'a>(sources: &Sources<'a>, spot: Spot) -> Option<$cell> {
            match sources[spot.source] {
                Some(Chunks::$variant(chunks)) => {
                    let (array, row) = chunks[spot.chunk].at(spot.row);
                    array.is_valid(row).then(|| array.value(row))
                }
                _ => None,
            }
        }
    };
}

/// The cell at an address: none where it is null, or its table has no such column.
#[inline]
pub(super) fn int_at(sources: &Sources<'_>, spot: Spot) -> Option<i64> {
    let Some(Chunks::Int(chunks)) = sources[spot.source] else { return None };
    match &chunks[spot.chunk] {
        IntCells::Cells(cells) => {
            let (array, row) = cells.at(spot.row);
            array.is_valid(row).then(|| array.value(row))
        }
        IntCells::Near { base, offsets, nulls } => {
            let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(spot.row));
            valid.then(|| base.wrapping_add(i64::from(offsets[spot.row])))
        }
    }
}

/// The cell at an address: none where it is null, or its table has no such column.
#[inline]
pub(super) fn bool_at(sources: &Sources<'_>, spot: Spot) -> Option<bool> {
    match sources[spot.source] {
        Some(Chunks::Bool(chunks)) => {
            let chunk = &chunks[spot.chunk];
            chunk.is_valid(spot.row).then(|| chunk.value(spot.row))
        }
        _ => None,
    }
}

cell_at!(float_at, Float, f64);
cell_at!(str_at, Str, &'a str);

/// The cell at an address, whatever its type.
pub(super) fn value_at<'a>(sources: &Sources<'a>, spot: Spot) -> Value<'a> {
    sources[spot.source].map_or(Value::Null, |chunks| chunks.value(spot))
}

/// Copies cells of one column into a new array.
///
/// # Errors
///
/// `io` if the system refuses the memory.
pub(super) fn gather(ty: ColumnType, sources: &Sources<'_>, spots: &[Spot]) -> Result<ArrayRef> {
    let text = match ty {
        ColumnType::String => spots.iter().filter_map(|spot| str_at(sources, *spot)).map(str::len).sum(),
        ColumnType::Bool | ColumnType::Int64 | ColumnType::Float64 => 0,
    };
    memory::ask("metadata", spots.len().saturating_mul(9).saturating_add(text))?;
    macro_rules! copy {
        ($builder:expr, $at:ident) => {{
            let mut builder = $builder;
            for spot in spots {
                builder.append_option($at(sources, *spot));
            }
            Arc::new(builder.finish())
        }};
    }
    Ok(match ty {
        ColumnType::Bool => copy!(BooleanBuilder::with_capacity(spots.len()), bool_at),
        ColumnType::Int64 => copy!(Int64Builder::with_capacity(spots.len()), int_at),
        ColumnType::Float64 => copy!(Float64Builder::with_capacity(spots.len()), float_at),
        ColumnType::String => copy!(LargeStringBuilder::with_capacity(spots.len(), text), str_at),
    })
}

/// The first row in which an array and the cells at `spots` differ. Null equals null and NaN
/// equals NaN. The array must have the column's own Arrow type.
pub(super) fn first_difference(
    ty: ColumnType,
    actual: &dyn Array,
    sources: &Sources<'_>,
    spots: &[Spot],
) -> Option<usize> {
    fn differ<T>(
        actual: impl Iterator<Item = Option<T>>,
        spots: &[Spot],
        same: impl Fn(Option<T>, Spot) -> bool,
    ) -> Option<usize> {
        actual.zip(spots).position(|(cell, spot)| !same(cell, *spot))
    }
    match ty {
        ColumnType::Bool => differ(actual.as_boolean().iter(), spots, |cell, s| cell == bool_at(sources, s)),
        ColumnType::Int64 => {
            let actual = actual.as_primitive::<Int64Type>();
            differ(actual.iter(), spots, |cell, s| cell == int_at(sources, s))
        }
        ColumnType::Float64 => {
            let actual = actual.as_primitive::<Float64Type>();
            differ(actual.iter(), spots, |cell, s| same_float(cell, float_at(sources, s)))
        }
        ColumnType::String => {
            differ(actual.as_string::<i64>().iter(), spots, |cell, s| cell == str_at(sources, s))
        }
    }
}

fn same_float(a: Option<f64>, b: Option<f64>) -> bool {
    a == b || matches!((a, b), (Some(a), Some(b)) if a.is_nan() && b.is_nan())
}
