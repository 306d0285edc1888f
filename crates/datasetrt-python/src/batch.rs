//! Samples that were read together.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_array::{ArrayRef, LargeBinaryArray, RecordBatch};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema};
use datasetrt_core::memory;
use datasetrt_core::metadata::TableSource as _;
use datasetrt_core::read::{Cache, Dataset};
use datasetrt_core::store::file::zeroed;
use datasetrt_core::stream::Batch;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMemoryView, PySlice, PyString, PyTuple};
use pyo3_arrow::PyRecordBatch;

use crate::arrays::{self, int64};
use crate::error::{OrRaise as _, invalid, reason, repr, shorten};
use crate::info::{BatchInfo, Members};
use crate::input;
use crate::metadata::{self, Lazy};
use crate::payloads::{Payloads, parts, python_bytes};
use crate::sample::{CachedSample, Row, listed};

/// Samples that were read together, in the order that was asked for.
///
/// All payloads lie in one buffer: fresh, writable, aligned to 64 bytes, not used for another
/// batch while anything refers to it. Payloads of one size lie back to back; otherwise each begins on a 64-byte boundary. Comes
/// from :meth:`CachedDataset.take` and from loaders. ``pyarrow.record_batch(batch)`` and
/// ``polars.DataFrame(batch)`` read it through the Arrow C interface: a column ``data`` of
/// ``large_binary`` and the metadata columns.
///
/// Example:
///     >>> import datasetrt as drt
///     >>> ds = drt.testing.tiny_dataset()
///     >>> batch = ds.take([2, 0])
///     >>> len(batch), batch.indices.tolist(), bytes(batch.payloads[0]) == ds[2].data
///     (2, [2, 0], True)
#[pyclass(frozen, module = "datasetrt")]
pub(crate) struct SampleBatch {
    places: Arc<Members>,
    metadata: Arc<Lazy>,
    payloads: Payloads,
}

impl SampleBatch {
    pub(crate) fn new(
        py: Python<'_>,
        dataset: &Arc<Dataset>,
        epoch: u64,
        batch: Batch,
        metadata_wanted: &Arc<AtomicBool>,
    ) -> PyResult<Self> {
        memory::ask("a batch's lists", batch.rows.len().saturating_mul(8)).or_raise(py)?;
        let metadata = Lazy::new(py, dataset, &batch.rows, batch.globals, batch.metadata, metadata_wanted);
        Ok(SampleBatch {
            metadata,
            places: Arc::new(Members {
                epoch,
                rows: batch.rows,
                positions: batch.positions,
                padding: batch.padding,
                substituted: batch.substituted,
            }),
            payloads: Payloads::new(py, batch.payloads)?,
        })
    }

    fn sample(&self, py: Python<'_>, at: usize) -> PyResult<CachedSample> {
        let length = self.payloads.lengths().get(at).copied().unwrap_or_default();
        let rows = self.payloads.rows(py)?;
        let data = python_bytes(py, length, |out| {
            rows.copy(at, out);
            Ok(())
        })?;
        CachedSample::new(py, &data, Row::Batch { batch: Arc::clone(&self.metadata), row: at })
    }

    fn data_column(&self, py: Python<'_>) -> PyResult<LargeBinaryArray> {
        let (rows, lengths) = (self.payloads.rows(py)?, self.payloads.lengths());
        memory::ask("an array", lengths.len().saturating_mul(9)).or_raise(py)?;
        let offsets = OffsetBuffer::<i64>::from_lengths(lengths.iter().copied());
        let values = if self.payloads.one_length().is_ok() {
            rows.buffer.get().to_arrow()
        } else {
            // Arrow's values follow each other without gaps, so aligned payloads have to be moved together.
            let total: usize = lengths.iter().sum();
            let mut dense = zeroed(total as u64, Path::new("the batch's payloads")).or_raise(py)?;
            let mut rest = dense.as_mut_slice();
            for (at, length) in lengths.iter().enumerate() {
                let Some((out, others)) = rest.split_at_mut_checked(*length) else { break };
                rows.copy(at, out);
                rest = others;
            }
            arrow_buffer::Buffer::from_vec(dense)
        };
        LargeBinaryArray::try_new(offsets, values, None).map_err(|e| invalid(py, e.to_string()))
    }

    fn record_batch(&self, py: Python<'_>) -> PyResult<RecordBatch> {
        let stored = self.metadata.get(py)?;
        if stored.schema_ref().index_of("data").is_ok() {
            let message =
                "a metadata column is named 'data', as the payloads are in Arrow; use payloads and metadata";
            return Err(invalid(py, message));
        }
        let data: ArrayRef = Arc::new(self.data_column(py)?);
        let mut fields = vec![Arc::new(Field::new("data", DataType::LargeBinary, false))];
        fields.extend(stored.schema_ref().fields().iter().cloned());
        let mut columns = vec![data];
        columns.extend(stored.columns().iter().cloned());
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| invalid(py, e.to_string()))
    }
}

#[pymethods]
impl SampleBatch {
    fn __len__(&self) -> usize {
        self.places.rows.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(slice) = index.cast::<PySlice>() {
            let places = input::places(slice, self.places.rows.len())?;
            let lengths =
                places.clone().map(|at| self.payloads.lengths().get(at).copied().unwrap_or_default());
            return Ok(listed(py, lengths, places.map(|at| self.sample(py, at)))?.into_any());
        }
        let row = input::index(index, self.places.rows.len() as u64)?;
        Ok(Bound::new(py, self.sample(py, usize::try_from(row)?)?)?.into_any())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let samples = (0..self.places.rows.len()).map(|at| self.sample(py, at));
        Ok(listed(py, self.payloads.lengths().iter().copied(), samples)?.try_iter()?.into_any())
    }

    /// A writable memoryview of each payload; together they share the batch's buffer.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> batch = drt.testing.tiny_dataset().take([5, 3])
    ///     >>> batch.payloads[0][:6] = b"SAMPLE"
    ///     >>> bytes(batch.payloads[0]), bytes(batch.payloads[1])
    ///     (b'SAMPLE 5', b'sample 3')
    #[getter]
    fn payloads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = self.payloads.rows(py)?;
        let view = rows.view(py)?;
        let lengths = self.payloads.lengths().iter().copied();
        parts(&view, rows.starts.iter().copied().zip(lengths))
    }

    /// Column name to NumPy array of shape ``(len(batch),)``: bool, int64, float64, or objects (str or
    /// None). A column of bools or numbers with missing values anywhere in the dataset is a masked array.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> batch = drt.testing.tiny_dataset().take([5, 3])
    ///     >>> batch.metadata["label"], batch.metadata["split"]
    ///     (array([5, 3]), array(['val', 'train'], dtype=object))
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        metadata::columns(py, self.metadata.get(py)?, &self.metadata.dataset().nullable())
    }

    /// Rows of the dataset, int64, shape ``(len(batch),)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
    ///     >>> [batch.indices.tolist() for batch in loader]
    ///     [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    #[getter]
    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        int64(py, &self.places.rows)
    }

    /// Positions in the epoch's order, int64; of length 0 for samples that were taken by row.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> ds, order = drt.testing.tiny_dataset(), drt.Shuffle(seed=7)
    ///     >>> batch = next(iter(ds.loader(batch_size=4, sampler=order)))
    ///     >>> batch.positions.tolist()
    ///     [0, 1, 2, 3]
    ///     >>> batch.indices.tolist() == order.indices(ds)[batch.positions].tolist()
    ///     True
    #[getter]
    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        int64(py, &self.places.positions)
    }

    /// The epoch; 0 for samples that were taken by row.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> loader = drt.testing.tiny_dataset().loader(batch_size=5)
    ///     >>> [batch.epoch for _ in range(2) for batch in loader]
    ///     [0, 0, 1, 1]
    #[getter]
    fn epoch(&self) -> u64 {
        self.places.epoch
    }

    /// Which samples only fill up the batch so that all ranks get equally many; bool, shape ``(len(batch),)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> last = drt.Shard(rank=2, world_size=3, uneven="pad")
    ///     >>> batch = next(iter(drt.testing.tiny_dataset().loader(batch_size=4, shard=last)))
    ///     >>> batch.indices.tolist(), batch.padding.tolist()
    ///     ([8, 9, 0, 1], [False, False, True, True])
    #[getter]
    fn padding<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<bool>>> {
        arrays::of(py, &self.places.padding)
    }

    /// Which samples stand in for a damaged one (``on_corrupt="substitute"``); bool, shape ``(len(batch),)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> drt.testing.tiny_dataset().take([0, 1]).substituted.tolist()
    ///     [False, False]
    #[getter]
    fn substituted<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<bool>>> {
        arrays::of(py, &self.places.substituted)
    }

    /// The same without the bytes, which are not kept in memory for it.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> drt.testing.tiny_dataset().take([5, 2]).info.indices.tolist()
    ///     [5, 2]
    #[getter]
    fn info(&self) -> BatchInfo {
        BatchInfo::new(Arc::clone(&self.places))
    }

    /// The memory of all payloads, writable, in bytes.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> batch = drt.testing.tiny_dataset().take([5, 3])
    ///     >>> bytes(batch.buffer)
    ///     b'sample 5sample 3'
    #[getter]
    fn buffer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        self.payloads.rows(py)?.view(py)
    }

    /// Where each payload begins in ``buffer``, in bytes, int64, shape ``(len(batch),)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> batch = drt.testing.tiny_dataset().take([5, 3])
    ///     >>> batch.offsets.tolist()
    ///     [0, 8]
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        int64(py, &self.payloads.rows(py)?.starts)
    }

    /// The length of each payload in bytes, int64, shape ``(len(batch),)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> batch = drt.testing.tiny_dataset().take([5, 3])
    ///     >>> batch.lengths.tolist()
    ///     [8, 8]
    #[getter]
    fn lengths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        int64(py, self.payloads.lengths())
    }

    /// The number of each sample in its cache, int64, shape ``(len(batch),)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> second_half = drt.testing.tiny_dataset()[5:]
    ///     >>> batch = second_half.take([0, 1])
    ///     >>> batch.indices.tolist(), batch.sample_ids.tolist()
    ///     ([0, 1], [5, 6])
    #[getter]
    fn sample_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let dataset = self.metadata.dataset();
        let ids = || {
            let mut ids = memory::list("sample ids", self.metadata.globals.len())?;
            for global in &self.metadata.globals {
                ids.push(dataset.locate(*global)?.1);
            }
            Ok(ids)
        };
        int64(py, &ids().or_raise(py)?)
    }

    /// The cache that each sample comes from: one str of 16 hexadecimal digits a sample.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> ds = drt.testing.tiny_dataset()
    ///     >>> ds.take([5, 3]).cache_ids == [ds.caches[0].cache_id] * 2
    ///     True
    #[getter]
    fn cache_ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let dataset = self.metadata.dataset();
        // Neighbours mostly are of one cache: one string for all of them.
        let mut last: Option<(&Cache, Bound<'py, PyString>)> = None;
        let list = PyList::empty(py);
        for global in &self.metadata.globals {
            let (cache, _) = dataset.locate(*global).or_raise(py)?;
            let id = match &last {
                Some((known, id)) if std::ptr::eq(*known, cache) => id.clone(),
                _ => PyString::intern(py, cache.cache_id()),
            };
            list.append(&id)?;
            last = Some((cache, id));
        }
        Ok(list)
    }

    /// View all payloads as one array of shape ``(len(batch), *shape)``, without a copy.
    ///
    /// Args:
    ///     dtype: Any NumPy data type without Python objects; the payloads' bytes are taken as they are.
    ///     shape: The shape of one payload; ``()``, the default, for scalars.
    ///
    /// Returns:
    ///     A writable array on the batch's own buffer.
    ///
    /// Raises:
    ///     InvalidInputError: The payloads differ in size, or do not have the size of that type and shape.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> batch = drt.testing.tiny_dataset().take([0, 1])
    ///     >>> batch.as_array("uint8", (2, 4)).shape
    ///     (2, 2, 4)
    #[pyo3(signature = (dtype, shape = None))]
    fn as_array<'py>(
        &self,
        py: Python<'py>,
        dtype: Bound<'py, PyAny>,
        shape: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let refused = |what: String| invalid(py, format!("as_array: {what}"));
        let numpy = py.import("numpy")?;
        let dtype = numpy.call_method1("dtype", (dtype,)).map_err(|e| {
            refused(format!("there is no such dtype ({}); give one such as 'float32'", reason(py, &e)))
        })?;
        if dtype.getattr("hasobject")?.extract()? {
            return Err(refused(
                "bytes cannot become Python objects; choose a plain dtype, or decode with a codec".into(),
            ));
        }
        let given = || shape.as_ref().map_or_else(|| "()".to_owned(), repr);
        let sides: Vec<usize> = match &shape {
            None => Vec::new(),
            Some(shape) => shape.extract().map_err(|_| {
                refused(format!("shape {} is no tuple of sizes; give one such as (28, 28)", given()))
            })?,
        };
        let length = self.payloads.one_length().map_err(|(a, b)| {
            refused(format!(
                "payloads have different sizes, such as {a} and {b} bytes; use payloads or a codec"
            ))
        })?;
        let item: usize = dtype.getattr("itemsize")?.extract()?;
        let wanted = sides.iter().try_fold(item, |size, side| size.checked_mul(*side));
        if wanted != Some(length) && !self.places.rows.is_empty() {
            let needed = wanted.map_or_else(|| "too many".to_owned(), |n| n.to_string());
            return Err(refused(format!(
                "payloads have {length} bytes, dtype {} of shape {} needs {needed}; give those that were packed",
                shorten(&dtype.str()?),
                given()
            )));
        }
        let full: Vec<usize> = std::iter::once(self.places.rows.len()).chain(sides).collect();
        let made = if length == 0 || self.places.rows.is_empty() {
            numpy.call_method1("zeros", (full, dtype))
        } else {
            let flat = numpy.call_method1("frombuffer", (self.payloads.rows(py)?.view(py)?, dtype));
            flat.and_then(|flat| flat.call_method1("reshape", (full,)))
        };
        made.map_err(|e| {
            refused(format!("NumPy refuses it ({}); choose another dtype or shape", reason(py, &e)))
        })
    }

    /// Cut payloads of one size into columns: for each width that part of every payload, one after the other.
    ///
    /// A loader whose transform has ``column_widths`` reads batches in those columns; asking for the same ones then
    /// copies nothing, and the views are the batch's own memory. Otherwise they are a copy, made without the GIL.
    ///
    /// Args:
    ///     widths: Bytes of each part of a payload, in order, at least 1 each and at most 256 of them; their sum
    ///         is the size of the payloads.
    ///
    /// Returns:
    ///     A writable memoryview for each width, of ``len(batch) * width`` bytes, each aligned to 64 bytes.
    ///
    /// Raises:
    ///     InvalidInputError: The payloads do not have the size that the widths make together.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> batch = drt.testing.tiny_dataset().take([0, 1])
    ///     >>> [part.nbytes for part in batch.split([2, 6])]
    ///     [4, 12]
    ///     >>> bytes(batch.split([2, 6])[0][2:]) == bytes(batch.payloads[1][:2])
    ///     True
    fn split<'py>(&self, py: Python<'py>, widths: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let sizes: Vec<usize> = widths.extract().map_err(|_| {
            invalid(py, format!("split: widths = {}; give a list of sizes in bytes", repr(widths)))
        })?;
        self.payloads.split(py, &sizes)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = Bound::new(py, PyRecordBatch::new(self.record_batch(py)?))?;
        batch.call_method1("__arrow_c_array__", (requested_schema,))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let message = "a SampleBatch does not pickle; send its arrays, or the dataset and the indices";
        let error = py.import("pickle")?.getattr("PicklingError")?.call1((message,))?;
        Err(PyErr::from_value(error))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let names: Vec<_> =
            self.metadata.get(py)?.schema_ref().fields().iter().map(|f| f.name().clone()).collect();
        let bytes: usize = self.payloads.lengths().iter().sum();
        Ok(format!(
            "SampleBatch({} samples, {bytes} bytes, metadata: {})",
            self.places.rows.len(),
            names.join(", ")
        ))
    }
}

/// A dict with one entry a name, for plain results.
pub(crate) fn record<'py>(
    py: Python<'py>,
    entries: impl IntoIterator<Item = (&'static str, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in entries {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}
