"""Arrays as JAX takes them without a copy: fresh, writable, contiguous, native and 64-byte aligned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An uninitialised array on a 64-byte boundary, which NumPy's own allocator does not promise."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array itself if JAX can take it without a copy, else a copy that it can."""
    native = array.dtype.newbyteorder("=")
    fits = array.ctypes.data % ALIGNMENT == 0 and array.flags.carray and array.dtype.isnative
    return array if fits else cast(array, native)


def cast(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An aligned copy with another dtype; whether the values fit has been checked."""
    result = aligned_empty(array.shape, dtype)
    np.copyto(result, array, casting="unsafe")
    return result
