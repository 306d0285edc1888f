//! The threads of a writer: some encode chunks, one writes them in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::chunk::Chunk;
use super::gate::{Gate, interrupted_write};
use super::options::WriteOptions;
use super::shards::ShardWriter;
use super::staging::Paths;
use crate::error::{Error, ErrorKind, Result};
use crate::exec;
use crate::format::compression::{Compression, Compressor};
use crate::format::manifest::record_key;
use crate::store::Storage;

/// Channels are unbounded because the gate bounds what is in them.
pub(super) struct Pipeline {
    gate: Arc<Gate>,
    input: Option<Sender<Chunk>>,
    buffers: Receiver<Vec<u8>>,
    encoders: Vec<JoinHandle<Result<()>>>,
    committer: Option<JoinHandle<Result<u64>>>,
    durable: Arc<AtomicU64>,
    /// What records are compressed with; set before the first chunk comes.
    dictionary: Arc<OnceLock<Vec<u8>>>,
    /// Set before the input ends, if the last shard is to be closed.
    complete: Arc<AtomicBool>,
    /// Disconnected once the last thread has ended.
    ended: Receiver<()>,
}

/// How often the writing thread looks for a failure while nothing comes.
const WAKE: Duration = Duration::from_millis(50);
/// How long an aborted writer goes on with what it holds: Ctrl-C has to end within a second.
const DRAIN: Duration = Duration::from_millis(500);

impl Pipeline {
    pub(super) fn start(
        options: &WriteOptions,
        storage: Arc<dyn Storage>,
        paths: &Paths,
        done: (u64, u64),
    ) -> Result<Self> {
        let gate = Arc::new(Gate::new(options.queue_bytes));
        let key = record_key(&options.name, options.fingerprint.as_deref());
        let (input, chunks) = unbounded();
        let (encoded, ordered) = unbounded();
        let (spent, buffers) = unbounded();
        let (running, ended) = bounded(0);
        let durable = Arc::new(AtomicU64::new(0));
        let complete = Arc::new(AtomicBool::new(false));
        let dictionary = Arc::new(OnceLock::new());
        let shards = ShardWriter::new(storage, paths.clone(), key, options.max_shard_bytes, done);
        let mut pipeline = Pipeline {
            gate: Arc::clone(&gate),
            input: Some(input),
            buffers,
            encoders: Vec::new(),
            committer: None,
            durable: Arc::clone(&durable),
            dictionary: Arc::clone(&dictionary),
            complete: Arc::clone(&complete),
            ended,
        };
        // Checksumming alone keeps up with a disk on one thread.
        let threads = match options.compression {
            Compression::None => 1,
            Compression::Lz4 | Compression::Zstd { .. } | Compression::ZstdDictionary { .. } => {
                exec::threads_or_budget(options.threads)?
            }
        };
        let method = options.compression;
        for number in 0..threads {
            let (chunks, encoded, gate) = (chunks.clone(), encoded.clone(), Arc::clone(&gate));
            let dictionary = Arc::clone(&dictionary);
            let work = move || watched(&gate, || encode(&chunks, &encoded, &gate, key, method, &dictionary));
            pipeline.encoders.push(exec::spawn(&format!("drt-encode-{number}"), work)?);
        }
        let mut commit = Commit { shards, spent, durable, dictionary, complete };
        let work = move || {
            // It ends after the encoders, or because something failed.
            let _running: Sender<()> = running;
            watched(&gate, || commit.run(&ordered, &gate))
        };
        pipeline.committer = Some(exec::spawn("drt-write", work)?);
        Ok(pipeline)
    }

    /// Says what records are compressed with, before the first chunk: nothing, if this is not called.
    pub(super) fn set_dictionary(&self, dictionary: Vec<u8>) {
        // It is set once: a second one would not be what the first records were compressed with.
        let _ = self.dictionary.set(dictionary);
    }

    /// What records are compressed with; nothing, if nobody has said.
    pub(super) fn dictionary(&self) -> &[u8] {
        self.dictionary.get_or_init(Vec::new)
    }

    /// A buffer that a written chunk no longer needs, or a new one.
    pub(super) fn recycled(&self) -> Vec<u8> {
        let mut buffer = self.buffers.try_recv().unwrap_or_default();
        buffer.clear();
        buffer
    }

    pub(super) fn send(&self, chunk: Chunk, interrupted: &mut dyn FnMut() -> bool) -> Result<()> {
        self.gate.enter(chunk.gate_bytes, interrupted)?;
        let sent = self.input.as_ref().is_some_and(|input| input.send(chunk).is_ok());
        // The threads are gone only after a failure, and that is what the gate repeats.
        if sent { Ok(()) } else { self.gate.check().and(Err(gone())) }
    }

    pub(super) fn send_if_room(&self, chunk: Chunk) {
        if let Some(input) = self.input.as_ref().filter(|_| self.gate.enter_if_room(chunk.gate_bytes)) {
            // It fails only when the threads are gone, and then nothing can be kept.
            let _ = input.send(chunk);
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.gate.check()
    }

    /// Waits until everything is durable; the number of shards. While it waits, `interrupted` is asked every tenth
    /// of a second whether to give up; what is on its way then is left to [`Pipeline::abort`].
    pub(super) fn finish(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<u64> {
        self.complete.store(true, Ordering::Release);
        self.input = None;
        while self.ended.recv_timeout(exec::ASK_EVERY) == Err(RecvTimeoutError::Timeout) {
            if interrupted() {
                return Err(interrupted_write());
            }
        }
        for encoder in self.encoders.drain(..) {
            exec::join(encoder)?;
        }
        let committer = self.committer.take().ok_or_else(gone)?;
        let shards = exec::join(committer);
        self.gate.check()?;
        shards
    }

    /// Writes what is on its way if that is quick, then ends the threads; the number of shards that became
    /// durable. So an error of the source costs little of what came before it.
    pub(super) fn abort(mut self) -> u64 {
        self.input = None;
        let deadline = Instant::now() + DRAIN;
        while self.committer.as_ref().is_some_and(|c| !c.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let durable = Arc::clone(&self.durable);
        drop(self);
        durable.load(Ordering::Acquire)
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.gate.fail(Error::new(ErrorKind::Closed, "the writer has ended; start a new one"));
        self.input = None;
        // Encoders touch no file and end after the record that they are at, which may take seconds: not waited for.
        self.encoders.clear();
        // The failure that ended the pipeline has been told already; here the thread only ends.
        if let Some(committer) = self.committer.take() {
            let _failure = exec::join(committer).err();
        }
    }
}

/// Runs a stage; its failure, a panic included, reaches everybody who waits at the gate.
fn watched<T>(gate: &Gate, stage: impl FnOnce() -> Result<T>) -> Result<T> {
    exec::guard("a writer thread", stage).inspect_err(|e| gate.fail(e.clone()))
}

fn encode(
    chunks: &Receiver<Chunk>,
    encoded: &Sender<Chunk>,
    gate: &Gate,
    key: u64,
    method: Compression,
    dictionary: &OnceLock<Vec<u8>>,
) -> Result<()> {
    let mut compressor = None;
    for chunk in chunks {
        let compressor = match &mut compressor {
            Some(compressor) => compressor,
            // The dictionary is known now.
            empty => empty.insert(Compressor::new(method, dictionary.get_or_init(Vec::new))?),
        };
        let chunk = chunk.encode(key, method, compressor, &|| gate.check())?;
        if encoded.send(chunk).is_err() {
            break;
        }
    }
    Ok(())
}

/// The one thread that writes.
struct Commit {
    shards: ShardWriter,
    spent: Sender<Vec<u8>>,
    durable: Arc<AtomicU64>,
    dictionary: Arc<OnceLock<Vec<u8>>>,
    complete: Arc<AtomicBool>,
}

impl Commit {
    /// Writes chunks in order; the number of shards, the last one closed if everything came.
    fn run(&mut self, encoded: &Receiver<Chunk>, gate: &Gate) -> Result<u64> {
        let mut early = BTreeMap::new();
        let mut next = 0;
        let before = self.shards.shards();
        loop {
            let chunk = match encoded.recv_timeout(WAKE) {
                Ok(chunk) => chunk,
                // A failure elsewhere must not wait for an encoder that is at a large record.
                Err(RecvTimeoutError::Timeout) => {
                    gate.check()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            early.insert(chunk.sequence, chunk);
            while let Some(chunk) = early.remove(&next) {
                gate.check()?;
                self.shards.append(&chunk, self.dictionary.get_or_init(Vec::new))?;
                self.durable.store(self.shards.shards() - before, Ordering::Release);
                gate.leave(chunk.gate_bytes);
                // Nobody takes it after the end of the writer.
                let _ = self.spent.send(chunk.frames);
                next += 1;
            }
        }
        gate.check()?;
        if self.complete.load(Ordering::Acquire) {
            self.shards.close(self.dictionary.get_or_init(Vec::new))?;
            self.durable.store(self.shards.shards() - before, Ordering::Release);
        }
        Ok(self.shards.shards())
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Bug, "the writer's threads ended early; please report this")
}
