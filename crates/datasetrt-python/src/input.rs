//! Samples and indices as Python gives them.

use datasetrt_core::metadata::{Value, int_overflow, unsupported_value};
use datasetrt_core::{Error, ErrorKind, memory};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyMemoryView, PySlice, PyString, PyTuple, PyType,
};

use crate::buffer::Contiguous;
use crate::call::call;
use crate::error::{OrRaise as _, invalid, repr, to_py, type_name};

/// A metadata value whose text still belongs to Python.
pub(crate) enum Cell<'py> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Bound<'py, PyString>),
}

impl Cell<'_> {
    fn value(&self) -> PyResult<Value<'_>> {
        Ok(match self {
            Cell::Null => Value::Null,
            Cell::Bool(v) => Value::Bool(*v),
            Cell::Int(v) => Value::Int(*v),
            Cell::Float(v) => Value::Float(*v),
            Cell::Str(v) => Value::Str(v.to_str()?),
        })
    }
}

/// A sample as the source gave it: a payload and the fields of its metadata.
pub(crate) struct Input<'py> {
    data: Bound<'py, PyAny>,
    fields: Vec<(Bound<'py, PyString>, Cell<'py>)>,
}

impl<'py> Input<'py> {
    /// Takes a `CacheInput` apart.
    pub(crate) fn new(sample: u64, given: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = given.py();
        let pair = given.cast::<PyTuple>().ok().filter(|tuple| tuple.len() == 2);
        let Some(pair) = pair else {
            let message = format!(
                "sample {sample}: the source gave an object of type {}; give CacheInput(data=..., metadata=...)",
                type_name(given)
            );
            return Err(to_py(py, &Error::new(ErrorKind::InvalidArgument, message).at_sample(sample)));
        };
        let metadata = pair.get_item(1)?;
        let fields = match metadata.cast::<PyDict>() {
            Ok(metadata) => fields(sample, metadata)?,
            Err(_) => fields(sample, &as_dict(sample, &metadata)?)?,
        };
        Ok(Input { data: pair.get_item(0)?, fields })
    }

    /// Hands payload and row to `work`.
    pub(crate) fn with<T>(
        &self,
        sample: u64,
        work: impl FnOnce(&[u8], &[(&str, Value<'_>)]) -> T,
    ) -> PyResult<T> {
        let py = self.data.py();
        let mut row = Vec::with_capacity(self.fields.len());
        for (name, cell) in &self.fields {
            let name = name.to_str().map_err(|_| bad_text(py, sample, "a field name"))?;
            row.push((name, cell.value().map_err(|_| bad_text(py, sample, &format!("field '{name}'")))?));
        }
        if let Ok(bytes) = self.data.cast::<PyBytes>() {
            return Ok(work(bytes.as_bytes(), &row));
        }
        // A masked array is a buffer whose bytes lack the mask.
        let masked = self.data.is_instance(masked_array(py)?)?;
        let Some(view) = PyMemoryView::from(&self.data).ok().filter(|_| !masked) else {
            return Err(refused(sample, &self.data)?);
        };
        let pointers = holds_pointers(&view.getattr("format")?.extract::<String>()?);
        if pointers || !view.getattr("c_contiguous")?.extract::<bool>()? {
            return Err(refused(sample, &self.data)?);
        }
        if let Some(buffer) = Contiguous::of(&self.data) {
            return Ok(work(buffer.bytes(), &row));
        }
        // Scalars of NumPy and ctypes have no shape; memoryview copies them.
        let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        Ok(work(copy.as_bytes(), &row))
    }
}

/// What is raised where reading a sample raised: its own code gets a note of which one it was.
pub(crate) fn while_reading(py: Python<'_>, sample: u64, error: PyErr) -> PyErr {
    static TOLD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let told = TOLD.import(py, "datasetrt.source", "while_reading");
    told.and_then(|told| call(told, (error.value(py), sample))).map_or(error, PyErr::from_value)
}

/// The refusal of a payload that is no buffer whose bytes are all there is to it.
fn refused(sample: u64, data: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    static REASON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let reason = call(REASON.import(data.py(), "datasetrt.payload", "refusal")?, (data,))?;
    // No reason any more where the buffer could not be had a moment ago.
    let reason = reason.extract::<Option<String>>()?;
    let reason = reason.as_deref().unwrap_or("a buffer that cannot be read at all times; give bytes");
    let message = format!("sample {sample}: data is {reason}");
    Ok(to_py(data.py(), &Error::new(ErrorKind::InvalidArgument, message).at_sample(sample)))
}

/// Whether a buffer's format (that of the struct module, with NumPy's extensions) names addresses: their
/// bytes mean nothing in another process. Names of fields stand between colons.
fn holds_pointers(format: &str) -> bool {
    let types = format.split(':').step_by(2);
    types.flat_map(str::chars).any(|c| matches!(c, 'O' | 'P' | '&' | 'X'))
}

fn bad_text(py: Python<'_>, sample: u64, what: &str) -> PyErr {
    let message = format!(
        "sample {sample}: {what} has text that is not valid Unicode (a lone surrogate); encode it or replace the character"
    );
    to_py(py, &Error::new(ErrorKind::InvalidMetadata, message).at_sample(sample))
}

fn as_dict<'py>(sample: u64, metadata: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = metadata.py();
    let mapping = py.import("collections.abc")?.getattr("Mapping")?;
    if !metadata.is_instance(&mapping)? {
        let message = format!(
            "sample {sample}: metadata is an object of type {}; give a dict of names and values",
            type_name(metadata)
        );
        return Err(to_py(py, &Error::new(ErrorKind::InvalidMetadata, message).at_sample(sample)));
    }
    Ok(call(py.get_type::<PyDict>().as_any(), (metadata,))?.cast_into::<PyDict>()?)
}

fn fields<'py>(
    sample: u64,
    metadata: &Bound<'py, PyDict>,
) -> PyResult<Vec<(Bound<'py, PyString>, Cell<'py>)>> {
    let py = metadata.py();
    let mut fields = Vec::with_capacity(metadata.len());
    // All of them before any is looked at: a value that is no plain one runs code, which may change the dict.
    for (key, value) in metadata.iter().collect::<Vec<_>>() {
        let Ok(name) = key.cast::<PyString>() else {
            let message =
                format!("sample {sample}: metadata key {} is not a string; name every field", repr(&key));
            return Err(to_py(py, &Error::new(ErrorKind::InvalidMetadata, message).at_sample(sample)));
        };
        fields.push((name.clone(), cell(sample, name, &value)?));
    }
    Ok(fields)
}

fn cell<'py>(sample: u64, name: &Bound<'py, PyString>, value: &Bound<'py, PyAny>) -> PyResult<Cell<'py>> {
    if let Some(cell) = plain_cell(sample, name, value)? {
        return Ok(cell);
    }
    let py = value.py();
    if value.is_instance(numpy_scalar(py)?)? {
        // A NumPy scalar: its Python value, once; those without one (dates, long doubles) are refused.
        let item = value.call_method0("item")?;
        if let Some(cell) = plain_cell(sample, name, &item)? {
            return Ok(cell);
        }
    }
    Err(to_py(py, &unsupported_value(sample, &name.to_string_lossy(), &type_name(value), &repr(value))))
}

fn plain_cell<'py>(
    sample: u64,
    name: &Bound<'py, PyString>,
    value: &Bound<'py, PyAny>,
) -> PyResult<Option<Cell<'py>>> {
    Ok(Some(if value.is_none() {
        Cell::Null
    } else if let Ok(flag) = value.cast::<PyBool>() {
        Cell::Bool(flag.is_true())
    } else if let Ok(number) = value.cast::<PyInt>() {
        let Ok(number) = number.extract::<i64>() else {
            let text = number.str().map_or_else(
                |_| "an integer of thousands of digits".to_owned(),
                |t| t.to_string_lossy().into_owned(),
            );
            return Err(to_py(value.py(), &int_overflow(sample, &name.to_string_lossy(), &text)));
        };
        Cell::Int(number)
    } else if let Ok(number) = value.cast::<PyFloat>() {
        Cell::Float(number.value())
    } else if let Ok(text) = value.cast::<PyString>() {
        Cell::Str(text.clone())
    } else {
        return Ok(None);
    }))
}

fn numpy_scalar(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.import(py, "numpy", "generic")
}

fn masked_array(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.import(py, "numpy.ma", "MaskedArray")
}

/// Row numbers in `[0, len)`; negative ones count from the end.
pub(crate) fn rows(indices: &Bound<'_, PyAny>, len: u64) -> PyResult<Vec<u64>> {
    let py = indices.py();
    let array = indices
        .cast::<PyArray1<i64>>()
        .map_err(|_| invalid(py, "row numbers must be a one-dimensional int64 array"))?;
    let array = array.readonly();
    let array = array.as_array();
    let mut rows = memory::list("row numbers", array.len()).or_raise(py)?;
    for index in array {
        rows.push(row(py, *index, len)?);
    }
    Ok(rows)
}

/// An index of any integer type; whole numbers beyond int64 are out of range like any other.
pub(crate) fn index(given: &Bound<'_, PyAny>, len: u64) -> PyResult<u64> {
    let py = given.py();
    match as_int("index", given)?.extract::<i64>() {
        Ok(index) => row(py, index, len),
        // The only reason of an int: its size.
        Err(_) => Err(to_py(py, &out_of_range(&repr(given), len))),
    }
}

/// An int where there is a whole number of any type; True is none.
///
/// Looks at the type alone where it is Python's own: the usual case.
fn as_int<'py>(what: &str, given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if given.is_exact_instance_of::<PyInt>() {
        return Ok(given.clone());
    }
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    call(CHECK.import(given.py(), "datasetrt.checks", "any_int")?, (what, given))
}

/// A number of at least 0; none where a whole number is negative or beyond 64 bits.
///
/// # Errors
///
/// `invalid-argument` for what is no whole number.
pub(crate) fn count(what: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    // The only reason of an int: its size.
    Ok(as_int(what, given)?.extract::<u64>().ok())
}

/// A number from 0 to `most`.
///
/// # Errors
///
/// `invalid-argument` for any other, and for what is no whole number.
pub(crate) fn whole(what: &str, given: &Bound<'_, PyAny>, most: u64) -> PyResult<u64> {
    count(what, given)?.filter(|number| *number <= most).ok_or_else(|| {
        let message =
            format!("{what} = {} is out of range; give a whole number from 0 to {most}", repr(given));
        invalid(given.py(), message)
    })
}

/// True or False, and nothing that only counts as one of them.
pub(crate) fn flag(what: &str, given: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(flag) = given.cast::<PyBool>() {
        return Ok(flag.is_true());
    }
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    call(CHECK.import(given.py(), "datasetrt.checks", "flag")?, (what, given))?.extract()
}

/// The places that a slice takes of `length` things, in its order.
pub(crate) fn places(
    slice: &Bound<'_, PySlice>,
    length: usize,
) -> PyResult<impl Iterator<Item = usize> + Clone> {
    static CHECK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let parts = call(CHECK.import(slice.py(), "datasetrt.checks", "slice_of")?, (slice, length))?;
    let (start, stop, step) = parts.extract::<(i64, i64, i64)>()?;
    let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    // Rounded up; an empty or backward span has no places.
    let size = step.unsigned_abs().max(1);
    let count = u64::try_from(span).unwrap_or_default().div_ceil(size);
    let at = move |nth: u64| start.saturating_add(step.saturating_mul(nth.cast_signed()));
    Ok((0..count).filter_map(move |nth| usize::try_from(at(nth)).ok()))
}

/// One row number in `[0, len)`; a negative one counts from the end.
pub(crate) fn row(py: Python<'_>, index: i64, len: u64) -> PyResult<u64> {
    let row = if index < 0 { len.checked_sub(index.unsigned_abs()) } else { Some(index.unsigned_abs()) };
    row.filter(|row| *row < len).ok_or_else(|| to_py(py, &out_of_range(&index.to_string(), len)))
}

fn out_of_range(index: &str, len: u64) -> Error {
    let cure = match len.checked_sub(1) {
        Some(last) => format!("indices run from -{len} to {last}"),
        None => "there are none".to_owned(),
    };
    Error::new(ErrorKind::IndexOutOfRange, format!("index {index} is out of range for {len} samples; {cure}"))
}
