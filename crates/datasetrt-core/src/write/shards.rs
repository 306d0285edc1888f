//! Fills shards in the order of the source, and makes each durable before the next begins.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::chunk::{Chunk, Cursor, RecordInfo};
use super::segment::Segment;
use super::staging::Paths;
use crate::error::{Error, ErrorKind, Result};
use crate::format::manifest::ShardEntry;
use crate::format::shard::{HEADER_BYTES, Header, TRAILER_BYTES, Trailer};
use crate::memory;
use crate::metadata;
use crate::store::{Sink, Storage};

/// Bounds what a writer holds for the index and the metadata of one shard.
const MAX_SHARD_RECORDS: usize = 1 << 20;
/// The same for metadata that is large.
const MAX_SHARD_ROW_BYTES: u64 = 32 << 20;

/// Appends chunks to shards; what is done is durable.
pub(super) struct ShardWriter {
    storage: Arc<dyn Storage>,
    paths: Paths,
    record_key: u64,
    max_shard_bytes: u64,
    next_sample: u64,
    shards: u64,
    open: Option<OpenShard>,
}

struct OpenShard {
    sink: Box<dyn Sink>,
    hasher: blake3::Hasher,
    offset: u64,
    ends: Vec<u64>,
    rows: Vec<RecordBatch>,
    payload_bytes: u64,
    row_bytes: u64,
    cursor: Cursor,
}

impl ShardWriter {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        paths: Paths,
        record_key: u64,
        max_shard_bytes: u64,
        (shards, next_sample): (u64, u64),
    ) -> Self {
        ShardWriter { storage, paths, record_key, max_shard_bytes, next_sample, shards, open: None }
    }

    /// Appends every record of a chunk, closing shards where a limit asks for it. `dictionary` is what the records of
    /// all chunks are compressed with.
    pub(super) fn append(&mut self, chunk: &Chunk, dictionary: &[u8]) -> Result<()> {
        let mut first = 0;
        while first < chunk.records.len() {
            let count = self.fitting(chunk, first);
            if count == 0 {
                self.close(dictionary)?;
                continue;
            }
            self.append_run(chunk, first, count)?;
            first += count;
        }
        Ok(())
    }

    /// How many records from `first` on fit in the open shard; the first one always fits in an empty shard.
    fn fitting(&self, chunk: &Chunk, first: usize) -> usize {
        let (mut bytes, mut records, mut row_bytes) =
            self.open.as_ref().map_or((HEADER_BYTES as u64, 0, 0), |s| (s.offset, s.ends.len(), s.row_bytes));
        let mut start = start_of(chunk, first);
        let mut count = 0;
        for info in chunk.records.iter().skip(first) {
            bytes += (info.end - start) as u64;
            row_bytes += info.row_bytes;
            let full = bytes + TRAILER_BYTES as u64 > self.max_shard_bytes
                || records >= MAX_SHARD_RECORDS
                || row_bytes > MAX_SHARD_ROW_BYTES;
            if full && records > 0 {
                break;
            }
            start = info.end;
            records += 1;
            count += 1;
        }
        count
    }

    fn append_run(&mut self, chunk: &Chunk, first: usize, count: usize) -> Result<()> {
        if self.open.is_none() {
            self.open = Some(self.begin()?);
        }
        let Some(shard) = &mut self.open else { return Ok(()) };
        let start = start_of(chunk, first);
        let records = chunk.records.get(first..first + count).unwrap_or_default();
        let end = records.last().map_or(start, |info| info.end);
        shard.write(chunk.frames.get(start..end).unwrap_or_default())?;
        memory::reserve("the index", &mut shard.ends, records.len())?;
        shard.note(records, start);
        shard.rows.push(chunk.rows.slice(first, count));
        Ok(())
    }

    fn begin(&self) -> Result<OpenShard> {
        let header =
            Header { record_key: self.record_key, ordinal: self.shards, first_sample: self.next_sample };
        let mut shard = OpenShard {
            sink: self.storage.create(&self.paths.root, &self.paths.shard(self.shards))?,
            hasher: blake3::Hasher::new(),
            offset: 0,
            ends: Vec::new(),
            rows: Vec::new(),
            payload_bytes: 0,
            row_bytes: 0,
            cursor: Cursor::default(),
        };
        shard.write(&header.encode())?;
        Ok(shard)
    }

    /// Completes the open shard, if there is one: trailer, sync, then its segment, sync; the names of both, too.
    pub(super) fn close(&mut self, dictionary: &[u8]) -> Result<()> {
        let Some(mut shard) = self.open.take() else { return Ok(()) };
        let trailer = Trailer {
            records: shard.ends.len() as u64,
            offset: shard.offset,
            digest: *shard.hasher.finalize().as_bytes(),
        };
        shard.sink.write(&trailer.encode())?;
        shard.sink.sync()?;
        self.storage.sync_dir(&self.paths.shards())?;
        let row_bytes = shard.rows.iter().map(metadata::bytes_of).sum::<usize>();
        // With the schema, and what lies between columns.
        let mut rows =
            memory::list("metadata", row_bytes.saturating_add(row_bytes / 4).saturating_add(4096))?;
        metadata::write_segment(&mut rows, &shard.rows)?;
        let segment = Segment {
            entry: ShardEntry {
                bytes: shard.offset + TRAILER_BYTES as u64,
                samples: trailer.records,
                blake3: trailer.digest,
            },
            payload_bytes: shard.payload_bytes,
            cursor: shard.cursor,
            dictionary: dictionary.to_vec(),
            ends: shard.ends,
            rows,
        };
        let mut sink = self.storage.create(&self.paths.root, &self.paths.segment(self.shards))?;
        sink.write(&segment.encode()?)?;
        sink.sync()?;
        self.storage.sync_dir(&self.paths.journal)?;
        self.next_sample += trailer.records;
        self.shards += 1;
        Ok(())
    }

    /// Number of durable shards.
    pub(super) fn shards(&self) -> u64 {
        self.shards
    }
}

impl OpenShard {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write(bytes)?;
        self.hasher.update(bytes);
        self.offset = self.offset.checked_add(bytes.len() as u64).ok_or_else(overflow)?;
        Ok(())
    }

    /// Notes where the records of a run that was just written end, and what they are.
    fn note(&mut self, records: &[RecordInfo], start: usize) {
        let written = records.last().map_or(0, |info| (info.end - start) as u64);
        let base = self.offset - written;
        self.ends.extend(records.iter().map(|info| base + (info.end - start) as u64));
        self.payload_bytes += records.iter().map(|info| info.payload_bytes).sum::<u64>();
        self.row_bytes += records.iter().map(|info| info.row_bytes).sum::<u64>();
        self.cursor = records.last().map_or(self.cursor, |info| info.cursor);
    }
}

fn start_of(chunk: &Chunk, record: usize) -> usize {
    record.checked_sub(1).and_then(|before| chunk.records.get(before)).map_or(0, |info| info.end)
}

fn overflow() -> Error {
    Error::new(ErrorKind::InvalidArgument, "a shard would exceed 64-bit offsets; lower max_shard_bytes")
}
