//! Samples that were read together, handed out one by one without a call into Python for each.

use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::info::BatchInfo;

/// What a loop has read and not handed out yet, and how many steps it has made.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct Handout {
    /// Never held while Python's code may run.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The next one last.
    samples: Vec<Py<PyAny>>,
    info: Option<Py<BatchInfo>>,
    /// How many of `info` were handed out.
    taken: usize,
    steps: u64,
}

impl Handout {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn take(&mut self) -> Option<Py<PyAny>> {
        let sample = self.samples.pop()?;
        self.taken += 1;
        self.steps += 1;
        Some(sample)
    }
}

#[pymethods]
impl Handout {
    #[new]
    fn new() -> Self {
        Handout { state: Mutex::default() }
    }

    /// Take what was read; nothing may be left of the read before.
    fn put(&self, samples: &Bound<'_, PyList>, info: Bound<'_, BatchInfo>) {
        let mut samples: Vec<_> = samples.iter().map(Bound::unbind).collect();
        samples.reverse();
        let before = self.with(|state| {
            state.taken = 0;
            (std::mem::replace(&mut state.samples, samples), state.info.replace(info.unbind()))
        });
        drop(before);
    }

    /// Let go of what was read; what was handed out last stays known.
    fn clear(&self) {
        drop(self.with(|state| std::mem::take(&mut state.samples)));
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
    fn last(&self, py: Python<'_>) -> Option<BatchInfo> {
        let known = self.with(|state| {
            let info = state.info.as_ref().map(|info| info.clone_ref(py));
            info.zip(state.taken.checked_sub(1))
        });
        known.map(|(info, at)| info.get().sample(at))
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
            let ready = slf.get().handout.get(py).and_then(|handout| handout.get().with(State::take));
            if let Some(sample) = ready {
                return Ok(sample.into_bound(py));
            }
            let made = slf.call_method0(intern!(py, "_advance"))?;
            // That says: look again, samples are ready now.
            if !made.is(py.NotImplemented()) {
                return Ok(made);
            }
        }
    }
}
