//! Batches of one epoch, in order, from any position on.
//!
//! A [`Stream`] joins an order, a [`plan`] and a dataset. Threads read ahead within two bounds,
//! batches and bytes; the consumer reads a batch itself when no thread has begun it. What it
//! delivers does not depend on either.

mod batch;
pub mod plan;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use batch::{Batch, OnCorrupt, Substitution};

use batch::Source;

use crate::error::{Error, ErrorKind, Result};
use crate::exec;
use crate::read::buffer::Pool;
use crate::read::timing::{self, Parts};
use crate::read::{Dataset, Split};
use crate::sampler::Order;
use plan::Plan;

/// One read of so many is looked at closely, the first one included.
const WATCHED: u64 = 16;

/// The first read has so long before threads are started beside it: they take longer than that to be of use, and
/// whoever wants one small batch needs none.
const ALONE: Duration = Duration::from_micros(500);

/// How a stream reads.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Which epoch of the order.
    pub epoch: u64,
    /// Steps that are read at once; more than one makes sense for steps of single samples.
    pub steps_per_read: u64,
    /// Threads that read ahead; `None` is the machine's budget, at most 4.
    pub threads: Option<usize>,
    /// Batches that may be ready or on their way; 0 reads on the calling thread alone.
    pub prefetch_batches: u64,
    /// Bytes of payloads that may be ready; one batch more is allowed to be on its way per thread.
    pub prefetch_bytes: u64,
    /// What happens to a sample that is damaged.
    pub on_corrupt: OnCorrupt,
    /// Cut the payloads of a batch into these columns, if all have that length.
    pub split: Option<Split>,
    /// Where memory for payloads comes from and goes back to; `None` makes a pool for this stream alone.
    pub pool: Option<Arc<Pool>>,
    /// Whether metadata is read with the payloads. Set once somebody has asked a batch for it: many loops
    /// never do.
    pub metadata_wanted: Arc<AtomicBool>,
}

impl StreamOptions {
    fn new_pool(&self) -> Arc<Pool> {
        Pool::for_prefetch(self.prefetch_batches, self.prefetch_bytes)
    }
}

/// Where the time of a stream goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Samples delivered, padding included.
    pub samples: u64,
    /// Bytes of payloads delivered.
    pub bytes: u64,
    /// Time the consumer waited for data, its own reading included.
    pub consumer_wait: Duration,
    /// Time the reading threads waited for the consumer, added up.
    pub reader_wait: Duration,
    /// Time that reads took, all their parts included, added up over threads.
    pub read: Duration,
    /// The parts of those reads that were looked at closely.
    pub watched: Parts,
}

impl Stats {
    /// The parts of all reads, as those of the reads that were looked at closely tell; what is in none of them went into
    /// reading files.
    pub fn parts(&self) -> Parts {
        let watched = self.watched;
        let share = |part: Duration| match watched.whole.is_zero() {
            true => Duration::ZERO,
            false => self.read.mul_f64((part.as_secs_f64() / watched.whole.as_secs_f64()).min(1.0)),
        };
        Parts {
            whole: self.read,
            verify: share(watched.verify),
            decompress: share(watched.decompress),
            gather: share(watched.gather),
        }
    }
}

/// The batches of one epoch. Threads start at the second call of [`Stream::next`], or during the first one if that takes
/// longer than a moment, and end with the stream.
pub struct Stream {
    shared: Arc<Shared>,
    crew: Crew,
    delivered: u64,
    /// The process that the threads belong to.
    pid: u32,
}

/// The threads that read ahead.
struct Crew {
    workers: Vec<JoinHandle<Result<()>>>,
    most: Option<usize>,
}

struct Shared {
    source: Source,
    options: StreamOptions,
    reads: u64,
    /// The read that comes first in this process.
    first: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// Nobody wants anything any more: threads end, and give up what they are reading.
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The read that nobody has begun.
    next: u64,
    /// The read that the consumer waits for.
    wanted: u64,
    ready: BTreeMap<u64, Result<Batch>>,
    ready_bytes: u64,
    failed: Option<Error>,
    stats: Stats,
}

impl Stream {
    /// A stream over `dataset` in the given order. Reads nothing and starts no thread yet.
    ///
    /// # Errors
    ///
    /// `invalid-argument` for options that break a rule.
    pub fn new(dataset: Dataset, order: Order, plan: Plan, options: StreamOptions) -> Result<Self> {
        if options.threads.is_some() {
            exec::threads_or_budget(options.threads)?;
        }
        let crew = Crew { workers: Vec::new(), most: options.threads };
        let source = Source::new(dataset, order, plan, options.clone())?;
        Ok(Stream { shared: Shared::new(source, options, 0), crew, delivered: 0, pid: std::process::id() })
    }

    /// The next batch, or `None` after the last. While it waits, `interrupted` is asked every tenth of a second
    /// whether to stop.
    ///
    /// # Errors
    ///
    /// The first sample of the batch that cannot be read, again at every later call; `closed` if
    /// `interrupted` said so.
    pub fn next(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Option<Batch>> {
        self.settle_in_process();
        let begun = Instant::now();
        let (shared, crew, delivered) = (&self.shared, &mut self.crew, self.delivered);
        // Begun before there are threads, which would take longer to wake up than many a first batch takes.
        let first = if crew.workers.is_empty() { shared.claim_wanted() } else { None };
        // The first read in this process has a moment to itself.
        let mut alone = first == Some(shared.first);
        let mut started = if alone { Ok(()) } else { crew.start(shared, delivered) };
        let mut meanwhile = || {
            if alone && begun.elapsed() > ALONE {
                alone = false;
                started = crew.start(shared, delivered);
            }
        };
        let read = first.map(|number| (number, shared.read(number, &mut meanwhile)));
        let found = match (started, read) {
            (Ok(()), Some((_, found))) => shared.hand_over(exec::lock(&shared.state), found).map(Some),
            (Ok(()), None) => shared.take(interrupted),
            (Err(error), read) => {
                // For whoever asks next.
                read.into_iter().for_each(|(number, found)| shared.keep(number, found));
                return Err(error);
            }
        };
        let mut state = exec::lock(&self.shared.state);
        state.stats.consumer_wait += begun.elapsed();
        match found {
            Ok(Some(batch)) => {
                state.stats.samples += batch.rows.len() as u64;
                state.stats.bytes += batch.bytes();
                self.delivered = state.wanted;
                Ok(Some(batch))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                if error.kind() != ErrorKind::Closed {
                    state.failed.get_or_insert_with(|| error.clone());
                }
                Err(error)
            }
        }
    }

    /// Where the time went so far.
    pub fn stats(&self) -> Stats {
        // In a forked child the lock may be held for ever by a thread that does not exist here.
        if self.pid == std::process::id() { exec::lock(&self.shared.state).stats } else { Stats::default() }
    }

    /// Begins anew in a forked child, which has the memory but not the threads.
    fn settle_in_process(&mut self) {
        if self.pid != std::process::id() {
            let fresh =
                Shared::new(self.shared.source.in_child(), self.shared.options.clone(), self.delivered);
            // Not dropped: its lock may be held by a thread that does not exist in this process.
            std::mem::forget(std::mem::replace(&mut self.shared, fresh));
            self.crew.workers.drain(..).for_each(std::mem::forget);
            self.pid = std::process::id();
        }
    }
}

impl Crew {
    /// Starts threads, as many as have something to read after the read at `delivered`.
    fn start(&mut self, shared: &Arc<Shared>, delivered: u64) -> Result<()> {
        const MOST_WORTH_IT: usize = 4;
        let ahead = shared.reads.saturating_sub(delivered).saturating_sub(1);
        let useful = ahead.min(shared.options.prefetch_batches);
        if self.workers.len() as u64 >= useful {
            return Ok(());
        }
        let most = match self.most {
            Some(given) => given,
            None => *self.most.insert(exec::thread_budget().min(MOST_WORTH_IT)),
        };
        // Some may be there already, if not all could be had.
        for number in self.workers.len() as u64..useful.min(most as u64) {
            let shared = Arc::clone(shared);
            self.workers.push(exec::spawn(&format!("drt-read-{number}"), move || shared.work())?);
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            self.crew.workers.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.closed.store(true, Relaxed);
        // Who saw it open under the lock waits by now, and hears the call.
        drop(exec::lock(&self.shared.state));
        self.shared.changed.notify_all();
        for worker in self.crew.workers.drain(..) {
            // What a thread failed with has been delivered in its batch.
            let _ = exec::join(worker);
        }
    }
}

impl Shared {
    fn new(source: Source, options: StreamOptions, wanted: u64) -> Arc<Self> {
        let state = State { next: wanted, wanted, ..State::default() };
        Arc::new(Shared {
            reads: source.reads(),
            first: wanted,
            source,
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
        })
    }

    /// The batch that the consumer wants: ready, or read right here, or waited for.
    fn take(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<Option<Batch>> {
        let mut state = exec::lock(&self.state);
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let wanted = state.wanted;
            if wanted >= self.reads {
                return Ok(None);
            }
            if let Some(found) = state.ready.remove(&wanted) {
                return self.hand_over(state, found).map(Some);
            }
            if state.next == wanted {
                state.next += 1;
                drop(state);
                let found = self.read(wanted, &mut || ());
                return self.hand_over(exec::lock(&self.state), found).map(Some);
            }
            state = self.pause(state);
            if !state.ready.contains_key(&wanted) {
                drop(state);
                if interrupted() {
                    return Err(exec::interrupted());
                }
                state = exec::lock(&self.state);
            }
        }
    }

    /// The read that the consumer wants, if nobody has begun it.
    fn claim_wanted(&self) -> Option<u64> {
        let mut state = exec::lock(&self.state);
        let wanted = state.wanted;
        let unread = state.failed.is_none() && state.next == wanted && wanted < self.reads;
        unread.then(|| {
            state.next += 1;
            wanted
        })
    }

    /// Keeps what was read for whoever asks for it.
    fn keep(&self, number: u64, found: Result<Batch>) {
        let mut state = exec::lock(&self.state);
        state.ready_bytes += found.as_ref().map_or(0, Batch::bytes);
        state.ready.insert(number, found);
        drop(state);
        self.changed.notify_all();
    }

    fn pause<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, exec::ASK_EVERY);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn hand_over(&self, mut state: MutexGuard<'_, State>, found: Result<Batch>) -> Result<Batch> {
        let batch = found?;
        state.wanted += 1;
        state.ready_bytes = state.ready.values().flatten().map(Batch::bytes).sum();
        drop(state);
        self.changed.notify_all();
        Ok(batch)
    }

    /// What a thread does until the stream is closed or everything is read.
    fn work(&self) -> Result<()> {
        while let Some(number) = self.claim() {
            self.keep(number, self.read(number, &mut || ()));
        }
        Ok(())
    }

    /// Waits until there is something to read within the bounds.
    fn claim(&self) -> Option<u64> {
        let begun = Instant::now();
        let mut state = exec::lock(&self.state);
        while !self.closed.load(Relaxed) && state.failed.is_none() && state.next < self.reads {
            let near = state.next <= state.wanted.saturating_add(self.options.prefetch_batches);
            let room = state.ready_bytes < self.options.prefetch_bytes || state.next == state.wanted;
            if near && room {
                let number = state.next;
                state.next += 1;
                state.stats.reader_wait += begun.elapsed();
                return Some(number);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Reads a batch; a panic becomes an error, so that the consumer never waits in vain. `meanwhile` is called before each
    /// sample.
    fn read(&self, number: u64, meanwhile: &mut dyn FnMut()) -> Result<Batch> {
        let mut proceed = || {
            meanwhile();
            if self.closed.load(Relaxed) { Err(exec::interrupted()) } else { Ok(()) }
        };
        let mut read = || exec::guard("reading a batch", || self.source.read(number, &mut proceed));
        let begun = Instant::now();
        let (found, parts) =
            if number.is_multiple_of(WATCHED) { timing::watch(read) } else { (read(), Parts::default()) };
        let stats = &mut exec::lock(&self.state).stats;
        stats.read += begun.elapsed();
        stats.watched += parts;
        found
    }
}

#[cfg(test)]
mod tests;
