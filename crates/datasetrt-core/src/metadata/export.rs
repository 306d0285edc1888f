//! The active table as a user sees it: `cache_id | sample_id | stored columns… | weight | extra
//! columns…`, made batch by batch while it is read.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::active::{CacheSet, Located, Selection, Tables};
use super::types::MAX_BATCH_ROWS;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;

/// What Arrow has for each cell of a column of views.
const VIEW_BYTES: usize = 16;

/// An iterator over the batches of an active table; beside the stored tables themselves, at most
/// [`MAX_BATCH_ROWS`] rows at a time are in memory.
#[derive(Debug)]
pub struct Export {
    set: Arc<CacheSet>,
    selection: Selection,
    schema: SchemaRef,
    tables: Tables,
    next: u64,
    len: u64,
}

impl Export {
    /// Prepares the export of a selection; reads nothing yet.
    ///
    /// # Errors
    ///
    /// `invalid-argument` if weights or extra columns are not one per selected row.
    pub fn new(set: Arc<CacheSet>, selection: Selection) -> Result<Self> {
        let len = selection.rows.len(set.rows());
        let weights = selection.weights.as_ref().map(|w| w.len() as u64);
        let extra = selection.extra.as_ref().map(|e| e.num_rows() as u64);
        for found in [weights, extra].into_iter().flatten() {
            if found != len {
                let message = format!("{found} weights or extra values for {len} rows");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        let schema = schema(&set, &selection);
        Ok(Export { set, selection, schema, tables: Tables::default(), next: 0, len })
    }

    /// The schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn batch(&mut self, start: u64, count: usize) -> Result<RecordBatch> {
        let total = self.set.rows();
        let mut globals = memory::list("the table", count)?;
        for place in start..start.saturating_add(count as u64) {
            globals.push(self.selection.rows.get(place, total).ok_or_else(|| bug("rows end early"))?);
        }
        let at = self.set.addresses(&globals, &mut self.tables)?;
        let mut columns = vec![self.cache_ids(&at)?, self.sample_ids(&globals, &at)?];
        for column in 0..self.set.columns().len() {
            columns.push(self.set.gather(column, &at)?);
        }
        // Fits: weights and extra columns are in memory and have `len` rows.
        let start = start as usize;
        columns.push(self.weights(start, count)?);
        if let Some(extra) = &self.selection.extra {
            columns.extend(extra.slice(start, count).columns().iter().cloned());
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|e| bug(&e.to_string()))
    }

    /// Views of one copy of each id: sixteen bytes a row, whatever the length of an id.
    fn cache_ids(&self, at: &Located) -> Result<ArrayRef> {
        memory::ask("the table", at.spots.len().saturating_mul(VIEW_BYTES))?;
        let mut views = StringViewBuilder::with_capacity(at.spots.len());
        let mut blocks: Vec<Option<(u32, u32)>> = vec![None; self.set.caches().len()];
        for spot in &at.spots {
            let slot = blocks.get_mut(spot.source).ok_or_else(|| bug("unknown cache"))?;
            let cache = self.set.caches().get(spot.source).ok_or_else(|| bug("unknown cache"))?;
            let id = cache.cache_id();
            let (block, len) = *slot
                .get_or_insert_with(|| (views.append_block(Buffer::from(id.as_bytes())), id.len() as u32));
            views.try_append_view(block, 0, len).map_err(|e| bug(&e.to_string()))?;
        }
        let array: StringViewArray = views.finish();
        Ok(Arc::new(array))
    }

    fn sample_ids(&self, globals: &[u64], at: &Located) -> Result<ArrayRef> {
        let mut ids = memory::list("the table", globals.len())?;
        for (global, spot) in globals.iter().zip(&at.spots) {
            let id = self.set.base(spot.source).and_then(|base| global.checked_sub(base));
            let id = id.and_then(|id| i64::try_from(id).ok());
            ids.push(id.ok_or_else(|| bug("a row before its cache"))?);
        }
        Ok(Arc::new(Int64Array::from(ids)))
    }

    fn weights(&self, start: usize, count: usize) -> Result<ArrayRef> {
        let mut copy = memory::list("the table", count)?;
        match &self.selection.weights {
            None => copy.resize(count, 1.0),
            Some(weights) => {
                let end = start.saturating_add(count);
                copy.extend_from_slice(weights.get(start..end).ok_or_else(|| bug("weights end early"))?);
            }
        }
        Ok(Arc::new(Float64Array::from(copy)))
    }
}

impl Iterator for Export {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let left = self.len.saturating_sub(self.next);
        if left == 0 {
            return None;
        }
        let count = left.min(MAX_BATCH_ROWS as u64);
        let batch = self.batch(self.next, count as usize);
        // After an error the rows that follow would be taken for the ones before: stop.
        self.next = if batch.is_ok() { self.next.saturating_add(count) } else { self.len };
        Some(batch)
    }
}

fn schema(set: &CacheSet, selection: &Selection) -> SchemaRef {
    let mut fields = vec![
        Arc::new(Field::new("cache_id", DataType::Utf8View, false)),
        Arc::new(Field::new("sample_id", DataType::Int64, false)),
    ];
    fields.extend(set.schema().fields().iter().cloned());
    fields.push(Arc::new(Field::new("weight", DataType::Float64, false)));
    let extra = selection.extra.as_ref().map(|extra| extra.schema());
    fields.extend(extra.iter().flat_map(|schema| schema.fields().iter().cloned()));
    Arc::new(Schema::new(fields))
}

fn bug(what: &str) -> Error {
    Error::new(ErrorKind::Bug, format!("the active table cannot be exported: {what}"))
}
