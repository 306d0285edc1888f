"""The errors of this package: datasetrt's, and three that only JAX makes necessary."""

from __future__ import annotations

from typing import ClassVar

import datasetrt as drt


class ShardingError(drt.InvalidInputError):
    """Batch, processes and devices do not go together; the numbers that clash are named.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> drtj.batches(drt.testing.tiny_dataset(), global_batch=5, process_index=0, process_count=2)
        Traceback (most recent call last):
        datasetrt_jax._errors.ShardingError: ...
    """

    default_kind: ClassVar[str] = "sharding"


class StaticShapeError(drt.DatasetRTError, ValueError):
    """An array of a sample has another shape or dtype than that of others, so that JAX would compile anew.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> it = drtj.batches(drt.testing.tiny_dataset(11), global_batch=11)
        >>> next(it)
        Traceback (most recent call last):
        datasetrt_jax._errors.StaticShapeError: ...
    """

    default_kind: ClassVar[str] = "static-shape"


class NarrowingError(drt.DatasetRTError, OverflowError):
    """A 64-bit number does not fit into the 32 bits that JAX would keep of it.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> big = lambda sample: {"id": 2**40 + sample.sample_id}
        >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, decode=big)
        >>> next(it)
        Traceback (most recent call last):
        datasetrt_jax._errors.NarrowingError: ...
    """

    default_kind: ClassVar[str] = "narrowing"


def invalid(message: str) -> drt.InvalidInputError:
    """The refusal of an argument."""
    return drt.InvalidInputError(message, kind="invalid-argument")
