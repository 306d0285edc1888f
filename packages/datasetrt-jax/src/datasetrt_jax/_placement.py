"""Which rows the devices of this process hold, and how batches get there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

import datasetrt as drt

from ._batches import BatchIterator
from ._dtypes import check_numeric, narrowed
from ._errors import ShardingError, invalid
from ._spec import Batch

if TYPE_CHECKING:
    import jax

Sharding: TypeAlias = "jax.sharding.Sharding"


class Placement:
    """Makes global arrays of the batches of one process; checked for all columns when it is made.

    Args:
        it: The batches.
        sharding: How arrays are laid out, for all columns or by column.
    """

    def __init__(self, it: BatchIterator, sharding: Sharding | Mapping[str, Sharding]) -> None:
        # Typed as what it is only for a checker that sees JAX.
        self._jax: Any = drt.installation.import_package(
            "jax", user="datasetrt_jax.device_batches", at_least="0.5"
        )
        self._sharding = sharding
        self._global_batch = it.global_batch
        self._share = it.share
        self._host = it.host_columns
        # The first of the rows of a global batch that this process reads, and the one after them.
        self._first = self._share[0] * it.local_batch
        self._end = self._first + it.local_batch
        self._checked: set[tuple[str, tuple[int, ...]]] = set()
        for name, spec in it.element_spec.items():
            self._check(name, (self._global_batch, *spec.shape[1:]))

    def __call__(self, batch: Batch) -> dict[str, Any]:
        """The batch on its devices; host columns as they are."""
        return {
            name: column if name in self._host else self._placed(name, np.asarray(column))
            for name, column in batch.items()
        }

    def _placed(self, name: str, column: npt.NDArray[Any]) -> Any:
        check_numeric(name, column)
        if column.ndim == 0 or len(column) != self._end - self._first:
            raise invalid(
                f"column {name!r} has the shape {column.shape}; let transform keep "
                f"{self._end - self._first} rows"
            )
        if not self._jax.config.jax_enable_x64:
            column = narrowed(name, column, lambda row: f"row {row} of the batch of this process")
        shape = (self._global_batch, *column.shape[1:])
        self._check(name, shape)
        array = self._jax.make_array_from_callback(shape, self._sharding_of(name), self._reader(column))
        if array.dtype != column.dtype:
            raise invalid(
                f"JAX made {array.dtype} of column {name!r}, which is {column.dtype}; cast it in decode"
            )
        return array

    def _reader(self, column: npt.NDArray[Any]) -> Callable[[Any], npt.NDArray[Any]]:
        def part(index: tuple[slice, ...]) -> npt.NDArray[Any]:
            start, stop, _ = _rows(index).indices(self._global_batch)
            return column[(slice(start - self._first, stop - self._first), *index[1:])]

        return part

    def _sharding_of(self, name: str) -> Sharding:
        sharding: Any = self._sharding
        if isinstance(sharding, Mapping):
            sharding = sharding.get(name)
        if not isinstance(sharding, self._jax.sharding.Sharding):
            raise invalid(
                f"the sharding of column {name!r} is {sharding!r}; give a jax.sharding.Sharding, such as "
                'NamedSharding(mesh, PartitionSpec("data"))'
            )
        return cast("Sharding", sharding)

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse a layout that these rows cannot fill.

        Raises:
            ShardingError: The shape cannot be cut that way, or this process reads other rows than it needs.
        """
        if (name, shape) in self._checked:
            return
        sharding = self._sharding_of(name)
        # JAX itself ends in an IndexError or an AssertionError.
        if isinstance(sharding, self._jax.sharding.NamedSharding) and len(sharding.spec) > len(shape):
            raise ShardingError(
                f"column {name!r} of global shape {shape} has fewer dimensions than {sharding.spec}; give a "
                "mapping of column to sharding"
            )
        try:
            parts = sharding.addressable_devices_indices_map(shape)
        except ValueError as error:
            raise ShardingError(
                f"column {name!r} of global shape {shape} cannot be laid out as {sharding}: "
                f"{_one_line(error)}; give a global_batch that the devices can share"
            ) from error
        for index in parts.values():
            start, stop, _ = _rows(index).indices(self._global_batch)
            if start < self._first or stop > self._end:
                raise ShardingError(
                    f"the devices of this process hold rows {start} to {stop - 1} of column {name!r}, but it "
                    f"reads rows {self._first} to {self._end - 1}, as process {self._share[0]} of "
                    f"{self._share[1]}; give batches() a process_index and process_count that match the mesh"
                )
        self._checked.add((name, shape))


def _rows(index: tuple[slice, ...] | None) -> slice:
    # A column has rows, and JAX gives a slice for each dimension then.
    return index[0] if index else slice(None)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
