//! A sampler bound to a view.

use std::sync::{Mutex, PoisonError};

use datasetrt_core::exec::Watch;
use datasetrt_core::memory;
use datasetrt_core::sampler::{EpochOrder, Order as CoreOrder, Sampler};
use numpy::{PyArray1, PyArrayMethods as _};
use pyo3::prelude::*;

use crate::call::interrupted;
use crate::error::{OrRaise as _, invalid};
use crate::view::View;

/// A sampler bound to the rows and weights of a view: positions to rows, for every epoch.
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct Order {
    pub(crate) order: CoreOrder,
    /// The epoch asked for last: some samplers sort all rows to make one.
    last: Mutex<Option<(u64, EpochOrder)>>,
}

impl Order {
    fn epoch(&self, epoch: u64) -> datasetrt_core::Result<EpochOrder> {
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, order)) = last().as_ref().filter(|(known, _)| *known == epoch) {
            return Ok(order.clone());
        }
        let order = self.order.epoch(epoch)?;
        *last() = Some((epoch, order.clone()));
        Ok(order)
    }

    /// The rows at `length` positions, piece by piece, so that Ctrl-C does not wait for billions of them.
    fn fill(
        &self,
        epoch: u64,
        start: u64,
        length: usize,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> datasetrt_core::Result<Vec<i64>> {
        let mut watch = Watch::new(interrupted);
        let order = self.epoch(epoch)?;
        let mut rows = memory::list("row numbers", length)?;
        let mut piece = memory::list("row numbers", length.min(PIECE))?;
        piece.resize(length.min(PIECE), 0);
        while rows.len() < length {
            watch.check()?;
            piece.truncate(length - rows.len());
            order.fill(start + rows.len() as u64, &mut piece)?;
            rows.extend(piece.iter().map(|row| row.cast_signed()));
        }
        Ok(rows)
    }
}

fn bind(py: Python<'_>, view: &View, sampler: &Sampler) -> PyResult<Order> {
    let weights = view.dataset.selection().weights.clone();
    let rows = view.dataset.len();
    Ok(Order { order: py.detach(|| sampler.bind(rows, weights)).or_raise(py)?, last: Mutex::default() })
}

/// Positions that are computed between two looks at the clock.
const PIECE: usize = 1 << 16;

/// More positions at once fit into no memory.
const MOST_POSITIONS: u64 = 1 << 40;

#[pymethods]
impl Order {
    #[staticmethod]
    fn sequential(py: Python<'_>, view: &View) -> PyResult<Self> {
        bind(py, view, &Sampler::Sequential)
    }

    #[staticmethod]
    fn shuffle(py: Python<'_>, view: &View, seed: u64) -> PyResult<Self> {
        bind(py, view, &Sampler::Shuffle { seed })
    }

    #[staticmethod]
    fn block_shuffle(
        py: Python<'_>,
        view: &View,
        seed: u64,
        block_samples: u64,
        window_blocks: u64,
    ) -> PyResult<Self> {
        bind(py, view, &Sampler::BlockShuffle { seed, block_samples, window_blocks })
    }

    #[staticmethod]
    fn weighted(
        py: Python<'_>,
        view: &View,
        seed: u64,
        num_samples: Option<u64>,
        replacement: bool,
    ) -> PyResult<Self> {
        bind(py, view, &Sampler::Weighted { seed, num_samples, replacement })
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.order.len())?)
    }

    fn indices<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        start: u64,
        stop: u64,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let length = stop.checked_sub(start).filter(|_| stop <= self.order.len());
        let length = length.ok_or_else(|| {
            invalid(
                py,
                format!("positions {start} to {stop} are not within the {} of the epoch", self.order.len()),
            )
        })?;
        if length > MOST_POSITIONS {
            return Err(invalid(
                py,
                format!("{length} positions do not fit in memory; ask for fewer at once"),
            ));
        }
        let length = usize::try_from(length)?;
        let mut raised = None;
        let filled = py.detach(|| self.fill(epoch, start, length, &mut || interrupted(&mut raised)));
        raised.map_or(Ok(()), Err)?;
        Ok(PyArray1::from_vec(py, filled.or_raise(py)?))
    }

    fn position_of(&self, py: Python<'_>, row: u64, epoch: u64) -> PyResult<u64> {
        py.detach(|| self.epoch(epoch)?.position_of(row)).or_raise(py)
    }

    /// Rows at any positions, which are at least 0.
    fn indices_at<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        positions: &Bound<'py, PyArray1<i64>>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let positions = positions.readonly();
        let positions = positions.as_array().into_iter().map(|p| p.cast_unsigned());
        let positions = memory::collect("positions", positions).or_raise(py)?;
        let look_up = || {
            let mut rows = memory::list("row numbers", positions.len())?;
            rows.resize(positions.len(), 0u64);
            self.epoch(epoch)?.look_up(&positions, &mut rows)?;
            // In place: both have eight bytes.
            Ok(rows.into_iter().map(u64::cast_signed).collect::<Vec<i64>>())
        };
        Ok(PyArray1::from_vec(py, py.detach(look_up).or_raise(py)?))
    }

    /// Seeds for the transforms of positions, which are at least 0.
    fn transform_seeds<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        positions: &Bound<'py, PyArray1<i64>>,
    ) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let positions = positions.readonly();
        let seed = |position: &i64| self.order.transform_seed(epoch, position.cast_unsigned());
        let seeds = memory::collect("seeds", positions.as_array().into_iter().map(seed)).or_raise(py)?;
        Ok(PyArray1::from_vec(py, seeds))
    }
}
