//! Checks that read everything: how far they are, and what they found.

use std::path::{Path, PathBuf};

use datasetrt_core::exec;
use datasetrt_core::read::{Progress, Survey};
use datasetrt_core::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::batch::record;
use crate::call::call;
use crate::error::OrRaise as _;

/// Everything wrong with the cache in a folder, and the samples that its manifest states if it has one.
#[pyfunction]
#[pyo3(signature = (path, on_progress = None))]
pub(crate) fn verify_folder<'py>(
    py: Python<'py>,
    path: PathBuf,
    on_progress: Option<Bound<'py, PyAny>>,
) -> PyResult<(Option<u64>, Bound<'py, PyList>)> {
    let survey = py.detach(|| Survey::of(&path)).or_raise(py)?;
    let total = py.detach(|| survey.bytes());
    let problems = watched(py, on_progress, total, |watch| survey.verify(watch))?;
    Ok((survey.samples(), problems))
}

/// Runs a check without the interpreter and gives its problems as dicts.
pub(crate) fn watched<'py>(
    py: Python<'py>,
    on_progress: Option<Bound<'py, PyAny>>,
    total: u64,
    check: impl FnOnce(&mut dyn Progress) -> Result<Vec<Error>> + Send,
) -> PyResult<Bound<'py, PyList>> {
    let mut watch = Watch { callback: on_progress.map(Bound::unbind), done: 0, total, raised: None };
    let found = py.detach(|| check(&mut watch));
    if let Some(raised) = watch.raised {
        return Err(raised);
    }
    let problems = found.or_raise(py)?;
    PyList::new(py, problems.iter().map(|p| problem(py, p)).collect::<PyResult<Vec<_>>>()?)
}

/// Tells a Python callable how far a check is; its exception, or a signal's, ends the check.
struct Watch {
    callback: Option<Py<PyAny>>,
    done: u64,
    total: u64,
    raised: Option<PyErr>,
}

impl Progress for Watch {
    fn advance(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        let told = Python::try_attach(|py| {
            py.check_signals()?;
            let Some(callback) = &self.callback else { return Ok(()) };
            call(callback.bind(py), (self.done, self.total)).map(drop)
        });
        // While the interpreter exits there is nothing to attach to, and nobody who waits for the result.
        let Some(told) = told else { return Err(exec::interrupted()) };
        told.map_err(|raised| {
            self.raised = Some(raised);
            exec::interrupted()
        })
    }
}

fn problem<'py>(py: Python<'py>, problem: &Error) -> PyResult<Bound<'py, PyDict>> {
    let path = problem.path().map(Path::as_os_str);
    record(
        py,
        [
            ("kind", problem.kind().code().into_pyobject(py)?.into_any()),
            ("message", problem.message().into_pyobject(py)?.into_any()),
            ("path", path.into_pyobject(py)?.into_any()),
            ("shard", problem.shard().into_pyobject(py)?.into_any()),
            ("offset", problem.offset().into_pyobject(py)?.into_any()),
            ("sample_id", problem.sample_id().into_pyobject(py)?.into_any()),
        ],
    )
}
