"""The dtypes that JAX keeps. Without x64 it halves 64-bit numbers silently: 2**40 + 5 becomes 5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ._arrays import aligned, cast
from ._errors import NarrowingError, invalid

DtypePolicy: TypeAlias = Literal["jax", "keep"]

_HALVED: Final = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
_LARGEST_BYTES: Final = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}


def check_numeric(name: str, array: npt.NDArray[Any]) -> None:
    """Refuse what no device can hold.

    Raises:
        InvalidInputError: Text, objects, times or extended precision; names the column.
    """
    # Those of ml_dtypes, such as bfloat16, are user-defined dtypes: 2.
    known = array.dtype.itemsize <= _LARGEST_BYTES.get(array.dtype.kind, 0) or array.dtype.isbuiltin == 2
    if not known:
        raise invalid(
            f"column {name!r} is {array.dtype}, which JAX does not take; let decode return numbers, "
            f"or give host_columns=[{name!r}] to keep it on the host"
        )


def narrowed(name: str, array: npt.NDArray[Any], sample: Callable[[int], str]) -> npt.NDArray[Any]:
    """The array in 32 bits, if it has 64 and its values fit.

    Args:
        name: Column, for the error.
        array: Any shape, one row a sample.
        sample: Names the sample of a row, for the error.

    Raises:
        NarrowingError: A value does not fit; names column, value and sample.
    """
    half = _HALVED.get(array.dtype.newbyteorder("=").name)
    if half is None:
        return aligned(array)
    target = np.dtype(half)
    # Floats that are too large become infinite, which is looked at below.
    with np.errstate(over="ignore"):
        result = cast(array, target)
    wrong = _misfits(array, result)
    if wrong is not None:
        row = int(wrong[0])
        value = array[row].ravel()[_misfits_flat(array[row], result[row])[0]]
        raise NarrowingError(
            f"column {name!r} has {value!s} in {sample(row)}, which does not fit into the {target} that JAX "
            "keeps of it; store a smaller number, or enable x64 in JAX and give dtype_policy='keep'"
        )
    return result


def _misfits(array: npt.NDArray[Any], result: npt.NDArray[Any]) -> npt.NDArray[np.intp] | None:
    """Rows in which a value changed beyond rounding; None if there are none."""
    if array.dtype.kind in "iu":
        if array.size == 0:
            return None
        limits = np.iinfo(result.dtype)
        # Two reductions, no temporary array, where all is well.
        if limits.min <= int(array.min()) and int(array.max()) <= limits.max:
            return None
    flat = _misfits_flat(array, result)
    if not len(flat):
        return None
    return np.unravel_index(flat, array.shape)[0]


def _misfits_flat(array: npt.NDArray[Any], result: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    changed = array != result if array.dtype.kind in "iu" else np.isinf(result) & ~np.isinf(array)
    return np.flatnonzero(changed)
