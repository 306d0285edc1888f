//! The batches of one epoch.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datasetrt_core::read::buffer::Pool;
use datasetrt_core::read::{Dataset, Split};
use datasetrt_core::stream::plan::Plan;
use datasetrt_core::stream::{Batch, OnCorrupt, Stats, Stream as CoreStream, StreamOptions, Substitution};
use datasetrt_core::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::batch::{SampleBatch, record};
use crate::call::interrupted;
use crate::error::{OrRaise as _, invalid, to_py};
use crate::handout::{Handout, Read};
use crate::info::{BatchInfo, Members};
use crate::metadata::Lazy;
use crate::order::Order;
use crate::plan::BatchPlan;
use crate::sample::listed;
use crate::view::{View, place};

/// The batches of one rank through one epoch, from a position on.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct Stream {
    dataset: Arc<Dataset>,
    plan: Plan,
    epoch: u64,
    slot: Mutex<Slot>,
    substitutions: Mutex<Vec<Substitution>>,
    /// Set once somebody has asked for the metadata of a batch.
    metadata_wanted: Arc<AtomicBool>,
    /// How long it took to make Python's objects of what was read.
    hand_over_nanos: AtomicU64,
}

/// Memory that the streams of one loader use one after the other; goes with the loader.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct Memory {
    pool: Arc<Pool>,
}

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (*, prefetch_batches, prefetch_bytes))]
    fn new(prefetch_batches: u64, prefetch_bytes: u64) -> Self {
        Memory { pool: Pool::for_prefetch(prefetch_batches, prefetch_bytes) }
    }
}

/// The engine's stream is taken out while it is used, so that no lock is held across a wait or a call
/// into Python: a signal handler may come back here.
enum Slot {
    Idle(Box<CoreStream>),
    /// With the figures as they were before.
    InUse(Stats),
    Closed(Stats),
}

impl Slot {
    fn stats(&self) -> Stats {
        match self {
            Slot::Idle(stream) => stream.stats(),
            Slot::InUse(stats) | Slot::Closed(stats) => *stats,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    fn handed_over(&self, begun: Instant) {
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.hand_over_nanos.fetch_add(took, Relaxed);
    }

    fn take(&self, py: Python<'_>) -> PyResult<Option<Box<CoreStream>>> {
        // The exception is made after the lock is gone: Python may run another thread meanwhile, which wants it.
        self.take_idle().ok_or_else(|| {
            let message = "this iterator is being advanced by another thread; give each thread its own";
            to_py(py, &Error::new(ErrorKind::Closed, message))
        })
    }

    /// The stream, if nobody uses it; no stream in it once it is closed.
    fn take_idle(&self) -> Option<Option<Box<CoreStream>>> {
        let mut slot = lock(&self.slot);
        let stats = slot.stats();
        match std::mem::replace(&mut *slot, Slot::InUse(stats)) {
            Slot::Idle(stream) => Some(Some(stream)),
            Slot::Closed(stats) => {
                *slot = Slot::Closed(stats);
                Some(None)
            }
            Slot::InUse(_) => None,
        }
    }

    /// Waits for a batch without the GIL; signals are handled meanwhile.
    fn pull(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let Some(mut stream) = self.take(py)? else { return Ok(None) };
        let mut raised = None;
        let found = py.detach(|| stream.next(&mut || interrupted(&mut raised)));
        *lock(&self.slot) = Slot::Idle(stream);
        if let Some(raised) = raised {
            return Err(raised);
        }
        let mut batch = found.or_raise(py)?;
        if let Some(batch) = &mut batch {
            lock(&self.substitutions).append(&mut batch.substitutions);
        }
        Ok(batch)
    }
}

impl Stream {
    fn pull_samples(&self, py: Python<'_>) -> PyResult<Option<Read>> {
        let Some(batch) = self.pull(py)? else { return Ok(None) };
        let wanted = &self.metadata_wanted;
        Ok(Some(Read {
            columns: Lazy::new(py, &self.dataset, &batch.rows, batch.globals, batch.metadata, wanted),
            payloads: batch.payloads,
            members: Arc::new(Members {
                epoch: self.epoch,
                rows: batch.rows,
                positions: batch.positions,
                padding: batch.padding,
                substituted: batch.substituted,
            }),
        }))
    }
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (view, order, plan, *, epoch, steps_per_read, threads, prefetch_batches, prefetch_bytes, on_corrupt, split=None, memory=None))]
    #[expect(clippy::too_many_arguments, reason = "the loader's options, by keyword")]
    fn new(
        py: Python<'_>,
        view: &View,
        order: &Order,
        plan: &BatchPlan,
        epoch: u64,
        steps_per_read: u64,
        threads: Option<usize>,
        prefetch_batches: u64,
        prefetch_bytes: u64,
        on_corrupt: &str,
        split: Option<Vec<usize>>,
        memory: Option<&Memory>,
    ) -> PyResult<Self> {
        let on_corrupt = OnCorrupt::parse(on_corrupt).or_raise(py)?;
        let order = order.order.clone();
        let plan = plan.plan;
        if plan.length() != order.len() {
            let lengths = format!("{} positions, the order {}", plan.length(), order.len());
            return Err(invalid(py, format!("the plan is for {lengths}; make it for this order")));
        }
        let split = split.map(|widths| Split::new(&widths)).transpose().or_raise(py)?;
        let metadata_wanted = Arc::default();
        let options = StreamOptions {
            epoch,
            steps_per_read,
            threads,
            prefetch_batches,
            prefetch_bytes,
            on_corrupt,
            split,
            pool: memory.map(|memory| Arc::clone(&memory.pool)),
            metadata_wanted: Arc::clone(&metadata_wanted),
        };
        let dataset = Dataset::clone(&view.dataset);
        let stream = py.detach(|| CoreStream::new(dataset, order, plan, options)).or_raise(py)?;
        Ok(Stream {
            dataset: Arc::clone(&view.dataset),
            plan,
            epoch,
            slot: Mutex::new(Slot::Idle(Box::new(stream))),
            substitutions: Mutex::default(),
            metadata_wanted,
            hand_over_nanos: AtomicU64::new(0),
        })
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.plan.steps())?)
    }

    fn position_after(&self, steps: u64) -> u64 {
        self.plan.position_after(steps)
    }

    fn next(&self, py: Python<'_>) -> PyResult<Option<SampleBatch>> {
        let Some(batch) = self.pull(py)? else { return Ok(None) };
        let begun = Instant::now();
        let made = SampleBatch::new(py, &self.dataset, self.epoch, batch, &self.metadata_wanted);
        self.handed_over(begun);
        made.map(Some)
    }

    /// The samples of the next read, and what is known of them; nothing at the end.
    fn next_samples<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyList>, BatchInfo)>> {
        let Some(read) = self.pull_samples(py)? else { return Ok(None) };
        let begun = Instant::now();
        let samples = (0..read.len()).map(|at| read.sample(py, at));
        let list = listed(py, read.payloads.lengths.iter().copied(), samples)?;
        self.handed_over(begun);
        Ok(Some((list, BatchInfo::new(Arc::clone(&read.members)))))
    }

    /// Has the next read handed out from there; false at the end. Where something is left of the read before, nothing
    /// is read: another call of `next` came first.
    fn fill(&self, py: Python<'_>, handout: &Bound<'_, Handout>) -> PyResult<bool> {
        if handout.get().is_ready() {
            return Ok(true);
        }
        let Some(read) = self.pull_samples(py)? else { return Ok(false) };
        handout.get().put(read);
        Ok(true)
    }

    fn substitutions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let drained = std::mem::take(&mut *lock(&self.substitutions));
        drained
            .iter()
            .map(|s| {
                let (cache_id, sample_id) = place(py, &self.dataset, s.global)?;
                record(
                    py,
                    [
                        ("position", s.position.into_pyobject(py)?.into_any()),
                        ("row", s.row.into_pyobject(py)?.into_any()),
                        ("cache_id", cache_id.into_pyobject(py)?.into_any()),
                        ("sample_id", sample_id.into_pyobject(py)?.into_any()),
                        ("replacement_row", s.replacement.into_pyobject(py)?.into_any()),
                        ("message", s.error.message().into_pyobject(py)?.into_any()),
                    ],
                )
            })
            .collect()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = lock(&self.slot).stats();
        let seconds = |value: Duration| value.as_secs_f64().into_pyobject(py).map(Bound::into_any);
        let parts = stats.parts();
        let handed = Duration::from_nanos(self.hand_over_nanos.load(Relaxed));
        record(
            py,
            [
                ("samples", stats.samples.into_pyobject(py)?.into_any()),
                ("bytes", stats.bytes.into_pyobject(py)?.into_any()),
                ("consumer_wait_seconds", stats.consumer_wait.as_secs_f64().into_pyobject(py)?.into_any()),
                ("reader_wait_seconds", stats.reader_wait.as_secs_f64().into_pyobject(py)?.into_any()),
                ("read_seconds", seconds(parts.files())?),
                ("verify_seconds", seconds(parts.verify)?),
                ("decompress_seconds", seconds(parts.decompress)?),
                ("gather_seconds", seconds(parts.gather)?),
                ("hand_over_seconds", seconds(handed)?),
            ],
        )
    }

    /// Ends the reading threads; harmless when repeated.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(stream) = self.take(py)? {
            *lock(&self.slot) = Slot::Closed(stream.stats());
            // Threads may have to finish a read before they end: not with the GIL held.
            py.detach(|| drop(stream));
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        let stream = std::mem::replace(slot, Slot::Closed(Stats::default()));
        // Threads may have to finish a read before they end: not with the GIL held.
        Python::try_attach(|py| py.detach(|| drop(stream)));
    }
}
