//! Record batches to bytes: a segment for each shard while a cache is written, `metadata.arrow`
//! at the end.
//!
//! Rows arrive in batches whose borders depend on timing, and resumed writes read some of them
//! back. The bytes must not show it. So every batch is built again, cell by cell, before it is
//! written: borders only at shards and at [`MAX_BATCH_ROWS`], zero in the place of a null, a
//! validity bitmap only where something is null.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, LargeStringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, NullArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_ipc::MetadataVersion;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, DataType, SchemaRef};

use super::ipc;
use super::types::{ColumnInfo, ColumnType, MAX_BATCH_ROWS, arrow_schema, bytes_of};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

/// Buffers start at multiples of this, so that a reader can use them in place.
const ALIGNMENT: usize = 64;

/// Writes the rows of one shard as an Arrow IPC file.
///
/// A column that had no type in early batches gets the one it has in later ones; if it has none
/// in any, the segment keeps it as Arrow's `Null`.
///
/// # Errors
///
/// A failed write, or `bug` if the batches do not have the same columns.
pub fn write_segment(out: &mut dyn Write, batches: &[RecordBatch]) -> Result<()> {
    let columns = columns_of(batches)?;
    let schema = arrow_schema(columns.iter().map(|(name, ty)| (name.as_str(), *ty)));
    let mut writer = ipc_writer(out, &schema)?;
    for batch in rebatched(&schema, batches) {
        writer.write(&batch?).map_err(|e| write_error(&e))?;
    }
    writer.finish().map_err(|e| write_error(&e))
}

/// Reads back what [`write_segment`] wrote, without copying.
///
/// # Errors
///
/// `bad-metadata` for any other bytes.
pub fn read_segment(bytes: impl Into<Buffer>) -> Result<Vec<RecordBatch>> {
    Ok(ipc::decode(bytes.into())?.batches)
}

/// Writes `metadata.arrow`, shard after shard; holds the rows of one shard at a time.
///
/// The bytes depend on the columns, the rows and the borders of shards, and on nothing else.
/// Many small writes reach `out`: give it a buffer.
pub struct MetadataWriter<W: Write> {
    writer: FileWriter<W>,
    schema: SchemaRef,
    columns: Vec<ColumnInfo>,
}

impl<W: Write> MetadataWriter<W> {
    /// Starts the file. A column with no type was null in every sample; it becomes a string
    /// column.
    ///
    /// # Errors
    ///
    /// A failed write.
    pub fn new(out: W, columns: &[(String, Option<ColumnType>)]) -> Result<Self> {
        let columns: Vec<_> = columns
            .iter()
            .map(|(name, ty)| ColumnInfo {
                name: name.clone(),
                ty: ty.unwrap_or(ColumnType::String),
                null_count: 0,
            })
            .collect();
        let schema = arrow_schema(columns.iter().map(|c| (c.name.as_str(), Some(c.ty))));
        Ok(MetadataWriter { writer: ipc_writer(out, &schema)?, schema, columns })
    }

    /// Adds the rows of one shard, which starts a new record batch.
    ///
    /// # Errors
    ///
    /// A failed write, or `bug` if the batches have other columns than the file.
    pub fn write_shard(&mut self, batches: &[RecordBatch]) -> Result<()> {
        for batch in rebatched(&self.schema, batches) {
            let batch = batch?;
            for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
                column.null_count += array.null_count() as u64;
            }
            self.writer.write(&batch).map_err(|e| write_error(&e))?;
        }
        Ok(())
    }

    /// Completes the file. Returns what it was written to and its columns.
    ///
    /// # Errors
    ///
    /// A failed write.
    pub fn finish(mut self) -> Result<(W, Vec<ColumnInfo>)> {
        self.writer.finish().map_err(|e| write_error(&e))?;
        let out = self.writer.into_inner().map_err(|e| write_error(&e))?;
        Ok((out, self.columns))
    }
}

fn ipc_writer<W: Write>(out: W, schema: &SchemaRef) -> Result<FileWriter<W>> {
    IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
        .and_then(|options| FileWriter::try_new_with_options(out, schema, options))
        .map_err(|e| write_error(&e))
}

fn write_error(error: &ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, source) => Error::io("write", Path::new("metadata.arrow"), source),
        other => Error::new(ErrorKind::Bug, format!("metadata could not be encoded: {other}")),
    }
}

/// The common columns of batches, each with the type that any of them knows.
fn columns_of(batches: &[RecordBatch]) -> Result<Vec<(String, Option<ColumnType>)>> {
    let first = batches.first().ok_or_else(|| mismatch("no batches"))?;
    first
        .schema_ref()
        .fields()
        .iter()
        .enumerate()
        .map(|(number, field)| {
            let known = batches.iter().filter_map(|b| b.columns().get(number));
            let ty = known.map(|array| array.data_type()).find(|ty| **ty != DataType::Null);
            Ok((field.name().clone(), ty.map(column_type).transpose()?))
        })
        .collect()
}

fn column_type(ty: &DataType) -> Result<ColumnType> {
    ColumnType::ALL
        .into_iter()
        .find(|column| column.arrow() == *ty)
        .ok_or_else(|| mismatch(&format!("type {ty}")))
}

fn mismatch(what: &str) -> Error {
    Error::new(ErrorKind::Bug, format!("metadata batches do not fit their file: {what}"))
}

/// The same rows in batches whose borders and bytes depend on the rows alone.
fn rebatched<'a>(
    schema: &'a SchemaRef,
    batches: &'a [RecordBatch],
) -> impl Iterator<Item = Result<RecordBatch>> + 'a {
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    let starts = (0..rows).step_by(MAX_BATCH_ROWS);
    starts.map(move |start| rebuild(schema, batches, start, (rows - start).min(MAX_BATCH_ROWS)))
}

/// Rows `start..start + count` of the batches, as one batch that shares nothing with them.
fn rebuild(schema: &SchemaRef, batches: &[RecordBatch], start: usize, count: usize) -> Result<RecordBatch> {
    let pieces = pieces(batches, start, count);
    for piece in &pieces {
        check_fields(schema, piece)?;
    }
    // Beside the new columns, Arrow has a copy of all of them while it writes, in a list that grows to twice what it needs.
    memory::ask("metadata", pieces.iter().map(bytes_of).sum::<usize>().saturating_mul(4))?;
    let columns = schema.fields().iter().enumerate().map(|(number, field)| {
        let parts: Vec<_> = pieces.iter().filter_map(|p| p.columns().get(number)).collect();
        rebuild_column(field.data_type(), &parts, count)
    });
    let columns = columns.collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|e| mismatch(&e.to_string()))
}

/// Slices of the batches that together are the rows `start..start + count`.
fn pieces(batches: &[RecordBatch], start: usize, count: usize) -> Vec<RecordBatch> {
    let (mut skip, mut left) = (start, count);
    let mut pieces = Vec::new();
    for batch in batches {
        let from = skip.min(batch.num_rows());
        let take = left.min(batch.num_rows() - from);
        skip -= from;
        left -= take;
        if take > 0 {
            pieces.push(batch.slice(from, take));
        }
    }
    pieces
}

fn check_fields(schema: &SchemaRef, batch: &RecordBatch) -> Result<()> {
    let fits = schema.fields().len() == batch.num_columns()
        && schema.fields().iter().zip(batch.schema_ref().fields()).all(|(want, got)| {
            let ty = got.data_type();
            want.name() == got.name() && (ty == want.data_type() || *ty == DataType::Null)
        });
    if fits { Ok(()) } else { Err(mismatch(&format!("{} but {schema}", batch.schema_ref()))) }
}

/// One column, cell by cell. `parts` have type `ty`, or `Null`.
fn rebuild_column(ty: &DataType, parts: &[&ArrayRef], rows: usize) -> Result<ArrayRef> {
    macro_rules! rebuild {
        ($builder:expr, $part:ident => $cells:expr) => {{
            let mut builder = $builder;
            for $part in parts {
                if $part.data_type() == &DataType::Null {
                    builder.append_nulls($part.len());
                } else {
                    $cells.iter().for_each(|cell| builder.append_option(cell));
                }
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    Ok(match ty {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => {
            rebuild!(BooleanBuilder::with_capacity(rows), part => part.as_boolean())
        }
        DataType::Int64 => {
            rebuild!(Int64Builder::with_capacity(rows), part => part.as_primitive::<Int64Type>())
        }
        DataType::Float64 => {
            rebuild!(Float64Builder::with_capacity(rows), part => part.as_primitive::<Float64Type>())
        }
        DataType::LargeUtf8 => {
            rebuild!(LargeStringBuilder::with_capacity(rows, 0), part => part.as_string::<i64>())
        }
        other => return Err(mismatch(&format!("type {other}"))),
    })
}
