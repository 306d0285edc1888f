//! Tests that cross files, and the obvious twins they compare with: rows as vectors of values.

mod active;
mod cells;
mod check;
mod file;
mod forged;
mod hostile;

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{ColumnInfo, ColumnType, MetadataWriter, RowBuilder, Table, TableSource, Value};
use crate::error::Result;

/// A value that owns its text.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
}

impl Cell {
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Cell::Null => Value::Null,
            Cell::Bool(v) => Value::Bool(*v),
            Cell::Int(v) => Value::Int(*v),
            Cell::Float(v) => Value::Float(*v),
            Cell::Str(v) => Value::Str(v),
        }
    }
}

/// Equality in which NaN equals itself, for comparisons with what was written.
pub(super) fn same(a: Value<'_>, b: Value<'_>) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

/// Columns and rows of one cache.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) columns: Vec<(String, ColumnType)>,
    pub(super) rows: Vec<Vec<Cell>>,
}

fn cell(ty: ColumnType) -> BoxedStrategy<Cell> {
    let value = match ty {
        ColumnType::Bool => any::<bool>().prop_map(Cell::Bool).boxed(),
        ColumnType::Int64 => any::<i64>().prop_map(Cell::Int).boxed(),
        ColumnType::Float64 => any::<f64>().prop_map(Cell::Float).boxed(),
        ColumnType::String => ".{0,20}".prop_map(Cell::Str).boxed(),
    };
    prop_oneof![1 => Just(Cell::Null), 4 => value].boxed()
}

/// Up to four columns, some of them null throughout, and up to `max_rows` rows.
pub(super) fn models(max_rows: usize) -> impl Strategy<Value = Model> {
    let types = vec((prop::sample::select(&ColumnType::ALL[..]), prop::bool::weighted(0.2)), 0..4);
    types.prop_flat_map(move |types| {
        let names = (0..types.len()).map(|n| format!("column {n}"));
        let columns = names.zip(types.iter().map(|(ty, _)| *ty)).collect::<Vec<_>>();
        let row: Vec<_> = types
            .iter()
            .map(|(ty, blank)| if *blank { Just(Cell::Null).boxed() } else { cell(*ty) })
            .collect();
        vec(row, 1..=max_rows).prop_map(move |rows| Model { columns: columns.clone(), rows })
    })
}

/// Splits `0..len` at the given places, which may be anywhere.
pub(super) fn split(len: usize, cuts: &[usize]) -> Vec<std::ops::Range<usize>> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut % (len + 1)).chain([len]).collect();
    ends.sort_unstable();
    let mut start = 0;
    let mut ranges = Vec::new();
    for end in ends {
        if end > start {
            ranges.push(start..end);
            start = end;
        }
    }
    ranges
}

impl Model {
    pub(super) fn of(columns: &[(&str, ColumnType)], rows: Vec<Vec<Cell>>) -> Self {
        let columns = columns.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect();
        Model { columns, rows }
    }

    /// Pushes rows into a builder.
    pub(super) fn push(&self, builder: &mut RowBuilder, rows: std::ops::Range<usize>) {
        for row in rows {
            let names = self.columns.iter().map(|(name, _)| name.as_str());
            let fields: Vec<_> = names.zip(self.rows[row].iter().map(Cell::value)).collect();
            builder.push(row as u64, &fields).unwrap();
        }
    }

    /// The file, with one batch handed over per shard.
    pub(super) fn file(&self, shards: &[usize]) -> (Vec<u8>, Vec<ColumnInfo>) {
        let mut builder = RowBuilder::new(None).unwrap();
        let mut batches = Vec::new();
        for shard in split(self.rows.len(), shards) {
            self.push(&mut builder, shard);
            batches.push(builder.take_batch().unwrap());
        }
        let mut writer = MetadataWriter::new(Vec::new(), builder.columns()).unwrap();
        for batch in batches {
            writer.write_shard(&[batch]).unwrap();
        }
        writer.finish().unwrap()
    }

    pub(super) fn table(&self, shards: &[usize]) -> Table {
        let (bytes, columns) = self.file(shards);
        Table::decode(Buffer::from(bytes), &columns, self.rows.len() as u64).unwrap()
    }

    pub(super) fn cache(&self, id: &str, shards: &[usize]) -> Arc<Cache> {
        let (bytes, columns) = self.file(shards);
        let rows = self.rows.len() as u64;
        let table = Table::decode(Buffer::from(bytes), &columns, rows).unwrap();
        Arc::new(Cache { id: id.to_owned(), columns, table: Arc::new(table) })
    }
}

/// A cache in memory.
pub(super) struct Cache {
    id: String,
    columns: Vec<ColumnInfo>,
    table: Arc<Table>,
}

impl TableSource for Cache {
    fn cache_id(&self) -> &str {
        &self.id
    }
    fn rows(&self) -> u64 {
        self.table.rows()
    }
    fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }
    fn table(&self) -> Result<Arc<Table>> {
        Ok(Arc::clone(&self.table))
    }
}

/// One cell of a batch in the four column types.
pub(super) fn batch_value(batch: &RecordBatch, row: usize, column: usize) -> Value<'_> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int64Type};
    let array = batch.column(column);
    if array.is_null(row) {
        return Value::Null;
    }
    match ColumnType::ALL.into_iter().find(|ty| ty.arrow() == *array.data_type()) {
        Some(ColumnType::Bool) => Value::Bool(array.as_boolean().value(row)),
        Some(ColumnType::Int64) => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        Some(ColumnType::Float64) => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        Some(ColumnType::String) => Value::Str(array.as_string::<i64>().value(row)),
        None => panic!("{} is no column type", array.data_type()),
    }
}
