//! The steps of one rank, as arrays.

use datasetrt_core::stream::plan::{Plan, Uneven};
use datasetrt_core::{Error, ErrorKind, memory};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arrays::int64;
use crate::error::{OrRaise as _, invalid, repr, to_py};
use crate::input::{count, flag, whole};

/// More positions at once are refused: their arrays would take gigabytes.
const MOST_POSITIONS: u64 = 1 << 28;

/// Positions and steps fit into what `len` can tell.
const MOST: u64 = i64::MAX.cast_unsigned();

/// How one rank takes its way through an epoch: the positions of each step, from a place on.
///
/// Made by :meth:`Loader.plan`, and what its loops go by. Reads nothing, pickles, costs as much as the steps
/// that are asked for.
///
/// Example:
///     >>> import datasetrt as drt
///     >>> shard = drt.Shard(rank=1, world_size=2, uneven="pad")
///     >>> plan = drt.testing.tiny_dataset().loader(batch_size=2, shard=shard).plan()
///     >>> len(plan), plan.positions(0).tolist(), plan.positions(2).tolist(), plan.position_after(2)
///     (3, [2, 3], [9], 8)
#[pyclass(frozen, module = "datasetrt._core")]
pub(crate) struct BatchPlan {
    pub(crate) plan: Plan,
    arguments: (u64, u64, u64, u64, u64, String, bool),
}

impl BatchPlan {
    fn each<T>(
        &self,
        py: Python<'_>,
        step: &Bound<'_, PyAny>,
        stop: Option<&Bound<'_, PyAny>>,
        add: impl Fn(&mut Vec<T>, Vec<u64>, usize),
    ) -> PyResult<Vec<T>> {
        let steps = self.plan.steps();
        let asked = (count("step", step)?, stop.map(|stop| count("stop", stop)).transpose()?);
        let (step, stop) = match asked {
            (Some(step), None) => (step, step.saturating_add(1)),
            (Some(step), Some(Some(stop))) => (step, stop),
            _ => (1, 0),
        };
        if step > stop || stop > steps {
            let message =
                format!("there are no such steps in a plan of {steps}; give 0 <= step < stop <= {steps}");
            return Err(to_py(py, &Error::new(ErrorKind::IndexOutOfRange, message)));
        }
        if (stop - step).saturating_mul(self.plan.batch()) > MOST_POSITIONS {
            return Err(invalid(py, format!("steps {step} to {stop} are too many at once; ask for fewer")));
        }
        let most =
            |steps: u64| usize::try_from(steps.saturating_mul(self.plan.batch()).min(self.plan.samples()));
        let mut found = memory::list("positions", most(stop - step)?).or_raise(py)?;
        // Those of one step come in a list of their own.
        memory::ask("positions", most(1)?.saturating_mul(size_of::<u64>())).or_raise(py)?;
        for step in step..stop {
            let step = self.plan.step(step);
            let padding = usize::try_from(step.padding)?;
            add(&mut found, step.positions, padding);
        }
        Ok(found)
    }
}

#[pymethods]
impl BatchPlan {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the fields, as a pickle gives them")]
    fn new(
        py: Python<'_>,
        length: &Bound<'_, PyAny>,
        start: &Bound<'_, PyAny>,
        batch_size: &Bound<'_, PyAny>,
        rank: &Bound<'_, PyAny>,
        world_size: &Bound<'_, PyAny>,
        uneven: &Bound<'_, PyAny>,
        drop_last: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let number = |what, given| whole(what, given, MOST);
        let (length, start) = (number("length", length)?, number("start", start)?);
        let (rank, world_size) = (number("rank", rank)?, number("world_size", world_size)?);
        let batch_size = number("batch_size", batch_size)?;
        let uneven = uneven.extract::<String>().map_err(|_| {
            let choices = "'pad', 'drop', 'keep' or 'fill'";
            invalid(py, format!("uneven = {} is not known; use {choices}", repr(uneven)))
        })?;
        let drop_last = flag("drop_last", drop_last)?;
        let mode = Uneven::parse(&uneven).or_raise(py)?;
        let plan = Plan::new(length, start, batch_size, (rank, world_size), mode, drop_last).or_raise(py)?;
        Ok(BatchPlan { plan, arguments: (length, start, batch_size, rank, world_size, uneven, drop_last) })
    }

    /// Steps that are left in the epoch.
    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.plan.steps())?)
    }

    /// Positions of an epoch.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> plan = drt.testing.tiny_dataset().loader(batch_size=4).plan()
    ///     >>> plan.length
    ///     10
    #[getter]
    fn length(&self) -> u64 {
        self.plan.length()
    }

    /// Samples of all steps together, padding included.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> plan = drt.testing.tiny_dataset().loader(batch_size=4).plan()
    ///     >>> plan.samples
    ///     10
    #[getter]
    fn samples(&self) -> u64 {
        self.plan.samples()
    }

    /// Positions of a step, or of all steps up to another one, laid one after another.
    ///
    /// Args:
    ///     step: In ``[0, len(plan))``.
    ///     stop: The step after the last one; None is ``step + 1``.
    ///
    /// Returns:
    ///     int64, shape ``(n,)``.
    ///
    /// Raises:
    ///     SampleIndexError: There are no such steps.
    ///     InvalidInputError: These are no whole numbers, or too many steps at once.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> plan = drt.testing.tiny_dataset().loader(batch_size=4).plan()
    ///     >>> plan.positions(2).tolist(), plan.positions(0, 2).tolist()
    ///     ([8, 9], [0, 1, 2, 3, 4, 5, 6, 7])
    #[pyo3(signature = (step, stop = None))]
    fn positions<'py>(
        &self,
        py: Python<'py>,
        step: &Bound<'py, PyAny>,
        stop: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let add = |all: &mut Vec<u64>, positions: Vec<u64>, _| all.extend(positions);
        int64(py, &self.each(py, step, stop, add)?)
    }

    /// Which of those positions are padding, as :attr:`SampleBatch.padding` tells.
    ///
    /// Args:
    ///     step: In ``[0, len(plan))``.
    ///     stop: The step after the last one; None is ``step + 1``.
    ///
    /// Returns:
    ///     bool, shape ``(n,)``.
    ///
    /// Raises:
    ///     SampleIndexError: There are no such steps.
    ///     InvalidInputError: These are no whole numbers, or too many steps at once.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> shard = drt.Shard(uneven="fill")
    ///     >>> plan = drt.testing.tiny_dataset().loader(batch_size=4, shard=shard).plan()
    ///     >>> plan.padding(2).tolist()
    ///     [False, False, True, True]
    #[pyo3(signature = (step, stop = None))]
    fn padding<'py>(
        &self,
        py: Python<'py>,
        step: &Bound<'py, PyAny>,
        stop: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let add = |all: &mut Vec<bool>, positions: Vec<u64>, padding: usize| {
            let real = positions.len().saturating_sub(padding);
            all.extend((0..positions.len()).map(|at| at >= real));
        };
        Ok(PyArray1::from_vec(py, self.each(py, step, stop, add)?))
    }

    /// The position that a state has once every rank was given so many steps.
    ///
    /// Args:
    ///     steps: At least 0.
    ///
    /// Returns:
    ///     A position of this epoch; :attr:`length` where no rank has anything left, and the state is the
    ///     start of the next epoch.
    ///
    /// Example:
    ///     >>> import datasetrt as drt
    ///     >>> plan = drt.testing.tiny_dataset().loader(batch_size=4).plan()
    ///     >>> plan.position_after(1), plan.position_after(3)
    ///     (4, 10)
    ///
    /// Raises:
    ///     InvalidInputError: ``steps`` is negative, beyond 64 bits, or no whole number.
    fn position_after(&self, steps: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.plan.position_after(whole("steps", steps, u64::MAX)?))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let arguments = slf.get().arguments.clone().into_pyobject(slf.py())?;
        (slf.get_type(), arguments).into_pyobject(slf.py())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().arguments == self.arguments)
    }

    fn __repr__(&self) -> String {
        let (length, start, batch_size, rank, world_size, ..) = &self.arguments;
        format!(
            "BatchPlan({} steps from position {start} of {length}, batch_size={batch_size}, rank {rank} of {world_size})",
            self.plan.steps()
        )
    }
}
