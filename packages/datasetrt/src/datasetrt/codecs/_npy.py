"""Npy: one array a payload, in numpy's own file format."""

from __future__ import annotations

import ast
import io
import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.lib.format
import numpy.typing as npt

from datasetrt.errors import CodecError
from datasetrt.wording import a_type, reason, shorten

from ._arrays import CURE, MAX_DIMS, aligned_empty, check_shape, check_values, refused, show
from ._base import PayloadBatch, byte_view, decode_error, encode_error

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAGIC = b"\x93NUMPY"
# Version: bytes of the header's length, encoding of the header.
_VERSIONS = {(1, 0): (2, "latin1"), (2, 0): (4, "latin1"), (3, 0): (4, "utf-8")}
# Python's parser recurses: numpy refuses longer headers too.
_MAX_HEADER_BYTES = 10_000
_KINDS = "biufcmMSUV"
_DESCR = re.compile(r"[<>|=]?(?:[biufcSUV][0-9]{1,10}|[mM]8(?:\[[0-9]{0,10}[a-zA-Z]{1,7}\])?)")
_MAX_DTYPE_DEPTH = 16


@dataclass(frozen=True)
class Npy:
    """One numpy array, as a ``.npy`` file.

    Unpacking copies nothing: the array is a view of the payload, as writable as its buffer is, and its items
    begin on a 64-byte boundary from the payload's first byte. Shape, dtype (but for its ``metadata``), byte
    order and Fortran order come back. Objects, array subclasses (which would lose what they add) and dtypes
    of other packages are refused.

    Example:
        >>> import datasetrt as drt, numpy as np
        >>> codec = drt.codecs.Npy()
        >>> codec.loads(codec.dumps(np.arange(6, dtype=np.int16).reshape(2, 3)))
        array([[0, 1, 2],
               [3, 4, 5]], dtype=int16)
    """

    name: ClassVar[str] = "npy"

    def dumps(self, obj: npt.NDArray[Any] | np.generic, /) -> bytes:
        """Pack one array, or a NumPy scalar as an array of no dimensions.

        Args:
            obj: The array, of any shape, of numbers, text, bytes, dates or records.

        Raises:
            CodecError: Not an array, or one whose dtype the format cannot state, or which :meth:`loads` would
                refuse (kind ``encode``).

        Example:
            >>> import datasetrt as drt, numpy as np
            >>> drt.codecs.Npy().dumps(np.zeros(2, np.float32))[:6]
            b'\\x93NUMPY'
        """
        array = np.asarray(obj) if isinstance(obj, np.generic) else obj
        if type(array) not in (np.ndarray, np.memmap):
            raise _refused_object(f"{a_type(obj)} is not a plain numpy array; give np.asarray(…) of it")
        dtype = array.dtype
        if dtype.kind not in _KINDS or dtype.itemsize == 0 or _states_other(dtype):
            raise _refused_object(
                f"dtype {show(dtype)} cannot be stated in the format; view it as plain numbers"
            )
        file = io.BytesIO()
        try:
            numpy.lib.format.write_array(file, array, allow_pickle=False)
            payload = file.getvalue()
        except (ValueError, UnicodeError) as error:
            raise encode_error(self.name, obj, error) from error
        try:
            # A view may have bools and characters that are none; a dtype, more fields than headers may name.
            self.loads(payload)
        except CodecError as error:
            what = str(error).removeprefix("npy: ").removesuffix(f"; {CURE}")
            raise _refused_object(
                f"{a_type(obj)} of {show(dtype)} would not be read again ({what}); change one of them"
            ) from error
        return payload

    def loads(self, buffer: Buffer, /) -> npt.NDArray[Any]:
        """Unpack one array, as a view of the payload.

        Args:
            buffer: The payload: bytes, a memoryview or another C-contiguous buffer.

        Raises:
            CodecError: Not a ``.npy`` file of exactly this length, or one of objects (kind ``decode``).

        Example:
            >>> import datasetrt as drt, numpy as np
            >>> codec = drt.codecs.Npy()
            >>> array = codec.loads(codec.dumps(np.arange(3)))
            >>> array, array.flags.writeable
            (array([0, 1, 2]), False)
        """
        data = byte_view(buffer, self.name)
        start = _header_end(data)
        shape, fortran_order, dtype = _parse(bytes(data[:start]))
        check_shape(shape, dtype, len(data) - start)
        array = np.ndarray(shape, dtype, data, start, order="F" if fortran_order else "C")
        check_values(array)
        return array

    def loads_batch(self, batch: PayloadBatch, /) -> npt.NDArray[Any]:
        """Unpack every payload of a batch into one array of shape ``(n, *shape)``.

        The array is fresh, writable, C-contiguous and 64-byte aligned, whatever the memory order of each.
        Where all have the same header, the number of numpy calls does not depend on ``n``.

        Args:
            batch: A `SampleBatch`, or what has its ``payloads``, ``lengths`` and ``as_array``.

        Raises:
            CodecError: The arrays differ in shape or dtype (kind ``layout``), or one is damaged (``decode``).

        Example:
            >>> import datasetrt as drt, numpy as np
            >>> codec = drt.codecs.Npy()
            >>> pack = lambda i: drt.CacheInput(codec.dumps(np.full(2, i)), {})
            >>> source = drt.MapSource("arrays", range(3), pack, codec=codec)
            >>> codec.loads_batch(drt.cache(source, "root").take([2, 0]))
            array([[2, 2],
                   [0, 0]])
        """
        lengths = np.asarray(batch.lengths)
        if len(lengths) == 0:
            raise CodecError("npy: an empty batch has no shape", kind="layout")
        if lengths.min() != lengths.max():
            raise _differ(f"payloads have {lengths.min()} to {lengths.max()} bytes")
        first = self.loads(batch.payloads[0])
        if first.ndim >= MAX_DIMS:
            raise _differ(f"they have {first.ndim} dimensions, and a batch has one more than NumPy")
        start = int(lengths[0]) - first.nbytes
        rows = batch.as_array(np.uint8, (int(lengths[0]),))
        # Another header may still be that of such an array, in Fortran order.
        others = np.flatnonzero((rows[:, :start] != rows[0, :start]).any(axis=1)).tolist()
        arrays = [self.loads(batch.payloads[number]) for number in others]
        for number, array in zip(others, arrays, strict=True):
            if (array.shape, array.dtype) != (first.shape, first.dtype):
                raise _differ(f"payload {number} has {_alike(array)}, payload 0 has {_alike(first)}")
        try:
            out = aligned_empty((len(rows), *first.shape), first.dtype)
        except ValueError as error:  # Without items, but of lengths that NumPy cannot multiply by one more.
            raise _differ(reason(error)) from error
        out[...] = np.ndarray(out.shape, first.dtype, rows, start, strides=(rows.strides[0], *first.strides))
        for number, array in zip(others, arrays, strict=True):
            out[number] = array
        check_values(out)
        return out


def _refused_object(what: str) -> CodecError:
    return CodecError(f"npy: {what}", kind="encode")


def _alike(array: npt.NDArray[Any]) -> str:
    """What the arrays of a batch have in common."""
    return f"shape {shorten(str(array.shape), 80)} and dtype {show(array.dtype)}"


def _differ(what: str) -> CodecError:
    return CodecError(
        f"npy: the arrays of this batch cannot be stacked: {what}; unpack each with loads", kind="layout"
    )


def _states_other(dtype: np.dtype[Any]) -> bool:
    """Whether the header would name another dtype: those of other packages come back as raw bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(numpy.lib.format.descr_to_dtype(numpy.lib.format.dtype_to_descr(dtype)) != dtype)
        except (TypeError, ValueError):
            return True


def _header_end(data: memoryview) -> int:
    if data[:6] != _MAGIC or len(data) < 12:
        raise refused("npy: the payload does not begin as a .npy file does")
    version = (data[6], data[7])
    if version not in _VERSIONS:
        raise refused(
            f"npy: the payload has version {version[0]}.{version[1]} of the format, which is not 1.0 to 3.0"
        )
    length_bytes = _VERSIONS[version][0]
    length = int.from_bytes(data[8 : 8 + length_bytes], "little")
    end = 8 + length_bytes + length
    if length > _MAX_HEADER_BYTES or end > len(data):
        raise refused(
            f"npy: the payload of {len(data)} bytes states a header of {length} (at most {_MAX_HEADER_BYTES})"
        )
    return end


# Datasets have few distinct headers, and parsing one costs more than all the rest.
@lru_cache(maxsize=1024)
def _parse(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order and dtype that a whole header states."""
    length_bytes, encoding = _VERSIONS[header[6], header[7]]
    try:
        stated = ast.literal_eval(header[8 + length_bytes :].decode(encoding))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise decode_error("npy", error) from error
    if type(stated) is not dict or set(stated) != {"descr", "fortran_order", "shape"}:
        raise refused("npy: the header is not descr, fortran_order and shape")
    if type(stated["fortran_order"]) is not bool:
        raise refused("npy: fortran_order is neither True nor False")
    return stated["shape"], stated["fortran_order"], _dtype(stated["descr"])


def _dtype(descr: Any) -> np.dtype[Any]:
    if not _is_descr(descr):
        raise refused("npy: the header states a dtype that is not one of plain values")
    try:
        dtype = numpy.lib.format.descr_to_dtype(descr)
    except (TypeError, ValueError) as error:
        raise decode_error("npy", error) from error
    return dtype


def _is_descr(descr: object, depth: int = 0) -> bool:
    """Whether a header's dtype is a plain one, or a list of fields of such."""
    if type(descr) is str:
        return _DESCR.fullmatch(descr) is not None
    if depth and type(descr) is tuple and len(descr) == 2:
        return _is_descr(descr[0], depth + 1) and _is_shape(descr[1])
    if type(descr) is not list or depth > _MAX_DTYPE_DEPTH:
        return False
    return all(
        type(field) is tuple
        and len(field) in (2, 3)
        and (type(field[0]) is str or (type(field[0]) is tuple and [type(t) for t in field[0]] == [str, str]))
        and _is_descr(field[1], depth + 1)
        and all(_is_shape(shape) for shape in field[2:])
        for field in descr
    )


def _is_shape(shape: object) -> bool:
    return type(shape) is tuple and all(type(length) is int and length >= 0 for length in shape)
