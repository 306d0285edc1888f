//! NumPy arrays of lists that the engine has. NumPy's own way from Rust panics where there is no memory.

use datasetrt_core::memory;
use numpy::{Element, PyArray1};
use pyo3::prelude::*;

use crate::error::OrRaise as _;

/// A copy of some values.
pub(crate) fn of<'py, T: Element + Copy>(py: Python<'py>, values: &[T]) -> PyResult<Bound<'py, PyArray1<T>>> {
    memory::ask("an array", size_of_val(values)).or_raise(py)?;
    Ok(PyArray1::from_slice(py, values))
}

/// The same of rows, positions, sizes and offsets, which are below 2^63 by construction.
pub(crate) fn int64<'py, T: Copy + TryInto<i64>>(
    py: Python<'py>,
    values: &[T],
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    memory::ask("an array", values.len().saturating_mul(size_of::<i64>())).or_raise(py)?;
    Ok(PyArray1::from_iter(py, values.iter().map(|value| (*value).try_into().unwrap_or(i64::MAX))))
}
