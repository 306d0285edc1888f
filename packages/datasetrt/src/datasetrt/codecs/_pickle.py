"""Pickle: any Python object; reading takes trust or a list of allowed globals."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from datasetrt.checks import flag, invalid, whole
from datasetrt.errors import CodecError

from ._arrays import CURE
from ._base import byte_view, decode_error, encode_error
from ._globals import normalise
from ._restricted import loads_restricted

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True, kw_only=True)
class Pickle:
    """Any picklable object, in Python's own format.

    A pickle runs code when it is read, so reading asks what the bytes may do. ``trust=True`` lets them do
    anything: only for data that you wrote yourself. ``allow`` reads with a machine of our own that knows no
    globals but those listed, and rebuilds numpy's values with every length checked: hostile bytes give a
    `CodecError`. A listed class or function still runs with whatever arguments the bytes choose, so list
    only what is harmless. Writing needs neither. Payloads are plain pickles; `pickle.loads` reads them.

    Args:
        trust: Read with `pickle` itself.
        allow: ``"numpy"`` for arrays, dtypes and NumPy scalars, or a list of exact globals, such as
            ``["numpy", "mine.Box"]``.
        protocol: Pickle protocol to write, 0 to 5. Every protocol is read. With ``allow``, what older ones
            name has to be allowed, too: sets below 4 and bytearrays below 5 as ``builtins.set``,
            ``builtins.frozenset`` and ``builtins.bytearray``, most objects below 2 with
            ``copyreg._reconstructor`` and ``builtins.object``.

    Raises:
        InvalidInputError: Both ``trust`` and ``allow``, an ``allow`` that is no list of globals, another
            protocol.

    Example:
        >>> import datasetrt as drt
        >>> codec = drt.codecs.Pickle(allow="numpy")
        >>> codec.loads(codec.dumps({"label": 3, "words": ["a", "b"]}))
        {'label': 3, 'words': ['a', 'b']}
        >>> import os
        >>> codec.loads(codec.dumps(os.getcwd))
        Traceback (most recent call last):
        datasetrt.errors.CodecError: the pickle names the global 'posix.getcwd', which is not allowed; ...
    """

    name: ClassVar[str] = "pickle"

    trust: bool = False
    allow: str | Iterable[str] | None = None
    protocol: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", check_consent(self.trust, self.allow))
        object.__setattr__(self, "protocol", whole("protocol", self.protocol, 0, 6))

    def dumps(self, obj: object, /) -> bytes:
        """Pickle one object.

        Args:
            obj: What pickle can pickle.

        Raises:
            CodecError: It cannot be pickled (kind ``encode``); the cause is pickle's own error.

        Example:
            >>> import datasetrt as drt
            >>> import pickle
            >>> pickle.loads(drt.codecs.Pickle().dumps({1, 2}))
            {1, 2}
        """
        try:
            return pickle.dumps(obj, self.protocol)
        except Exception as error:
            # An object's own __reduce__ may raise anything.
            raise encode_error(self.name, obj, error) from error

    def loads(self, buffer: Buffer, /) -> Any:
        """Unpickle one payload, to its last byte.

        Args:
            buffer: The payload: bytes, a memoryview or another C-contiguous buffer.

        Raises:
            CodecError: Neither ``trust`` nor ``allow`` was given (kind ``untrusted``), a global is not
                allowed (``refused-global``), or the bytes are no whole pickle (``decode``).

        Example:
            >>> import datasetrt as drt
            >>> payload = drt.codecs.Pickle().dumps({"label": 3})
            >>> drt.codecs.Pickle(allow="numpy").loads(payload)
            {'label': 3}
        """
        data = byte_view(buffer, self.name)
        return loads_as_consented(data, self.trust, self.allow, self.name)


def check_consent(trust: bool, allow: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """The option ``allow``, normalised, once both options make sense together."""
    if flag("trust", trust) and allow is not None:
        raise invalid("trust=True allows every global, so that allow= has no effect; give one of them")
    return normalise(allow)


def loads_as_consented(
    data: memoryview, trust: bool, allow: Any, codec_name: str, buffers: list[memoryview] | None = None
) -> Any:
    """Unpickle with what the user consented to; without consent nothing is read."""
    if trust:
        return _loads_trusted(data, codec_name, buffers or [])
    if allow is not None:
        return loads_restricted(data, allow, buffers or [])
    raise CodecError(
        f"{codec_name}: reading a pickle can run any code in it, so it must be asked for: trust=True for "
        "data that you wrote yourself, or allow='numpy' or allow=['module.Class', …] for what the data needs",
        kind="untrusted",
    )


def _loads_trusted(data: memoryview, codec_name: str, buffers: list[memoryview]) -> Any:
    file, left = io.BytesIO(data), iter(buffers)
    try:
        value = pickle.Unpickler(file, buffers=left).load()
    except Exception as error:
        # A pickle runs its classes' code, which may raise anything; damaged ones raise a dozen builtin types.
        raise decode_error(codec_name, error) from error
    if file.tell() != len(data):
        raise CodecError(
            f"{codec_name}: {len(data) - file.tell()} bytes follow the end of the pickle; {CURE}",
            kind="decode",
        )
    if next(left, None) is not None:
        raise CodecError(f"{codec_name}: the pickle leaves out-of-band buffers unused; {CURE}", kind="decode")
    return value
