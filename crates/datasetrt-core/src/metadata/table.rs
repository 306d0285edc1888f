//! The metadata of one cache: `metadata.arrow` in memory, rows by sample id.

use std::collections::HashSet;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;

use super::gather::{Chunks, Spot, gather};
use super::ipc::{self, damaged};
use super::types::{ColumnInfo, ColumnType, Value, arrow_schema, check_column_name};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

/// A decoded `metadata.arrow`. Immutable; rows are read in place from the bytes of the file, or from columns that were
/// packed.
#[derive(Debug)]
pub struct Table {
    schema: SchemaRef,
    types: Vec<ColumnType>,
    columns: Vec<Chunks>,
    /// First row of each batch.
    starts: Vec<u64>,
    rows: u64,
}

impl Table {
    /// Decodes the bytes of a file, which must hold what the manifest says: these columns, this
    /// many rows and nulls.
    ///
    /// The caller has compared the file's checksum; nothing is believed because of it.
    ///
    /// # Errors
    ///
    /// `bad-metadata` for any bytes that are not such a file.
    pub fn decode(bytes: Buffer, columns: &[ColumnInfo], rows: u64) -> Result<Self> {
        let decoded = ipc::decode(bytes)?;
        let expected = columns.iter().map(|c| (c.name.as_str(), Some(c.ty)));
        if !decoded.columns.iter().map(|(name, ty)| (name.as_str(), *ty)).eq(expected) {
            return Err(damaged("its columns are not those in the manifest"));
        }
        check_names(columns)?;
        // Without empty ones every batch has its own first row, and a row is found by it.
        let batches: Vec<_> = decoded.batches.into_iter().filter(|batch| batch.num_rows() > 0).collect();
        // No overflow: each batch is at most 65,536 rows.
        let found: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
        if found != rows {
            return Err(damaged(format!("{found} rows, {rows} expected")));
        }
        check_nulls(&batches, columns)?;
        Self::over(batches, columns)
    }

    /// A table of batches that are known to have these columns; none of them is empty, or there is but one.
    pub(super) fn over(batches: Vec<RecordBatch>, columns: &[ColumnInfo]) -> Result<Self> {
        let chunks = columns.iter().enumerate().map(|(number, column)| {
            let arrays = batches.iter().filter_map(|b| b.columns().get(number));
            Chunks::new(column.ty, arrays).ok_or_else(|| damaged("a column has another type"))
        });
        let chunks = chunks.collect::<Result<_>>()?;
        Ok(Self::of_chunks(chunks, batches.iter().map(RecordBatch::num_rows), columns))
    }

    /// A table of columns that all have chunks of so many rows.
    pub(super) fn of_chunks(
        chunks: Vec<Chunks>,
        lengths: impl Iterator<Item = usize>,
        columns: &[ColumnInfo],
    ) -> Self {
        let mut rows = 0_u64;
        let start = |length: usize| {
            // No overflow: the rows of a file were counted before.
            let end = rows + length as u64;
            std::mem::replace(&mut rows, end)
        };
        let starts = lengths.map(start).collect();
        Table {
            schema: arrow_schema(columns.iter().map(|c| (c.name.as_str(), Some(c.ty)))),
            types: columns.iter().map(|c| c.ty).collect(),
            columns: chunks,
            starts,
            rows,
        }
    }

    /// The number of samples.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The columns as Arrow fields.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows of the given sample ids, in that order; an id may repeat.
    ///
    /// # Errors
    ///
    /// `index-out-of-range`, with the id.
    pub fn take(&self, rows: &[u64]) -> Result<RecordBatch> {
        let mut spots = memory::list("metadata", rows.len())?;
        for row in rows {
            let hint = spots.last().map_or(0, |spot: &Spot| spot.chunk);
            spots.push(self.spot(*row, hint)?);
        }
        let gathered = self.types.iter().zip(&self.columns);
        let columns =
            gathered.map(|(ty, column)| gather(*ty, &[Some(column)], &spots)).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| Error::new(ErrorKind::Bug, format!("taken rows form no batch: {e}")))
    }

    /// One cell.
    ///
    /// # Errors
    ///
    /// `index-out-of-range`, with the number of the row or column.
    pub fn value(&self, row: u64, column: usize) -> Result<Value<'_>> {
        let spot = self.spot(row, 0)?;
        let chunks = self.columns.get(column).ok_or_else(|| {
            let columns = self.columns.len();
            let message = format!("metadata column {column} is out of range for {columns} columns");
            Error::new(ErrorKind::IndexOutOfRange, message)
        })?;
        Ok(chunks.value(spot))
    }

    /// First row of each chunk.
    #[cfg(test)]
    pub(super) fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// One column, to be read at [`spot`](Self::spot)s.
    pub(super) fn chunks(&self, column: usize) -> Option<&Chunks> {
        self.columns.get(column)
    }

    /// Has the processor bring the cells of a row.
    pub(super) fn prefetch(&self, spot: Spot) {
        self.columns.iter().for_each(|column| column.prefetch(spot));
    }

    /// The address of a row. `hint` is the chunk to try first; neighbours are often asked together.
    pub(super) fn spot(&self, row: u64, hint: usize) -> Result<Spot> {
        if row >= self.rows {
            let message = format!("sample {row} is out of range for {} samples", self.rows);
            return Err(Error::new(ErrorKind::IndexOutOfRange, message));
        }
        let chunk = if self.in_chunk(row, hint) {
            hint
        } else {
            self.starts.partition_point(|start| *start <= row).saturating_sub(1)
        };
        let start = self.starts.get(chunk).copied().unwrap_or_default();
        // Fits: a chunk has at most 65,536 rows.
        Ok(Spot { source: 0, chunk, row: (row - start) as usize })
    }

    fn in_chunk(&self, row: u64, chunk: usize) -> bool {
        let next = chunk.checked_add(1).and_then(|next| self.starts.get(next));
        self.starts.get(chunk).is_some_and(|start| *start <= row) && row < next.copied().unwrap_or(self.rows)
    }
}

/// A forged manifest can agree with a forged file on names that no writer lets through.
pub(super) fn check_names(columns: &[ColumnInfo]) -> Result<()> {
    let mut seen = HashSet::new();
    for column in columns {
        check_column_name(&column.name).map_err(damaged)?;
        if !seen.insert(&column.name) {
            return Err(damaged(format!("two columns are named '{}'", column.name)));
        }
    }
    Ok(())
}

fn check_nulls(batches: &[RecordBatch], columns: &[ColumnInfo]) -> Result<()> {
    for (number, column) in columns.iter().enumerate() {
        let arrays = batches.iter().filter_map(|b| b.columns().get(number));
        let nulls: u64 = arrays.map(|array| array.null_count() as u64).sum();
        if nulls != column.null_count {
            let (name, expected) = (&column.name, column.null_count);
            return Err(damaged(format!("column '{name}' has {nulls} nulls, {expected} expected")));
        }
    }
    Ok(())
}
