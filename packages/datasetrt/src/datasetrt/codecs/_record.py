"""Record: a fixed layout of named arrays, so that a whole batch decodes in a handful of numpy calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasetrt.errors import CodecError

from ._arrays import aligned_empty, check_values, show
from ._base import PayloadBatch, SplitBatch, byte_view, reason
from ._record_layout import Field, cuts, place, record_dtype

if TYPE_CHECKING:
    from typing_extensions import Buffer

# As many columns as the reader cuts payloads into.
_MAX_CUTS = 256


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
        object.__setattr__(self, "_name", f"record({','.join(field.spelling for field in placed)})")

    @property
    def name(self) -> str:
        """The whole layout, such as ``record(x:float32[2],id:int64[])``.

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
        return tuple(self._cuts.values()) if len(self._cuts) <= _MAX_CUTS else None

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
            raise _unfit(f"a {type(obj).__name__} is not a mapping of fields; give a dict")
        missing = [field.name for field in self._fields if field.name not in obj]
        unknown = [name for name in obj if name not in (self._dtype.names or ())]
        if missing or unknown:
            raise _unfit(
                f"missing fields {missing}, unknown fields {unknown}; give exactly those of {self.name}"
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
            f"record: payload{where} has {size} bytes, but {self.name} takes {self.size}; decode with the "
            "codec that the data was written with",
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
    try:
        # NumPy alone would make floats of large ints in a list, and ints of bools.
        ints = _listed_ints(where, value) if field.dtype.kind in "iu" else None
        array = np.asarray(value) if ints is None else ints
    except ValueError as error:
        raise _unfit(f"{where}: the value is no array ({reason(error)})") from error
    if array.shape != field.shape or isinstance(value, np.ma.MaskedArray):
        raise _unfit(f"{where}: a {type(value).__name__} of shape {array.shape} does not fit; reshape it")
    kind, target = array.dtype.kind, field.dtype
    if ints is not None or (type(value) is int and kind in "iu" and target.kind in "iu"):
        return _in_range(where, array, np.iinfo(target))
    same_kind = kind == target.kind or (kind in "iu" and target.kind in "iu")
    if not same_kind or not np.can_cast(array.dtype, target, "safe"):
        cure = f"cast it, such as np.asarray(value, {target.str[1:]!r})"
        raise _unfit(f"{where}: the value has dtype {show(array.dtype)}, which may lose something; {cure}")
    if isinstance(value, bytes) and value.endswith(b"\0"):
        raise _unfit(f"{where}: the value ends in a zero byte, which would be lost; use a field of uint8")
    if kind == "b":
        # A bool from a raw view may be any byte; stored ones are 0 or 1.
        return np.not_equal(array.view(np.uint8), 0)
    return array


def _listed_ints(where: str, value: Any) -> npt.NDArray[Any] | None:
    """A list of Python ints as an array of objects; None for anything else, of which NumPy may decide."""
    if type(value) not in (list, tuple):
        return None
    exact = np.asarray(value, dtype=object)
    kinds = {type(item) for item in exact.flat}
    if bool in kinds:
        raise _unfit(f"{where}: the value has bools among its numbers; give ints")
    return exact if kinds == {int} else None


def _in_range(where: str, array: npt.NDArray[Any], limits: np.iinfo[Any]) -> npt.NDArray[Any]:
    low, high = int(array.min()), int(array.max())
    if low < limits.min or high > limits.max:
        raise _unfit(f"{where}: the values {low} to {high} are not within {limits.min} to {limits.max}")
    return array
