//! What a batch is made of, apart from its bytes.

use std::sync::Arc;

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arrays::{self, int64};
use crate::input::index;

/// One entry a sample; positions may be missing.
pub(crate) struct Members {
    pub(crate) epoch: u64,
    pub(crate) rows: Vec<u64>,
    pub(crate) positions: Vec<u64>,
    pub(crate) padding: Vec<bool>,
    pub(crate) substituted: Vec<bool>,
}

/// Which samples a batch is made of: where they stand in the order, and which of them do not count.
///
/// Comes from :attr:`Loader.last` and :attr:`LoaderIterator.last`. All arrays have one entry a sample of the
/// batch, in the same order as the batch that a transform or collate made of them.
///
/// Example:
///     >>> import datasetrt as drt
///     >>> shard = drt.Shard(uneven="fill")
///     >>> loader = drt.testing.tiny_dataset().loader(
///     ...     batch_size=8, transform=lambda sample: sample.sample_id, shard=shard
///     ... )
///     >>> for numbers in loader:
///     ...     print(numbers, loader.last.padding.sum())
///     [0, 1, 2, 3, 4, 5, 6, 7] 0
///     [8, 9, 0, 1, 2, 3, 4, 5] 6
#[pyclass(frozen, module = "datasetrt")]
#[derive(Clone)]
pub(crate) struct BatchInfo {
    places: Arc<Members>,
    from: usize,
    to: usize,
}

impl BatchInfo {
    pub(crate) fn new(places: Arc<Members>) -> Self {
        let to = places.rows.len();
        BatchInfo { places, from: 0, to }
    }

    /// The same of the sample at a place.
    pub(crate) fn sample(&self, at: usize) -> Self {
        let at = (self.from + at).min(self.to);
        BatchInfo { places: Arc::clone(&self.places), from: at, to: (at + 1).min(self.to) }
    }

    fn part<'a, T>(&self, values: &'a [T]) -> &'a [T] {
        values.get(self.from..self.to).unwrap_or_default()
    }
}

#[pymethods]
impl BatchInfo {
    fn __len__(&self) -> usize {
        self.to - self.from
    }

    /// The same of one sample.
    ///
    /// Args:
    ///     at: Its place in the batch, negative from the end.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, shard=drt.Shard(uneven="fill"))
    ///     >>> batches = list(loader)
    ///     >>> loader.last.one(-1).indices.tolist()
    ///     [1]
    fn one(&self, at: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(self.sample(usize::try_from(index(at, (self.to - self.from) as u64)?)?))
    }

    /// The epoch.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, shard=drt.Shard(uneven="fill"))
    ///     >>> batches = list(loader)
    ///     >>> loader.last.epoch
    ///     0
    #[getter]
    fn epoch(&self) -> u64 {
        self.places.epoch
    }

    /// Rows of the dataset, int64, shape ``(n,)``; of a damaged sample, the row that stands in for it.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, shard=drt.Shard(uneven="fill"))
    ///     >>> batches = list(loader)
    ///     >>> loader.last.indices.tolist()
    ///     [8, 9, 0, 1]
    #[getter]
    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        int64(py, self.part(&self.places.rows))
    }

    /// Positions in the epoch's order, int64, shape ``(n,)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, shard=drt.Shard(uneven="fill"))
    ///     >>> batches = list(loader)
    ///     >>> loader.last.positions.tolist()
    ///     [8, 9, 0, 1]
    #[getter]
    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        int64(py, self.part(&self.places.positions))
    }

    /// Which samples only fill up the batch, and are there again elsewhere in the epoch; bool, shape ``(n,)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, shard=drt.Shard(uneven="fill"))
    ///     >>> batches = list(loader)
    ///     >>> loader.last.padding.tolist()
    ///     [False, False, True, True]
    #[getter]
    fn padding<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<bool>>> {
        arrays::of(py, self.part(&self.places.padding))
    }

    /// Which samples stand in for a damaged one (``on_corrupt="substitute"``); bool, shape ``(n,)``.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, shard=drt.Shard(uneven="fill"))
    ///     >>> batches = list(loader)
    ///     >>> bool(loader.last.substituted.any())
    ///     False
    #[getter]
    fn substituted<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<bool>>> {
        arrays::of(py, self.part(&self.places.substituted))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let message = "a BatchInfo does not pickle; send its arrays";
        let error = py.import("pickle")?.getattr("PicklingError")?.call1((message,))?;
        Err(PyErr::from_value(error))
    }

    fn __repr__(&self) -> String {
        let count = |flags: &[bool]| self.part(flags).iter().filter(|flag| **flag).count();
        format!(
            "BatchInfo({} samples of epoch {}, {} padding, {} substituted)",
            self.to - self.from,
            self.places.epoch,
            count(&self.places.padding),
            count(&self.places.substituted)
        )
    }
}
