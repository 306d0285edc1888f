"""What a column of a batch is, and values as its arrays: one dtype, one shape, or an error that names it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import datasetrt as drt
from datasetrt.wording import a_type

Array: TypeAlias = npt.NDArray[Any]

#: Kinds of dtypes that are numbers to TensorFlow: bool, signed, unsigned, float, complex.
_NUMBERS = "biufc"
#: TensorFlow takes an array that begins on such a boundary as a tensor without a copy.
_ALIGNMENT = 64


class Ragged(NamedTuple):
    """Rows of different lengths: all their values, and where each row begins, int64[n + 1]."""

    values: Array
    row_splits: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """A column of all batches.

    ``dtype`` is ``object`` for text, which becomes bytes. ``shape`` is that of one sample; None is a length
    that differs between batches, and the first length of a ragged column, which differs between samples.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    ragged: bool = False

    @property
    def is_text(self) -> bool:
        """Whether the values are bytes; str is encoded as UTF-8."""
        return self.dtype == object

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a sample may have this shape."""
        pairs = zip(shape, self.shape, strict=False)
        return len(shape) == len(self.shape) and all(want in (None, length) for length, want in pairs)

    def bad(self, problem: str, sample_id: int | None = None) -> drt.CodecError:
        """The error that names the column, and the sample where it is known."""
        where = "" if sample_id is None else f" of sample {sample_id}"
        return drt.CodecError(f"column {self.name!r}{where}: {problem}", kind="layout", sample_id=sample_id)


def column_of(name: str, value: object, sample_id: int, *, ragged: bool = False) -> Column:
    """The column that one sample's value belongs to.

    Raises:
        CodecError: The value is no number, text or array of those; names column and sample.
    """
    array = _array(Column(name, np.dtype(object), ()), value, sample_id)
    text = array.dtype.kind in "SUO"
    shape: tuple[int | None, ...] = array.shape
    column = Column(name, np.dtype(object) if text else array.dtype.newbyteorder("="), shape)
    if text:
        _encoded(column, value, sample_id)  # refuses what only looks like text
    if not ragged:
        return column
    if not shape:
        raise column.bad("ragged, but the value is a single one; leave it out of ragged=", sample_id)
    return Column(name, column.dtype, (None, *shape[1:]), ragged=True)


def stacked(column: Column, values: Sequence[object], sample_ids: Sequence[int]) -> Array | Ragged:
    """One array of shape ``(n, *shape)`` from the values of ``n`` samples; or their ragged rows.

    Raises:
        CodecError: A value has another shape or dtype; names column and sample.
    """
    rows = [_row(column, value, sample) for value, sample in zip(values, sample_ids, strict=True)]
    if column.ragged:
        splits = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=splits[1:])
        return Ragged(np.concatenate(rows), splits)
    if column.is_text:
        out = np.empty((len(rows), *rows[0].shape), object)
    else:
        out = aligned_empty((len(rows), *rows[0].shape), column.dtype)
    for index, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise column.bad(
                f"shape {row.shape}, but sample {sample_ids[0]} of the same batch has {rows[0].shape}; "
                f"pad it in decode, or give ragged=[{column.name!r}]",
                sample_ids[index],
            )
        out[index] = row if row.shape else row.item()  # a 0-d array of text would be kept as an array
    return out


def whole_batch(column: Column, value: object, rows: int) -> Array:
    """A decoded batch's array of shape ``(rows, *shape)``, in the column's dtype.

    Raises:
        CodecError: It has another number of rows, shape or dtype; names the column.
    """
    if column.ragged:
        raise column.bad("ragged, but decode gives one array for the whole batch; leave it out of ragged=")
    array = _array(column, value)
    if not array.shape or len(array) != rows:
        raise column.bad(f"decode gives shape {array.shape} for a batch of {rows} samples; give {rows} rows")
    if not column.fits(array.shape[1:]):
        raise column.bad(f"rows of shape {array.shape[1:]}, but {_shown(column.shape)} is expected")
    if column.is_text:
        return _encoded(column, value, None)
    return np.ascontiguousarray(_cast(column, array, None))


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A fresh, uninitialised array whose first byte lies on a 64-byte boundary."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT
    return raw[begin : begin + nbytes].view(dtype).reshape(shape)


def _row(column: Column, value: object, sample_id: int) -> Array:
    array = _array(column, value, sample_id)
    if not column.fits(array.shape):
        cure = "" if column.ragged else f"; pad it in decode, or give ragged=[{column.name!r}]"
        raise column.bad(f"shape {array.shape}, but {_shown(column.shape)} is expected{cure}", sample_id)
    if column.is_text:
        return _encoded(column, value, sample_id)
    return _cast(column, array, sample_id)


def _array(column: Column, value: object, sample_id: int | None = None) -> Array:
    """The value as NumPy sees it; text has the dtype of text, whose trailing NULs are not looked at."""
    if value is None:
        raise column.bad(
            "None, where a tensor is wanted; give a value, fill= for metadata, or leave the column out",
            sample_id,
        )
    if isinstance(value, np.ma.MaskedArray):
        raise column.bad("a masked array, where a tensor is wanted; give value.filled(...)", sample_id)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise column.bad(f"{a_type(value)} that is no array ({reason})", sample_id) from error
    if array.dtype.kind not in _NUMBERS + "SUO":
        raise column.bad(f"dtype {array.dtype}, which no tensor has; convert it to numbers", sample_id)
    if array.dtype.kind == "O" and not all(isinstance(item, str | bytes) for item in array.flat):
        odd = next(item for item in array.flat if not isinstance(item, str | bytes))
        raise column.bad(
            f"an object of type {type(odd).__name__}, where a tensor is wanted; "
            "return numbers or text from decode, or leave the column out with columns=",
            sample_id,
        )
    return array


def _encoded(column: Column, value: object, sample_id: int | None) -> Array:
    """Text as an array of bytes objects, which keep their trailing NULs as NumPy's own text does not."""
    texts = np.array(value, dtype=object)
    encoded = np.empty(texts.shape, object)
    for index, text in np.ndenumerate(texts):
        if not isinstance(text, str | bytes):
            raise column.bad(f"{a_type(text)} where text is expected", sample_id)
        try:
            encoded[index] = text.encode() if isinstance(text, str) else text
        except UnicodeEncodeError as error:
            raise column.bad(f"text that is no UTF-8 ({error.reason}); give bytes", sample_id) from error
    return encoded


def _cast(column: Column, array: Array, sample_id: int | None) -> Array:
    """The array in the column's dtype, if no value is lost beyond the precision of a float."""
    wanted = column.dtype
    if array.dtype == wanted:
        return array
    if array.size == 0:  # an empty list is float64 to NumPy
        return array.astype(wanted)
    # Python's ints are int64, whatever unsigned column they are meant for: their values decide.
    integers = array.dtype.kind in "iu" and wanted.kind in "iu"
    if not integers and not np.can_cast(array.dtype, wanted, "same_kind"):
        raise column.bad(f"dtype {array.dtype}, where {wanted} is wanted; convert it in decode", sample_id)
    with np.errstate(all="ignore"):  # Told by the values below, and in every mode of warnings.
        cast = array.astype(wanted)
    endless = np.isinf(cast) if wanted.kind in "fc" else np.zeros(0, bool)
    beyond = endless.any() and np.isfinite(array[endless]).any()
    if beyond or (wanted.kind in "iu" and not np.array_equal(cast, array)):
        raise column.bad(f"values of dtype {array.dtype} that {wanted} does not hold", sample_id)
    return cast


def _shown(shape: tuple[int | None, ...]) -> str:
    lengths = ["any" if length is None else str(length) for length in shape]
    return f"({lengths[0]},)" if len(lengths) == 1 else f"({', '.join(lengths)})"
