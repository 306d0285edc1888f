"""Record: a fixed layout of named arrays, so that a whole batch decodes in a handful of numpy calls."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasetrt.checks import MOST_COLUMNS, has_nulls, is_table
from datasetrt.errors import CodecError
from datasetrt.wording import a_type, reason, shorten, shown

from ._arrays import aligned_empty, check_values, show
from ._base import PayloadBatch, SplitBatch, byte_view, encode_error
from ._record_layout import Field, cuts, place, record_dtype

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: As long as the name of a codec in a cache may be.
_MAX_NAME_BYTES = 4096


class Record:
    """Named arrays of fixed dtype and shape, one after the other in every payload.

    Unpacking one payload gives views of it. Unpacking a batch gives one array a field, in a fixed number of
    numpy calls whatever the batch's size. ``name`` spells out the layout, so that a cache written with
    another one is refused by name. Fields lie in the order given, little-endian, each aligned to its
    component's size, and zeros fill up the rest: ``docs/guides/codecs.md`` has the exact rules. A record is a
    value: immutable, hashable, picklable, equal to one of the same layout.

    Args:
        fields: Name to ``(dtype, shape)``. dtypes: bool, integers, float16 to float64, complex64, complex128,
            and bytes ``"S5"``, which are padded with zero bytes and lose them at their end. Lengths are at
            least 1; the shape of a single number is ``()``.

    Raises:
        InvalidInputError: No fields, or a name, dtype or shape that a record cannot have.

    Example:
        >>> import datasetrt as drt, numpy as np
        >>> fields = {"image": ("uint8", (4, 4)), "box": ("float32", (2,)), "id": ("int64", ())}
        >>> codec = drt.codecs.Record(fields)
        >>> codec.name, codec.size
        ('record(image:uint8[4,4],box:float32[2],id:int64[])', 32)
        >>> record = {"image": np.zeros((4, 4), np.uint8), "box": np.ones(2, np.float32), "id": 7}
        >>> codec.loads(codec.dumps(record))["box"]
        array([1., 1.], dtype=float32)
    """

    __slots__ = ("_cuts", "_dtype", "_fields", "_name")

    _fields: tuple[Field, ...]
    _cuts: dict[int, int]
    _dtype: np.dtype[Any]
    _name: str

    def __init__(self, fields: Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]]) -> None:
        placed = place(fields)
        object.__setattr__(self, "_fields", placed)
        object.__setattr__(self, "_dtype", record_dtype(placed))
        object.__setattr__(self, "_cuts", cuts(placed, self.size))
        object.__setattr__(self, "_name", _name_of(placed))

    @property
    def name(self) -> str:
        """The layout, such as ``record(x:float32[2],id:int64[])``, or a digest of one that is too long.

        Example:
            >>> import datasetrt as drt
            >>> codec = drt.codecs.Record({"x": ("float32", (2,)), "id": ("int64", ())})
            >>> codec.name
            'record(x:float32[2],id:int64[])'
        """
        return self._name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The layout as a structured dtype, offsets and size included.

        Example:
            >>> import datasetrt as drt
            >>> codec = drt.codecs.Record({"x": ("float32", (2,)), "id": ("int64", ())})
            >>> codec.dtype.names, codec.dtype.itemsize
            (('x', 'id'), 16)
        """
        return self._dtype

    @property
    def size(self) -> int:
        """Bytes of every payload.

        Example:
            >>> import datasetrt as drt
            >>> codec = drt.codecs.Record({"x": ("float32", (2,)), "id": ("int64", ())})
            >>> codec.size
            16
        """
        return self._dtype.itemsize

    @property
    def column_widths(self) -> tuple[int, ...] | None:
        """The widths in bytes at which a loader cuts payloads into columns; None where they are too many.

        Example:
            >>> import datasetrt as drt
            >>> drt.codecs.Record({"flag": ("bool", ()), "box": ("float32", (4,))}).column_widths
            (1, 3, 16)
        """
        return tuple(self._cuts.values()) if len(self._cuts) <= MOST_COLUMNS else None

    def dumps(self, obj: Mapping[str, npt.ArrayLike], /) -> bytes:
        """Pack one mapping with exactly the fields of the record.

        Shapes must be equal; nothing is broadcast. An array or NumPy scalar may have a smaller dtype of the
        same kind, such as int32 in an int64 field. Python ints, alone or in lists, fit by value into any
        integer field; Python floats are float64.

        Args:
            obj: Field name to value.

        Raises:
            CodecError: A field is missing or unknown, or its shape, dtype or value does not fit (kind
                ``encode``).

        Example:
            >>> import datasetrt as drt, numpy as np
            >>> codec = drt.codecs.Record({"x": ("float32", (2,)), "id": ("int64", ())})
            >>> codec.dumps({"x": np.zeros(2, np.float32), "id": 7})[8:]
            b'\\x07\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
        """
        if not isinstance(obj, Mapping):
            raise _unfit(f"{a_type(obj)} is not a mapping of fields; give a dict")
        try:
            return self._packed(obj)
        except CodecError:
            raise
        except Exception as error:
            # What a value's own code raises: its __array__, its items.
            raise encode_error("record", obj, error) from error

    def _packed(self, obj: Mapping[str, npt.ArrayLike]) -> bytes:
        missing = [field.name for field in self._fields if field.name not in obj]
        unknown = [name for name in obj if name not in (self._dtype.names or ())]
        if missing or unknown:
            raise _unfit(
                f"missing fields {shown(missing, 200)}, unknown fields {shown(unknown, 200)}; "
                f"give exactly those of {shorten(self.name, 200)}"
            )
        payload = bytearray(self.size)
        for field in self._fields:
            target = np.ndarray(field.shape, field.dtype, payload, field.offset)
            target[...] = _fitting(field, obj[field.name])
        return bytes(payload)

    def loads(self, buffer: Buffer, /) -> dict[str, npt.NDArray[Any]]:
        """Unpack one payload into views of it, as writable as its buffer is.

        Args:
            buffer: The payload: bytes, a memoryview or another C-contiguous buffer.

        Raises:
            CodecError: The payload has another size (kind ``layout``), or a bool is neither 0 nor 1
                (``decode``).

        Example:
            >>> import datasetrt as drt
            >>> codec = drt.codecs.Record({"x": ("float32", (2,)), "id": ("int64", ())})
            >>> codec.loads(bytes(8) + (7).to_bytes(8, "little"))
            {'x': array([0., 0.], dtype=float32), 'id': array(7)}
        """
        data = byte_view(buffer, "record")
        if len(data) != self.size:
            raise self._other_size(len(data), None, None)
        arrays = {
            field.name: np.ndarray(field.shape, field.dtype, data, field.offset) for field in self._fields
        }
        for array in arrays.values():
            check_values(array)
        return arrays

    def loads_batch(self, batch: PayloadBatch, /) -> dict[str, npt.NDArray[Any]]:
        """Unpack a whole batch into one array of shape ``(n, *shape)`` a field.

        Each array is writable, C-contiguous and 64-byte aligned. The number of numpy calls depends on the
        fields, never on ``n``. A batch from a loader that decodes with this codec was read in these columns:
        they are its own memory, and unpacking it once more gives the same memory.

        Args:
            batch: A `SampleBatch`, or what has its ``payloads``, ``lengths`` and ``as_array``.

        Raises:
            CodecError: A payload has another size (kind ``layout``), or a bool is neither 0 nor 1
                (``decode``).

        Example:
            >>> import datasetrt as drt
            >>> codec = drt.codecs.Record({"id": ("int64", ())})
            >>> source = drt.MapSource("ids", range(4), lambda i: drt.CacheInput(codec.dumps({"id": i}), {}))
            >>> codec.loads_batch(drt.cache(source, "root").take([3, 1]))
            {'id': array([3, 1])}
        """
        lengths = np.asarray(batch.lengths)
        other = np.flatnonzero(lengths != self.size)
        if len(other):
            sample_ids = getattr(batch, "sample_ids", None)
            sample_id = None if sample_ids is None else int(sample_ids[other[0]])
            raise self._other_size(int(lengths[other[0]]), int(other[0]), sample_id)
        if self.column_widths is None or not len(lengths) or not isinstance(batch, SplitBatch):
            return self._columns_of_rows(batch.as_array(np.uint8, (self.size,)))
        parts = dict(zip(self._cuts, batch.split(self.column_widths), strict=True))
        columns = {}
        for field in self._fields:
            column = np.frombuffer(parts[field.offset], field.dtype).reshape(len(lengths), *field.shape)
            check_values(column)
            columns[field.name] = column
        return columns

    def _columns_of_rows(self, payloads: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[Any]]:
        """The same from whole payloads, by numpy alone."""
        rows = payloads.view(self._dtype).reshape(len(payloads))
        columns = {}
        for field in self._fields:
            column = aligned_empty((len(rows), *field.shape), field.dtype)
            column[...] = rows[field.name]
            check_values(column)
            columns[field.name] = column
        return columns

    def _other_size(self, size: int, position: int | None, sample_id: int | None) -> CodecError:
        where = "" if position is None else f" {position} of the batch"
        return CodecError(
            f"record: payload{where} has {size} bytes, but {shorten(self.name, 200)} takes {self.size}; "
            "decode with the codec that the data was written with",
            kind="layout",
            sample_id=sample_id,
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Record is immutable; make another one to change {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Record is immutable; {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return self._name == other._name if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"Record({self._spec()!r})"

    def __reduce__(self) -> tuple[type[Record], tuple[dict[str, tuple[str, tuple[int, ...]]]]]:
        return Record, (self._spec(),)

    def _spec(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {field.name: (field.dtype.str, field.shape) for field in self._fields}


def _unfit(what: str) -> CodecError:
    return CodecError(f"record: {what}", kind="encode")


def _fitting(field: Field, value: Any) -> npt.NDArray[Any]:
    """The value as an array that its field takes without loss."""
    where = f"field {field.spelling}"
    _check_missing(where, value, len(field.shape))
    if field.dtype.kind == "S":
        _check_ends(where, value, len(field.shape))
    # NumPy alone would make floats of large ints in a list, ints of bools, and text of what is beside text.
    exact = _exactly(value, field.dtype.kind)
    whole = None
    if exact is not None:
        _check_items(where, field, exact)
        whole = _whole_numbers(exact, field.dtype.kind)
    try:
        array = np.asarray(value) if whole is None else whole
    except ValueError as error:
        raise _unfit(f"{where}: the value is no array ({reason(error)})") from error
    if array.shape != field.shape:
        raise _unfit(f"{where}: {a_type(value)} of shape {array.shape} does not fit; reshape it")
    kind, target = array.dtype.kind, field.dtype
    if whole is not None:
        return _in_range(where, array, np.iinfo(target))
    same_kind = kind == target.kind or (kind in "iu" and target.kind in "iu")
    if not same_kind or not np.can_cast(array.dtype, target, "safe"):
        cure = f"cast it, such as np.asarray(value, {target.str[1:]!r})"
        raise _unfit(f"{where}: the value has dtype {show(array.dtype)}, which may lose something; {cure}")
    if kind == "b":
        # A bool from a raw view may be any byte; stored ones are 0 or 1.
        return np.not_equal(array.view(np.uint8), 0)
    return array


def _exactly(value: Any, kind: str) -> npt.NDArray[Any] | None:
    """The very objects of a sequence, or a single object; None for what has a dtype of its own.

    None also for what is no array, such as lists of different lengths.
    """
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind == "O" else None
    if isinstance(value, np.generic) or not (isinstance(value, _OBJECTS) or _is_untyped(value)):
        return None
    if kind not in "iu" and isinstance(value, list | tuple) and any(isinstance(x, np.ndarray) for x in value):
        return None
    try:
        exact = np.asarray(value, dtype=object)
    except ValueError:
        return None
    return None if any(isinstance(item, list | tuple | np.ndarray) for item in exact.flat) else exact


def _is_untyped(value: Any) -> bool:
    """Whether NumPy can only ask a value for its items, which may then be of any type."""
    if any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return False
    try:
        memoryview(value)
    except TypeError:
        return True
    return False


_OBJECTS = (list, tuple, int, float, complex, str, bytes, type(None))
#: What a field takes, by the kind of its dtype.
_NUMBERS = (int, float, np.integer, np.floating)
_ITEMS: dict[str, tuple[tuple[type, ...], str]] = {
    "b": ((bool, np.bool_), "bools"),
    "i": ((int, np.integer), "whole numbers"),
    "u": ((int, np.integer), "whole numbers"),
    "f": (_NUMBERS, "floats"),
    "c": ((*_NUMBERS, complex, np.complexfloating), "complex numbers"),
    "S": ((bytes,), "bytes"),
}


def _check_items(where: str, field: Field, exact: npt.NDArray[Any]) -> None:
    """Refuse the first object that is none of those that the field holds, or that it cannot hold exactly."""
    types, what = _ITEMS[field.dtype.kind]
    for item in exact.flat:
        number_like = field.dtype.kind == "b" or not isinstance(item, bool | np.bool_)
        if not isinstance(item, types) or not number_like:
            raise _unfit(f"{where}: the value has {shown(item)}, {a_type(item)}; give {what}")
        if field.dtype.kind in "fc" and isinstance(item, int | np.integer) and not _is_float(int(item)):
            raise _unfit(f"{where}: the value has {shown(item)}, which no float is; give floats")
        _check_ends(where, item, 0)


def _check_missing(where: str, value: Any, depth: int) -> None:
    """Refuse what NumPy would make numbers of: masked values, and nulls of other libraries' columns."""
    if type(value) is np.ndarray:
        return
    if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
        raise _unfit(f"{where}: the value is {a_type(value)}, whose mask would be lost; fill it")
    if is_table(value):
        raise _unfit(f"{where}: the value is {a_type(value)}, a table; give an array")
    if has_nulls(value):
        raise _unfit(f"{where}: the value is {a_type(value)} with nulls, which would be numbers; fill them")
    if depth and not isinstance(value, str | bytes) and isinstance(value, Sequence):
        for item in value:
            if not isinstance(item, int | float | np.generic):
                _check_missing(where, item, depth - 1)


def _check_ends(where: str, value: Any, depth: int) -> None:
    """Refuse byte strings that end in zeros, as NumPy's own lose them when they become an array."""
    if isinstance(value, bytes):
        if value.endswith(b"\0"):
            what = "ends in a zero byte, which would be lost"
            raise _unfit(f"{where}: the value {shown(value)} {what}; use a field of uint8")
    elif depth and isinstance(value, Sequence):
        for item in value:
            _check_ends(where, item, depth - 1)


def _name_of(fields: Sequence[Field]) -> str:
    name = f"record({','.join(field.spelling for field in fields)})"
    if len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    return f"record({len(fields)} fields,sha256:{hashlib.sha256(name.encode()).hexdigest()})"


def _is_float(number: int) -> bool:
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _whole_numbers(exact: npt.NDArray[Any], kind: str) -> npt.NDArray[Any] | None:
    """Whole numbers that are taken one by one; None where NumPy has one type for them."""
    kinds = {type(item) for item in exact.flat}
    return exact if kind in "iu" and (int in kinds or len(kinds) > 1) else None


def _in_range(where: str, array: npt.NDArray[Any], limits: np.iinfo[Any]) -> npt.NDArray[Any]:
    # By Python's ints: NumPy compares its own by way of floats.
    whole = [int(item) for item in array.flat]
    low, high = min(whole), max(whole)
    if low < limits.min or high > limits.max:
        found = f"values {shown(low)} to {shown(high)} are" if len(whole) > 1 else f"value {shown(low)} is"
        raise _unfit(f"{where}: the {found} not within {limits.min} to {limits.max}")
    return np.array(whole, limits.dtype).reshape(array.shape)
