//! Records on their way: some hundred kilobytes at a time, so that no thread is woken per sample.

use arrow_array::RecordBatch;

use crate::error::Result;
use crate::format::compression::{Compression, Compressor};
use crate::format::record::{self, RAW_FRAME_BYTES};

/// A chunk is handed on once it has this many bytes of records …
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// … or this many records.
pub(super) const CHUNK_RECORDS: usize = 4096;

/// Where in its source a sample comes from: an item, and how many samples that item has given by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The item's place in the source.
    pub item: u64,
    /// Samples of that item so far, this one included.
    pub samples: u64,
}

/// What the writer knows of one record beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordInfo {
    /// Where it ends in the chunk.
    pub(super) end: usize,
    /// Length of its payload.
    pub(super) payload_bytes: u64,
    /// Estimate of its metadata row's size, a function of the row alone.
    pub(super) row_bytes: u64,
    /// Where it comes from.
    pub(super) cursor: Cursor,
}

/// Consecutive records and their metadata rows.
pub(super) struct Chunk {
    pub(super) sequence: u64,
    pub(super) first_sample: u64,
    pub(super) frames: Vec<u8>,
    pub(super) records: Vec<RecordInfo>,
    pub(super) rows: RecordBatch,
    /// What it was let into the pipeline with.
    pub(super) gate_bytes: u64,
}

impl Chunk {
    /// Turns unsealed raw records into final ones: compressed where that helps, with checksums. `proceed` is
    /// asked before each compression and ends the work with its error.
    pub(super) fn encode(
        mut self,
        record_key: u64,
        method: Compression,
        compressor: &mut Compressor,
        proceed: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        if method == Compression::None {
            self.seal(record_key);
            return Ok(self);
        }
        let mut packed = Vec::new();
        record::reserve(&mut packed, self.frames.len() / 2)?;
        let mut start = 0;
        for (sample, info) in (self.first_sample..).zip(&mut self.records) {
            proceed()?;
            let payload = self.frames.get(start + RAW_FRAME_BYTES..info.end).unwrap_or_default();
            record::append_packed(record_key, sample, payload, method, compressor, &mut packed)?;
            start = info.end;
            info.end = packed.len();
        }
        self.frames = packed;
        Ok(self)
    }

    fn seal(&mut self, record_key: u64) {
        let mut rest = self.frames.as_mut_slice();
        let mut start = 0;
        for (sample, info) in (self.first_sample..).zip(&self.records) {
            let Some((frame, others)) = rest.split_at_mut_checked(info.end - start) else { return };
            record::seal_raw(record_key, sample, frame);
            start = info.end;
            rest = others;
        }
    }
}
