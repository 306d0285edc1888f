"""Rebuilding numpy's values from a pickle without letting the pickle talk to numpy.

numpy's own functions for this believe what they are told: a dtype whose state puts a field outside its item
reads foreign memory and ends the process. Here every dtype is made by numpy's checking constructor, and every
array's length is compared with its bytes first. Results equal those of `pickle.loads`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from datasetrt.wording import a_type

from ._arrays import check_shape, check_values, refused, show
from ._globals import INTEGERS
from ._nesting import Nesting

_PLAIN = re.compile(r"b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[mM]8|O[48]|[SUV][0-9]{1,10}")
_NUMBERS = re.compile(r"[<>|](?:b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32))")
_UNITS = frozenset(["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"])
_MAX_ITEM_BYTES = 2**31 - 1
_ALIGNED_STRUCT = 0x80
# Small values are shared by honest picklers too: one-byte strings are single objects.
_FREE_ITEMS = 2**16


class UnfinishedDtype:
    """A dtype whose state has not come yet; a whole pickle leaves none behind."""

    __slots__ = ("memo_key", "spec")

    def __init__(self, spec: str | type) -> None:
        self.spec = spec
        self.memo_key: int | None = None


class NumpyBuilder:
    """The numpy values of one pickle.

    Args:
        nesting: Where the pickle's other values are counted.
        total_bytes: Of the pickle and its buffers. Every item of every array that a pickler writes is there,
            so that arrays of more items than this name the same bytes again and again, to fill the memory.
    """

    def __init__(self, nesting: Nesting, total_bytes: int) -> None:
        self._nesting = nesting
        self._items_left = total_bytes + _FREE_ITEMS
        self._empty: dict[int, npt.NDArray[Any]] = {}
        self.unfinished_dtypes = 0

    def _spend(self, items: int) -> None:
        self._items_left -= items
        if self._items_left < 0:
            raise refused(
                "the pickle has arrays that share their bytes, of more items together than it has bytes"
            )

    # What the pickle calls. Arguments are the pickle's: anything at all.

    def dtype(self, spec: object, *_align_and_copy: object) -> UnfinishedDtype:
        """``numpy.dtype``: the bare type; byte order and fields follow as state."""
        # A class can only come from the allow-list: the scalar type of a dtype from another package.
        if not isinstance(spec, type) and (type(spec) is not str or _PLAIN.fullmatch(spec) is None):
            raise refused(f"the pickle has a dtype {show(spec)} that numpy never writes")
        self.unfinished_dtypes += 1
        return UnfinishedDtype(spec)

    def reconstruct(self, subtype: object, *_shape_and_typecode: object) -> npt.NDArray[Any]:
        """``_reconstruct``: an array that is filled by its state."""
        if subtype is not np.ndarray:
            raise refused(
                "the pickle has a subclass of ndarray", "read it with trust=True, if you wrote it yourself"
            )
        array = np.empty(0, np.int8)
        self._empty[id(array)] = array
        return array

    def frombuffer(
        self, buffer: object, dtype: object, shape: object, order: object, axis_order: object = None
    ) -> npt.NDArray[Any]:
        """``_frombuffer``: a view of bytes in the pickle or beside it."""
        if not isinstance(buffer, bytes | bytearray | memoryview):
            raise refused(f"the pickle has an array over {a_type(buffer)}")
        dtype = _of_items(dtype)
        shape = check_shape(shape, dtype, memoryview(buffer).nbytes)
        self._spend(len(buffer))
        if order == "K":
            array = np.ndarray(shape, dtype, buffer).transpose(_permutation(axis_order, len(shape)))
        elif order in ("C", "F"):
            array = np.ndarray(shape, dtype, buffer, order=order)
        else:
            raise refused(f"the pickle has an array of order {show(order)}")
        check_values(array)
        return array

    def ndarray(
        self,
        shape: object,
        dtype: object,
        buffer: object,
        offset: object = 0,
        strides: object = None,
        order: object = "C",
    ) -> npt.NDArray[Any]:
        """``numpy.ndarray``: a view of bytes beside the pickle, as `PickleOOB` writes it."""
        if not isinstance(buffer, memoryview):
            raise refused(f"the pickle has an array over {a_type(buffer)}")
        if type(dtype) is not str or _NUMBERS.fullmatch(dtype) is None:
            raise refused(f"the pickle has an array of dtype {show(dtype)} where one of numbers belongs")
        if offset != 0 or strides is not None or order not in ("C", "F"):
            raise refused("the pickle has an array that skips some of its bytes")
        of_items = np.dtype(dtype)
        checked = check_shape(shape, of_items, buffer.nbytes)
        self._spend(buffer.nbytes)
        array: npt.NDArray[Any] = np.ndarray(checked, of_items, buffer, order=order)
        check_values(array)
        return array

    def scalar(self, dtype: object, raw: object = b"") -> Any:
        """``scalar``: a NumPy scalar from its bytes."""
        dtype = _of_items(dtype)
        if type(raw) is not bytes or len(raw) != dtype.itemsize:
            raise refused(
                f"the pickle has a scalar of dtype {show(dtype)} whose bytes are not {dtype.itemsize}"
            )
        if dtype.itemsize == 0 and dtype.kind in "SU":
            return np.bytes_() if dtype.kind == "S" else np.str_()
        self._spend(len(raw))
        array = np.ndarray(check_shape((), dtype, len(raw)), dtype, bytearray(raw))
        check_values(array)
        return array[()]

    def encode(self, text: object, encoding: object) -> bytes:
        """``_codecs.encode``: how protocols 0 to 2 spell bytes."""
        if type(text) is not str or encoding != "latin1":
            raise refused("the pickle encodes text in a way that no pickler does")
        self._spend(len(text))
        return text.encode("latin1")

    def no_bytes(self) -> bytes:
        """``bytes``: how protocols 0 to 2 spell empty bytes."""
        return b""

    # What the pickle's states do.

    def fill(self, array: npt.NDArray[Any], state: object) -> None:
        """Give an array made by `reconstruct` its shape, dtype and items."""
        if self._empty.get(id(array)) is not array:
            raise refused("the pickle changes an array that is complete")
        if type(state) is not tuple or len(state) != 5 or type(state[3]) is not bool:
            raise refused("the pickle has an array whose state is none")
        _, shape, dtype, fortran_order, items = state
        if isinstance(dtype, np.dtype) and dtype.kind == "O":
            shape = self._object_shape(array, shape, dtype, items)
        else:
            dtype = _of_items(dtype)
            if type(items) is not bytes:
                raise refused(f"the pickle has an array of dtype {show(dtype)} over {a_type(items)}")
            shape = check_shape(shape, dtype, len(items))
        self._spend(len(items))
        del self._empty[id(array)]
        array.__setstate__((1, shape, dtype, fortran_order, items))
        if not dtype.hasobject:
            check_values(array)

    def _object_shape(
        self, array: npt.NDArray[Any], shape: object, dtype: np.dtype[Any], items: object
    ) -> tuple[int, ...]:
        if type(items) is not list:
            raise refused(f"the pickle has an object array over {a_type(items)}")
        # An array filled later could make a chain whose depth nobody counted.
        if any(id(item) in self._empty for item in items):
            raise refused("the pickle has an object array that holds an unfinished array")
        self._nesting.add(array, items)
        return check_shape(shape, dtype, len(items) * dtype.itemsize)

    def finish(self, unfinished: UnfinishedDtype, state: object) -> np.dtype[Any]:
        """The dtype that a bare type and a state describe; its user metadata is dropped."""
        if type(state) is not tuple or len(state) not in (8, 9):
            raise refused("the pickle has a dtype whose state is none")
        _, order, subarray, names, fields, item_bytes, _, flags = state[:8]
        spec = unfinished.spec
        if isinstance(spec, type):
            dtype = np.dtype(spec)
        elif subarray is not None:
            dtype = self._subarray(subarray)
        elif names is not None:
            dtype = self._struct(names, fields, item_bytes, flags)
        else:
            dtype = _plain(spec, order, state[8] if len(state) == 9 else None)
        self.unfinished_dtypes -= 1
        return dtype

    def _subarray(self, subarray: object) -> np.dtype[Any]:
        if type(subarray) is not tuple or len(subarray) != 2:
            raise refused("the pickle has a subarray dtype that is none")
        base, shape = _usable(subarray[0]), subarray[1]
        if type(shape) is not tuple or not all(type(n) is int and 1 <= n <= _MAX_ITEM_BYTES for n in shape):
            raise refused("the pickle has a subarray dtype whose shape is none")
        if base.itemsize * math.prod(shape) > _MAX_ITEM_BYTES:
            raise refused(f"the pickle has a dtype of more than {_MAX_ITEM_BYTES} bytes")
        dtype = np.dtype((base, shape))
        self._nesting.add(dtype, [base])
        return dtype

    def _struct(self, names: object, fields: object, item_bytes: object, flags: object) -> np.dtype[Any]:
        if (
            type(names) is not tuple
            or type(fields) is not dict
            or not all(type(name) is str for name in names)
        ):
            raise refused("the pickle has a structured dtype without names and fields")
        if len(names) != len(fields) or set(names) != set(fields):
            raise refused("the pickle has a structured dtype whose names and fields differ, or with titles")
        if type(item_bytes) is not int or not 1 <= item_bytes <= _MAX_ITEM_BYTES or type(flags) is not int:
            raise refused(f"the pickle has a structured dtype of {show(item_bytes)} bytes")
        placed = [_field(name, fields[name]) for name in names]
        end = 0
        for offset, part in sorted(placed, key=lambda field: field[0]):
            if offset < end:
                raise refused("the pickle has a structured dtype whose fields overlap")
            end = offset + part.itemsize
        # That they lie within the item is checked by numpy.
        parts = [part for _, part in placed]
        offsets = [offset for offset, _ in placed]
        dtype: np.dtype[Any] = np.dtype(
            {"names": list(names), "formats": parts, "offsets": offsets, "itemsize": item_bytes},
            align=bool(flags & _ALIGNED_STRUCT),
        )
        self._nesting.add(dtype, parts)
        return dtype


def _usable(dtype: object) -> np.dtype[Any]:
    """A finished dtype of plain bytes: object pointers are never read from bytes."""
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise refused(f"the pickle has an array of dtype {show(dtype)}, which cannot be read from bytes")
    return dtype


def _of_items(dtype: object) -> np.dtype[Any]:
    """A usable dtype of an array's items; a subarray is only ever that of a field."""
    usable = _usable(dtype)
    if usable.subdtype is not None:
        raise refused(f"the pickle has an array of dtype {show(usable)}, which is that of a field")
    return usable


def _plain(spec: str, order: object, metadata: object) -> np.dtype[Any]:
    if order not in ("<", ">", "|", "="):
        raise refused(f"the pickle has a dtype of byte order {show(order)}")
    if spec[0] in "mM":
        spec += _unit(metadata)
    elif spec[0] in "SUV" and int(spec[1:]) * (4 if spec[0] == "U" else 1) > _MAX_ITEM_BYTES:
        raise refused(f"the pickle has a dtype of more than {_MAX_ITEM_BYTES} bytes")
    return np.dtype("O" if spec[0] == "O" else f"{order}{spec}")


def _unit(metadata: object) -> str:
    """``[25s]`` of a datetime's state ``(metadata, (b's', 25, 1, 1))``."""
    if (
        type(metadata) is tuple
        and len(metadata) == 2
        and type(metadata[1]) is tuple
        and len(metadata[1]) == 4
    ):
        unit, count, _, _ = metadata[1]
        if unit == b"generic":
            return ""
        name = unit.decode("latin1") if type(unit) is bytes else ""
        if name in _UNITS and type(count) is int and 1 <= count < 2**31:
            return f"[{count}{name}]"
    raise refused("the pickle has a datetime dtype without a unit")


def _field(name: str, field: object) -> tuple[int, np.dtype[Any]]:
    if type(field) is not tuple or len(field) != 2:
        raise refused(f"the pickle has a structured dtype whose field {show(name)} has a title or no place")
    part, offset = _usable(field[0]), field[1]
    if type(offset) is not int or offset < 0 or part.itemsize == 0:
        raise refused(f"the pickle has a structured dtype whose field {show(name)} has no place")
    return offset, part


def _permutation(order: object, dims: int) -> tuple[int, ...]:
    if (
        type(order) is not tuple
        or not all(type(axis) is int for axis in order)
        or sorted(order) != list(range(dims))
    ):
        raise refused("the pickle has an array whose axes are no permutation")
    return order


def _integer_of(name: str) -> Callable[..., Any]:
    kind, limits = np.dtype(name).type, np.iinfo(name)

    def integer(_: NumpyBuilder, number: object) -> Any:
        """``numpy.int64`` and its like: a scalar from a Python integer."""
        if type(number) is not int or not limits.min <= number <= limits.max:
            raise refused(f"the pickle has a scalar of dtype {name} that is {show(number)}")
        return kind(number)

    return integer


# Each name: the object that stands for it on the pickle's stack, and what a call of it does.
NUMPY_GLOBALS: Final[Mapping[str, tuple[object, Callable[..., Any] | None]]] = {
    "numpy.ndarray": (np.ndarray, NumpyBuilder.ndarray),
    **{f"numpy.{name}": (np.dtype(name).type, _integer_of(name)) for name in INTEGERS},
    "numpy.dtype": (np.dtype, NumpyBuilder.dtype),
    "_codecs.encode": (NumpyBuilder.encode, NumpyBuilder.encode),
    "builtins.bytes": (bytes, NumpyBuilder.no_bytes),
    **{
        f"numpy.{core}.{module}.{name}": (function, function)
        for core in ("core", "_core")
        for module, name, function in (
            ("multiarray", "_reconstruct", NumpyBuilder.reconstruct),
            ("multiarray", "scalar", NumpyBuilder.scalar),
            ("numeric", "_frombuffer", NumpyBuilder.frombuffer),
        )
    },
}
