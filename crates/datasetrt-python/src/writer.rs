//! Writing a cache from Python's samples.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use datasetrt_core::format::compression::Compression;
use datasetrt_core::metadata::ColumnType;
use datasetrt_core::store::local::Local;
use datasetrt_core::write::{Resumed, WriteOptions, Writer as CoreWriter};
use datasetrt_core::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::record;
use crate::call::{interrupted, next};
use crate::error::{OrRaise as _, invalid, to_py};
use crate::input::{self, Input};

/// How often a progress callable is told, at most.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// A source written in C never runs Python's own check for signals.
const SIGNALS_EVERY: u64 = 256;

/// Refuses a name, fingerprint or codec that a writer would refuse, before anything is looked for under that name.
#[pyfunction]
#[pyo3(signature = (name, *, fingerprint, codec))]
pub(crate) fn check_source(
    py: Python<'_>,
    name: &str,
    fingerprint: Option<&str>,
    codec: Option<&str>,
) -> PyResult<()> {
    WriteOptions::check_texts(name, fingerprint, codec).or_raise(py)
}

/// Writes one cache; publishes at the end or not at all.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct Writer {
    /// Taken out while it is used, so that no lock is held across a call into Python.
    inner: Mutex<Option<CoreWriter>>,
    options: WriteOptions,
    resumed: Resumed,
    /// As it was at the beginning: the engine's writer is away while it works, and a fork may come then.
    lock_descriptor: Option<i32>,
    samples: AtomicU64,
    payload_bytes: AtomicU64,
}

impl Writer {
    fn take(&self, py: Python<'_>) -> PyResult<CoreWriter> {
        let writer = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let message = "the writer has ended, or is in use; start a new one";
        writer.ok_or_else(|| to_py(py, &Error::new(ErrorKind::Closed, message)))
    }

    fn put_back(&self, writer: CoreWriter) {
        self.samples.store(writer.samples(), Ordering::Relaxed);
        self.payload_bytes.store(writer.payload_bytes(), Ordering::Relaxed);
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }

    fn push_one(
        writer: &mut CoreWriter,
        py: Python<'_>,
        given: &Bound<'_, PyAny>,
        item: u64,
    ) -> PyResult<()> {
        let sample = writer.samples();
        let taken = Input::new(sample, given)
            .and_then(|input| input.with(sample, |payload, row| writer.push(payload, row, item)));
        let full = taken.map_err(|error| input::while_reading(py, sample, error))?.or_raise(py)?;
        if full { Self::flush(writer, py) } else { Ok(()) }
    }

    /// Waits without the GIL where the pipeline is full; signals are handled meanwhile.
    fn flush(writer: &mut CoreWriter, py: Python<'_>) -> PyResult<()> {
        let mut raised = None;
        let flushed = py.detach(|| writer.flush_unless(&mut || interrupted(&mut raised)));
        raised.map_or(Ok(()), Err)?;
        flushed.or_raise(py)
    }

    fn pull_all(
        writer: &mut CoreWriter,
        samples: &Bound<'_, PyAny>,
        on_progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = samples.py();
        let mut told = Instant::now();
        let samples = samples.try_iter()?;
        while let Some(given) = next(&samples)? {
            let item = writer.samples();
            Self::push_one(writer, py, &given, item)?;
            if writer.samples().is_multiple_of(SIGNALS_EVERY) {
                py.check_signals()?;
            }
            if let Some(call) = on_progress.filter(|_| told.elapsed() >= PROGRESS_EVERY) {
                crate::call::call(call, (writer.samples(), writer.payload_bytes()))?;
                told = Instant::now();
            }
        }
        Ok(())
    }
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (root, name, *, fingerprint, codec, schema, compression, compression_level, max_shard_bytes, threads, queue_bytes, by_item, replace))]
    #[expect(clippy::too_many_arguments, reason = "the writer's options, by keyword")]
    fn new(
        py: Python<'_>,
        root: PathBuf,
        name: String,
        fingerprint: Option<String>,
        codec: Option<String>,
        schema: Option<Vec<(String, String)>>,
        compression: &str,
        compression_level: Option<i64>,
        max_shard_bytes: u64,
        threads: Option<usize>,
        queue_bytes: u64,
        by_item: bool,
        replace: bool,
    ) -> PyResult<Self> {
        let column = |(name, ty): (String, String)| {
            let found = ColumnType::parse(&ty);
            found.map(|ty| (name, ty)).ok_or_else(|| {
                invalid(py, format!("column type '{ty}' is unknown; choose bool, int64, float64 or string"))
            })
        };
        let schema = schema
            .map(|columns| columns.into_iter().map(column).collect::<PyResult<Vec<_>>>())
            .transpose()?;
        let compression = Compression::parse(compression, compression_level).or_raise(py)?;
        let options = WriteOptions {
            root,
            name,
            fingerprint,
            codec,
            schema,
            compression,
            max_shard_bytes,
            threads,
            queue_bytes,
            by_item,
            replace,
        };
        let mut raised = None;
        let mut begin =
            || CoreWriter::begin_unless(options.clone(), Arc::new(Local), &mut || interrupted(&mut raised));
        let begun = py.detach(&mut begin);
        raised.map_or(Ok(()), Err)?;
        let writer = begun.or_raise(py)?;
        Ok(Writer {
            resumed: writer.resumed(),
            lock_descriptor: writer.lock_descriptor(),
            samples: AtomicU64::new(writer.samples()),
            payload_bytes: AtomicU64::new(writer.payload_bytes()),
            inner: Mutex::new(Some(writer)),
            options,
        })
    }

    #[getter]
    fn lock_descriptor(&self) -> Option<i32> {
        self.lock_descriptor
    }

    #[getter]
    fn resume_samples(&self) -> u64 {
        self.resumed.samples
    }

    #[getter]
    fn resume_item(&self) -> u64 {
        self.resumed.cursor.item
    }

    #[getter]
    fn resume_item_samples(&self) -> u64 {
        self.resumed.cursor.samples
    }

    #[getter]
    fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    #[getter]
    fn payload_bytes(&self) -> u64 {
        self.payload_bytes.load(Ordering::Relaxed)
    }

    /// Pull an iterator to its end on this thread; each sample is an item of its own.
    #[pyo3(signature = (samples, on_progress = None))]
    fn write_all(
        &self,
        py: Python<'_>,
        samples: Bound<'_, PyAny>,
        on_progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let mut writer = self.take(py)?;
        let pulled = Self::pull_all(&mut writer, &samples, on_progress.as_ref());
        self.put_back(writer);
        pulled
    }

    fn push(&self, py: Python<'_>, sample: Bound<'_, PyAny>, item: u64) -> PyResult<()> {
        let mut writer = self.take(py)?;
        let pushed = Self::push_one(&mut writer, py, &sample, item);
        self.put_back(writer);
        pushed
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let writer = self.take(py)?;
        let mut raised = None;
        let published = py.detach(|| writer.finish_unless(&mut || interrupted(&mut raised)));
        raised.map_or(Ok(()), Err)?;
        let published = published.or_raise(py)?;
        let options = &self.options;
        let path = options.root.join(&options.name).into_os_string();
        let resumed_at = (self.resumed.samples > 0).then_some(self.resumed.samples);
        record(
            py,
            [
                ("path", path.into_pyobject(py)?.into_any()),
                ("name", options.name.as_str().into_pyobject(py)?.into_any()),
                ("sample_count", published.sample_count.into_pyobject(py)?.into_any()),
                ("payload_bytes", published.payload_bytes.into_pyobject(py)?.into_any()),
                ("stored_bytes", published.stored_bytes.into_pyobject(py)?.into_any()),
                ("fingerprint", options.fingerprint.as_ref().into_pyobject(py)?.into_any()),
                ("resumed_at", resumed_at.into_pyobject(py)?.into_any()),
            ],
        )
    }

    fn abort(&self, py: Python<'_>) {
        let writer = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| writer.map(CoreWriter::abort));
    }
}
