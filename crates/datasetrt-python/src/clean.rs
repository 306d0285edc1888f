//! Removing leftovers of interrupted writes.

use std::path::PathBuf;

use datasetrt_core::write::{Leftover, Outcome, clean};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::record;
use crate::error::OrRaise as _;

/// The leftovers in a folder of caches, and why those that stay do; a dry run removes none.
#[pyfunction]
pub(crate) fn clean_root(py: Python<'_>, root: PathBuf, dry_run: bool) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let leftovers = py.detach(|| clean(&root, dry_run)).or_raise(py)?;
    leftovers.iter().map(|leftover| told(py, leftover)).collect()
}

fn told<'py>(py: Python<'py>, leftover: &Leftover) -> PyResult<Bound<'py, PyDict>> {
    let (reason, failed) = match &leftover.outcome {
        Outcome::Removed => (None, false),
        Outcome::Kept(reason) => (Some(reason.as_str()), false),
        Outcome::Failed(error) => (Some(error.message()), true),
    };
    record(
        py,
        [
            ("path", leftover.path.as_os_str().into_pyobject(py)?.into_any()),
            ("files", leftover.files.into_pyobject(py)?.into_any()),
            ("bytes", leftover.bytes.into_pyobject(py)?.into_any()),
            ("reason", reason.into_pyobject(py)?.into_any()),
            ("failed", failed.into_pyobject(py)?.to_owned().into_any()),
        ],
    )
}
