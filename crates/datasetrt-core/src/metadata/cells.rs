//! Chosen rows of a `metadata.arrow` that stays in its file, for tables too large to be kept in memory.
//!
//! At first use of a record batch its bytes are decoded once, with every check of `ipc.rs`, to learn
//! where its buffers lie; they are not kept. Cells are then read by place, neighbours together.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

use super::gather::Chunks;
use super::ipc::{self, Frame, Layout, damaged};
use super::table::{Table, check_names};
use super::texts::Texts;
use super::types::{ColumnInfo, ColumnType, arrow_schema};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

/// A file of bytes, read by place.
pub trait ReadAt {
    /// Number of bytes.
    fn bytes(&self) -> u64;
    /// Fills `out` from `offset`.
    ///
    /// # Errors
    ///
    /// Whatever reading meets; a typed error where the file ends before.
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()>;
}

/// Where the rows of a `metadata.arrow` lie.
pub struct CellFile {
    columns: Vec<ColumnInfo>,
    layout: Layout,
    /// First row of each batch.
    starts: Vec<u64>,
    rows: u64,
    /// For each batch, once it was looked at, where its columns lie. Slots are set without a lock:
    /// a process may be forked at any instant.
    places: Vec<ArcSwapOption<Vec<Column>>>,
}

/// Where the buffers of one column of one batch lie in the file.
struct Column {
    /// One bit a row, 0 where it is null; none where nothing is.
    validity: Option<u64>,
    values: Values,
}

enum Values {
    Bits(u64),
    Words(u64),
    Text { offsets: u64, text: Range<u64> },
}

/// What packing a column takes meanwhile: each different cell, its number, and where that is found.
const PACKING_BYTES_PER_ROW: usize = 96;

/// Rows of a batch that follow each other.
struct Run {
    batch: usize,
    row: u64,
    count: u64,
}

impl CellFile {
    /// Reads the footer and the head of each record batch, which must hold what the manifest says:
    /// these columns, this many rows and nulls.
    ///
    /// The caller has compared the file's checksum; nothing is believed because of it.
    ///
    /// # Errors
    ///
    /// `bad-metadata` for any bytes that are not such a file, or what reading meets.
    pub fn open(file: &impl ReadAt, columns: &[ColumnInfo], rows: u64) -> Result<Self> {
        ipc::guarded(|| Self::open_checked(file, columns, rows))
    }

    fn open_checked(file: &impl ReadAt, columns: &[ColumnInfo], rows: u64) -> Result<Self> {
        let length =
            usize::try_from(file.bytes()).map_err(|_| damaged("it is larger than the address space"))?;
        let least = ipc::MAGIC.len() + ipc::TRAILER_BYTES;
        if length < least {
            return Err(damaged(format!("{length} bytes are no Arrow file")));
        }
        let mut head = [0; ipc::MAGIC.len()];
        file.read_exact_at(&mut head, 0)?;
        let mut trailer = [0; ipc::TRAILER_BYTES];
        file.read_exact_at(&mut trailer, (length - ipc::TRAILER_BYTES) as u64)?;
        let footer = ipc::footer_place(&head, &trailer, length)?;
        let body_end = footer.start;
        let layout = ipc::layout(&read(file, footer)?, body_end)?;
        let expected = columns.iter().map(|c| (c.name.as_str(), Some(c.ty)));
        if !layout.columns.iter().map(|(name, ty)| (name.as_str(), *ty)).eq(expected) {
            return Err(damaged("its columns are not those in the manifest"));
        }
        check_names(columns)?;
        let mut starts = Vec::with_capacity(layout.frames.len());
        let mut nulls = vec![0_u64; columns.len()];
        let mut found = 0_u64;
        for frame in &layout.frames {
            let (count, missing) = frame.alone().counts(&read(file, frame.head())?)?;
            starts.push(found);
            // No overflow: each batch is at most 65,536 rows.
            found += count as u64;
            nulls.iter_mut().zip(missing).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        }
        if found != rows {
            return Err(damaged(format!("{found} rows, {rows} expected")));
        }
        if let Some((column, nulls)) = columns.iter().zip(nulls).find(|(c, nulls)| c.null_count != *nulls) {
            let (name, expected) = (&column.name, column.null_count);
            return Err(damaged(format!("column '{name}' has {nulls} nulls, {expected} expected")));
        }
        let places = layout.frames.iter().map(|_| ArcSwapOption::empty()).collect();
        Ok(CellFile { columns: columns.to_vec(), layout, starts, rows, places })
    }

    /// The given rows, in that order, as a table of their own; a row may repeat.
    ///
    /// # Errors
    ///
    /// `index-out-of-range`, with the row; `bad-metadata`; or what reading meets.
    pub fn take(&self, file: &impl ReadAt, rows: &[u64]) -> Result<Table> {
        let runs = self.runs(rows)?;
        let mut places = memory::list("metadata", runs.len())?;
        for run in &runs {
            places.push(self.places_of(file, run.batch)?);
        }
        let arrays = self.columns.iter().enumerate().map(|(number, column)| {
            let parts = runs.iter().zip(&places).filter_map(|(run, places)| Some((run, places.get(number)?)));
            gathered(file, column.ty, rows.len(), parts)
                .map_err(|e| e.reworded(format!("column '{}': {}", column.name, e.message())))
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let schema = arrow_schema(self.columns.iter().map(|c| (c.name.as_str(), Some(c.ty))));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options).map_err(damaged)?;
        Table::over(vec![batch], &self.columns)
    }

    /// All rows in memory, packed, if that takes at most about so many bytes. Reads the file batch by batch, and no
    /// further than it takes to see that it would be more.
    ///
    /// # Errors
    ///
    /// `bad-metadata`, or what reading meets.
    pub fn pack(&self, file: &impl ReadAt, most_bytes: u64) -> Result<Option<Table>> {
        ipc::guarded(|| self.pack_checked(file, most_bytes))
    }

    fn pack_checked(&self, file: &impl ReadAt, most_bytes: u64) -> Result<Option<Table>> {
        let too_many = |bytes: u64, rows: u64| {
            u128::from(bytes) * u128::from(self.rows) > u128::from(most_bytes) * u128::from(rows)
        };
        // No cell takes less than a byte, but for flags.
        let least = self.columns.iter().filter(|column| column.ty != ColumnType::Bool).count();
        if too_many(least as u64, 1) {
            return Ok(None);
        }
        let mut chunks: Vec<Chunks> = self.columns.iter().map(|column| Chunks::empty(column.ty)).collect();
        let (mut lengths, mut rows, mut bytes) = (Vec::new(), 0, 0);
        for frame in &self.layout.frames {
            let batch = self.decode(file, frame)?.0;
            // A row is found by the first row of its batch, which an empty one shares with the next.
            if batch.num_rows() == 0 {
                continue;
            }
            for (chunks, array) in chunks.iter_mut().zip(batch.columns()) {
                memory::ask("metadata", PACKING_BYTES_PER_ROW.saturating_mul(array.len()))?;
                bytes += chunks.push_packed(array) as u64;
            }
            rows += batch.num_rows() as u64;
            lengths.push(batch.num_rows());
            if too_many(bytes, rows) {
                return Ok(None);
            }
        }
        Ok(Some(Table::of_chunks(chunks, lengths.into_iter(), &self.columns)))
    }

    /// One record batch, and the address of the file's bytes that it is a window into.
    fn decode(&self, file: &impl ReadAt, frame: &Frame) -> Result<(RecordBatch, usize)> {
        let bytes = ipc::aligned(Buffer::from_vec(read(file, frame.range())?))?;
        let batch = ipc::record_batch(&bytes, &frame.alone(), &self.layout.columns)?;
        Ok((batch, bytes.as_ptr().addr()))
    }

    fn runs(&self, rows: &[u64]) -> Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut batch_end = 0;
        for row in rows {
            if *row >= self.rows {
                let message = format!("sample {row} is out of range for {} samples", self.rows);
                return Err(Error::new(ErrorKind::IndexOutOfRange, message));
            }
            if let Some(run) = runs.last_mut() {
                let start = self.starts.get(run.batch).copied().unwrap_or_default();
                if *row == start + run.row + run.count && *row < batch_end {
                    run.count += 1;
                    continue;
                }
            }
            let batch = self.starts.partition_point(|start| start <= row).saturating_sub(1);
            let start = self.starts.get(batch).copied().unwrap_or_default();
            batch_end = self.starts.get(batch + 1).copied().unwrap_or(self.rows);
            memory::push("metadata", &mut runs, Run { batch, row: row - start, count: 1 })?;
        }
        Ok(runs)
    }

    /// Two threads may look at a batch at the same time at first; they find the same.
    fn places_of(&self, file: &impl ReadAt, batch: usize) -> Result<Arc<Vec<Column>>> {
        let none = || Error::new(ErrorKind::Bug, format!("there is no record batch {batch}"));
        let slot = self.places.get(batch).ok_or_else(none)?;
        if let Some(known) = slot.load_full() {
            return Ok(known);
        }
        let frame = self.layout.frames.get(batch).ok_or_else(none)?;
        let found = Arc::new(ipc::guarded(|| self.locate(file, frame))?);
        slot.store(Some(Arc::clone(&found)));
        Ok(found)
    }

    fn locate(&self, file: &impl ReadAt, frame: &Frame) -> Result<Vec<Column>> {
        let (decoded, base) = self.decode(file, frame)?;
        let place = |buffer: &Buffer| (frame.range().start + (buffer.as_ptr().addr() - base)) as u64;
        let column = |(array, info): (&ArrayRef, &ColumnInfo)| Column {
            validity: array.nulls().map(|nulls| place(nulls.inner().inner())),
            values: match info.ty {
                ColumnType::Bool => Values::Bits(place(array.as_boolean().values().inner())),
                ColumnType::Int64 => Values::Words(place(array.as_primitive::<Int64Type>().values().inner())),
                ColumnType::Float64 => {
                    Values::Words(place(array.as_primitive::<Float64Type>().values().inner()))
                }
                ColumnType::String => {
                    let strings = array.as_string::<i64>();
                    let text = place(strings.values());
                    let end = text + strings.values().len() as u64;
                    Values::Text { offsets: place(strings.offsets().inner().inner()), text: text..end }
                }
            },
        };
        Ok(decoded.columns().iter().zip(&self.columns).map(column).collect())
    }
}

/// One column of some runs of rows.
fn gathered<'a>(
    file: &impl ReadAt,
    ty: ColumnType,
    count: usize,
    parts: impl Iterator<Item = (&'a Run, &'a Column)>,
) -> Result<ArrayRef> {
    let mut valid: Vec<bool> = memory::list("metadata", count)?;
    let (mut flags, mut words, mut texts): (Vec<bool>, Vec<u64>, _) =
        (Vec::new(), Vec::new(), Texts::default());
    match ty {
        ColumnType::Bool => memory::reserve("metadata", &mut flags, count)?,
        ColumnType::Int64 | ColumnType::Float64 => memory::reserve("metadata", &mut words, count)?,
        ColumnType::String => texts.reserve(count, 0)?,
    }
    for (run, column) in parts {
        let from = valid.len();
        match column.validity {
            None => valid.resize(from + usize_of(run.count), true),
            Some(place) => read_bits(file, place, run, &mut valid)?,
        }
        match &column.values {
            Values::Bits(place) => read_bits(file, *place, run, &mut flags)?,
            Values::Words(place) => read_words(file, *place + 8 * run.row, run.count, &mut words)?,
            Values::Text { offsets, text } => {
                let valid = valid.get(from..).unwrap_or_default();
                read_texts(file, *offsets, text, run, valid, &mut texts)?;
            }
        }
    }
    let nulls = if valid.contains(&false) { Some(NullBuffer::from(valid)) } else { None };
    Ok(match ty {
        ColumnType::Bool => Arc::new(BooleanArray::new(BooleanBuffer::from(flags), nulls)),
        ColumnType::Int64 => {
            let values: Vec<i64> = words.into_iter().map(u64::cast_signed).collect();
            Arc::new(Int64Array::new(values.into(), nulls))
        }
        ColumnType::Float64 => {
            let values: Vec<f64> = words.into_iter().map(f64::from_bits).collect();
            Arc::new(Float64Array::new(values.into(), nulls))
        }
        ColumnType::String => Arc::new(texts.finish()?),
    })
}

fn read_bits(file: &impl ReadAt, place: u64, run: &Run, out: &mut Vec<bool>) -> Result<()> {
    let bytes =
        read(file, usize_of(place + run.row / 8)..usize_of(place + (run.row + run.count).div_ceil(8)))?;
    let first = usize_of(run.row % 8);
    let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
    out.extend((first..first + usize_of(run.count)).map(bit));
    Ok(())
}

fn read_words(file: &impl ReadAt, place: u64, count: u64, out: &mut Vec<u64>) -> Result<()> {
    let mut one = [0; 8];
    if count == 1 {
        file.read_exact_at(&mut one, place)?;
        out.push(u64::from_le_bytes(one));
        return Ok(());
    }
    let bytes = read(file, usize_of(place)..usize_of(place + 8 * count))?;
    out.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
    Ok(())
}

fn read_texts(
    file: &impl ReadAt,
    offsets: u64,
    text: &Range<u64>,
    run: &Run,
    valid: &[bool],
    out: &mut Texts,
) -> Result<()> {
    // The batch was sound when it was looked at; the file may have changed since.
    let changed = || damaged("text was changed since the dataset was opened");
    let mut ends = memory::list("metadata", usize_of(run.count) + 1)?;
    read_words(file, offsets + 8 * run.row, run.count + 1, &mut ends)?;
    let (first, last) = ends.first().zip(ends.last()).ok_or_else(changed)?;
    if !ends.is_sorted() || *last > text.end - text.start {
        return Err(changed());
    }
    let bytes = read(file, usize_of(text.start + first)..usize_of(text.start + last))?;
    let whole = std::str::from_utf8(&bytes).map_err(|_| changed())?;
    out.reserve(usize_of(run.count), bytes.len())?;
    for (pair, valid) in ends.windows(2).zip(valid) {
        let (start, end) = (pair.first().zip(pair.last())).ok_or_else(changed)?;
        let part = whole.get(usize_of(start - first)..usize_of(end - first)).ok_or_else(changed)?;
        out.append(valid.then_some(part));
    }
    Ok(())
}

/// Places in a file were compared with its size, which fits.
fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn read(file: &impl ReadAt, range: Range<usize>) -> Result<Vec<u8>> {
    let length = range.len();
    let mut bytes = memory::list("metadata", length)?;
    bytes.resize(length, 0);
    file.read_exact_at(&mut bytes, range.start as u64)?;
    Ok(bytes)
}
