"""The errors of this package: datasetrt's, and four that only JAX makes necessary."""

from __future__ import annotations

from typing import ClassVar, SupportsIndex

import numpy as np

import datasetrt as drt
from datasetrt.wording import a_type, shown


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


class ClosedError(drt.DatasetRTError, ValueError):
    """An iterator was used after its :meth:`close`; a ValueError, as with a closed file.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4)
        >>> it.close()
        >>> next(it)
        Traceback (most recent call last):
        datasetrt_jax._errors.ClosedError: the iterator is closed; make another one
    """

    default_kind: ClassVar[str] = "closed"


def closed() -> ClosedError:
    """What a closed iterator raises."""
    return ClosedError("the iterator is closed; make another one")


def any_int(what: str, value: object) -> int:
    """``value`` as an int, of any size; True is none.

    Raises:
        InvalidInputError: It is no whole number.
    """
    number = None
    # Arrays have the method as well; those of one number are numbers to Python, and hardly meant here.
    if isinstance(value, SupportsIndex) and not isinstance(value, bool | np.bool_ | np.ndarray):
        number = value.__index__()
    if number is None:
        raise invalid(f"{what} = {shown(value)} is {a_type(value)}; give a whole number")
    return number


def whole(what: str, value: object, low: int, high: int = 2**63) -> int:
    """``value`` as an int of ``[low, high)``.

    Raises:
        InvalidInputError: It is no whole number, or outside.
    """
    number = any_int(what, value)
    if not low <= number < high:
        raise invalid(
            f"{what} = {shown(number)} is out of range; give a whole number from {low} to {high - 1}"
        )
    return number


def invalid(message: str) -> drt.InvalidInputError:
    """The refusal of an argument."""
    return drt.InvalidInputError(message, kind="invalid-argument")
