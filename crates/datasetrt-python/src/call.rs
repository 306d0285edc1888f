//! Calls into Python code that may take long. An island of unsafe code.
//!
//! CPython before 3.14 ends a daemon thread that wants to run while the interpreter exits by `pthread_exit`,
//! which on Linux unwinds the thread's stack. Python code that was called from here has our frames below it, and
//! such an unwinding through them aborts the process. So the thread is held here until the process is gone, as
//! CPython 3.14 holds it and as pyo3 does where it takes the GIL itself.
#![expect(
    unsafe_code,
    reason = "pyo3 declares these functions as ones that never unwind; each block says why it is sound"
)]

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};

unsafe extern "C-unwind" {
    fn PyObject_CallObject(callable: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject;
    fn PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
}

/// Dropped only where a foreign unwinding passes by, and lets it pass no further.
struct Hold;

impl Drop for Hold {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls `callable`, which may be a user's own.
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = callable.py();
    let arguments = arguments.into_pyobject(py)?;
    let hold = Hold;
    // SAFETY: both are objects that are kept while this runs, the second is a tuple, and the GIL is held.
    let result = unsafe { PyObject_CallObject(callable.as_ptr(), arguments.as_ptr()) };
    std::mem::forget(hold);
    // SAFETY: the call gave a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

/// The iterator's next object, if there is one.
pub(crate) fn next<'py>(iterator: &Bound<'py, PyIterator>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = iterator.py();
    let hold = Hold;
    // SAFETY: an iterator that is kept while this runs, and the GIL is held.
    let found = unsafe { PyIter_Next(iterator.as_ptr()) };
    std::mem::forget(hold);
    // SAFETY: the call gave a new reference, or null.
    let found = unsafe { Bound::from_owned_ptr_or_opt(py, found) };
    // Null is the end, or an exception.
    if found.is_none() { PyErr::take(py).map_or(Ok(None), Err) } else { Ok(found) }
}

/// Handles signals from a thread that does not hold the GIL; true, with the exception, if one asks to stop.
pub(crate) fn interrupted(raised: &mut Option<PyErr>) -> bool {
    // While the interpreter exits there is nothing to attach to, and nobody who waits for the result.
    let Some(checked) = Python::try_attach(|py| py.check_signals()) else { return true };
    *raised = checked.err();
    raised.is_some()
}
