"""Arrays from bytes that anybody may have written: checked before numpy trusts them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from datasetrt.errors import CodecError
from datasetrt.wording import a_type

# numpy counts bytes in signed 64-bit integers; products are checked against half of that.
_MAX_BYTES = 2**62
MAX_DIMS = 32 if int(np.__version__.split(".")[0]) < 2 else 64
_MAX_CODE_POINT = 0x10FFFF
_ALIGNMENT = 64

# For bytes that no codec of ours packs.
CURE = "verify the cache, and decode with the codec that packed it"


def show(value: object) -> str:
    """A foreign value in a few words; a large one is not written out, which could take forever."""
    if isinstance(value, str):
        return repr(value[:80])
    if value is None or isinstance(value, int | float | np.dtype):
        return str(value)[:80]
    return f"{a_type(value)}"


def refused(message: str, cure: str = CURE) -> CodecError:
    """A payload that cannot be what its codec packed."""
    return CodecError(f"{message}; {cure}", kind="decode")


def check_shape(shape: object, dtype: np.dtype[Any], nbytes: int) -> tuple[int, ...]:
    """The shape, known to describe exactly ``nbytes`` bytes of ``dtype``."""
    if type(shape) is not tuple or len(shape) > MAX_DIMS or not all(_is_length(n) for n in shape):
        raise refused(f"the payload has an array whose shape is not at most {MAX_DIMS} integers from 0")
    expected = math.prod(shape) * dtype.itemsize
    if expected != nbytes:
        raise refused(
            f"the payload has {_named(shape, dtype)}, which takes {expected} bytes; {nbytes} are there"
        )
    # Zero lengths count as one: numpy multiplies the others all the same.
    most = expected or math.prod(n or 1 for n in shape) * dtype.itemsize
    if not 0 < most <= _MAX_BYTES:
        raise refused(f"the payload has {_named(shape, dtype)}, which numpy cannot hold")
    return shape


def _is_length(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_BYTES


def _named(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"an array of shape {shape} and dtype {show(dtype)}"


def check_values(array: npt.NDArray[Any]) -> None:
    """Refuse bytes that are no value of their dtype.

    numpy takes them as they are, and later answers are then undefined: a bool that is neither 0 nor 1, a
    character beyond Unicode.
    """
    dtype = array.dtype
    if dtype.fields is not None:
        for name in dtype.fields:
            check_values(array[name])
    elif dtype.kind == "b":
        if array.size and array.view(np.uint8).max() > 1:
            raise refused("a bool array holds bytes other than 0 and 1")
    elif dtype.kind == "U" and array.size:
        points = np.ascontiguousarray(array).view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if points.max() > _MAX_CODE_POINT:
            raise refused("a str array holds a number that is no Unicode character")


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A fresh, uninitialised, C-contiguous array whose first byte lies on a 64-byte boundary."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)
