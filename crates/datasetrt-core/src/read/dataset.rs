//! An active table over open caches: which rows, in which order, with which weights.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{DataType, Schema};
use arrow_select::take::take_record_batch;

use super::buffer::Pool;
use super::cache::{Cache, ReadOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::format::checksum::Digest;
use crate::memory;
use crate::metadata::{
    CacheSet, Export, RESERVED, Rows, Selection, TableSource, Value, bytes_of, deliverable, digest,
};

/// So much memory of batches that were taken and dropped is kept for the next ones: that of two at a time.
const SPARE_BATCHES: usize = 2;
const SPARE_BYTES: usize = 8 << 20;

/// An immutable view; cheap to clone, shared by threads and by forked processes.
#[derive(Clone)]
pub struct Dataset {
    caches: Arc<[Arc<Cache>]>,
    set: Arc<CacheSet>,
    options: ReadOptions,
    /// Memory of batches that were taken and dropped.
    spare: Arc<Pool>,
    selection: Arc<Selection>,
    /// The added columns that are delivered with samples.
    delivered: Option<Arc<RecordBatch>>,
    fingerprint: Arc<ArcSwapOption<Digest>>,
}

impl Dataset {
    /// Opens caches; their samples follow each other in the order of `folders`.
    ///
    /// # Errors
    ///
    /// What [`Cache::open`] says of one of them, or `invalid-argument` if they do not go together.
    pub fn open(folders: &[impl AsRef<Path>], options: ReadOptions) -> Result<Self> {
        let caches: Vec<Arc<Cache>> =
            folders.iter().map(|f| Cache::open(f.as_ref(), options).map(Arc::new)).collect::<Result<_>>()?;
        let sources = caches.iter().map(|cache| Arc::clone(cache) as Arc<dyn TableSource>).collect();
        Ok(Dataset {
            set: Arc::new(CacheSet::new(sources)?),
            caches: caches.into(),
            options,
            spare: Pool::new(SPARE_BATCHES, SPARE_BYTES),
            selection: Arc::new(Selection::all()),
            delivered: None,
            fingerprint: Arc::default(),
        })
    }

    /// The caches in order.
    pub fn caches(&self) -> &[Arc<Cache>] {
        &self.caches
    }

    /// The caches that rows of this table come from, in their order; all of them if it has no row.
    pub fn caches_of_rows(&self) -> Vec<&Arc<Cache>> {
        let cache_of = |global: u64| self.set.locate(global).map(|(cache, _)| cache);
        let mut has_rows = vec![false; self.caches.len()];
        match &self.selection.rows {
            _ if self.is_empty() || has_rows.len() == 1 => has_rows.fill(true),
            Rows::All => has_rows.fill(true),
            Rows::Range { start, len } => {
                // Each cache has a row.
                if let (Some(first), Some(last)) = (cache_of(*start), cache_of(start + len - 1)) {
                    has_rows.get_mut(first..=last).unwrap_or_default().fill(true);
                }
            }
            Rows::Explicit(rows) => {
                let mut left = has_rows.len();
                for global in rows.iter() {
                    if let Some(known) = cache_of(*global).and_then(|cache| has_rows.get_mut(cache)) {
                        left -= usize::from(!std::mem::replace(known, true));
                    }
                    if left == 0 {
                        break;
                    }
                }
            }
        }
        self.caches.iter().zip(has_rows).filter(|(_, has)| *has).map(|(cache, _)| cache).collect()
    }

    /// The caches as one list of rows.
    pub fn set(&self) -> &Arc<CacheSet> {
        &self.set
    }

    /// How the caches were opened.
    pub fn options(&self) -> ReadOptions {
        self.options
    }

    /// Whether each column of [`Dataset::metadata`] has nulls anywhere, so that its form need not
    /// depend on the samples of one batch.
    pub fn nullable(&self) -> Vec<bool> {
        let stored = self.set.columns().iter().map(|column| {
            let found = |cache: &Arc<Cache>| {
                cache.columns().iter().find(|c| c.name == column.name).is_none_or(|c| c.null_count > 0)
            };
            self.caches.iter().any(found)
        });
        let extra = self
            .delivered
            .iter()
            .flat_map(|extra| extra.columns().iter().map(|array| array.null_count() > 0));
        stored.chain(extra).collect()
    }

    /// Where the memory of batches that are read by row numbers comes from and goes back to.
    pub(crate) fn spare(&self) -> &Arc<Pool> {
        &self.spare
    }

    /// The active table.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Number of rows.
    pub fn len(&self) -> u64 {
        self.selection.rows.len(self.set.rows())
    }

    /// Never: a table has at least one row, but a slice may have none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The global row of a row of this table.
    pub fn global(&self, row: u64) -> Result<u64> {
        self.selection.rows.get(row, self.set.rows()).ok_or_else(|| self.out_of_range(row))
    }

    /// The global rows of rows of this table.
    pub fn globals(&self, rows: &[u64]) -> Result<Vec<u64>> {
        let mut globals = memory::list("row numbers", rows.len())?;
        for row in rows {
            globals.push(self.global(*row)?);
        }
        Ok(globals)
    }

    /// The cache and the sample id of a global row.
    pub fn locate(&self, global: u64) -> Result<(&Cache, u64)> {
        let (cache, sample) = self.set.locate(global).ok_or_else(|| self.out_of_range(global))?;
        let cache = self.caches.get(cache).ok_or_else(|| self.out_of_range(global))?;
        Ok((cache, sample))
    }

    /// The metadata of rows: the stored columns, then the added ones that are delivered.
    pub fn metadata(&self, rows: &[u64], globals: &[u64]) -> Result<RecordBatch> {
        let stored = self.set.take(globals)?;
        match &self.delivered {
            None => Ok(stored),
            Some(extra) => beside(&stored, &take_rows(extra, rows)?),
        }
    }

    /// Has the processor bring what [`visit_metadata`](Self::visit_metadata) is to hand out.
    pub fn prefetch_metadata(&self, global: u64) {
        if self.delivered.is_none() {
            self.set.prefetch(global);
        }
    }

    /// Hands out the metadata of one row, cell by cell, where it is in memory already and nothing was added to it;
    /// false, and nothing handed out, otherwise: [`metadata`](Self::metadata) has it.
    pub fn visit_metadata(&self, global: u64, cell: impl FnMut(&str, Value<'_>)) -> Result<bool> {
        if self.delivered.is_some() { Ok(false) } else { self.set.visit(global, cell) }
    }

    /// The rows `start`, `start + step`, …, `count` of them.
    pub fn slice(&self, start: u64, step: i64, count: u64) -> Result<Self> {
        let within = |row: u64| row < self.len();
        let last = count
            .checked_sub(1)
            .map(|steps| step.checked_mul(steps as i64).and_then(|d| start.checked_add_signed(d)));
        if count > 0 && !(within(start) && last.flatten().is_some_and(within)) {
            return Err(self.out_of_range(start));
        }
        if step == 1 && self.selection.weights.is_none() && self.selection.extra.is_none() {
            let rows = match &self.selection.rows {
                Rows::All => Some(Rows::Range { start, len: count }),
                Rows::Range { start: first, .. } => Some(Rows::Range { start: first + start, len: count }),
                Rows::Explicit(_) => None,
            };
            if let Some(rows) = rows {
                return Ok(self.with_selection(Selection { rows, weights: None, extra: None }, None));
            }
        }
        let row = |i: usize| start.saturating_add_signed(step.saturating_mul(i as i64));
        // Fits: there are so many rows.
        self.select(&memory::collect("row numbers", (0..count as usize).map(row))?)
    }

    /// The given rows of this table, with their weights and added columns; they may repeat.
    pub fn select(&self, rows: &[u64]) -> Result<Self> {
        let globals = self.globals(rows)?;
        let weights = self.selection.weights.as_ref().map(|weights| {
            let weight = |row: &u64| weights.get(*row as usize).copied().unwrap_or(1.0);
            memory::collect("weights", rows.iter().map(weight)).map(Arc::new)
        });
        let weights = weights.transpose()?;
        let extra = self.selection.extra.as_ref().map(|extra| take_rows(extra, rows)).transpose()?;
        let delivered = self.delivered.as_ref().map(|extra| take_rows(extra, rows)).transpose()?;
        Ok(self
            .with_selection(Selection { rows: Rows::Explicit(Arc::new(globals)), weights, extra }, delivered))
    }

    /// The same rows with other weights, one each, finite and above 0.
    pub fn with_weights(&self, weights: Vec<f64>) -> Result<Self> {
        if weights.len() as u64 != self.len() {
            let message = format!("{} weights for {} rows; give one weight a row", weights.len(), self.len());
            return Err(Error::new(ErrorKind::InvalidTable, message));
        }
        if let Some((row, weight)) = (0u64..).zip(&weights).find(|(_, w)| !(w.is_finite() && **w > 0.0)) {
            let message = format!(
                "row {row} has weight {weight}; weights must be finite and above 0: filter rows out instead of weighting them 0"
            );
            return Err(Error::new(ErrorKind::InvalidTable, message));
        }
        let selection = Selection { weights: Some(Arc::new(weights)), ..(*self.selection).clone() };
        Ok(self.with_selection(selection, self.delivered.as_deref().cloned()))
    }

    /// The view that an edited table describes, checked completely.
    pub fn with_table(
        &self,
        schema: &Schema,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<Self> {
        for field in schema.fields() {
            check_type(field.name(), field.data_type(), false)?;
        }
        let sound = |batch: Result<RecordBatch>| batch.and_then(check_values);
        let check = || self.set.check(schema, batches.into_iter().map(sound));
        // Arrow's reader of streams takes nested columns that begin within their buffers for longer than they are, and
        // panics. Nothing outlives that: a check only makes new values.
        let selection = catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|_| {
            let message = "the table cannot be read: Arrow's own code fails at one of its nested columns; give it as a Polars DataFrame, pl.DataFrame(table)";
            Err(Error::new(ErrorKind::InvalidTable, message))
        });
        self.restore(selection?)
    }

    /// The columns of the exported table that follow from which sample a row is.
    pub fn implied_columns(&self) -> impl Iterator<Item = &str> {
        let cache_id = (self.caches.len() == 1).then_some("cache_id");
        let weight = self.selection.weights.is_none().then_some("weight");
        self.set.columns().iter().map(|column| column.name.as_str()).chain(cache_id).chain(weight)
    }

    /// The same of the exported table without its [implied columns](Self::implied_columns), from which rows were left out
    /// and nothing changed.
    pub fn with_rows(
        &self,
        schema: &Schema,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<Self> {
        self.restore(self.set.check_rows(schema, batches)?)
    }

    /// The view of a selection that was made for the same caches.
    pub fn restore(&self, selection: Selection) -> Result<Self> {
        let total = self.set.rows();
        let known = match &selection.rows {
            Rows::All => true,
            Rows::Range { start, len } => start.checked_add(*len).is_some_and(|end| end <= total),
            Rows::Explicit(rows) => rows.iter().all(|row| *row < total),
        };
        if !known {
            return Err(Error::new(
                ErrorKind::Changed,
                "the saved table names rows that the caches do not have; open them anew",
            ));
        }
        let added = selection.extra.as_ref().map(RecordBatch::schema);
        let names = added.iter().flat_map(|schema| schema.fields()).map(|field| field.name().as_str());
        let stored = self.set.columns().iter().map(|column| column.name.as_str());
        let mut taken: HashSet<&str> = stored.chain(RESERVED).collect();
        if !names.into_iter().all(|name| taken.insert(name)) {
            return Err(Error::new(
                ErrorKind::Changed,
                "the saved table adds a column that is there already; open the caches anew",
            ));
        }
        let delivered = selection.extra.as_ref().map(deliverable).transpose()?;
        Ok(self.with_selection(selection, delivered))
    }

    /// The active table as record batches.
    pub fn export(&self) -> Result<Export> {
        Export::new(Arc::clone(&self.set), (*self.selection).clone())
    }

    /// A digest of everything that decides what this view delivers: the caches' content, the rows
    /// and their order, the weights, the added columns that are delivered.
    pub fn fingerprint(&self) -> Result<Digest> {
        if let Some(known) = self.fingerprint.load_full() {
            return Ok(*known);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"datasetrt dataset 1\0");
        hasher.update(&(self.caches.len() as u64).to_le_bytes());
        self.caches.iter().for_each(|cache| _ = hasher.update(cache.checksum()));
        feed_rows(&self.selection, &mut hasher);
        if let Some(extra) = self.delivered.as_ref().filter(|extra| extra.num_columns() > 0) {
            hasher.update(b"extra");
            digest(extra, &mut |bytes| _ = hasher.update(bytes))?;
        }
        let fingerprint = *hasher.finalize().as_bytes();
        self.fingerprint.store(Some(Arc::new(fingerprint)));
        Ok(fingerprint)
    }

    pub(super) fn with_selection(&self, selection: Selection, delivered: Option<RecordBatch>) -> Self {
        Dataset {
            caches: Arc::clone(&self.caches),
            set: Arc::clone(&self.set),
            options: self.options,
            spare: Arc::clone(&self.spare),
            selection: Arc::new(canonical(selection, self.set.rows())),
            delivered: delivered.filter(|columns| columns.num_columns() > 0).map(Arc::new),
            fingerprint: Arc::default(),
        }
    }

    fn out_of_range(&self, row: u64) -> Error {
        Error::new(
            ErrorKind::IndexOutOfRange,
            format!("row {row} is out of range: the dataset has {} rows, counted from 0", self.len()),
        )
    }
}

/// One form for equal tables, so that equal tables have one fingerprint however they were made.
fn canonical(selection: Selection, total: u64) -> Selection {
    let rows = match selection.rows {
        Rows::Explicit(rows) => match contiguous(&rows) {
            Some((start, len)) => Rows::Range { start, len },
            None => Rows::Explicit(rows),
        },
        other => other,
    };
    let rows = if rows == (Rows::Range { start: 0, len: total }) { Rows::All } else { rows };
    let weights = selection.weights.filter(|weights| weights.iter().any(|w| *w != 1.0));
    Selection { rows, weights, extra: selection.extra.filter(|extra| extra.num_columns() > 0) }
}

fn contiguous(rows: &[u64]) -> Option<(u64, u64)> {
    let start = rows.first().copied().unwrap_or_default();
    let follow = (start..).zip(rows).all(|(expected, row)| expected == *row);
    follow.then_some((start, rows.len() as u64))
}

fn feed_rows(selection: &Selection, hasher: &mut blake3::Hasher) {
    match &selection.rows {
        Rows::All => _ = hasher.update(b"all"),
        Rows::Range { start, len } => {
            hasher.update(b"range").update(&start.to_le_bytes()).update(&len.to_le_bytes());
        }
        Rows::Explicit(rows) => {
            hasher.update(b"rows");
            feed_words(rows.iter().copied(), hasher);
        }
    }
    if let Some(weights) = &selection.weights {
        hasher.update(b"weights");
        feed_words(weights.iter().map(|w| w.to_bits()), hasher);
    }
}

/// In pieces, because the hash is slow at eight bytes at a time.
fn feed_words(words: impl Iterator<Item = u64>, hasher: &mut blake3::Hasher) {
    let mut piece = Vec::with_capacity(1 << 16);
    for word in words {
        piece.extend_from_slice(&word.to_le_bytes());
        if piece.len() >= 1 << 16 {
            hasher.update(&piece);
            piece.clear();
        }
    }
    hasher.update(&piece);
}

/// Refuses types that Polars does not take and hand back, some of them with other values, and that Arrow's own kernels
/// do not take. `within` another type, Null is one of them.
fn check_type(name: &str, ty: &DataType, within: bool) -> Result<()> {
    let inner: Vec<&DataType> = match ty {
        DataType::Boolean
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => return Ok(()),
        ty if ty.is_integer() || ty.is_floating() || ty.is_string() => return Ok(()),
        DataType::Null if !within => return Ok(()),
        DataType::FixedSizeBinary(bytes) if *bytes > 0 => return Ok(()),
        DataType::Decimal128(precision, scale)
            if u8::try_from(*scale).is_ok_and(|scale| scale <= *precision) =>
        {
            return Ok(());
        }
        DataType::List(field) | DataType::LargeList(field) | DataType::Map(field, _) => {
            vec![field.data_type()]
        }
        DataType::FixedSizeList(field, length) if *length > 0 => vec![field.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Dictionary(_, values) => return check_type(name, values, within),
        _ => {
            let message =
                format!("column '{name}' has type {ty}, which a table cannot keep; cast it or drop it");
            return Err(Error::new(ErrorKind::InvalidTable, message));
        }
    };
    inner.into_iter().try_for_each(|ty| check_type(name, ty, true))
}

/// Arrays that break Arrow's rules, such as strings that are not UTF-8, would fail far from here.
fn check_values(batch: RecordBatch) -> Result<RecordBatch> {
    if batch.num_rows() == 0 {
        // An empty part of a longer array may begin where nothing was sent.
        return Ok(RecordBatch::new_empty(batch.schema()));
    }
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        column.to_data().validate_full().map_err(|e| {
            let message = format!("column '{}' is not a valid Arrow array: {e}; rebuild it", field.name());
            Error::new(ErrorKind::InvalidTable, message)
        })?;
    }
    Ok(batch)
}

fn take_rows(batch: &RecordBatch, rows: &[u64]) -> Result<RecordBatch> {
    // With the list of rows and the validity of each cell.
    let bytes_per_row = bytes_of(batch) / batch.num_rows().max(1) + 16;
    memory::ask("added columns", bytes_per_row.saturating_mul(rows.len()))?;
    let rows = UInt64Array::from(memory::collect("row numbers", rows.iter().copied())?);
    take_record_batch(batch, &rows)
        .map_err(|e| Error::new(ErrorKind::Bug, format!("added columns cannot be taken: {e}")))
}

fn beside(left: &RecordBatch, right: &RecordBatch) -> Result<RecordBatch> {
    let fields: Vec<_> = left.schema().fields().iter().chain(right.schema().fields()).cloned().collect();
    let columns: Vec<ArrayRef> = left.columns().iter().chain(right.columns()).cloned().collect();
    let options = RecordBatchOptions::new().with_row_count(Some(left.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|e| Error::new(ErrorKind::Bug, format!("metadata columns do not go together: {e}")))
}
