//! I have samples; make them a cache.
//!
//! [`Writer::push`] runs on the caller's thread and only copies the payload. Full chunks go to
//! threads that compress and checksum, and then, in order, to one thread that writes shards. A
//! gate bounds the bytes in between. [`Writer::finish`] publishes; dropping a writer does not.

mod chunk;
mod clean;
mod gate;
mod guard;
mod options;
mod pipeline;
mod publish;
mod recognise;
mod segment;
mod shards;
mod staging;
mod training;

use std::os::fd::RawFd;
use std::sync::Arc;

pub use chunk::Cursor;
pub use clean::{Leftover, Outcome, clean};
pub use options::WriteOptions;
pub use publish::Published;

use chunk::{CHUNK_BYTES, CHUNK_RECORDS, Chunk, RecordInfo};
use pipeline::Pipeline;
use staging::Paths;
use training::Training;

use crate::error::{Error, ErrorKind, Result, invalid};
use crate::format::record;
use crate::memory;
use crate::metadata::{ColumnType, RowBuilder, Value, read_segment};
use crate::store::Storage;
use crate::store::lock::WriterLock;

/// Writes one cache. Not shared between threads.
pub struct Writer {
    storage: Arc<dyn Storage>,
    options: WriteOptions,
    paths: Paths,
    rows: RowBuilder,
    frames: Vec<u8>,
    records: Vec<RecordInfo>,
    row_bytes: u64,
    next_chunk: u64,
    chunk_first: u64,
    samples: u64,
    payload_bytes: u64,
    cursor: Option<Cursor>,
    resumed: Resumed,
    pipeline: Option<Pipeline>,
    /// The first chunks, while the compression learns from them.
    training: Option<Training>,
    /// Released last, when nothing touches the folders any more.
    lock: Option<WriterLock>,
    pid: u32,
}

/// What an interrupted write had made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Samples that need not be pushed again.
    pub samples: u64,
    /// Sum of their payloads' lengths.
    pub payload_bytes: u64,
    /// Where the last of them came from.
    pub cursor: Cursor,
}

impl Writer {
    /// Starts or resumes a cache.
    ///
    /// # Errors
    ///
    /// `already-exists` or `name-occupied` if the name is taken, `being-written` if another writer
    /// is at it, `invalid-argument` for options that break a rule, or a failed system call.
    pub fn begin(options: WriteOptions, storage: Arc<dyn Storage>) -> Result<Self> {
        Self::begin_unless(options, storage, &mut || false)
    }

    /// As [`Writer::begin`]. What an interrupted write left is read to its end: before each shard `interrupted` is
    /// asked whether to give up.
    ///
    /// # Errors
    ///
    /// As [`Writer::begin`]; `closed` if `interrupted` said so. What is there to be resumed stays.
    pub fn begin_unless(
        options: WriteOptions,
        storage: Arc<dyn Storage>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        options.check()?;
        let mut options = options;
        // Absolute from here on: a source may change the working directory.
        options.root =
            std::path::absolute(&options.root).map_err(|e| Error::io("resolve", &options.root, &e))?;
        let fresh_rows = RowBuilder::new(options.schema.clone())?;
        let paths = Paths::new(&options.root, &options.name);
        staging::create_root(&*storage, &paths.root)?;
        guard::check_root(&paths)?;
        let lock = WriterLock::acquire(&paths.lock, &options.name)?;
        guard::check_hidden_names(&*storage, &paths, &options.name)?;
        publish::recover(&*storage, &paths)?;
        staging::unlink(&*storage, &paths, &paths.partial)?;
        guard::check_target(&*storage, &paths, &options)?;
        let (shards, last) = staging::adopt(&*storage, &paths, &options.identity(), interrupted)?;
        let rows = match &last {
            Some(segment) if options.schema.is_none() => RowBuilder::resume(columns_of(&segment.rows)?)?,
            _ => fresh_rows,
        };
        let resumed = resumed(&*storage, &paths, shards)?;
        let pipeline = Pipeline::start(&options, Arc::clone(&storage), &paths, (shards, resumed.samples))?;
        let training = match last {
            // What is there already was compressed with it.
            Some(segment) => {
                pipeline.set_dictionary(segment.dictionary);
                None
            }
            None => options.compression.has_dictionary().then(Training::default),
        };
        Ok(Writer {
            storage,
            paths,
            rows,
            frames: Vec::new(),
            records: Vec::new(),
            row_bytes: 0,
            next_chunk: 0,
            chunk_first: resumed.samples,
            samples: resumed.samples,
            payload_bytes: resumed.payload_bytes,
            cursor: (resumed.samples > 0).then_some(resumed.cursor),
            resumed,
            pipeline: Some(pipeline),
            training,
            lock: Some(lock),
            pid: std::process::id(),
            options,
        })
    }

    /// The descriptor that holds the lock, while the writer has it: what a forked child has to leave.
    pub fn lock_descriptor(&self) -> Option<RawFd> {
        self.lock.as_ref().map(WriterLock::descriptor)
    }

    /// What an interrupted write had made durable; zero samples if there was none.
    pub fn resumed(&self) -> Resumed {
        self.resumed
    }

    /// Samples so far, resumed ones included.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Sum of the payloads' lengths so far.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Adds a sample; a refused one changes nothing. Copies, never waits. True if a chunk is full
    /// and [`Writer::flush`] should be called.
    ///
    /// # Errors
    ///
    /// `invalid-metadata`, naming sample, field, value and cure; `closed` after the end.
    pub fn push(&mut self, payload: &[u8], row: &[(&str, Value<'_>)], item: u64) -> Result<bool> {
        self.check_process()?;
        if self.pipeline.is_none() {
            return Err(closed());
        }
        // First: a sample for which there is no memory changes nothing.
        record::reserve(&mut self.frames, record::RAW_FRAME_BYTES.saturating_add(payload.len()))?;
        memory::reserve("records", &mut self.records, 1)?;
        let before = self.rows.byte_size();
        self.rows.push(self.samples, row).map_err(|error| self.of_resumed(error))?;
        // A row's own size, whatever chunk it is in: shards end at the same sample in a resumed write.
        let row_bytes = self.rows.byte_size().saturating_sub(before) as u64;
        record::append_unsealed(payload, &mut self.frames)?;
        let cursor = match self.cursor {
            Some(last) if last.item == item => Cursor { item, samples: last.samples + 1 },
            _ => Cursor { item, samples: 1 },
        };
        self.cursor = Some(cursor);
        self.records.push(RecordInfo {
            end: self.frames.len(),
            payload_bytes: payload.len() as u64,
            row_bytes,
            cursor,
        });
        self.samples += 1;
        self.payload_bytes += payload.len() as u64;
        self.row_bytes += row_bytes;
        // Small shards want small chunks: what waits in a chunk is lost with the process.
        let full = self.options.max_shard_bytes.min(CHUNK_BYTES as u64);
        Ok(self.frames.len() as u64 + self.row_bytes >= full || self.records.len() >= CHUNK_RECORDS)
    }

    /// Hands the chunk to the threads; waits while too many bytes are on their way.
    ///
    /// # Errors
    ///
    /// The first failure of the pipeline, again at every later call.
    pub fn flush(&mut self) -> Result<()> {
        self.flush_unless(&mut || false)
    }

    /// As [`Writer::flush`]. While it waits, `interrupted` is asked every tenth of a second whether to give up;
    /// then the write has failed.
    ///
    /// # Errors
    ///
    /// As [`Writer::flush`]; `closed` if `interrupted` said so.
    pub fn flush_unless(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.check_process()?;
        let pipeline = self.pipeline.as_ref().ok_or_else(closed)?;
        if self.records.is_empty() {
            return pipeline.check();
        }
        let frames = std::mem::replace(&mut self.frames, pipeline.recycled());
        let chunk = self.chunk(frames)?;
        match &mut self.training {
            None => self.pipeline.as_ref().ok_or_else(closed)?.send(chunk, interrupted),
            Some(training) => match training.hold(chunk) {
                true => self.learn(interrupted),
                false => Ok(()),
            },
        }
    }

    /// Ends the training, if there is one, and lets go of what waited for it.
    fn learn(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        let Some(training) = self.training.take() else { return Ok(()) };
        let pipeline = self.pipeline.as_ref().ok_or_else(closed)?;
        let (dictionary, chunks) = training.finish()?;
        pipeline.set_dictionary(dictionary.bytes().to_vec());
        chunks.into_iter().try_for_each(|chunk| pipeline.send(chunk, interrupted))
    }

    /// Where the columns come from an interrupted write, a source that has changed since is told so.
    fn of_resumed(&self, error: Error) -> Error {
        if self.resumed.samples == 0
            || self.options.schema.is_some()
            || error.kind() != ErrorKind::InvalidMetadata
        {
            return error;
        }
        error.with_hint(&format!(
            "the columns are those of an interrupted write, which this one goes on from after {} samples: if the source has \
             changed since, give it another fingerprint, or remove what is left with datasetrt.clean",
            self.resumed.samples
        ))
    }

    /// Everything that was pushed since the last chunk.
    fn chunk(&mut self, frames: Vec<u8>) -> Result<Chunk> {
        let chunk = Chunk {
            sequence: self.next_chunk,
            first_sample: self.chunk_first,
            gate_bytes: frames.len() as u64 + self.row_bytes,
            frames,
            records: std::mem::take(&mut self.records),
            rows: self.rows.take_batch()?,
        };
        self.row_bytes = 0;
        self.next_chunk += 1;
        self.chunk_first = self.samples;
        Ok(chunk)
    }

    /// A forked child has the writer's memory, but neither its threads nor a right to its files.
    fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Closed,
            "this writer belongs to the process that was forked; write the cache there",
        ))
    }

    /// Publishes the cache. Until this returns, readers see what was there before.
    ///
    /// # Errors
    ///
    /// `empty` if there was no sample; the first failure of the pipeline; a failed system call.
    /// Nothing is published then.
    pub fn finish(self) -> Result<Published> {
        self.finish_unless(&mut || false)
    }

    /// As [`Writer::finish`]. While it waits for compression, `interrupted` is asked every tenth of a second whether
    /// to give up; then the write has failed, and can be resumed.
    ///
    /// # Errors
    ///
    /// As [`Writer::finish`]; `closed` if `interrupted` said so.
    pub fn finish_unless(mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Published> {
        let published = self.try_finish(interrupted);
        if published.is_err() {
            self.end(true);
        }
        published
    }

    fn try_finish(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Published> {
        self.flush_unless(interrupted)?;
        self.learn(interrupted)?;
        if self.samples == 0 {
            return Err(Error::new(
                ErrorKind::Empty,
                format!(
                    "source '{}' gave no samples; a cache needs at least one, so look at what the source iterates over",
                    self.options.name
                ),
            ));
        }
        // It stays here until all is well: what became durable before a failure is kept for a later resume.
        let pipeline = self.pipeline.as_mut().ok_or_else(closed)?;
        let shards = pipeline.finish(interrupted)?;
        let (storage, columns, dictionary) = (&*self.storage, self.rows.columns(), pipeline.dictionary());
        let published = publish::publish(storage, &self.paths, &self.options, columns, dictionary, shards)?;
        publish::clean_up(&*self.storage, &self.paths)?;
        self.lock = None;
        Ok(published)
    }

    /// Ends the write without publishing. Durable shards stay for a later resume if the source has
    /// a fingerprint; otherwise everything is removed.
    pub fn abort(mut self) {
        self.end(true);
    }

    /// Lets an aborted writer store what it holds too, if that needs no waiting.
    fn keep_last_chunk(&mut self) {
        // What waits to be learnt from is not kept: a resumed write has to learn from all of it.
        let learning = self.training.is_some();
        if learning
            || self.options.fingerprint.is_none()
            || self.records.is_empty()
            || self.pipeline.is_none()
        {
            return;
        }
        let frames = std::mem::take(&mut self.frames);
        if let (Ok(chunk), Some(pipeline)) = (self.chunk(frames), &self.pipeline) {
            pipeline.send_if_room(chunk);
        }
    }

    fn end(&mut self, remove: bool) {
        if std::process::id() != self.pid {
            // A forked child has no right to its parent's files and none of its threads.
            std::mem::forget(self.pipeline.take());
            std::mem::forget(self.lock.take());
            return;
        }
        let Some(lock) = self.lock.take() else { return };
        self.keep_last_chunk();
        let durable = self.pipeline.take().map_or(0, Pipeline::abort);
        let keep = self.options.fingerprint.is_some() && durable + self.resumed.samples > 0;
        if remove && !keep {
            // Whatever cannot be removed now is removed by the next writer of this cache.
            let _ = staging::discard(&*self.storage, &self.paths);
        }
        drop(lock);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// The columns of a segment; those that were null so far have no type yet.
fn columns_of(rows: &[u8]) -> Result<Vec<(String, Option<ColumnType>)>> {
    let batches = read_segment(rows.to_vec())?;
    let Some(first) = batches.first() else {
        return Err(invalid("a segment of the unfinished write has no rows; run the write again"));
    };
    let known =
        |ty: &arrow_schema::DataType| ColumnType::ALL.into_iter().find(|column| column.arrow() == *ty);
    Ok(first.schema_ref().fields().iter().map(|f| (f.name().clone(), known(f.data_type()))).collect())
}

fn resumed(storage: &dyn Storage, paths: &Paths, shards: u64) -> Result<Resumed> {
    let mut total = Resumed::default();
    for ordinal in 0..shards {
        let segment = publish::segment(storage, paths, ordinal)?;
        total.samples += segment.entry.samples;
        total.payload_bytes += segment.payload_bytes;
        total.cursor = segment.cursor;
    }
    Ok(total)
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the writer has ended; start a new one")
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod link_tests;
#[cfg(test)]
mod tests;
