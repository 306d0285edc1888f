//! An edited table comes back: the whole of it is checked before anything is used.
//!
//! Rows may be dropped, reordered, repeated and weighted, and columns added. What the cache
//! stores is not up for change, so each stored value must be there and be the stored one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_cast::cast;
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;

use super::active::{CacheSet, Rows, Selection, Tables, UnifiedColumn};
use super::gather::{Chunks, Spot, first_difference, value_at};
use super::types::{ColumnType, MAX_BATCH_ROWS, Value, bytes_of};
use super::wording::{quote, shorten, show};
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

impl CacheSet {
    /// Turns an edited table into a selection.
    ///
    /// `cache_id` may have any string encoding and `sample_id` any integer width; every stored
    /// column must be present with its type and its values (strings in any encoding, null equals
    /// null, NaN equals NaN). Without `weight` each row weighs 1. All other columns are kept as
    /// they are.
    ///
    /// # Errors
    ///
    /// `empty` without rows; `invalid-table`, with row, column, found and expected value, and the
    /// cure, for the first breach of a rule; an error of `batches` or of loading a table.
    pub fn check(
        &self,
        schema: &Schema,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<Selection> {
        self.checked(schema, batches, self.columns(), true)
    }

    /// As [`check`](Self::check), of a table without its stored columns, from which code that changes no value has left
    /// rows out. Where there is one cache alone, `cache_id` may be absent, too.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn check_rows(
        &self,
        schema: &Schema,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<Selection> {
        self.checked(schema, batches, &[], self.caches().len() != 1)
    }

    fn checked(
        &self,
        schema: &Schema,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        stored: &[UnifiedColumn],
        cache_id_needed: bool,
    ) -> Result<Selection> {
        let schema = without_dictionaries(schema);
        let mut check = Check::new(self, &schema, stored, cache_id_needed)?;
        for batch in batches {
            check.batch(&schema, &decoded(&schema, batch?)?)?;
        }
        check.finish()
    }
}

/// Where the columns of the table are.
struct Layout {
    /// None where all rows are of the only cache.
    cache_id: Option<usize>,
    sample_id: usize,
    weight: Option<usize>,
    /// One for each stored column.
    stored: Vec<usize>,
    extra: Vec<usize>,
    extra_schema: SchemaRef,
}

/// A cache: its number, its rows and the first of them among the global ones.
type Owner = (usize, u64, u64);

struct Check<'a> {
    set: &'a CacheSet,
    /// The unified columns that are compared: all, or none.
    stored: &'a [UnifiedColumn],
    layout: Layout,
    cache_numbers: HashMap<&'a str, usize>,
    tables: Tables,
    rows_seen: u64,
    rows: RowCollector,
    weights: WeightCollector,
    extra: Vec<RecordBatch>,
}

impl<'a> Check<'a> {
    fn new(
        set: &'a CacheSet,
        schema: &Schema,
        stored: &'a [UnifiedColumn],
        cache_id_needed: bool,
    ) -> Result<Self> {
        let ids = set.caches().iter().map(|cache| cache.cache_id());
        Ok(Check {
            set,
            stored,
            layout: Layout::new(stored, schema, cache_id_needed)?,
            cache_numbers: ids.enumerate().map(|(number, id)| (id, number)).collect(),
            tables: Tables::default(),
            rows_seen: 0,
            rows: RowCollector::default(),
            weights: WeightCollector::default(),
            extra: Vec::new(),
        })
    }

    fn batch(&mut self, schema: &Schema, batch: &RecordBatch) -> Result<()> {
        let same =
            |(a, b): (&Arc<Field>, &Arc<Field>)| a.name() == b.name() && a.data_type() == b.data_type();
        let fields = batch.schema_ref().fields();
        let agrees = fields.len() == schema.fields().len();
        if !agrees || !schema.fields().iter().zip(fields).all(same) {
            return Err(refuse(
                "a batch of the table has other columns than the table; give a Polars DataFrame",
            ));
        }
        // In slices: what is cast for comparison stays small, however large the table is.
        for start in (0..batch.num_rows()).step_by(MAX_BATCH_ROWS) {
            let slice = batch.slice(start, MAX_BATCH_ROWS.min(batch.num_rows() - start));
            self.slice(&slice)?;
            self.rows_seen = self.rows_seen.saturating_add(slice.num_rows() as u64);
        }
        if !self.layout.extra.is_empty() && batch.num_rows() > 0 {
            let schema = Arc::clone(&self.layout.extra_schema);
            let columns = self.layout.extra.iter().zip(schema.fields()).map(|(c, field)| {
                let found = column(batch, *c)?;
                Ok(match found.data_type() {
                    DataType::Null => new_null_array(field.data_type(), found.len()),
                    _ => Arc::clone(found),
                })
            });
            let columns = columns.collect::<Result<_>>()?;
            self.extra.push(RecordBatch::try_new(schema, columns).map_err(unusable)?);
        }
        Ok(())
    }

    fn slice(&mut self, slice: &RecordBatch) -> Result<()> {
        // One column at a time is cast, beside the ids.
        memory::ask("the table", slice.num_rows().saturating_mul(96))?;
        let globals = self.globals(slice)?;
        if !self.stored.is_empty() {
            self.compare(slice, &globals)?;
        }
        if let Some(place) = self.layout.weight {
            self.weights(column(slice, place)?)?;
        }
        globals.into_iter().try_for_each(|global| self.rows.push(global))
    }

    /// Compares every stored column with what the caches hold in these rows.
    fn compare(&mut self, slice: &RecordBatch, globals: &[u64]) -> Result<()> {
        let at = self.set.addresses(globals, &mut self.tables)?;
        let columns = self.stored.iter().zip(&self.layout.stored);
        for (number, (stored, place)) in columns.enumerate() {
            let found = cast(column(slice, *place)?, &stored.ty.arrow()).map_err(unusable)?;
            let sources = self.set.sources(number, &at);
            let Some(row) = first_difference(stored.ty, &found, &sources, &at.spots) else {
                continue;
            };
            let kept = at.spots.get(row).map_or(Value::Null, |spot| value_at(&sources, *spot));
            let owner = globals.get(row).and_then(|global| self.set.locate(*global));
            let found = shown(stored.ty, &found, row);
            return Err(self.changed(row, &stored.name, &found, &show(&kept), owner));
        }
        Ok(())
    }

    /// The global rows that `(cache_id, sample_id)` name.
    fn globals(&self, slice: &RecordBatch) -> Result<Vec<u64>> {
        let original = column(slice, self.layout.sample_id)?;
        // An unsigned id beyond int64 becomes null here, and is refused below.
        let sample_ids = cast(original, &DataType::Int64).map_err(unusable)?;
        let sample_ids = sample_ids.as_primitive::<Int64Type>();
        let mut globals = Vec::with_capacity(slice.num_rows());
        let mut name = |row: usize, sample: Option<i64>, (cache, rows, base): Owner| {
            let within = sample.and_then(|sample| u64::try_from(sample).ok()).filter(|sample| *sample < rows);
            match within.and_then(|sample| base.checked_add(sample)) {
                Some(global) => globals.push(global),
                None if original.is_null(row) => return Err(self.null(row, "sample_id")),
                None => return Err(self.unknown_sample(row, cache, original)),
            }
            Ok(())
        };
        let Some(place) = self.layout.cache_id else {
            let only = self.set.caches().first().map_or(0, |cache| cache.rows());
            sample_ids.iter().enumerate().try_for_each(|(row, sample)| name(row, sample, (0, only, 0)))?;
            return Ok(globals);
        };
        let cache_ids = cast(column(slice, place)?, &DataType::Utf8View).map_err(unusable)?;
        let cache_ids = cache_ids.as_string_view();
        // Neighbours mostly have one view: the same bytes, and not only equal ones.
        let mut last = None;
        for (row, (view, sample)) in cache_ids.views().iter().zip(sample_ids).enumerate() {
            if cache_ids.is_null(row) {
                return Err(self.null(row, "cache_id"));
            }
            let owner = match last {
                Some((known, owner)) if known == *view => owner,
                _ => self.owner(row, cache_ids.value(row))?,
            };
            last = Some((*view, owner));
            name(row, sample, owner)?;
        }
        Ok(globals)
    }

    /// The cache with this id.
    fn owner(&self, row: usize, id: &str) -> Result<Owner> {
        let place = |number: usize| Some((self.set.caches().get(number)?.rows(), self.set.base(number)?));
        let found = self.cache_numbers.get(id).and_then(|number| Some((*number, place(*number)?)));
        let (number, (rows, base)) = found.ok_or_else(|| self.unknown_cache(row, id))?;
        Ok((number, rows, base))
    }

    fn weights(&mut self, original: &ArrayRef) -> Result<()> {
        let weights = cast(original, &DataType::Float64).map_err(unusable)?;
        for (row, weight) in weights.as_primitive::<Float64Type>().iter().enumerate() {
            match weight.filter(|w| w.is_finite() && *w > 0.0) {
                Some(weight) => self.weights.push(weight)?,
                None => {
                    return Err(self.at(
                        row,
                        &format!(
                            "weight is {}; weights are finite and greater than 0: drop a row \
                             (filter) instead of giving it no weight",
                            text(original, row)
                        ),
                    ));
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Selection> {
        if self.rows_seen == 0 {
            return Err(Error::new(
                ErrorKind::Empty,
                "the table has no rows; a dataset needs at least one: check the filter",
            ));
        }
        let extra = match self.extra.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            many => {
                let bytes = many.iter().map(bytes_of).sum();
                memory::ask("added columns", bytes)?;
                Some(concat_batches(&self.layout.extra_schema, many).map_err(unusable)?)
            }
        };
        Ok(Selection { rows: self.rows.finish(self.set.rows()), weights: self.weights.finish(), extra })
    }

    /// An error in a row of the current slice.
    fn at(&self, row: usize, what: &str) -> Error {
        let row = self.rows_seen.saturating_add(row as u64);
        refuse(&format!("row {row}: {what}"))
    }

    fn null(&self, row: usize, column: &str) -> Error {
        self.at(row, &format!("{column} is null; keep cache_id and sample_id as ds.metadata has them"))
    }

    fn unknown_cache(&self, row: usize, id: &str) -> Error {
        let known: Vec<_> = self.set.caches().iter().map(|c| c.cache_id()).collect();
        self.at(
            row,
            &format!(
                "cache_id {} is no cache of this dataset ({}); take rows from ds.metadata only",
                quote(id),
                shorten(&known.join(", ")),
            ),
        )
    }

    fn unknown_sample(&self, row: usize, cache: usize, ids: &ArrayRef) -> Error {
        let found = text(ids, row);
        let cache = self.set.caches().get(cache);
        let (id, rows) = cache.map_or(("", 0), |cache| (cache.cache_id(), cache.rows()));
        self.at(
            row,
            &format!(
                "sample_id {found} is not in cache {id}, which has {rows} samples from 0; \
                 keep cache_id and sample_id as ds.metadata has them"
            ),
        )
    }

    fn changed(&self, row: usize, name: &str, found: &str, kept: &str, owner: Option<(usize, u64)>) -> Error {
        let (cache, sample) = owner.unwrap_or_default();
        let id = self.set.caches().get(cache).map_or("", |cache| cache.cache_id());
        self.at(
            row,
            &format!(
                "column {} has {found}, but sample {sample} of cache {id} stores {kept}; \
                 put the new values in another column, stored columns never change",
                quote(name),
            ),
        )
    }
}

impl Layout {
    fn new(stored: &[UnifiedColumn], schema: &Schema, cache_id_needed: bool) -> Result<Self> {
        let mut names = HashSet::new();
        if let Some(twice) = schema.fields().iter().find(|field| !names.insert(field.name())) {
            let name = quote(twice.name());
            return Err(refuse(&format!("column {name} is there twice; rename one of them")));
        }
        let cache_id = match schema.index_of("cache_id") {
            Err(_) if !cache_id_needed => None,
            _ => Some(required(schema, "cache_id", "a string", is_string)?),
        };
        let sample_id = required(schema, "sample_id", "an integer", DataType::is_integer)?;
        let weight = match schema.index_of("weight") {
            Err(_) => None,
            Ok(_) => Some(required(schema, "weight", "a number", |ty| ty.is_integer() || ty.is_floating())?),
        };
        let stored = stored.iter().map(|column| {
            let fits = |ty: &DataType| match column.ty {
                ColumnType::String => is_string(ty),
                other => *ty == other.arrow(),
            };
            required(schema, &column.name, column.ty.name(), fits)
        });
        let stored = stored.collect::<Result<Vec<_>>>()?;
        let mut used: HashSet<usize> = stored.iter().copied().chain(weight).chain(cache_id).collect();
        used.insert(sample_id);
        let extra: Vec<_> = (0..schema.fields().len()).filter(|n| !used.contains(n)).collect();
        let extra_schema = Arc::new(typed(&schema.project(&extra).map_err(unusable)?));
        Ok(Layout { cache_id, sample_id, weight, stored, extra, extra_schema })
    }
}

/// The same columns; one without any value, of which no type is known, is text: that is how it comes back.
fn typed(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Null => Arc::new(Field::new(field.name(), DataType::LargeUtf8, true)),
        _ => Arc::clone(field),
    };
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

/// The same columns, where dictionaries are columns of their values, but for text: Polars has no others.
fn without_dictionaries(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| {
        let mut ty = field.data_type();
        while let DataType::Dictionary(_, values) = ty
            && !values.is_string()
        {
            ty = values.as_ref();
        }
        if ty == field.data_type() {
            Arc::clone(field)
        } else {
            Arc::new(Field::new(field.name(), ty.clone(), true))
        }
    };
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

/// The batch with dictionaries decoded where the schema has their values. What else differs stays, to be refused.
fn decoded(schema: &Schema, batch: RecordBatch) -> Result<RecordBatch> {
    let is_encoded = |(field, array): &(&Arc<Field>, &ArrayRef)| {
        matches!(array.data_type(), DataType::Dictionary(..)) && field.data_type() != array.data_type()
    };
    let columns = || schema.fields().iter().zip(batch.columns());
    if schema.fields().len() != batch.num_columns() || !columns().any(|column| is_encoded(&column)) {
        return Ok(batch);
    }
    let plain = |(field, array): (&Arc<Field>, &ArrayRef)| match field.data_type() {
        _ if !is_encoded(&(field, array)) => Ok(Arc::clone(array)),
        DataType::Null => Ok(new_null_array(&DataType::Null, array.len())),
        ty => cast(array, ty).map_err(unusable),
    };
    let arrays: Vec<ArrayRef> = columns().map(plain).collect::<Result<_>>()?;
    let named = batch.schema_ref().fields().iter().zip(&arrays);
    let fields: Vec<_> =
        named.map(|(f, array)| Field::new(f.name(), array.data_type().clone(), true)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(unusable)
}

/// The place of a column that must be there with the right type.
fn required(schema: &Schema, name: &str, wanted: &str, fits: impl Fn(&DataType) -> bool) -> Result<usize> {
    let name_shown = quote(name);
    let (place, field) = schema.column_with_name(name).ok_or_else(|| {
        refuse(&format!(
            "column {name_shown} is missing; keep every column of ds.metadata but weight \
             (with_columns adds, select drops)"
        ))
    })?;
    if fits(field.data_type()) {
        return Ok(place);
    }
    Err(refuse(&format!(
        "column {name_shown} has type {}, {wanted} expected; keep the type that ds.metadata gives it",
        shorten(&field.data_type().to_string()),
    )))
}

fn is_string(ty: &DataType) -> bool {
    match ty {
        DataType::Dictionary(_, values) => values.is_string(),
        other => other.is_string(),
    }
}

fn column(batch: &RecordBatch, place: usize) -> Result<&ArrayRef> {
    batch
        .columns()
        .get(place)
        .ok_or_else(|| refuse("a batch of the table lacks a column; give a Polars DataFrame"))
}

/// A cell of a column in its stored form, printed like the stored value beside it.
fn shown(ty: ColumnType, array: &ArrayRef, row: usize) -> String {
    let spot = Spot { source: 0, chunk: 0, row };
    let chunks = Chunks::new(ty, [array].into_iter());
    chunks.map_or_else(String::new, |chunks| show(&chunks.value(spot)))
}

/// A cell of any type for a message.
fn text(array: &dyn Array, row: usize) -> String {
    if array.is_null(row) {
        return "None".to_owned();
    }
    shorten(&array_value_to_string(array, row).unwrap_or_else(|e| e.to_string()))
}

fn refuse(message: &str) -> Error {
    Error::new(ErrorKind::InvalidTable, message)
}

fn unusable(error: arrow_schema::ArrowError) -> Error {
    refuse(&format!("the table cannot be used: {error}; give ds.metadata, edited"))
}

/// Global rows, kept as a range for as long as they are neighbours.
#[derive(Default)]
struct RowCollector {
    start: u64,
    len: u64,
    explicit: Option<Vec<u64>>,
}

impl RowCollector {
    fn push(&mut self, row: u64) -> Result<()> {
        let next = self.start.saturating_add(self.len);
        match &mut self.explicit {
            Some(rows) => return memory::push("row numbers", rows, row),
            None if self.len == 0 => (self.start, self.len) = (row, 1),
            None if row == next => self.len = self.len.saturating_add(1),
            None => {
                // Fits: there are so many rows of the table.
                let mut rows = memory::list("row numbers", self.len as usize + 1)?;
                rows.extend((self.start..next).chain([row]));
                self.explicit = Some(rows);
            }
        }
        Ok(())
    }

    fn finish(self, total: u64) -> Rows {
        match self.explicit {
            Some(mut rows) => {
                rows.shrink_to_fit();
                Rows::Explicit(Arc::new(rows))
            }
            None if self.start == 0 && self.len == total => Rows::All,
            None => Rows::Range { start: self.start, len: self.len },
        }
    }
}

/// Weights, not kept at all for as long as they are 1.
#[derive(Default)]
struct WeightCollector {
    ones: usize,
    weights: Option<Vec<f64>>,
}

impl WeightCollector {
    fn push(&mut self, weight: f64) -> Result<()> {
        match &mut self.weights {
            Some(weights) => return memory::push("weights", weights, weight),
            None if weight == 1.0 => self.ones += 1,
            None => {
                let mut weights = memory::list("weights", self.ones + 1)?;
                weights.resize(self.ones, 1.0);
                weights.push(weight);
                self.weights = Some(weights);
            }
        }
        Ok(())
    }

    fn finish(self) -> Option<Arc<Vec<f64>>> {
        self.weights.map(|mut weights| {
            weights.shrink_to_fit();
            Arc::new(weights)
        })
    }
}
