//! Samples that were read together, handed out one by one without a call into Python for each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use datasetrt_core::read::{Payloads, Places};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::info::{BatchInfo, Members};
use crate::metadata::Lazy;
use crate::payloads::copied;
use crate::sample::{CachedSample, Row};

/// Samples that were read together; each becomes an object when it is asked for.
pub(crate) struct Read {
    pub(crate) payloads: Payloads,
    pub(crate) columns: Arc<Lazy>,
    pub(crate) members: Arc<Members>,
}

impl Read {
    pub(crate) fn len(&self) -> usize {
        self.payloads.lengths.len()
    }

    /// The sample at a place.
    pub(crate) fn sample(&self, py: Python<'_>, at: usize) -> PyResult<CachedSample> {
        // Samples are never split; should they be, they would come out empty rather than wrong.
        let starts = match &self.payloads.places {
            Places::Rows(starts) => starts.as_slice(),
            Places::Columns(_) => &[],
        };
        let span =
            starts.get(at).zip(self.payloads.lengths.get(at)).map(|(start, length)| *start..start + length);
        let bytes = span.and_then(|span| self.payloads.buffer.as_slice().get(span)).unwrap_or_default();
        let row = Row::Batch { batch: Arc::clone(&self.columns), row: at };
        CachedSample::new(py, &copied(py, bytes)?, row)
    }
}

/// What a loop has read and not handed out yet, and how many steps it has made.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct Handout {
    /// Never held while Python's code may run.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    read: Option<Arc<Read>>,
    /// What is known of the samples that are or were handed out.
    members: Option<Arc<Members>>,
    /// How many of them were handed out.
    taken: usize,
    /// What was handed out last of the read before.
    before: Option<BatchInfo>,
    steps: u64,
    /// How long it took to make objects of them.
    hand_over: Duration,
}

/// One sample of so many is timed, for all of them: a clock takes a tenth of the time of a small sample.
const TIMED: u64 = 16;

impl State {
    fn last(&self) -> Option<BatchInfo> {
        let at = self.taken.checked_sub(1)?;
        Some(BatchInfo::new(Arc::clone(self.members.as_ref()?)).sample(at))
    }
}

impl Handout {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether something is left of what was read.
    pub(crate) fn is_ready(&self) -> bool {
        self.with(|state| state.read.as_ref().is_some_and(|read| state.taken < read.len()))
    }

    /// Takes what was read; nothing may be left of the read before.
    pub(crate) fn put(&self, read: Read) {
        let before = self.with(|state| {
            state.before = state.last().or(state.before.take());
            state.taken = 0;
            state.members = Some(Arc::clone(&read.members));
            state.read.replace(Arc::new(read))
        });
        drop(before);
    }

    /// The next sample, which is a step; none where nothing is left of what was read.
    fn take(&self, py: Python<'_>) -> PyResult<Option<CachedSample>> {
        let next = self.with(|state| state.read.clone().map(|read| (read, state.taken, state.steps)));
        let Some((read, at, steps)) = next.filter(|(read, at, _)| *at < read.len()) else { return Ok(None) };
        let begun = steps.is_multiple_of(TIMED).then(Instant::now);
        let sample = read.sample(py, at)?;
        let took = begun.map(|begun| begun.elapsed());
        let spent = self.with(|state| {
            state.taken = at + 1;
            state.steps += 1;
            state.hand_over += took.unwrap_or_default() * TIMED as u32;
            if state.taken >= read.len() { state.read.take() } else { None }
        });
        drop(spent);
        Ok(Some(sample))
    }
}

#[pymethods]
impl Handout {
    #[new]
    fn new() -> Self {
        Handout { state: Mutex::default() }
    }

    /// Let go of what was read; what was handed out last stays known.
    fn clear(&self) {
        drop(self.with(|state| state.read.take()));
    }

    #[getter]
    fn steps(&self) -> u64 {
        self.with(|state| state.steps)
    }

    #[setter]
    fn set_steps(&self, steps: u64) {
        self.with(|state| state.steps = steps);
    }

    /// What is known of the sample that was handed out last.
    #[getter]
    fn last(&self) -> Option<BatchInfo> {
        self.with(|state| state.last().or_else(|| state.before.clone()))
    }

    /// How long it took to make objects of samples.
    #[getter]
    fn hand_over_seconds(&self) -> f64 {
        self.with(|state| state.hand_over.as_secs_f64())
    }
}

/// The base of an iterator: samples that are ready it gives at once, and asks its `_advance` for everything else.
#[pyclass(frozen, subclass, module = "datasetrt._core")]
pub(crate) struct Steps {
    handout: PyOnceLock<Py<Handout>>,
}

#[pymethods]
impl Steps {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Steps { handout: PyOnceLock::new() }
    }

    /// From now on, take samples from there. Once.
    fn _hand_out(&self, py: Python<'_>, handout: Py<Handout>) {
        _ = self.handout.set(py, handout);
    }

    fn __next__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        loop {
            // Taken and counted here, where no signal is handled in between: it counts, or it comes again.
            if let Some(handout) = slf.get().handout.get(py)
                && let Some(sample) = handout.get().take(py)?
            {
                return Ok(Bound::new(py, sample)?.into_any());
            }
            let made = slf.call_method0(intern!(py, "_advance"))?;
            // That says: look again, samples are ready now.
            if !made.is(py.NotImplemented()) {
                return Ok(made);
            }
        }
    }
}
