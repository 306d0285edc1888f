"""NumPy columns as tensors: without a copy where that is safe, and never onto memory that is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import datasetrt as drt
from datasetrt.wording import a_type

Float64: TypeAlias = Literal["keep", "float32"]

#: What ``torch.from_numpy`` takes, by kind and item size.
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}

_CURES = {
    "O": "holds strings or other objects; encode them as numbers, or leave the column out",
    "S": "holds bytes; store them as uint8",
    "U": "holds text; encode it as numbers, or leave the column out",
    "M": "holds dates; store them as int64",
    "m": "holds durations; store them as int64",
    "V": "holds records; give each of their fields its own column",
}


def as_tensor(name: str, values: npt.NDArray[Any], fill: Mapping[str, Any] | None = None) -> Tensor:
    """A column as a tensor that its owner may write to.

    Shares the array's memory if that is writable and contiguous in the machine's byte order; else copies.

    Args:
        name: The column's name, for errors.
        values: Any shape; its first axis is the batch.
        fill: What stands for missing values, by column.

    Raises:
        InvalidInputError: No tensor can hold it: text, objects, dates, or missing values without ``fill``.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = _filled(name, values, fill or {})
    kind, size = values.dtype.kind, values.dtype.itemsize
    if size not in _SIZES.get(kind, ()):
        cure = _CURES.get(kind, f"has the dtype {values.dtype}, which PyTorch lacks; convert it")
        raise no_tensor(name, cure)
    if not (values.flags.writeable and values.flags.c_contiguous and values.dtype.isnative):
        values = np.array(values, dtype=values.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(values)


def as_tensors(columns: Mapping[str, Any], fill: Mapping[str, Any] | None = None) -> dict[str, Tensor]:
    """Named columns as tensors, no two of which share memory; and no two places of one do.

    Raises:
        InvalidInputError: A column cannot be a tensor; names it.
    """
    tensors: dict[str, Tensor] = {}
    seen: list[tuple[int, int]] = []
    for name, values in columns.items():
        tensor = values if isinstance(values, Tensor) else as_tensor(name, _array(name, values), fill)
        if tensor.layout == torch.strided and tensor.numel() > 0:
            start, end = _span(tensor)
            # A tensor that was expanded says many times what is there once.
            if end - start < tensor.nbytes or any(start < other[1] and other[0] < end for other in seen):
                tensor = tensor.clone(memory_format=torch.contiguous_format)
            seen.append(_span(tensor))
        tensors[name] = tensor
    return tensors


def _array(name: str, values: Any) -> npt.NDArray[Any]:
    try:
        return np.asanyarray(values)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise no_tensor(name, f"is {a_type(values)} that is no array ({reason})") from error


def _span(tensor: Tensor) -> tuple[int, int]:
    """The addresses between which its values lie."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((length - 1) * stride for length, stride in strides)
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.itemsize


def narrowed(tensor: Tensor) -> Tensor:
    """float64 as float32; anything else as it is."""
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def no_tensor(name: str, why: str) -> drt.InvalidInputError:
    """The refusal of a column; ``why`` says what it holds and what to do."""
    return drt.InvalidInputError(f"column {name!r} cannot be a tensor: it {why}", kind="invalid-argument")


def _filled(name: str, values: np.ma.MaskedArray[Any, Any], fill: Mapping[str, Any]) -> npt.NDArray[Any]:
    if name not in fill:
        raise no_tensor(name, f"has missing values; say what stands for them: fill={{{name!r}: …}}")
    filled = np.array(values.data)
    missing = np.ma.getmaskarray(values)
    # Not MaskedArray.filled, which takes 0.5 for an int column as 0.
    stand_in = np.asarray(fill[name])
    if stand_in.shape or not _fits(stand_in, filled.dtype):
        raise no_tensor(name, f"is {filled.dtype}, which {fill[name]!r} does not fit; choose another fill")
    filled[missing] = stand_in
    return filled


def _fits(value: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a single value is one of the dtype, to the precision of a float."""
    if not np.can_cast(np.min_scalar_type(value[()]), dtype, "same_kind"):
        return False
    with np.errstate(all="ignore"):
        cast = value.astype(dtype)
    # What is too large for an int64 would be negative, and beyond a float infinite.
    return (
        bool(cast == value)
        if dtype.kind in "iu"
        else not (dtype.kind == "f" and np.isinf(cast) and np.isfinite(value))
    )
