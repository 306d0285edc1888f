"""Msgpack: what MessagePack has, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from datasetrt.errors import CodecError
from datasetrt.wording import shown

from ._arrays import refused
from ._base import byte_view, decode_error, encode_error, require
from ._plain import Scalars, check_plain, text_problem

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SCALARS: Scalars = frozenset([str, bytes, int, float, bool, type(None)])


@dataclass(frozen=True)
class Msgpack:
    """dict with str keys, list, str, bytes, int of 64 bits, float, bool and None, as MessagePack.

    What comes back equals what went in, types included, or ``dumps`` refuses it: tuples, keys that are not
    str, subclasses, bytearrays, NumPy values, and values nested more than 500 deep. NaN and infinities are
    kept. Payloads that others wrote may hold timestamps, which come back as ``msgpack.Timestamp``; other
    extension types are refused. Needs ``pip install 'datasetrt[msgpack]'``, from the first use on.

    Example:
        >>> import datasetrt as drt
        >>> codec = drt.codecs.Msgpack()
        >>> codec.loads(codec.dumps({"id": 7, "jpeg": b"..."}))
        {'id': 7, 'jpeg': b'...'}
    """

    name: ClassVar[str] = "msgpack"

    def dumps(self, obj: Any, /) -> bytes:
        """Pack one object.

        Args:
            obj: What MessagePack has: as for JSON, and bytes.

        Raises:
            CodecError: Something in it would not come back as it was (kind ``encode``); the message says
                where. msgpack is not installed (``missing-dependency``).

        Example:
            >>> import datasetrt as drt
            >>> drt.codecs.Msgpack().dumps([1, b"jpeg"])
            b'\\x92\\x01\\xc4\\x04jpeg'
        """
        msgpack = require("msgpack")
        check_plain(obj, _SCALARS, self.name)
        try:
            packed: bytes = msgpack.packb(obj, use_bin_type=True, strict_types=True)
        except (ValueError, OverflowError, RecursionError) as error:
            # A value that MessagePack does not have: only now is it looked for.
            check_plain(obj, _SCALARS, self.name, _problem)
            raise encode_error(self.name, obj, error) from error
        return packed

    def loads(self, buffer: Buffer, /) -> Any:
        """Unpack one payload.

        Args:
            buffer: The payload: bytes, a memoryview or another C-contiguous buffer.

        Raises:
            CodecError: It is not one MessagePack value (kind ``decode``), or msgpack is not installed
                (``missing-dependency``).

        Example:
            >>> import datasetrt as drt
            >>> drt.codecs.Msgpack().loads(b"\\x92\\x01\\xc4\\x04jpeg")
            [1, b'jpeg']
        """
        msgpack = require("msgpack")
        data = byte_view(buffer, self.name)
        try:
            return msgpack.unpackb(data, raw=False, strict_map_key=True, ext_hook=_no_extension)
        except CodecError:
            raise
        except (ValueError, TypeError, RecursionError) as error:
            raise decode_error(self.name, error) from error


def _problem(value: Any) -> tuple[str, str] | None:
    if type(value) is str:
        return text_problem(value)
    if type(value) is int and not -(2**63) <= value < 2**64:
        what = f"the value {shown(value)} is outside of -2**63 to 2**64 - 1"
        return what, "give a str or bytes, or pack with Json"
    return None


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise refused(
        f"msgpack: the payload has extension type {code} ({len(data)} bytes), which is not read",
        "pack plain values, or read with msgpack itself",
    )
