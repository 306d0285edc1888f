//! Rows in, record batches out: the first samples decide the columns, every later one must fit.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::BooleanBuilder;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int64Type};
use arrow_array::{ArrayRef, NullArray, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::NullBufferBuilder;

use super::texts::Texts;
use super::types::{ColumnType, Value, arrow_schema, check_new_column_name};
use super::wording;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

/// Collects the metadata of samples, one row each, and hands it over as record batches.
///
/// Without a declaration the fields of the first sample are the columns, in its order, and the
/// first value of each that is not null decides its type. A refused row changes nothing.
#[derive(Debug)]
pub struct RowBuilder {
    /// Empty until the first row, unless declared or resumed.
    columns: Vec<(String, Option<ColumnType>)>,
    columns_known: bool,
    cells: Vec<Cells>,
    /// Column number of each name.
    numbers: HashMap<String, usize>,
    /// For each column, the position of its field in the last row. Rows of one source name their
    /// fields in one order, so the next row is compared with this before anything is looked up.
    positions: Vec<usize>,
    rows: usize,
    byte_size: usize,
}

/// The values of one column since the last batch.
#[derive(Debug)]
enum Cells {
    /// Only nulls so far, in every row since the first.
    Undecided,
    /// A bit each.
    Bool(BooleanBuilder),
    Int(Numbers<Int64Type>),
    Float(Numbers<Float64Type>),
    Str(Texts),
}

/// Numbers as Arrow has them; in lists of ours, because those of Arrow end the process where there is no memory to grow.
#[derive(Debug)]
struct Numbers<T: ArrowPrimitiveType> {
    /// Zero where it is null.
    values: Vec<T::Native>,
    /// A bit each.
    valid: NullBufferBuilder,
}

impl RowBuilder {
    /// A builder with no rows. `declared` fixes the columns and their types; without it the first
    /// samples do.
    ///
    /// # Errors
    ///
    /// `invalid-metadata` if a declared name is empty, holds a NUL, is reserved, or is repeated.
    pub fn new(declared: Option<Vec<(String, ColumnType)>>) -> Result<Self> {
        match declared {
            None => Ok(Self::empty()),
            Some(columns) => Self::resume(columns.into_iter().map(|(name, ty)| (name, Some(ty))).collect()),
        }
    }

    /// A builder that continues where another one with these [`columns`](Self::columns) stopped.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn resume(columns: Vec<(String, Option<ColumnType>)>) -> Result<Self> {
        let mut builder = Self::empty();
        builder.set_columns(columns)?;
        Ok(builder)
    }

    fn empty() -> Self {
        RowBuilder {
            columns: Vec::new(),
            columns_known: false,
            cells: Vec::new(),
            numbers: HashMap::new(),
            positions: Vec::new(),
            rows: 0,
            byte_size: 0,
        }
    }

    fn set_columns(&mut self, columns: Vec<(String, Option<ColumnType>)>) -> Result<()> {
        let mut numbers = HashMap::with_capacity(columns.len());
        for (number, (name, _)) in columns.iter().enumerate() {
            check_new_column_name(name)?;
            if numbers.insert(name.clone(), number).is_some() {
                return Err(wording::repeated_name(name));
            }
        }
        self.numbers = numbers;
        self.cells = columns.iter().map(|(_, ty)| Cells::new(*ty, 0)).collect::<Result<_>>()?;
        self.positions = (0..columns.len()).collect();
        self.columns = columns;
        self.columns_known = true;
        Ok(())
    }

    /// Adds the row of one sample.
    ///
    /// # Errors
    ///
    /// `invalid-metadata`, naming the sample, the field, the value and the cure. Nothing changes.
    pub fn push(&mut self, sample: u64, row: &[(&str, Value<'_>)]) -> Result<()> {
        if !self.columns_known {
            let columns = row.iter().map(|(name, _)| ((*name).to_owned(), None)).collect();
            self.set_columns(columns).map_err(|e| wording::in_sample(sample, &e))?;
        }
        if !self.same_order(row) {
            self.positions = self.find_positions(sample, row)?;
        }
        let fields = self.positions.iter().filter_map(|position| row.get(*position));
        for ((name, ty), (_, value)) in self.columns.iter().zip(fields.clone()) {
            check_value(sample, name, *ty, value)?;
        }
        let mut decided = Vec::new();
        let columns = self.cells.iter_mut().zip(&self.columns).enumerate();
        for ((number, (cells, (_, ty))), (_, value)) in columns.zip(fields.clone()) {
            match (ty, value.column_type()) {
                (None, Some(ty)) => {
                    let mut typed = Cells::new(Some(ty), self.rows)?;
                    typed.reserve(value)?;
                    decided.push((number, ty, typed));
                }
                _ => cells.reserve(value)?,
            }
        }
        // Nothing below fails: a refused row has left no trace.
        for (number, ty, typed) in decided {
            if let (Some((_, known)), Some(cells)) =
                (self.columns.get_mut(number), self.cells.get_mut(number))
            {
                (*known, *cells) = (Some(ty), typed);
            }
        }
        for (cells, (_, value)) in self.cells.iter_mut().zip(fields) {
            self.byte_size += cells.append(value)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Whether the row names its fields in the order of the row before.
    fn same_order(&self, row: &[(&str, Value<'_>)]) -> bool {
        row.len() == self.columns.len()
            && self.columns.iter().zip(&self.positions).all(|((name, _), position)| {
                row.get(*position).is_some_and(|(field, _)| *field == name.as_str())
            })
    }

    /// The position of each column's field; an error if fields and columns differ.
    fn find_positions(&self, sample: u64, row: &[(&str, Value<'_>)]) -> Result<Vec<usize>> {
        let mut found = vec![None; self.columns.len()];
        for (position, (field, value)) in row.iter().enumerate() {
            let slot = self.numbers.get(*field).and_then(|number| found.get_mut(*number));
            match slot {
                None => return Err(self.unknown_field(sample, field, value)),
                Some(Some(_)) => {
                    return Err(wording::in_sample(sample, &wording::repeated_name(field)));
                }
                Some(slot) => *slot = Some(position),
            }
        }
        let position = |((name, _), position): (&(String, _), Option<usize>)| {
            position.ok_or_else(|| wording::missing_field(sample, name))
        };
        self.columns.iter().zip(found).map(position).collect()
    }

    fn unknown_field(&self, sample: u64, field: &str, value: &Value<'_>) -> Error {
        if let Err(error) = check_new_column_name(field) {
            return wording::in_sample(sample, &error);
        }
        let names: Vec<_> = self.columns.iter().map(|(name, _)| wording::quote(name)).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        wording::unknown_field(sample, field, value, &wording::shorten(&names))
    }

    /// Rows since the last batch.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row came since the last batch.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// About how many bytes the rows since the last batch take.
    pub fn byte_size(&self) -> usize {
        self.byte_size
    }

    /// The columns in order. A column has no type while all its values were null.
    pub fn columns(&self) -> &[(String, Option<ColumnType>)] {
        &self.columns
    }

    /// Hands over the rows so far and starts anew with the same columns. A column with no type
    /// yet has Arrow type `Null`.
    ///
    /// # Errors
    ///
    /// `bug` if the columns do not form a batch, which no rows can cause.
    pub fn take_batch(&mut self) -> Result<RecordBatch> {
        let schema = arrow_schema(self.columns.iter().map(|(name, ty)| (name.as_str(), *ty)));
        let arrays = self.cells.iter_mut().map(|cells| cells.finish(self.rows)).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.byte_size = 0;
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|e| Error::new(ErrorKind::Bug, format!("metadata rows do not form a batch: {e}")))
    }
}

/// Refuses a value that its column cannot hold. Integers are welcome in float columns where they
/// arrive unchanged; a bool is no integer.
fn check_value(sample: u64, field: &str, ty: Option<ColumnType>, value: &Value<'_>) -> Result<()> {
    match (ty, value) {
        (None, _) | (_, Value::Null) => Ok(()),
        (Some(ty), value) if value.column_type() == Some(ty) => Ok(()),
        (Some(ColumnType::Float64), Value::Int(v)) if is_exact(*v) => Ok(()),
        (Some(ColumnType::Float64), Value::Int(v)) => Err(wording::inexact_float(sample, field, *v)),
        (Some(ty), value) => Err(wording::wrong_type(sample, field, ty, value)),
    }
}

/// Whether binary64 holds the integer unchanged.
fn is_exact(value: i64) -> bool {
    // Through i128: i64::MAX rounds to 2^63, which `as i64` would saturate back to i64::MAX.
    (value as f64) as i128 == i128::from(value)
}

impl Cells {
    /// A column with `nulls` rows so far.
    fn new(ty: Option<ColumnType>, nulls: usize) -> Result<Self> {
        let mut cells = match ty {
            None => Cells::Undecided,
            Some(ColumnType::Bool) => Cells::Bool(BooleanBuilder::new()),
            Some(ColumnType::Int64) => Cells::Int(Numbers::default()),
            Some(ColumnType::Float64) => Cells::Float(Numbers::default()),
            Some(ColumnType::String) => Cells::Str(Texts::default()),
        };
        for _ in 0..nulls {
            cells.reserve(&Value::Null)?;
            cells.append(&Value::Null)?;
        }
        Ok(cells)
    }

    /// Asks for the memory of one more value.
    fn reserve(&mut self, value: &Value<'_>) -> Result<()> {
        match (self, value) {
            (Cells::Undecided | Cells::Bool(_), _) => Ok(()),
            (Cells::Int(cells), _) => cells.reserve(),
            (Cells::Float(cells), _) => cells.reserve(),
            (Cells::Str(cells), Value::Str(text)) => cells.reserve(1, text.len()),
            (Cells::Str(cells), _) => cells.reserve(1, 0),
        }
    }

    /// Appends a checked value for which there is memory; returns about how many bytes it takes.
    fn append(&mut self, value: &Value<'_>) -> Result<usize> {
        match (self, value) {
            (Cells::Undecided, Value::Null) => return Ok(0),
            (Cells::Bool(b), Value::Bool(v)) => b.append_value(*v),
            (Cells::Bool(b), Value::Null) => b.append_null(),
            (Cells::Int(cells), Value::Int(v)) => cells.append(Some(*v)),
            (Cells::Int(cells), Value::Null) => cells.append(None),
            (Cells::Float(cells), Value::Float(v)) => cells.append(Some(*v)),
            (Cells::Float(cells), Value::Int(v)) => cells.append(Some(*v as f64)),
            (Cells::Float(cells), Value::Null) => cells.append(None),
            (Cells::Str(cells), Value::Str(v)) => {
                cells.append(Some(v));
                return Ok(v.len().saturating_add(8));
            }
            (Cells::Str(cells), Value::Null) => cells.append(None),
            (_, value) => {
                let value = wording::describe(value);
                return Err(Error::new(ErrorKind::Bug, format!("unchecked metadata value {value}")));
            }
        }
        Ok(8)
    }

    /// The values so far as an array; begins anew.
    fn finish(&mut self, rows: usize) -> Result<ArrayRef> {
        Ok(match self {
            Cells::Undecided => Arc::new(NullArray::new(rows)),
            Cells::Bool(b) => Arc::new(b.finish()),
            Cells::Int(cells) => Arc::new(std::mem::take(cells).finish()),
            Cells::Float(cells) => Arc::new(std::mem::take(cells).finish()),
            Cells::Str(cells) => Arc::new(std::mem::take(cells).finish()?),
        })
    }
}

impl<T: ArrowPrimitiveType> Default for Numbers<T> {
    fn default() -> Self {
        Numbers { values: Vec::new(), valid: NullBufferBuilder::new(0) }
    }
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    /// Room for one more.
    fn reserve(&mut self) -> Result<()> {
        memory::reserve("metadata", &mut self.values, 1)
    }

    /// Appends a number, for which there is [room](Self::reserve).
    fn append(&mut self, value: Option<T::Native>) {
        self.valid.append(value.is_some());
        self.values.push(value.unwrap_or_default());
    }

    /// The numbers so far as an array.
    fn finish(mut self) -> PrimitiveArray<T> {
        PrimitiveArray::new(self.values.into(), self.valid.finish())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int64Type};

    use super::*;

    fn refused(builder: &mut RowBuilder, sample: u64, row: &[(&str, Value<'_>)]) -> String {
        let (len, size, columns) = (builder.len(), builder.byte_size(), builder.columns().to_vec());
        let error = builder.push(sample, row).expect_err("the row must be refused");
        assert_eq!(error.kind(), ErrorKind::InvalidMetadata);
        assert_eq!(error.sample_id(), Some(sample));
        assert_eq!((builder.len(), builder.byte_size()), (len, size), "a refused row left a trace");
        assert_eq!(builder.columns(), columns);
        error.message().to_owned()
    }

    fn started() -> RowBuilder {
        let mut builder = RowBuilder::new(None).unwrap();
        builder.push(0, &[("label", Value::Int(1)), ("name", Value::Null)]).unwrap();
        builder
    }

    #[test]
    fn the_first_value_that_is_not_null_decides() {
        let mut builder = started();
        builder.push(1, &[("name", Value::Str("x")), ("label", Value::Null)]).unwrap();
        builder.push(2, &[("label", Value::Int(3)), ("name", Value::Str(""))]).unwrap();
        assert_eq!(builder.columns()[1], ("name".to_owned(), Some(ColumnType::String)));
        let batch = builder.take_batch().unwrap();
        let labels = batch.column(0).as_primitive::<Int64Type>();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
        let names = batch.column(1).as_string::<i64>();
        assert_eq!(names.iter().collect::<Vec<_>>(), [None, Some("x"), Some("")]);
        assert!(builder.is_empty());
    }

    #[test]
    fn undecided_columns_are_arrow_null_and_stay_decided_later() {
        let mut builder = started();
        let first = builder.take_batch().unwrap();
        assert_eq!(first.column(1).data_type(), &arrow_schema::DataType::Null);
        builder.push(1, &[("label", Value::Int(1)), ("name", Value::Bool(true))]).unwrap();
        assert_eq!(builder.take_batch().unwrap().column(1).len(), 1);
        let message = refused(&mut builder, 2, &[("label", Value::Int(1)), ("name", Value::Str("x"))]);
        assert!(message.contains("'name' is bool but got string 'x'"), "{message}");
    }

    #[test]
    fn integers_enter_float_columns_unchanged_or_not_at_all() {
        let declared = vec![("f".to_owned(), ColumnType::Float64)];
        let mut builder = RowBuilder::new(Some(declared)).unwrap();
        for exact in [0, -1, 1 << 53, -(1 << 53), 1 << 62, i64::MIN] {
            builder.push(0, &[("f", Value::Int(exact))]).unwrap();
        }
        for inexact in [(1 << 53) + 1, -(1 << 53) - 1, i64::MAX, i64::MIN + 1] {
            let message = refused(&mut builder, 9, &[("f", Value::Int(inexact))]);
            assert!(message.contains(&inexact.to_string()), "{message}");
        }
        let batch = builder.take_batch().unwrap();
        assert_eq!(batch.column(0).as_primitive::<Float64Type>().value(5), -(2f64.powi(63)));
    }

    #[test]
    fn rows_that_do_not_fit_are_refused_whole() {
        let mut b = started();
        let name = ("name", Value::Null);
        for (row, words) in [
            (vec![("label", Value::Float(0.5)), name], "'label' is int64 but got float 0.5"),
            (vec![("label", Value::Bool(true)), name], "'label' is int64 but got bool True"),
            (vec![("label", Value::Str("x")), name], "'label' is int64 but got string 'x'"),
            (vec![("label", Value::Int(1))], "'name' is missing"),
            (vec![], "'label' is missing"),
            (vec![("other", Value::Int(1))], "'other' (1) is not among the columns ('label', 'name')"),
            (vec![("label", Value::Int(1)), name, ("weight", Value::Int(1))], "'weight' is reserved"),
            (vec![("label", Value::Int(1)), ("label", Value::Int(1))], "'label' is given twice"),
            (vec![("name", Value::Bool(true)), ("label", Value::Float(1.0))], "'label' is int64"),
        ] {
            let message = refused(&mut b, 2, &row);
            assert!(message.starts_with("sample 2: field ") && message.contains(words), "{message}");
            assert!(!message.contains('\n'));
        }
        assert_eq!(b.take_batch().unwrap().num_rows(), 1);
    }

    #[test]
    fn bad_first_rows_and_declarations() {
        let mut builder = RowBuilder::new(None).unwrap();
        for name in ["", "cache_id", "a\0"] {
            refused(&mut builder, 0, &[("ok", Value::Int(1)), (name, Value::Int(1))]);
        }
        refused(&mut builder, 0, &[("a", Value::Int(1)), ("a", Value::Int(1))]);
        builder.push(0, &[("other", Value::Int(1))]).unwrap();
        let twice = vec![("a".to_owned(), ColumnType::Bool), ("a".to_owned(), ColumnType::Bool)];
        assert!(RowBuilder::new(Some(twice)).is_err());
    }

    #[test]
    fn no_columns_at_all() {
        let mut builder = RowBuilder::new(None).unwrap();
        for sample in 0..3 {
            builder.push(sample, &[]).unwrap();
        }
        let message = refused(&mut builder, 3, &[("a", Value::Int(1))]);
        assert!(message.contains("columns (none)"), "{message}");
        let batch = builder.take_batch().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (3, 0));
    }

    #[test]
    fn size_grows_with_text() {
        let mut builder = RowBuilder::new(None).unwrap();
        builder.push(0, &[("t", Value::Str(&"x".repeat(1000)))]).unwrap();
        assert!(builder.byte_size() >= 1000);
        builder.take_batch().unwrap();
        assert_eq!(builder.byte_size(), 0);
    }
}
