//! The one place where errors of the engine become Python exceptions.

use datasetrt_core::{Class, Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use crate::call::call;

/// The exception class of an error class. Without a catch-all arm: a new class does not compile until it has a place.
fn class_name(class: Class) -> &'static str {
    match class {
        Class::CacheNotFound => "CacheNotFound",
        Class::CacheExists => "CacheExists",
        Class::StaleCache => "StaleCache",
        Class::Format => "Format",
        Class::Corruption => "Corruption",
        Class::InvalidInput => "InvalidInput",
        Class::SampleIndex => "SampleIndex",
        Class::State => "State",
        Class::Storage => "Storage",
        Class::Internal => "Internal",
    }
}

/// The Python exception for an error of the engine.
pub(crate) fn to_py(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).map_or_else(|failure| failure, PyErr::from_value)
}

fn build<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    let path = error.path().map(std::path::Path::as_os_str);
    let arguments = (
        class_name(error.class()),
        error.kind().code(),
        error.message(),
        path,
        error.shard(),
        error.offset(),
        error.sample_id(),
        error.os_error(),
    );
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    call(BUILD.import(py, "datasetrt.errors", "_build")?, arguments)
}

/// A refusal of an argument.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    to_py(py, &Error::new(ErrorKind::InvalidArgument, message))
}

/// Shorthand at the end of a call into the engine.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for datasetrt_core::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_py(py, &error))
    }
}

/// An object as a message has it: on one line, of bounded length, whatever its `repr` does.
pub(crate) fn repr(value: &Bound<'_, PyAny>) -> String {
    worded("shown", value)
}

/// A foreign exception on one line.
pub(crate) fn reason(py: Python<'_>, error: &PyErr) -> String {
    worded("reason", error.value(py))
}

/// The name of an object's type for a message.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an unknown type".to_owned(), |name| shorten(&name))
}

/// Foreign text on one line, of bounded length.
pub(crate) fn shorten(text: &Bound<'_, PyString>) -> String {
    worded("shorten", text)
}

/// What `datasetrt.wording` makes of an object; the words of messages are in one place.
fn worded(function: &str, value: &Bound<'_, PyAny>) -> String {
    let wording = value.py().import("datasetrt.wording").and_then(|module| module.getattr(function));
    let text = wording.and_then(|function| call(&function, (value,))).and_then(|text| text.extract());
    text.unwrap_or_else(|_| "<unprintable>".to_owned())
}
