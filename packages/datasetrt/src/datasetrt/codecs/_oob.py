"""PickleOOB: pickles whose array buffers lie beside them, aligned, so that arrays are views of the payload.

The payload, all integers little-endian:

    magic, 4 bytes "DRTB" | version, uint32 = 1 | pickle length, uint64 | buffer count n, uint64
    n buffer lengths, uint64 each | the pickle | the buffers

The pickle and each buffer are followed by zeros up to the next multiple of 64 bytes. So payloads of one size,
which lie back to back in a batch, are aligned as well. Offsets are not stored, so that they cannot lie.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from datasetrt.errors import CodecError

from ._arrays import CURE
from ._base import PayloadBatch, byte_view, encode_error
from ._globals import INTEGERS
from ._pickle import check_consent, loads_as_consented

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

_HEADER = struct.Struct("<4sIQQ")
_HEADER_BYTES = _HEADER.size
#: What every payload begins with.
MAGIC = b"DRTB"
_VERSION = 1
_LENGTH_BYTES = 8
_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class PickleOOB:
    """Any picklable object, with its array buffers out of band and aligned (pickle protocol 5).

    Unpacking copies no array: each is a view of the payload, on a 64-byte boundary of it, and as writable as
    the payload's buffer is. Over a `SampleBatch` that means aligned, writable views of the batch's own
    memory; over ``sample.data``, which is `bytes`, read-only ones. An array that was read-only when packed
    stays so. Non-contiguous, object and datetime arrays travel inside the pickle, as in `Pickle`.

    Args:
        trust: Read with `pickle` itself; only for data that you wrote yourself.
        allow: As for `Pickle`: ``"numpy"``, or exact globals.

    Raises:
        InvalidInputError: Both ``trust`` and ``allow``, or an ``allow`` that is no list of globals.

    Example:
        >>> import datasetrt as drt, numpy as np
        >>> codec = drt.codecs.PickleOOB(allow="numpy")
        >>> payload = bytearray(codec.dumps({"x": np.arange(3.0)}))
        >>> view = codec.loads(payload)["x"]
        >>> view[0] = 7.0
        >>> codec.loads(payload)["x"].tolist()
        [7.0, 1.0, 2.0]
    """

    name: ClassVar[str] = "pickle-oob"

    trust: bool = False
    allow: str | Iterable[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", check_consent(self.trust, self.allow))

    def dumps(self, obj: object, /) -> bytes:
        """Pickle one object, its contiguous array buffers beside the pickle.

        Args:
            obj: What pickle can pickle.

        Raises:
            CodecError: It cannot be pickled (kind ``encode``); the cause is pickle's own error.

        Example:
            >>> import datasetrt as drt, numpy as np
            >>> drt.codecs.PickleOOB().dumps({"x": np.zeros(100)})[:4]
            b'DRTB'
        """
        buffers: list[pickle.PickleBuffer] = []
        body = io.BytesIO()
        try:
            pickler = pickle.Pickler(body, 5, buffer_callback=buffers.append)
            pickler.dispatch_table = _DIRECTLY
            pickler.dump(obj)
            views = [buffer.raw() for buffer in buffers]
        except Exception as error:
            # An object's own __reduce_ex__ may raise anything.
            raise encode_error(self.name, obj, error) from error
        return _pack(body.getvalue(), views)

    def loads(self, buffer: Buffer, /) -> Any:
        """Unpickle one payload; arrays are views of it.

        Args:
            buffer: The payload: bytes, a memoryview or another C-contiguous buffer.

        Raises:
            CodecError: As for `Pickle.loads`, and kind ``decode`` for a frame whose lengths do not add up.

        Example:
            >>> import datasetrt as drt, numpy as np
            >>> codec = drt.codecs.PickleOOB(allow="numpy")
            >>> codec.loads(codec.dumps({"x": np.arange(3), "label": 1}))
            {'x': array([0, 1, 2]), 'label': 1}
        """
        body, buffers = _unpack(byte_view(buffer, self.name), self.name)
        return loads_as_consented(body, self.trust, self.allow, self.name, buffers)

    def loads_batch(self, batch: PayloadBatch, /) -> list[Any]:
        """Unpickle every payload of a batch, in order; arrays are writable views of the batch's memory.

        Args:
            batch: A `SampleBatch`, or what has its ``payloads``, ``lengths`` and ``as_array``.

        Raises:
            CodecError: As for `loads`; the message does not say which sample, the batch's ``sample_ids`` do.

        Example:
            >>> import datasetrt as drt, numpy as np
            >>> codec = drt.codecs.PickleOOB(allow="numpy")
            >>> pack = lambda i: drt.CacheInput(codec.dumps(np.full(2, i)), {})
            >>> source = drt.MapSource("oob", range(3), pack)
            >>> codec.loads_batch(drt.cache(source, "root").take([2, 0]))
            [array([2, 2]), array([0, 0])]
        """
        return [self.loads(payload) for payload in batch.payloads]


def _array(array: npt.NDArray[Any]) -> str | tuple[Any, ...]:
    dtype, flags = array.dtype, array.flags
    simple = dtype.kind in "biufc" and dtype.metadata is None and np.dtype(dtype.str) == dtype
    if simple and (flags.c_contiguous or flags.f_contiguous):
        order = () if flags.c_contiguous else (0, None, "F")
        try:
            return np.ndarray, (array.shape, dtype.str, pickle.PickleBuffer(array), *order)  # type: ignore[arg-type]
        except ValueError:
            # Long doubles of another byte order: NumPy exports no buffer of them, and pickles their bytes.
            pass
    return array.__reduce_ex__(5)


def _integer(number: np.integer[Any]) -> tuple[Any, ...]:
    return type(number), (int(number),)


# NumPy's own pickles name a function written in Python, and a dtype that is put together from its parts:
# loading those takes three times as long as what makes an array directly. What a program registers for all
# pickles goes first.
_DIRECTLY: Any = ChainMap(
    copyreg.dispatch_table, {np.ndarray: _array, **{np.dtype(name).type: _integer for name in INTEGERS}}
)


def _padding(position: int) -> int:
    return -position % _ALIGNMENT


def _pack(body: bytes, buffers: Sequence[memoryview]) -> bytes:
    head = _HEADER.pack(MAGIC, _VERSION, len(body), len(buffers))
    lengths = struct.pack(f"<{len(buffers)}Q", *(len(buffer) for buffer in buffers))
    parts: list[bytes | memoryview] = [
        head,
        lengths,
        body,
        bytes(_padding(len(head) + len(lengths) + len(body))),
    ]
    for buffer in buffers:
        parts += [buffer, bytes(_padding(len(buffer)))]
    return b"".join(parts)


def pickle_in(payload: bytes) -> bytes:
    """The pickle of a payload, for whoever wants to look at it without loading it.

    Raises:
        CodecError: The lengths in the payload do not add up.
    """
    return bytes(_unpack(memoryview(payload), PickleOOB.name)[0])


def _unpack(data: memoryview, codec_name: str) -> tuple[memoryview, list[memoryview]]:
    """The pickle and the buffers of a payload whose lengths add up."""
    # For each sample anew, so without functions of our own, whose calls would take a third of the time.
    total = len(data)
    magic, version, body_length, count = _HEADER.unpack_from(data) if total >= _HEADER_BYTES else (b"",) * 4
    if magic != MAGIC:
        raise _damaged(codec_name, "it does not begin with the bytes 'DRTB'")
    if version != _VERSION:
        raise _damaged(
            codec_name, f"its version is {version}, and this release reads {_VERSION}; upgrade datasetrt"
        )
    end = _HEADER_BYTES + _LENGTH_BYTES * count
    if end > total:
        raise _damaged(codec_name, f"it names {count} buffers and has {total} bytes")
    # Python's integers do not overflow, so the one comparison at the end catches every length.
    parts: list[memoryview] = []
    for length in (body_length, *_lengths(count).unpack_from(data, _HEADER_BYTES)):
        parts.append(data[end : end + length])
        end += length
        if padding := -end % _ALIGNMENT:
            if int.from_bytes(data[end : end + padding], "little"):
                raise _damaged(codec_name, f"the padding from byte {end} on is not zero")
            end += padding
    if end != total:
        raise _damaged(codec_name, f"its lengths add up to {end} bytes, and it has {total}")
    return parts.pop(0), parts


@lru_cache(maxsize=64)
def _lengths(count: int) -> struct.Struct:
    """What reads so many lengths; making it takes longer than using it."""
    return struct.Struct(f"<{count}Q")


def _damaged(codec_name: str, what: str) -> CodecError:
    return CodecError(f"{codec_name}: the payload is damaged: {what}; {CURE}", kind="decode")
