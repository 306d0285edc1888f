"""Dill: what pickle cannot do, such as lambdas and local classes; reading takes trust."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from datasetrt.checks import flag
from datasetrt.errors import CodecError

from ._arrays import CURE
from ._base import byte_view, decode_error, encode_error, require

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True, kw_only=True)
class Dill:
    """Any object that the package ``dill`` can pickle: functions, lambdas and local classes too.

    dill rebuilds code objects, so that no list of allowed globals could make its payloads safe: reading takes
    ``trust=True``, for data that you wrote yourself. Needs ``pip install 'datasetrt[dill]'``, from the first
    use on.

    Args:
        trust: Read, and run whatever the payload asks for.

    Example:
        >>> import datasetrt as drt
        >>> codec = drt.codecs.Dill(trust=True)
        >>> Point = type("Point", (), {"x": 3})
        >>> codec.loads(codec.dumps(Point())).x
        3
    """

    name: ClassVar[str] = "dill"

    trust: bool = False

    def __post_init__(self) -> None:
        flag("trust", self.trust)

    def dumps(self, obj: object, /) -> bytes:
        """Pickle one object with dill.

        Args:
            obj: What dill can pickle.

        Raises:
            CodecError: dill is not installed (kind ``missing-dependency``) or cannot pickle it (``encode``).

        Example:
            >>> import datasetrt as drt
            >>> Point = type("Point", (), {"x": 3})
            >>> b"Point" in drt.codecs.Dill().dumps(Point())
            True
        """
        dill = require("dill")
        try:
            packed: bytes = dill.dumps(obj)
        except Exception as error:
            # An object's own __reduce__ may raise anything.
            raise encode_error(self.name, obj, error) from error
        return packed

    def loads(self, buffer: Buffer, /) -> Any:
        """Unpickle one payload, to its last byte.

        Args:
            buffer: The payload: bytes, a memoryview or another C-contiguous buffer.

        Raises:
            CodecError: ``trust`` was not given (kind ``untrusted``), dill is not installed
                (``missing-dependency``), or the bytes are no whole pickle (``decode``).

        Example:
            >>> import datasetrt as drt
            >>> codec = drt.codecs.Dill(trust=True)
            >>> codec.loads(codec.dumps(type("Point", (), {"x": 3})())).x
            3
        """
        if not self.trust:
            raise CodecError(
                "dill: reading a payload runs any code in it, so it must be asked for: Dill(trust=True) "
                "for data that you wrote yourself; for other data pack with Npy, Json, Msgpack or Record",
                kind="untrusted",
            )
        dill = require("dill")
        data = byte_view(buffer, self.name)
        file = io.BytesIO(data)
        try:
            value = dill.Unpickler(file).load()
        except Exception as error:
            # A payload runs code of its own, which may raise anything.
            raise decode_error(self.name, error) from error
        if file.tell() != len(data):
            raise CodecError(
                f"dill: {len(data) - file.tell()} bytes follow the end of the pickle; {CURE}", kind="decode"
            )
        return value
