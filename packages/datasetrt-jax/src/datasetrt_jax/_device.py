"""Batches as global arrays on devices, transferred while the step before is computed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import datasetrt as drt
from datasetrt.wording import a_type, note

from ._ahead import Ahead
from ._batches import BatchIterator
from ._errors import closed, invalid
from ._feed import check_count
from ._orbax import load_state, save_state
from ._placement import Placement, Sharding
from ._spec import Batch


class _Placed(NamedTuple):
    """A batch on its devices, and the state after it."""

    batch: dict[str, Any]
    state: drt.LoaderState
    epoch: int
    step: int


def device_batches(
    it: BatchIterator,
    sharding: Sharding | Mapping[str, Sharding],
    *,
    depth: int = 2,
    transform: Callable[[Batch], Batch] | None = None,
) -> DeviceIterator:
    """Put batches on devices as global arrays, a few ahead of the computation.

    Each array has ``global_batch`` rows and is laid out as the sharding says, over the devices of all
    processes. Its content does not depend on their number. A thread of its own reads, decodes and transfers.

    Whether the rows that this process reads are those that its devices hold is checked here, before the first
    step, for any mesh. Where model-parallel processes hold the same rows, give :func:`batches` a
    ``process_index`` and ``process_count`` that count groups of such processes.

    Args:
        it: What :func:`batches` gave; it belongs to the result from now on.
        sharding: A ``jax.sharding.Sharding`` for all columns, or a mapping of column to sharding.
        depth: Batches that are on the devices before they are asked for.
        transform: A function of the NumPy batch, called in the thread before the transfer; it keeps the
            number of rows, and gives arrays that nobody writes to afterwards.

    Raises:
        ShardingError: Batch, processes and devices do not go together; names the numbers.
        InvalidInputError: An argument breaks a rule.
        InstallationError: JAX is missing, broken or too old; has the line that installs it.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj, jax
        >>> ds = drt.testing.tiny_dataset()
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        >>> it = drtj.batches(ds, global_batch=4, columns=["label"], shuffle=False)
        >>> with drtj.device_batches(it, sharding) as arrays:
        ...     print(next(arrays)["label"])
        [0 1 2 3]
    """
    if not isinstance(it, BatchIterator):
        raise invalid(f"it = {it!r} is {a_type(it)}; give what datasetrt_jax.batches() returned")
    if transform is not None and not callable(transform):
        raise invalid(f"transform = {transform!r} cannot be called; give a function of a batch")
    return DeviceIterator(it, Placement(it, sharding), check_count("depth", depth), transform)


class DeviceIterator(Iterator[dict[str, Any]]):
    """Global arrays on devices, across epochs; made by :func:`device_batches`.

    The state is that of the batches that were taken, whatever is on the devices already. Dropping it ends its
    thread, as does :meth:`close`.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj, jax
        >>> sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, shuffle=False, num_epochs=2)
        >>> with drtj.device_batches(it, sharding) as arrays:
        ...     print([batch["data"].shape for batch in arrays])
        [(4, 8), (4, 8), (4, 8), (4, 8)]
    """

    def __init__(
        self,
        it: BatchIterator,
        placement: Placement,
        depth: int,
        transform: Callable[[Batch], Batch] | None,
    ) -> None:
        self._it = it
        self._state = it.get_state()
        self._epoch, self._step = it.epoch, it.step
        self._closed = False

        # The thread must not keep this object alive, whose end ends the thread.
        def produce() -> _Placed:
            batch = next(it)
            state, epoch, step = it.get_state(), it.epoch, it.step
            if transform is not None:
                batch = _transformed(transform, batch, epoch, step)
            return _Placed(placement(batch), state, epoch, step)

        self._ahead = Ahead(produce, depth)

    def __next__(self) -> dict[str, Any]:
        if self._closed:
            raise closed()
        placed = self._ahead.next()
        self._state, self._epoch, self._step = placed.state, placed.epoch, placed.step
        return placed.batch

    def __iter__(self) -> Self:
        return self

    @property
    def steps_per_epoch(self) -> int:
        """Batches of a whole epoch, the same on every process.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, jax
            >>> sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, shuffle=False, num_epochs=2)
            >>> with drtj.device_batches(it, sharding) as arrays:
            ...     print(arrays.steps_per_epoch)
            2
        """
        return self._it.steps_per_epoch

    @property
    def epoch(self) -> int:
        """Epoch of the batch that was handed out last.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, jax
            >>> sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, shuffle=False, num_epochs=2)
            >>> with drtj.device_batches(it, sharding) as arrays:
            ...     print([arrays.epoch for _ in arrays])
            [0, 0, 1, 1]
        """
        return self._epoch

    @property
    def step(self) -> int:
        """Step of that epoch, from 0, of the batch that was handed out last.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, jax
            >>> sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, shuffle=False, num_epochs=2)
            >>> with drtj.device_batches(it, sharding) as arrays:
            ...     print([arrays.step for _ in arrays])
            [0, 1, 0, 1]
        """
        return self._step

    def get_state(self) -> drt.LoaderState:
        """Where the run is: after the batch that was handed out last. See `BatchIterator.get_state`.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, jax
            >>> sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, shuffle=False, num_epochs=2)
            >>> with drtj.device_batches(it, sharding) as arrays:
            ...     batch = next(arrays)
            ...     print(arrays.get_state()["position"])
            4
        """
        return self._state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to the place that a state names; batches that are on the devices already are dropped.

        Args:
            state: As for `BatchIterator.set_state`.

        Raises:
            StateError: As for `BatchIterator.set_state`; nothing has changed then.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, jax
            >>> sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, shuffle=False, num_epochs=2)
            >>> with drtj.device_batches(it, sharding) as arrays:
            ...     arrays.set_state({**arrays.get_state(), "epoch": 1})
            ...     print([arrays.epoch for _ in arrays])
            [1, 1]
        """
        # Its thread uses the iterator.
        self._ahead.close()
        try:
            self._it.set_state(state)
        except drt.StateError:
            self._it.set_state(self._state)
            raise
        self._state = self._it.get_state()
        self._epoch, self._step = self._it.epoch, self._it.step

    async def save(self, directory: Any) -> Awaitable[None]:
        """Save the state with Orbax v1; see `BatchIterator.save`.

        Args:
            directory: The folder that Orbax gives.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, pathlib
            >>> import orbax.checkpoint.experimental.v1 as ocp
            >>> import jax
            >>> device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            >>> make = lambda: drtj.device_batches(
            ...     drtj.batches(drt.testing.tiny_dataset(), global_batch=4, seed=7), device
            ... )
            >>> it = make()
            >>> batch = next(it)
            >>> ocp.save_checkpointables(pathlib.Path("1").absolute(), {"data": it})
            >>> pathlib.Path("1/data/datasetrt.json").exists()
            True
        """
        return await save_state(self.get_state(), directory)

    async def load(self, directory: Any) -> Awaitable[None]:
        """Go to the place that Orbax v1 saved; see `BatchIterator.load`.

        Args:
            directory: The folder that Orbax gives.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, pathlib
            >>> import orbax.checkpoint.experimental.v1 as ocp
            >>> import jax
            >>> device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            >>> make = lambda: drtj.device_batches(
            ...     drtj.batches(drt.testing.tiny_dataset(), global_batch=4, seed=7), device
            ... )
            >>> it = make()
            >>> batch = next(it)
            >>> ocp.save_checkpointables(pathlib.Path("2").absolute(), {"data": it})
            >>> again = make()
            >>> found = ocp.load_checkpointables(pathlib.Path("2").absolute(), {"data": again})
            >>> again.get_state()["position"]
            4
        """
        return await load_state(self.set_state, directory)

    def close(self) -> None:
        """End the thread; ``next`` raises :class:`ClosedError` from then on. Harmless when repeated.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, jax
            >>> sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, shuffle=False, num_epochs=2)
            >>> arrays = drtj.device_batches(it, sharding)
            >>> arrays.close()
            >>> next(arrays)
            Traceback (most recent call last):
            datasetrt_jax._errors.ClosedError: the iterator is closed; make another one
        """
        self._closed = True
        self._ahead.close()
        self._it.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _transformed(transform: Callable[[Batch], Batch], batch: Batch, epoch: int, step: int) -> Batch:
    """Call a function of the batch; what it raises says which batch that was."""
    try:
        return transform(batch)
    except StopIteration as error:
        # To the loop around us it would say that the data is over.
        raise RuntimeError(
            f"StopIteration was raised while transforming the batch of step {step} of epoch {epoch}"
        ) from error
    except Exception as error:
        note(error, f"while transforming the batch of step {step} of epoch {epoch}")
        raise
