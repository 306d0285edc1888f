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

/// A value in a message takes about this many characters.
const SHOWN_CHARACTERS: usize = 80;

/// The bounded text of any object for a message; objects whose `repr` fails have one all the same.
pub(crate) fn repr(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().and_then(|text: Bound<'_, PyString>| text.to_str().map(str::to_owned));
    let text = text.unwrap_or_else(|_| "<unprintable>".to_owned());
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// The name of an object's type for a message.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().name().and_then(|name| name.to_str().map(str::to_owned));
    name.unwrap_or_else(|_| "an unknown type".to_owned())
}
