//! Columns that users add to the active table: which of them travel with samples, and their
//! canonical bytes.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};

use super::types::ColumnType;
use super::wording::quote;
use crate::error::{Error, ErrorKind, Result};

/// The added columns that are delivered with samples, in the four column types: bools, integers,
/// floats, and strings in any encoding. Others stay in the table only.
///
/// # Errors
///
/// `invalid-table` for an unsigned integer beyond int64, with column and row.
pub fn deliverable(extra: &RecordBatch) -> Result<RecordBatch> {
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (field, array) in extra.schema_ref().fields().iter().zip(extra.columns()) {
        if let Some(ty) = delivered_type(field.data_type()) {
            fields.push(Field::new(field.name(), ty.arrow(), true));
            columns.push(delivered(field.name(), ty, array)?);
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(extra.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|e| Error::new(ErrorKind::Bug, format!("added columns form no batch: {e}")))
}

fn delivered_type(ty: &DataType) -> Option<ColumnType> {
    match ty {
        DataType::Boolean => Some(ColumnType::Bool),
        DataType::Dictionary(_, values) if values.is_string() => Some(ColumnType::String),
        ty if ty.is_integer() => Some(ColumnType::Int64),
        ty if ty.is_floating() => Some(ColumnType::Float64),
        ty if ty.is_string() => Some(ColumnType::String),
        _ => None,
    }
}

fn delivered(name: &str, ty: ColumnType, array: &ArrayRef) -> Result<ArrayRef> {
    if let Some(unsigned) = array.as_primitive_opt::<UInt64Type>() {
        let too_large = |value: Option<u64>| value.is_some_and(|v| i64::try_from(v).is_err());
        if let Some(row) = unsigned.iter().position(too_large) {
            let value = unsigned.value(row);
            return Err(Error::new(
                ErrorKind::InvalidTable,
                format!(
                    "row {row}: column {} has {value}, which does not fit in int64; \
                     cast the column to a string or a float",
                    quote(name)
                ),
            ));
        }
    }
    cast(array, &ty.arrow()).map_err(|e| {
        let name = quote(name);
        Error::new(ErrorKind::InvalidTable, format!("column {name} cannot be delivered: {e}"))
    })
}

/// How many bytes are handed on at once.
const FEED_BYTES: usize = 1 << 16;

/// Hands the canonical bytes of a batch to `feed`: row and column counts, then for each column
/// its name, its type and its cells. They depend on names, types, nulls and values alone, not on
/// offsets, null bitmaps, or NaN payloads.
///
/// # Errors
///
/// `bug` for a column that is none of the four types; see [`deliverable`].
pub fn digest(batch: &RecordBatch, feed: &mut dyn FnMut(&[u8])) -> Result<()> {
    let mut bytes = Feeder { pending: Vec::with_capacity(FEED_BYTES), feed };
    bytes.word(batch.num_rows() as u64);
    bytes.word(batch.num_columns() as u64);
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let ty = ColumnType::ALL.into_iter().find(|ty| ty.arrow() == *array.data_type());
        let ty = ty.ok_or_else(|| {
            let message = format!("column '{}' has no digest: {}", field.name(), array.data_type());
            Error::new(ErrorKind::Bug, message)
        })?;
        bytes.text(field.name());
        bytes.text(ty.name());
        match ty {
            ColumnType::Bool => bytes.cells(array.as_boolean(), |b, v| b.put(&[u8::from(v)])),
            ColumnType::Int64 => {
                bytes.cells(array.as_primitive::<Int64Type>(), |b, v| b.put(&v.to_le_bytes()));
            }
            ColumnType::Float64 => {
                bytes.cells(array.as_primitive::<Float64Type>(), |b, v| {
                    b.word(if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() });
                });
            }
            ColumnType::String => bytes.cells(array.as_string::<i64>(), Feeder::text),
        }
    }
    bytes.flush();
    Ok(())
}

/// Collects small pieces, because a hash is slow at being fed eight bytes at a time.
struct Feeder<'a> {
    pending: Vec<u8>,
    feed: &'a mut dyn FnMut(&[u8]),
}

impl Feeder<'_> {
    /// Each cell as a flag, then its value if it has one.
    fn cells<T>(&mut self, cells: impl IntoIterator<Item = Option<T>>, put: impl Fn(&mut Self, T)) {
        for cell in cells {
            self.put(&[u8::from(cell.is_some())]);
            if let Some(value) = cell {
                put(self, value);
            }
        }
    }

    /// Text with its length, so that neighbours cannot run into each other.
    fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        self.put(text.as_bytes());
    }

    fn word(&mut self, word: u64) {
        self.put(&word.to_le_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.pending.len().saturating_add(bytes.len()) > FEED_BYTES {
            self.flush();
        }
        if bytes.len() > FEED_BYTES {
            (self.feed)(bytes);
        } else {
            self.pending.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self) {
        (self.feed)(&self.pending);
        self.pending.clear();
    }
}
