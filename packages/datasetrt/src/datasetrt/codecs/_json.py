"""Json: what JSON has, exactly, as compact UTF-8."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from datasetrt.errors import CodecError

from ._arrays import refused
from ._base import byte_view, decode_error, encode_error
from ._plain import Scalars, check_plain, text_problem

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SCALARS: Scalars = frozenset([str, int, float, bool, type(None)])


def _no_constant(text: str) -> NoReturn:
    raise refused(
        f"json: the payload has {text}, which JSON does not have", "pack None instead, or with another codec"
    )


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise refused(
            f"json: the payload has the number {text[:40]}, which no float holds", "pack it as a str"
        )
    return number


# Python reads back ints of at most 4300 digits, unless it was told otherwise; so many bits have no more.
_MAX_BITS = 14_284


def _problem(value: Any) -> tuple[str, str] | None:
    if type(value) is str:
        return text_problem(value)
    if type(value) is float and not math.isfinite(value):
        return f"the value is {value}, which JSON does not have", "give None, or pack with Msgpack"
    if type(value) is int and value.bit_length() > _MAX_BITS:
        what = f"the value is an int of {value.bit_length():,} bits, and 4,300 digits are the most"
        return what, "give a str, such as hex(value)"
    return None


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


@dataclass(frozen=True)
class Json:
    """dict with str keys, list, str, int, float, bool and None, as compact UTF-8 JSON.

    What comes back equals what went in, types included, or ``dumps`` refuses it: tuples, keys that are not
    str, subclasses, NumPy values, NaN and infinities, which JSON does not have, ints of more than 4,300
    digits, and values nested more than 500 deep. Dict order is kept, so equal dicts of equal order give equal
    bytes.

    Example:
        >>> import datasetrt as drt
        >>> codec = drt.codecs.Json()
        >>> codec.dumps({"id": 7, "text": "é", "box": [0.5, 1.0]})
        b'{"id":7,"text":"\\xc3\\xa9","box":[0.5,1.0]}'
        >>> codec.dumps({"box": (0.5, 1.0)})
        Traceback (most recent call last):
        datasetrt.errors.CodecError: json: at $.box the value is a tuple, which would not come back...
    """

    name: ClassVar[str] = "json"

    def dumps(self, obj: Any, /) -> bytes:
        """Pack one object.

        Args:
            obj: What JSON has: dict with str keys, list, str, int, float, bool, None.

        Raises:
            CodecError: Something in it would not come back as it was (kind ``encode``); the message says
                where.

        Example:
            >>> import datasetrt as drt
            >>> drt.codecs.Json().dumps({"id": 7, "scores": [0.5, 1.0]})
            b'{"id":7,"scores":[0.5,1.0]}'
        """
        check_plain(obj, _SCALARS, self.name)
        try:
            return _ENCODER.encode(obj).encode()
        except (ValueError, RecursionError) as error:
            # A value that JSON does not have: only now is it looked for.
            check_plain(obj, _SCALARS, self.name, _problem)
            raise encode_error(self.name, obj, error) from error

    def loads(self, buffer: Buffer, /) -> Any:
        """Unpack one payload.

        Args:
            buffer: The payload: bytes, a memoryview or another C-contiguous buffer.

        Raises:
            CodecError: It is not one JSON text in UTF-8 (kind ``decode``).

        Example:
            >>> import datasetrt as drt
            >>> drt.codecs.Json().loads(b'{"id":7,"scores":[0.5,1.0]}')
            {'id': 7, 'scores': [0.5, 1.0]}
        """
        data = byte_view(buffer, self.name)
        try:
            text = str(data, "utf-8")
            found = _DECODER.decode(text)
        except CodecError:
            raise
        except (ValueError, RecursionError) as error:
            raise decode_error(self.name, error) from error
        if "\\u" in text:
            # An escape may stand for half a character, which no text of ours has.
            check_plain(found, _SCALARS, self.name, _half_character, "decode")
        return found


def _half_character(value: Any) -> tuple[str, str] | None:
    return text_problem(value) if type(value) is str else None
