//! One sample, with metadata that is made when it is asked for.

use std::sync::Arc;

use datasetrt_core::memory;
use datasetrt_core::metadata::TableSource as _;
use datasetrt_core::read::Dataset;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::error::{OrRaise as _, to_py};
use crate::input;
use crate::metadata::{self, Lazy};
use crate::view::View;

/// One stored sample: its bytes and its metadata.
///
/// Samples are immutable, compare by value, unpack to ``(data, metadata, cache_id, sample_id)``, and
/// pickle. They come from indexing and iterating a :class:`CachedDataset`; the constructor is for tests
/// of code that takes them.
///
/// Args:
///     data: The payload as the source packed it.
///     metadata: Column name to value: bool, int, float, str or None.
///     cache_id: The cache it comes from, 16 hexadecimal digits.
///     sample_id: Its number in that cache, from 0.
///
/// Example:
///     >>> import datasetrt as drt
///     >>> sample = drt.CachedSample(b"payload", {"label": 3}, "0011223344556677", 7)
///     >>> data, metadata, cache_id, sample_id = sample
///     >>> (data, metadata["label"], sample_id)
///     (b'payload', 3, 7)
#[pyclass(frozen, module = "datasetrt")]
pub(crate) struct CachedSample {
    data: Py<PyBytes>,
    row: Row,
    metadata: PyOnceLock<Py<PyDict>>,
    cache_id: PyOnceLock<Py<PyString>>,
    sample_id: u64,
}

/// Where the metadata comes from.
pub(crate) enum Row {
    /// Given by the caller.
    Given,
    /// A row of a batch.
    Batch { batch: Arc<Lazy>, row: usize },
    /// A row of a dataset.
    Dataset { view: Py<View>, row: u64, global: u64 },
}

impl Row {
    /// The dataset and the global row, where there is one.
    fn place(&self) -> Option<(&Dataset, u64)> {
        match self {
            Row::Given => None,
            Row::Batch { batch, row } => Some((batch.dataset(), batch.global(*row))),
            Row::Dataset { view, global, .. } => Some((&view.get().dataset, *global)),
        }
    }
}

impl CachedSample {
    pub(crate) fn new(py: Python<'_>, data: &Bound<'_, PyBytes>, row: Row) -> PyResult<Self> {
        let sample_id = match row.place() {
            None => 0,
            Some((dataset, global)) => dataset.locate(global).or_raise(py)?.1,
        };
        Ok(CachedSample {
            data: data.clone().unbind(),
            row,
            metadata: PyOnceLock::new(),
            cache_id: PyOnceLock::new(),
            sample_id,
        })
    }

    /// What [`CachedSample::metadata`] is a copy of, where the row has to be read.
    fn load_metadata(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let Row::Dataset { view, row, global } = &self.row else { return Ok(PyDict::new(py).unbind()) };
        let dataset = &view.get().dataset;
        let batch = py.detach(|| dataset.metadata(&[*row], &[*global])).or_raise(py)?;
        Ok(metadata::row(py, &batch, 0)?.unbind())
    }

    /// The metadata as a dict of its own, where no file need be read for it.
    fn metadata_in_memory<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        match &self.row {
            Row::Given => Ok(None),
            Row::Batch { batch, row } => batch.row(py, *row).map(Some),
            Row::Dataset { view, global, .. } => metadata::row_in_memory(py, view.get(), *global),
        }
    }

    fn load_cache_id(&self, py: Python<'_>) -> PyResult<Py<PyString>> {
        match self.row.place() {
            None => Ok(PyString::new(py, "").unbind()),
            Some((dataset, global)) => {
                let (cache, _) = dataset.locate(global).map_err(|e| to_py(py, &e))?;
                Ok(PyString::intern(py, cache.cache_id()).unbind())
            }
        }
    }

    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (self.data(py), self.metadata(py)?, self.cache_id(py)?, self.sample_id).into_pyobject(py)
    }
}

/// What a sample takes beside its bytes, with the head of those and the place of it in a list.
const SAMPLE_BYTES: usize = 256;

/// Samples as a list of Python, which grows as they come: one of Rust would end the process where there is no memory.
/// `lengths` are those of their payloads.
pub(crate) fn listed<'py>(
    py: Python<'py>,
    lengths: impl Iterator<Item = usize>,
    samples: impl Iterator<Item = PyResult<CachedSample>>,
) -> PyResult<Bound<'py, PyList>> {
    let bytes = lengths.fold(0_usize, |sum, length| sum.saturating_add(length).saturating_add(SAMPLE_BYTES));
    memory::ask("samples", bytes).or_raise(py)?;
    let list = PyList::empty(py);
    for sample in samples {
        list.append(Bound::new(py, sample?)?)?;
    }
    Ok(list)
}

#[pymethods]
impl CachedSample {
    #[new]
    fn given(
        data: Bound<'_, PyBytes>,
        metadata: Bound<'_, PyDict>,
        cache_id: Bound<'_, PyString>,
        sample_id: Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let py = data.py();
        let sample_id = input::whole("sample_id", &sample_id, u64::MAX)?;
        let sample = CachedSample {
            data: data.unbind(),
            row: Row::Given,
            metadata: PyOnceLock::new(),
            cache_id: PyOnceLock::new(),
            sample_id,
        };
        sample.metadata.get_or_try_init(py, || metadata.copy().map(Bound::unbind))?;
        sample.cache_id.get_or_init(py, || cache_id.unbind());
        Ok(sample)
    }

    /// The payload, as the source packed it.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> drt.testing.tiny_dataset()[2].data
    ///     b'sample 2'
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }

    /// Column name to value: bool, int, float, str, or None where there is none. The dict is the caller's own.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> drt.testing.tiny_dataset()[2].metadata
    ///     {'label': 2, 'split': 'train'}
    #[getter]
    fn metadata(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        // Made anew or copied: what a caller changes in it is not changed in the sample.
        if let Some(metadata) = self.metadata_in_memory(py)? {
            return Ok(metadata.unbind());
        }
        Ok(self.metadata.get_or_try_init(py, || self.load_metadata(py))?.bind(py).copy()?.unbind())
    }

    /// The cache that the sample comes from: 16 hexadecimal digits.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> ds = drt.testing.tiny_dataset()
    ///     >>> ds[2].cache_id == ds.caches[0].cache_id
    ///     True
    #[getter]
    fn cache_id(&self, py: Python<'_>) -> PyResult<Py<PyString>> {
        Ok(self.cache_id.get_or_try_init(py, || self.load_cache_id(py))?.clone_ref(py))
    }

    /// The sample's number in its cache, from 0.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> backwards = drt.testing.tiny_dataset()[::-1]
    ///     >>> backwards[0].sample_id, backwards[9].sample_id
    ///     (9, 0)
    #[getter]
    fn sample_id(&self) -> u64 {
        self.sample_id
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.parts(py)?.try_iter()?.into_any())
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        match other.cast::<CachedSample>() {
            Ok(other) => {
                let equal = self.sample_id == other.get().sample_id
                    && self.parts(py)?.eq(other.get().parts(py)?)?;
                Ok(equal.into_pyobject(py)?.to_owned().into_any().unbind())
            }
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        Ok((py.get_type::<CachedSample>().into_any(), self.parts(py)?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let length = self.data.bind(py).as_bytes().len();
        let metadata = self.metadata(py)?;
        let (metadata, cache_id) = (metadata.bind(py).repr()?, self.cache_id(py)?);
        Ok(format!(
            "CachedSample(data=<{length} bytes>, metadata={metadata}, cache_id='{}', sample_id={})",
            cache_id.bind(py).to_string_lossy(),
            self.sample_id
        ))
    }
}
