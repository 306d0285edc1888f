//! Several caches as one list of rows: the ground on which active tables select.
//!
//! The caches of a dataset lie end to end. A *global row* is the number of rows in the caches
//! before, plus the sample id. What a dataset selects, repeats or weights is a [`Selection`] of
//! global rows; the values stay where they are.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::gather::{Chunks, Spot, gather};
use super::table::Table;
use super::types::{ColumnInfo, ColumnType, Value, arrow_schema};
use crate::error::{Error, ErrorKind, Result, invalid};
use crate::memory;

/// A cache as metadata sees it. The table may be loaded when it is first asked for.
pub trait TableSource: Send + Sync {
    /// The identity of the cache: a digest, the same wherever the cache lies.
    fn cache_id(&self) -> &str;
    /// The number of samples.
    fn rows(&self) -> u64;
    /// The stored columns.
    fn columns(&self) -> &[ColumnInfo];
    /// The table, with these columns and rows.
    ///
    /// # Errors
    ///
    /// Whatever loading it meets.
    fn table(&self) -> Result<Arc<Table>>;
    /// Whether the table stays in memory once it was asked for.
    fn in_memory(&self) -> bool {
        true
    }
    /// The table, if it is in memory already, for whatever reason: loads nothing.
    fn loaded(&self) -> Option<Arc<Table>> {
        None
    }
    /// The rows of some samples alone, in that order, as a table; for caches that do not keep the whole one.
    ///
    /// # Errors
    ///
    /// `index-out-of-range`, with the row; or whatever reading them meets.
    fn part(&self, samples: &[u64]) -> Result<Table> {
        let table = self.table()?;
        Table::over(vec![table.take(samples)?], self.columns())
    }
}

/// A column that at least one of the caches has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnifiedColumn {
    /// The column's name.
    pub name: String,
    /// What it holds, in every cache that has it.
    pub ty: ColumnType,
}

/// Which global rows, in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Every row of every cache, in order.
    All,
    /// Neighbouring rows, in order.
    Range {
        /// The first row.
        start: u64,
        /// How many.
        len: u64,
    },
    /// Any rows; they may repeat.
    Explicit(Arc<Vec<u64>>),
}

impl Rows {
    /// How many rows are selected out of `total`.
    pub fn len(&self, total: u64) -> u64 {
        match self {
            Rows::All => total,
            Rows::Range { len, .. } => *len,
            Rows::Explicit(rows) => rows.len() as u64,
        }
    }

    /// The global row at a place of the selection; none past its end.
    pub fn get(&self, place: u64, total: u64) -> Option<u64> {
        match self {
            Rows::All => (place < total).then_some(place),
            Rows::Range { start, len } => (place < *len).then(|| start.checked_add(place))?,
            Rows::Explicit(rows) => rows.get(usize::try_from(place).ok()?).copied(),
        }
    }
}

/// An active table: rows, their weights, and columns that the user added.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The rows.
    pub rows: Rows,
    /// One weight per selected row; none if all are 1.
    pub weights: Option<Arc<Vec<f64>>>,
    /// One row per selected row; none without added columns.
    pub extra: Option<RecordBatch>,
}

impl Selection {
    /// Every row once, each with weight 1.
    pub fn all() -> Self {
        Selection { rows: Rows::All, weights: None, extra: None }
    }
}

/// The caches of a dataset, end to end, with the union of their columns.
pub struct CacheSet {
    caches: Vec<Arc<dyn TableSource>>,
    /// First global row of each cache.
    bases: Vec<u64>,
    rows: u64,
    columns: Vec<UnifiedColumn>,
    /// For each unified column, its number in each cache that has it.
    places: Vec<Vec<Option<usize>>>,
    schema: SchemaRef,
}

/// The tables that one operation has loaded so far: one that is not kept in memory is loaded once for all its rows.
#[derive(Debug, Default)]
pub(super) struct Tables(Vec<Option<Arc<Table>>>);

/// Addresses of rows, with the tables they point into.
pub(super) struct Located {
    tables: Vec<Option<Arc<Table>>>,
    pub(super) spots: Vec<Spot>,
}

impl CacheSet {
    /// Joins caches in the order given. Loads no table.
    ///
    /// # Errors
    ///
    /// `invalid-argument` without caches, with one of them twice, or if two of them have a column
    /// of one name but not of one type.
    pub fn new(caches: Vec<Arc<dyn TableSource>>) -> Result<Self> {
        if caches.is_empty() {
            return Err(invalid("a dataset needs at least one cache; give a path"));
        }
        let mut ids = HashMap::new();
        let mut bases = Vec::with_capacity(caches.len());
        let mut rows = 0_u64;
        for (number, cache) in caches.iter().enumerate() {
            if let Some(first) = ids.insert(cache.cache_id(), number) {
                let id = cache.cache_id();
                return Err(invalid(format!(
                    "caches {first} and {number} are the same cache {id}; give each cache once \
                     (rows can be repeated with with_metadata)"
                )));
            }
            bases.push(rows);
            rows = rows.checked_add(cache.rows()).filter(|rows| i64::try_from(*rows).is_ok()).ok_or_else(
                || invalid("the caches have more samples than fit in int64; open fewer of them"),
            )?;
        }
        let (columns, places) = unify(&caches)?;
        let schema = arrow_schema(columns.iter().map(|c| (c.name.as_str(), Some(c.ty))));
        Ok(CacheSet { caches, bases, rows, columns, places, schema })
    }

    /// The caches, in order.
    pub fn caches(&self) -> &[Arc<dyn TableSource>] {
        &self.caches
    }

    /// The number of global rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The union of the caches' columns, in the order in which they are first seen.
    pub fn columns(&self) -> &[UnifiedColumn] {
        &self.columns
    }

    /// The union of the caches' columns as Arrow fields: the schema of [`take`](Self::take).
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The first global row of a cache.
    pub fn base(&self, cache: usize) -> Option<u64> {
        self.bases.get(cache).copied()
    }

    /// The number of the cache that holds a global row, and the sample id in it.
    pub fn locate(&self, global: u64) -> Option<(usize, u64)> {
        if global >= self.rows {
            return None;
        }
        // The last cache that starts at or before the row; caches without rows are passed over.
        let cache = self.bases.partition_point(|base| *base <= global).checked_sub(1)?;
        Some((cache, global.checked_sub(*self.bases.get(cache)?)?))
    }

    /// The stored columns of global rows, in that order; a row may repeat. A column that a cache
    /// does not have is null there.
    ///
    /// # Errors
    ///
    /// `index-out-of-range`, with the row; or what loading a table meets.
    pub fn take(&self, globals: &[u64]) -> Result<RecordBatch> {
        let located = match self.caches.iter().all(|cache| cache.in_memory() || cache.loaded().is_some()) {
            true => self.addresses(globals, &mut Tables::default())?,
            false => self.parts(globals)?,
        };
        let columns = (0..self.columns.len()).map(|c| self.gather(c, &located)).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(globals.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|e| Error::new(ErrorKind::Bug, format!("taken rows form no batch: {e}")))
    }

    /// Hands out the stored cells of one global row, in the order of the columns, where they are in memory already.
    /// False, and none handed out, where they would have to be loaded: [`take`](Self::take) does that.
    ///
    /// # Errors
    ///
    /// `index-out-of-range`, with the row.
    pub fn visit(&self, global: u64, mut cell: impl FnMut(&str, Value<'_>)) -> Result<bool> {
        let Some((source, table, spot)) = self.in_memory(global)? else { return Ok(false) };
        for (column, places) in self.columns.iter().zip(&self.places) {
            let chunks = places.get(source).copied().flatten().and_then(|place| table.chunks(place));
            cell(&column.name, chunks.map_or(Value::Null, |chunks| chunks.value(spot)));
        }
        Ok(true)
    }

    /// Has the processor bring the cells of a global row where they are in memory: [`visit`](Self::visit) is to follow.
    pub fn prefetch(&self, global: u64) {
        // What is wrong with it is told by who reads it.
        if let Ok(Some((_, table, spot))) = self.in_memory(global) {
            table.prefetch(spot);
        }
    }

    /// The cache that holds a global row, with its table and the row's place in it, where that is in memory already.
    fn in_memory(&self, global: u64) -> Result<Option<(usize, Arc<Table>, Spot)>> {
        let (source, sample) = self.locate(global).ok_or_else(|| self.out_of_range(global))?;
        let Some(table) = self.caches.get(source).and_then(|cache| cache.loaded()) else { return Ok(None) };
        let spot = table.spot(sample, 0)?;
        Ok(Some((source, table, spot)))
    }

    /// Addresses of global rows in tables that may hold nothing else.
    fn parts(&self, globals: &[u64]) -> Result<Located> {
        let mut places = memory::list("metadata", globals.len())?;
        let mut samples: Vec<Vec<u64>> = vec![Vec::new(); self.caches.len()];
        for global in globals {
            let (source, sample) = self.locate(*global).ok_or_else(|| self.out_of_range(*global))?;
            if let Some(list) = samples.get_mut(source) {
                memory::push("metadata", list, sample)?;
            }
            places.push((source, sample));
        }
        let (mut tables, mut whole) = (Vec::with_capacity(samples.len()), Vec::with_capacity(samples.len()));
        for (cache, samples) in self.caches.iter().zip(&samples) {
            let loaded = cache.loaded();
            whole.push(loaded.is_some() || cache.in_memory());
            tables.push(match loaded {
                _ if samples.is_empty() => None,
                Some(table) => Some(table),
                None if cache.in_memory() => Some(cache.table()?),
                None => Some(Arc::new(cache.part(samples)?)),
            });
        }
        let mut next = vec![0; self.caches.len()];
        let mut spots: Vec<Spot> = memory::list("metadata", globals.len())?;
        for (source, sample) in places {
            let whole = whole.get(source).copied().unwrap_or_default();
            let row = next.get_mut(source).map(|next| std::mem::replace(next, *next + 1)).unwrap_or_default();
            let table = tables.get(source).and_then(Option::as_ref);
            let hint = spots.last().map_or(0, |spot| spot.chunk);
            let spot = table.map(|table| table.spot(if whole { sample } else { row }, hint)).transpose()?;
            spots.extend(spot.map(|spot| Spot { source, ..spot }));
        }
        Ok(Located { tables, spots })
    }

    fn out_of_range(&self, global: u64) -> Error {
        let message = format!("row {global} is out of range for {} rows, counted from 0", self.rows);
        Error::new(ErrorKind::IndexOutOfRange, message)
    }

    /// The addresses of global rows; loads the tables of the caches they lie in, and no other.
    pub(super) fn addresses(&self, globals: &[u64], tables: &mut Tables) -> Result<Located> {
        let Tables(tables) = tables;
        tables.resize(self.caches.len(), None);
        let mut spots: Vec<Spot> = memory::list("metadata", globals.len())?;
        for global in globals {
            let out_of_range = || self.out_of_range(*global);
            let (source, sample) = self.locate(*global).ok_or_else(out_of_range)?;
            let slot = tables.get_mut(source).ok_or_else(out_of_range)?;
            let table = match slot {
                Some(table) => table,
                None => {
                    let cache = self.caches.get(source).ok_or_else(out_of_range)?;
                    slot.insert(cache.table()?)
                }
            };
            let hint = spots.last().map_or(0, |spot| spot.chunk);
            spots.push(Spot { source, ..table.spot(sample, hint)? });
        }
        Ok(Located { tables: tables.clone(), spots })
    }

    /// One unified column in every table that was loaded and has it.
    pub(super) fn sources<'a>(&self, column: usize, at: &'a Located) -> Vec<Option<&'a Chunks>> {
        let places = self.places.get(column).into_iter().flatten();
        let chunks =
            |(table, place): (&'a Option<Arc<Table>>, &Option<usize>)| table.as_ref()?.chunks((*place)?);
        at.tables.iter().zip(places).map(chunks).collect()
    }

    /// One unified column at addresses.
    pub(super) fn gather(&self, column: usize, at: &Located) -> Result<arrow_array::ArrayRef> {
        let ty = self.columns.get(column).map_or(ColumnType::String, |c| c.ty);
        gather(ty, &self.sources(column, at), &at.spots)
    }
}

impl std::fmt::Debug for CacheSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<_> = self.caches.iter().map(|c| c.cache_id()).collect();
        f.debug_struct("CacheSet").field("caches", &ids).field("rows", &self.rows).finish()
    }
}

type Unified = (Vec<UnifiedColumn>, Vec<Vec<Option<usize>>>);

fn unify(caches: &[Arc<dyn TableSource>]) -> Result<Unified> {
    let mut columns: Vec<UnifiedColumn> = Vec::new();
    let mut places: Vec<Vec<Option<usize>>> = Vec::new();
    // Per name: the unified column's number, and the cache that brought it.
    let mut seen: HashMap<&str, (usize, &str)> = HashMap::new();
    for (cache_number, cache) in caches.iter().enumerate() {
        for (place, column) in cache.columns().iter().enumerate() {
            let (number, first) = *seen.entry(&column.name).or_insert_with(|| {
                columns.push(UnifiedColumn { name: column.name.clone(), ty: column.ty });
                places.push(vec![None; caches.len()]);
                (columns.len() - 1, cache.cache_id())
            });
            if let Some(known) = columns.get(number).filter(|known| known.ty != column.ty) {
                return Err(two_types(known, first, column.ty, cache.cache_id()));
            }
            let slot = places.get_mut(number).and_then(|p| p.get_mut(cache_number));
            slot.into_iter().for_each(|slot| *slot = Some(place));
        }
    }
    Ok((columns, places))
}

fn two_types(known: &UnifiedColumn, first: &str, ty: ColumnType, second: &str) -> Error {
    let name = &known.name;
    invalid(format!(
        "column '{name}' is {} in cache {first} but {} in cache {second}; open them as two \
         datasets, or write one again with the type of the other in schema=",
        known.ty.name(),
        ty.name(),
    ))
}
