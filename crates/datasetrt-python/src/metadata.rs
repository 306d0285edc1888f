//! Metadata rows as Python values and NumPy columns.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use datasetrt_core::memory;
use datasetrt_core::metadata::Value;
use datasetrt_core::read::Dataset;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyList, PyString};

use crate::arrays;
use crate::error::{OrRaise as _, invalid};
use crate::view::View;

/// The metadata of samples that were read together, loaded when somebody asks for it.
pub(crate) struct Lazy {
    dataset: Arc<Dataset>,
    rows: Vec<u64>,
    pub(crate) globals: Vec<u64>,
    loaded: PyOnceLock<RecordBatch>,
    /// The columns' names as Python has them, once a row was made.
    names: PyOnceLock<Vec<Py<PyString>>>,
    /// Tells the stream to read it ahead from now on.
    wanted: Arc<AtomicBool>,
}

impl Lazy {
    pub(crate) fn new(
        py: Python<'_>,
        dataset: &Arc<Dataset>,
        rows: &[u64],
        globals: Vec<u64>,
        known: Option<RecordBatch>,
        wanted: &Arc<AtomicBool>,
    ) -> Arc<Self> {
        let loaded = PyOnceLock::new();
        if let Some(known) = known {
            // Nobody else can have set it.
            _ = loaded.set(py, known);
        }
        let (dataset, wanted) = (Arc::clone(dataset), Arc::clone(wanted));
        Arc::new(Lazy { dataset, rows: rows.to_vec(), globals, loaded, names: PyOnceLock::new(), wanted })
    }

    pub(crate) fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The global row at a place of the batch.
    pub(crate) fn global(&self, at: usize) -> u64 {
        self.globals.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&RecordBatch> {
        self.loaded.get_or_try_init(py, || {
            self.wanted.store(true, Relaxed);
            py.detach(|| self.dataset.metadata(&self.rows, &self.globals)).or_raise(py)
        })
    }

    /// One row as a dict of its own.
    pub(crate) fn row<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyDict>> {
        let batch = self.get(py)?;
        let names = self.names.get_or_init(py, || names_of(py, batch));
        row_of(py, names, batch, row)
    }
}

/// One row of a view as a dict, if its metadata is in memory already.
pub(crate) fn row_in_memory<'py>(
    py: Python<'py>,
    view: &View,
    global: u64,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    view.metadata_wanted.store(true, Relaxed);
    let columns = || view.dataset.set().columns().iter();
    let names =
        view.names.get_or_init(py, || columns().map(|c| PyString::intern(py, &c.name).unbind()).collect());
    let dict = PyDict::new(py);
    let mut added = Ok(());
    let mut names = names.iter();
    let cell = |_: &str, value: Value<'_>| {
        // Cells come in the order of the columns.
        if let (Ok(()), Some(name)) = (&added, names.next()) {
            added = of_value(py, value).and_then(|value| dict.set_item(name, value));
        }
    };
    let found = view.dataset.visit_metadata(global, cell).or_raise(py)?;
    added?;
    Ok(found.then_some(dict))
}

fn of_value<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::Float(value) => value.into_pyobject(py)?.into_any(),
        Value::Str(value) => PyString::new(py, value).into_any(),
    })
}

/// One row as a dict of names to Python values.
pub(crate) fn row<'py>(py: Python<'py>, batch: &RecordBatch, row: usize) -> PyResult<Bound<'py, PyDict>> {
    row_of(py, &names_of(py, batch), batch, row)
}

fn row_of<'py>(
    py: Python<'py>,
    names: &[Py<PyString>],
    batch: &RecordBatch,
    row: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, column) in names.iter().zip(batch.columns()) {
        dict.set_item(name, value(py, column, row)?)?;
    }
    Ok(dict)
}

fn names_of(py: Python<'_>, batch: &RecordBatch) -> Vec<Py<PyString>> {
    let fields = batch.schema_ref().fields().iter();
    fields.map(|field| PyString::intern(py, field.name()).unbind()).collect()
}

fn value<'py>(py: Python<'py>, column: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if row >= column.len() || column.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    Ok(match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).into_pyobject(py)?.to_owned().into_any(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into_pyobject(py)?.into_any(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into_pyobject(py)?.into_any(),
        DataType::LargeUtf8 => PyString::new(py, column.as_string::<i64>().value(row)).into_any(),
        other => return Err(unknown(py, other)),
    })
}

/// The columns of a batch as NumPy arrays. A column that has nulls anywhere in the dataset is a masked
/// array, strings are arrays of objects, where null is `None`.
pub(crate) fn columns<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    nullable: &[bool],
) -> PyResult<Bound<'py, PyAny>> {
    let columns = py.import("datasetrt.columns")?.getattr("BatchMetadata")?.call0()?;
    for ((field, array), nullable) in batch.schema_ref().fields().iter().zip(batch.columns()).zip(nullable) {
        columns.set_item(PyString::intern(py, field.name()), column(py, array, *nullable)?)?;
    }
    Ok(columns)
}

fn column<'py>(py: Python<'py>, array: &ArrayRef, nullable: bool) -> PyResult<Bound<'py, PyAny>> {
    let values = match array.data_type() {
        DataType::Boolean => {
            let flags = memory::collect("metadata", array.as_boolean().values().iter()).or_raise(py)?;
            PyArray1::from_vec(py, flags).into_any()
        }
        DataType::Int64 => arrays::of(py, array.as_primitive::<Int64Type>().values())?.into_any(),
        DataType::Float64 => arrays::of(py, array.as_primitive::<Float64Type>().values())?.into_any(),
        DataType::LargeUtf8 => return strings(py, array),
        other => return Err(unknown(py, other)),
    };
    if !nullable {
        return Ok(values);
    }
    let mask = memory::collect("metadata", (0..array.len()).map(|row| array.is_null(row))).or_raise(py)?;
    py.import("numpy.ma")?.getattr("MaskedArray")?.call1((values, PyArray1::from_vec(py, mask)))
}

/// What a string of Python takes beside its text, with the places of it in a list and in an array.
const STR_BYTES: usize = 80;

fn strings<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    let text = array.as_string::<i64>().value_data().len();
    memory::ask("metadata", array.len().saturating_mul(STR_BYTES).saturating_add(text)).or_raise(py)?;
    let list = PyList::new(py, array.as_string::<i64>().iter())?;
    let numpy = py.import("numpy")?;
    let kwargs = PyDict::new(py);
    kwargs.set_item("dtype", numpy.getattr("object_")?)?;
    numpy.call_method("array", (list,), Some(&kwargs))
}

fn unknown(py: Python<'_>, ty: &DataType) -> PyErr {
    invalid(py, format!("metadata of type {ty} cannot be delivered; please report this"))
}
