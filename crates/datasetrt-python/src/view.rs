//! The active table, as the Python package uses it.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use datasetrt_core::format::checksum::hex;
use datasetrt_core::metadata::{self, Export, TableSource as _};
use datasetrt_core::read::{Dataset, ReadOptions};
use datasetrt_core::stream::Batch;
use datasetrt_core::{Error, ErrorKind, memory};
use numpy::{PyArray1, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use pyo3_arrow::PyRecordBatchReader;

use crate::batch::{SampleBatch, record};
use crate::call::interrupted;
use crate::error::{OrRaise as _, invalid, to_py};
use crate::input;
use crate::payloads::{copied, python_bytes};
use crate::sample::{CachedSample, Row};
use crate::verify::watched;

/// An immutable active table over one or more caches.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct View {
    pub(crate) dataset: Arc<Dataset>,
    /// The stored columns' names as Python has them, once a row was made.
    pub(crate) names: PyOnceLock<Vec<Py<PyString>>>,
    /// Whether somebody asked a sample for its metadata.
    pub(crate) metadata_wanted: AtomicBool,
}

impl View {
    fn new(dataset: Dataset) -> Self {
        View { dataset: Arc::new(dataset), names: PyOnceLock::new(), metadata_wanted: AtomicBool::new(false) }
    }
}

/// Tables of metadata that would not stay in memory by themselves, and why their stream ended early, if it did.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct Kept {
    _tables: Vec<Arc<metadata::Table>>,
    failure: Arc<OnceLock<Error>>,
}

#[pymethods]
impl Kept {
    /// Raises what ended the stream early: who reads it tells that in words of its own.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.failure.get().map_or(Ok(()), |error| Err(to_py(py, error)))
    }
}

/// What is smaller is copied once more rather than letting go of the interpreter twice.
const WORTH_ITS_PLACE: usize = 32 << 10;

thread_local! {
    /// Where small payloads are read to before Python has them. Taken out while it is used: making an exception runs
    /// code of Python, which may read a sample in its turn.
    static SMALL: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl View {
    /// The payload of a global row. A large one is read to where Python has it.
    fn payload<'py>(&self, py: Python<'py>, global: u64) -> PyResult<Bound<'py, PyBytes>> {
        let mut memory = SMALL.take();
        let payload = self.payload_by(py, global, &mut memory);
        // What was compressed is there whole, however long it is.
        if memory.len() <= 2 * WORTH_ITS_PLACE {
            SMALL.set(memory);
        }
        payload
    }

    fn payload_by<'py>(
        &self,
        py: Python<'py>,
        global: u64,
        memory: &mut Vec<u8>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // With the interpreter held: to let it go and have it again takes as long, or 5 ms where another thread is busy.
        if let Some(payload) = self.dataset.read_nowait(global, WORTH_ITS_PLACE, memory).or_raise(py)? {
            return copied(py, payload);
        }
        let found = py.detach(|| -> datasetrt_core::Result<_> {
            let wanted = self.dataset.find(global)?;
            match wanted.known_length()? {
                Some(length) if length > WORTH_ITS_PLACE => Ok(Err((wanted, length))),
                _ => wanted.read(memory).map(Ok),
            }
        });
        match found.or_raise(py)? {
            Ok(payload) => copied(py, payload),
            Err((wanted, length)) => {
                python_bytes(py, length, |payload| py.detach(|| wanted.read_into(payload)).or_raise(py))
            }
        }
    }
}

#[pymethods]
impl View {
    #[staticmethod]
    #[pyo3(signature = (paths, *, max_open_shards))]
    fn open(py: Python<'_>, paths: Vec<PathBuf>, max_open_shards: usize) -> PyResult<Self> {
        let open = || Dataset::open(&paths, ReadOptions { max_open_shards });
        Ok(View::new(py.detach(open).or_raise(py)?))
    }

    #[staticmethod]
    fn from_recipe(py: Python<'_>, blob: &[u8]) -> PyResult<Self> {
        Ok(View::new(py.detach(|| Dataset::from_recipe(blob)).or_raise(py)?))
    }

    fn recipe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let recipe = py.detach(|| self.dataset.recipe()).or_raise(py)?;
        copied(py, &recipe)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.dataset.len())?)
    }

    fn sample(slf: &Bound<'_, Self>, index: &Bound<'_, PyAny>) -> PyResult<CachedSample> {
        let (py, view) = (slf.py(), slf.get());
        let row = input::index(index, view.dataset.len())?;
        let global = view.dataset.global(row).or_raise(py)?;
        if view.metadata_wanted.load(Relaxed) {
            // While the payload is read.
            view.dataset.prefetch_metadata(global);
        }
        let data = view.payload(py, global)?;
        CachedSample::new(py, &data, Row::Dataset { view: slf.clone().unbind(), row, global })
    }

    fn take(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<SampleBatch> {
        let rows = input::rows(indices, self.dataset.len())?;
        let mut raised = None;
        let batch = py.detach(|| Batch::of_rows(&self.dataset, rows, &mut || interrupted(&mut raised)));
        raised.map_or(Ok(()), Err)?;
        SampleBatch::new(py, &self.dataset, 0, batch.or_raise(py)?, &Arc::default())
    }

    /// `start`, `stop` and `step` as `slice.indices` gives them.
    fn slice(&self, py: Python<'_>, start: i64, stop: i64, step: i64) -> PyResult<Self> {
        let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        let step_size = i64::try_from(step.unsigned_abs()).ok().filter(|size| *size > 0);
        let step_size = step_size
            .ok_or_else(|| invalid(py, format!("slice step {step} is not possible; use another step")))?;
        // Rounded up; an empty or backward span has no rows.
        let count = if span <= 0 { 0 } else { (span - 1) / step_size + 1 };
        let slice = || self.dataset.slice(start.unsigned_abs(), step, count.unsigned_abs());
        Ok(View::new(py.detach(slice).or_raise(py)?))
    }

    fn select(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Self> {
        let rows = input::rows(rows, self.dataset.len())?;
        Ok(View::new(py.detach(|| self.dataset.select(&rows)).or_raise(py)?))
    }

    /// The view of an edited table.
    fn with_table(&self, py: Python<'_>, stream: PyRecordBatchReader) -> PyResult<Self> {
        let (schema, batches) = batches_of(stream)?;
        Ok(View::new(py.detach(|| self.dataset.with_table(&schema, batches)).or_raise(py)?))
    }

    /// The columns of the table that follow from which sample a row is.
    #[getter]
    fn implied_columns(&self) -> Vec<&str> {
        self.dataset.implied_columns().collect()
    }

    /// The view of the table without its implied columns, from which rows were left out and nothing changed.
    fn with_rows(&self, py: Python<'_>, stream: PyRecordBatchReader) -> PyResult<Self> {
        let (schema, batches) = batches_of(stream)?;
        Ok(View::new(py.detach(|| self.dataset.with_rows(&schema, batches)).or_raise(py)?))
    }

    fn with_weights(&self, py: Python<'_>, weights: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = weights.cast::<PyArray1<f64>>();
        let array = array.map_err(|_| invalid(py, "weights must be a one-dimensional float64 array"))?;
        let array = array.readonly();
        let weights = memory::collect("weights", array.as_array().into_iter().copied()).or_raise(py)?;
        Ok(View::new(py.detach(|| self.dataset.with_weights(weights)).or_raise(py)?))
    }

    /// The table as a stream, and what keeps its memory: while somebody has both, metadata is read from there.
    fn table(&self, py: Python<'_>) -> PyResult<(PyRecordBatchReader, Kept)> {
        // Loaded here, where a damaged file is our error and not that of whoever reads the stream.
        let load = || -> datasetrt_core::Result<Vec<_>> {
            self.dataset.caches().iter().map(|cache| cache.table()).collect()
        };
        let failure = Arc::new(OnceLock::new());
        let kept = Kept { _tables: py.detach(load).or_raise(py)?, failure: Arc::clone(&failure) };
        let table = Table { export: self.dataset.export().or_raise(py)?, failure };
        Ok((PyRecordBatchReader::new(Box::new(table)), kept))
    }

    #[pyo3(signature = (on_progress = None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        on_progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let total = self.dataset.caches().iter().map(|c| c.manifest().stored_bytes()).sum();
        let dataset = &self.dataset;
        watched(py, on_progress, total, |watch| {
            let mut problems = Vec::new();
            for cache in dataset.caches() {
                problems.extend(cache.verify(watch)?);
            }
            Ok(problems)
        })
    }

    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        Ok(hex(&py.detach(|| self.dataset.fingerprint()).or_raise(py)?))
    }

    /// The codecs of the caches that rows come from, each once; None among them where a cache names none.
    #[getter]
    fn codecs(&self, py: Python<'_>) -> Vec<Option<String>> {
        let mut found: Vec<Option<String>> = Vec::new();
        for cache in py.detach(|| self.dataset.caches_of_rows()) {
            if !found.contains(&cache.manifest().codec) {
                found.push(cache.manifest().codec.clone());
            }
        }
        found
    }

    #[getter]
    fn caches<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.dataset
            .caches()
            .iter()
            .map(|cache| {
                let manifest = cache.manifest();
                record(
                    py,
                    [
                        ("path", cache.folder().as_os_str().into_pyobject(py)?.into_any()),
                        ("name", manifest.name.as_str().into_pyobject(py)?.into_any()),
                        ("cache_id", cache.cache_id().into_pyobject(py)?.into_any()),
                        ("sample_count", manifest.sample_count.into_pyobject(py)?.into_any()),
                        ("payload_bytes", manifest.payload_bytes.into_pyobject(py)?.into_any()),
                        ("stored_bytes", manifest.stored_bytes().into_pyobject(py)?.into_any()),
                        ("fingerprint", manifest.fingerprint.as_ref().into_pyobject(py)?.into_any()),
                        ("codec", manifest.codec.as_ref().into_pyobject(py)?.into_any()),
                        ("compression", manifest.compression.method().into_pyobject(py)?.into_any()),
                    ],
                )
            })
            .collect()
    }

    #[getter]
    fn schema(&self) -> Vec<(String, &'static str)> {
        self.dataset.set().columns().iter().map(|c| (c.name.clone(), c.ty.name())).collect()
    }
}

/// The batches of a table that comes from Python, and their schema.
fn batches_of(
    stream: PyRecordBatchReader,
) -> PyResult<(SchemaRef, impl Iterator<Item = datasetrt_core::Result<RecordBatch>> + Send)> {
    let reader = stream.into_reader()?;
    let schema = reader.schema();
    let failed = |e: ArrowError| {
        // Of what Python raised, Arrow tells the whole traceback: the exception comes last.
        let words = e.to_string();
        let words = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let message = format!("the table cannot be read: {}; give a Polars DataFrame", words.trim());
        Error::new(ErrorKind::InvalidTable, message)
    };
    Ok((schema, reader.map(move |batch| batch.map_err(failed))))
}

/// The export of the active table as an Arrow reader.
struct Table {
    export: Export,
    failure: Arc<OnceLock<Error>>,
}

impl Iterator for Table {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let failed = |e: Error| {
            let words = ArrowError::ExternalError(Box::new(e.clone()));
            // The first one: nothing comes after it.
            _ = self.failure.set(e);
            words
        };
        Some(self.export.next()?.map_err(failed))
    }
}

impl RecordBatchReader for Table {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.export.schema())
    }
}

/// The identity of a sample that was replaced.
pub(crate) fn place(py: Python<'_>, dataset: &Dataset, global: u64) -> PyResult<(String, u64)> {
    let (cache, sample) = dataset.locate(global).map_err(|e| to_py(py, &e))?;
    Ok((cache.cache_id().to_owned(), sample))
}
