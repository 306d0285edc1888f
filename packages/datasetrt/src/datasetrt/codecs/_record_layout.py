"""Where each field of a record lies; docs/guides/codecs.md states the same rules in words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from datasetrt.checks import as_index, invalid
from datasetrt.wording import shown

# Bytes of one component of each kind of number, as every platform has them.
_COMPONENT_BYTES: Final = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (4, 8)}
_NAME = re.compile(r"[^\s:,()\[\]]+")
_MAX_RECORD_BYTES = 2**31 - 1
# A batch adds one dimension, and NumPy 1 has 32.
_MAX_DIMS = 31


@dataclass(frozen=True, slots=True)
class Field:
    """One named array of a record."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def spelling(self) -> str:
        """What the codec's name says of the field, such as ``box:float32[2]``."""
        kind = f"S{self.dtype.itemsize}" if self.dtype.kind == "S" else self.dtype.name
        return f"{self.name}:{kind}[{','.join(map(str, self.shape))}]"


def place(fields: Any) -> tuple[Field, ...]:
    """The fields in order, each at the first offset that its component's size divides.

    Raises:
        InvalidInputError: There are none, or one that a record cannot have.
    """
    if not isinstance(fields, Mapping) or not fields:
        raise invalid("a record needs a mapping of at least one field, such as {'x': ('float32', (3,))}")
    return tuple(_placed(fields))


def record_dtype(fields: tuple[Field, ...]) -> np.dtype[Any]:
    """The whole record as a structured dtype."""
    end = fields[-1].offset + fields[-1].nbytes
    return np.dtype(
        {
            "names": [field.name for field in fields],
            "formats": [(field.dtype, field.shape) for field in fields],
            "offsets": [field.offset for field in fields],
            # Records laid back to back keep every field aligned.
            "itemsize": end + -end % max(_component_bytes(field.dtype) for field in fields),
        }
    )


def cuts(fields: tuple[Field, ...], size: int) -> dict[int, int]:
    """Where a payload is cut so that each field is a part: offsets to widths in bytes, gaps included."""
    ends = {field.offset: field.offset + field.nbytes for field in fields}
    found: dict[int, int] = {}
    at = 0
    for begin in (*ends, size):
        if begin > at:
            found[at] = begin - at
        if begin < size:
            found[begin] = ends[begin] - begin
            at = ends[begin]
    return found


def _placed(fields: Mapping[Any, Any]) -> Iterator[Field]:
    end = 0
    for name, spec in fields.items():
        if not isinstance(name, str) or not name.isprintable() or _NAME.fullmatch(name) is None:
            raise invalid(
                f"a record's field cannot be named {shown(name)}; use printable text without blanks or :,()[]"
            )
        if not isinstance(spec, tuple | list) or len(spec) != 2:
            raise invalid(
                f"field {shown(name)} is {shown(spec)}; give (dtype, shape), such as ('float32', (3,))"
            )
        name = str.__str__(name)  # The text of a subclass, such as an Enum's, may be another.
        dtype, shape = _dtype(name, spec[0]), _shape(name, spec[1])
        field = Field(name, dtype, shape, end + -end % _component_bytes(dtype))
        end = field.offset + field.nbytes
        if end > _MAX_RECORD_BYTES:
            raise invalid(
                f"field {shown(name)} ends at byte {shown(end)}; a record has at most {_MAX_RECORD_BYTES}"
            )
        yield field


def _dtype(name: str, spec: Any) -> np.dtype[Any]:
    try:
        # None would mean float64 to numpy.
        dtype = np.dtype("V") if spec is None else np.dtype(spec)
    except Exception as error:
        # NumPy writes out what it does not know, and that object's own code may raise anything.
        raise invalid(
            f"field {shown(name)} has the dtype {shown(spec)}, which numpy does not know"
        ) from error
    if dtype.kind == "S" and dtype.itemsize > 0:
        return np.dtype(f"S{dtype.itemsize}")
    if _component_bytes(dtype) not in _COMPONENT_BYTES.get(dtype.kind, ()):
        raise invalid(
            f"field {shown(name)} has the dtype {shown(spec)}; a record holds bool, integers, float16 "
            "to float64, complex64, complex128 and bytes such as 'S5'; store dates as int64 and text as bytes"
        )
    return np.dtype(f"<{dtype.kind}{dtype.itemsize}")


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    lengths = [as_index(n) for n in shape] if isinstance(shape, tuple | list) else [None]
    found = tuple(n for n in lengths if n is not None and n >= 1)
    if len(found) != len(lengths) or len(found) > _MAX_DIMS:
        raise invalid(
            f"field {shown(name)} has the shape {shown(shape)}; give at most {_MAX_DIMS} lengths from 1, "
            "or ()"
        )
    return found


def _component_bytes(dtype: np.dtype[Any]) -> int:
    """What offsets are multiples of: one number of a complex pair, one byte of bytes."""
    return {"c": dtype.itemsize // 2, "S": 1}.get(dtype.kind, dtype.itemsize)
