//! The four column types, the values that fit them, and the rules for column names.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::wording;
use crate::error::Result;
use crate::format::names::MAX_LABEL_BYTES;

/// Names that the active table uses itself; no sample may bring them.
pub const RESERVED: [&str; 3] = ["cache_id", "sample_id", "weight"];

/// The most rows in one record batch, in the file and in every exported table. It bounds what a
/// reader has to hold, and every product of rows and bytes per row.
pub const MAX_BATCH_ROWS: usize = 65_536;

/// What the cells of a batch take, however much more the memory has in which they lie.
pub fn bytes_of(batch: &RecordBatch) -> usize {
    // Arrow looks at the first offset of text, which nothing has where there is no row.
    let columns = batch.columns().iter().filter(|column| !column.is_empty());
    // It cannot tell of types that have no text of one length of offset: those count as what they lie in.
    let bytes = |column: &ArrayRef| {
        column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
    };
    columns.map(bytes).sum()
}

/// What a metadata column holds. Every type is nullable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// True or false.
    Bool,
    /// A signed 64-bit integer.
    Int64,
    /// An IEEE 754 binary64 number; NaN and infinities are values like any other.
    Float64,
    /// Unicode text.
    String,
}

impl ColumnType {
    /// Every type.
    pub const ALL: [ColumnType; 4] =
        [ColumnType::Bool, ColumnType::Int64, ColumnType::Float64, ColumnType::String];

    /// The spelling in manifests and messages.
    pub fn name(self) -> &'static str {
        match self {
            ColumnType::Bool => "bool",
            ColumnType::Int64 => "int64",
            ColumnType::Float64 => "float64",
            ColumnType::String => "string",
        }
    }

    /// The type with this [`name`](Self::name).
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// The Arrow type of the column in `metadata.arrow`.
    pub fn arrow(self) -> DataType {
        match self {
            ColumnType::Bool => DataType::Boolean,
            ColumnType::Int64 => DataType::Int64,
            ColumnType::Float64 => DataType::Float64,
            ColumnType::String => DataType::LargeUtf8,
        }
    }

    /// What a user writes in `schema=` for it.
    pub(super) fn python(self) -> &'static str {
        match self {
            ColumnType::Bool => "bool",
            ColumnType::Int64 => "int",
            ColumnType::Float64 => "float",
            ColumnType::String => "str",
        }
    }
}

/// One metadata value of one sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Str(&'a str),
}

impl Value<'_> {
    /// The column type that holds this value without conversion; none for null.
    pub fn column_type(&self) -> Option<ColumnType> {
        match self {
            Value::Null => None,
            Value::Bool(_) => Some(ColumnType::Bool),
            Value::Int(_) => Some(ColumnType::Int64),
            Value::Float(_) => Some(ColumnType::Float64),
            Value::Str(_) => Some(ColumnType::String),
        }
    }
}

/// One column as the manifest states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// The column's name.
    pub name: String,
    /// What it holds.
    pub ty: ColumnType,
    /// How many of its rows are null.
    pub null_count: u64,
}

/// Refuses a name that no stored column can have: empty, with a NUL, or reserved.
///
/// # Errors
///
/// `invalid-metadata`, with the name and the cure.
pub fn check_column_name(name: &str) -> Result<()> {
    if name.is_empty() || name.contains('\0') {
        return Err(wording::bad_name(name));
    }
    if RESERVED.contains(&name) {
        return Err(wording::reserved_name(name));
    }
    Ok(())
}

/// Refuses a name for a column that is about to be written; more may be read than is written.
pub(super) fn check_new_column_name(name: &str) -> Result<()> {
    if name.len() > MAX_LABEL_BYTES {
        return Err(wording::long_name(name));
    }
    check_column_name(name)
}

/// The Arrow schema of columns, some of which have no type yet (Arrow's `Null`).
pub(super) fn arrow_schema<'a>(
    columns: impl IntoIterator<Item = (&'a str, Option<ColumnType>)>,
) -> SchemaRef {
    let field = |(name, ty): (&str, Option<ColumnType>)| {
        Field::new(name, ty.map_or(DataType::Null, ColumnType::arrow), true)
    };
    Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_part_are_its_own() {
        let text: ArrayRef =
            Arc::new(arrow_array::LargeStringArray::from_iter_values((0..1000).map(|n| format!("{n:04}"))));
        let numbers: ArrayRef = Arc::new(arrow_array::Int64Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_from_iter([("text", text), ("number", numbers)]).unwrap();
        assert_eq!(bytes_of(&batch), 1000 * (4 + 8 + 8) + 8);
        assert_eq!(bytes_of(&batch.slice(10, 5)), 5 * (4 + 8 + 8) + 8);
        assert_eq!(bytes_of(&batch.slice(10, 0)), 0);
    }

    #[test]
    fn names_parse_back() {
        for ty in ColumnType::ALL {
            assert_eq!(ColumnType::parse(ty.name()), Some(ty));
        }
        assert_eq!(ColumnType::parse("int32"), None);
    }

    #[test]
    fn names_are_checked() {
        for name in ["", "a\0b", "weight", "cache_id", "sample_id"] {
            assert!(check_column_name(name).is_err(), "{name:?}");
        }
        for name in ["Weight", "naïve", " ", "a.b/c"] {
            assert!(check_column_name(name).is_ok(), "{name:?}");
        }
    }
}
