"""What a codec is, and the few helpers that all codecs share."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from datasetrt.checks import invalid
from datasetrt.errors import CodecError
from datasetrt.wording import a_type, reason, shown

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class Codec(Protocol[T]):
    """Packs objects into payload bytes and unpacks them again.

    A codec is a value: immutable, hashable, picklable, equal to another one with the same options. ``name``
    is what a cache's manifest records about its payloads; it names the layout of the bytes, and not the
    options of one reader. Anything with these three members is a codec; no base class is needed.

    Example:
        >>> import datasetrt as drt
        >>> isinstance(drt.codecs.Json(), drt.codecs.Codec)
        True
    """

    @property
    def name(self) -> str:
        """What the manifest records, such as ``npy``."""
        ...

    def dumps(self, obj: T, /) -> bytes:
        """Pack one object; raises `CodecError` for one that would not come back as it was."""
        ...

    def loads(self, buffer: Buffer, /) -> T:
        """Unpack one payload, any C-contiguous buffer; raises `CodecError`."""
        ...


class PayloadBatch(Protocol):
    """What ``loads_batch`` needs of a batch; `SampleBatch` has it."""

    def __len__(self) -> int: ...

    @property
    def payloads(self) -> Sequence[memoryview]: ...

    @property
    def lengths(self) -> npt.NDArray[np.int64]: ...

    def as_array(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]: ...


@runtime_checkable
class SplitBatch(Protocol):
    """A batch that cuts its payloads into columns by itself; `SampleBatch` does."""

    def split(self, widths: Sequence[int]) -> list[memoryview]: ...


@runtime_checkable
class BatchCodec(Codec[T], Protocol[T]):
    """A codec that also unpacks all payloads of a batch in one call.

    One that also has ``column_widths``, a sequence of widths in bytes, gets batches that were read in those
    columns where it can be: :meth:`SampleBatch.split` then copies nothing.

    Example:
        >>> import datasetrt as drt
        >>> [isinstance(codec, drt.codecs.BatchCodec) for codec in (drt.codecs.Npy(), drt.codecs.Json())]
        [True, False]
    """

    def loads_batch(self, batch: PayloadBatch, /) -> Any:
        """Unpack a whole batch; what comes back is the codec's own choice.

        Arrays may be handed on without a copy, so each call gives fresh ones, to which the codec never
        writes again.
        """
        ...


class _HasCodec(Protocol):
    @property
    def codec(self) -> str | None: ...


def check(dataset: _HasCodec, codec: Codec[Any]) -> None:
    """Refuse to decode a dataset with another codec than the one it was written with.

    Nothing is read. A dataset whose source named no codec passes with any.

    Args:
        dataset: Anything with ``codec``, the name in the manifest or None; usually a `CachedDataset`.
        codec: The codec about to be used.

    Raises:
        CodecError: The names differ (kind ``codec-mismatch``); the message has both.
        InvalidInputError: It is the class of a codec, or the first argument no dataset.

    Example:
        >>> import datasetrt as drt
        >>> from types import SimpleNamespace
        >>> drt.codecs.check(SimpleNamespace(codec="npy"), drt.codecs.Npy())
        >>> drt.codecs.check(SimpleNamespace(codec="npy"), drt.codecs.Json())
        Traceback (most recent call last):
        datasetrt.errors.CodecError: the dataset was written with codec 'npy' and cannot be decoded with...
    """
    if not hasattr(dataset, "codec"):
        raise invalid(f"dataset = {shown(dataset)} is {a_type(dataset)}; give a CachedDataset")
    if isinstance(codec, type):
        raise invalid(
            f"codec = {shown(codec)} is the class of a codec; give an instance, such as {codec.__name__}()"
        )
    if not isinstance(codec, Codec):
        raise invalid(f"codec = {shown(codec)} is {a_type(codec)}; give a codec, such as drt.codecs.Json()")
    packed = _codecs_of(dataset)
    if len(packed) > 1:
        raise CodecError(
            f"the rows were written with codecs {' and '.join(map(shown, packed))}, and one decodes all; "
            "filter the rows of one cache (by cache_id), or open the caches one by one",
            kind="codec-mismatch",
        )
    for written in packed:
        if written != codec.name:
            raise CodecError(
                f"the dataset was written with codec {shown(written, 200)} and cannot be decoded with "
                f"{shown(codec.name, 200)}; decode with the codec that wrote it",
                kind="codec-mismatch",
            )


def _codecs_of(dataset: _HasCodec) -> list[str]:
    """The codecs that wrote its rows: each cache may name another one, and ``dataset.codec`` none then."""
    names = getattr(dataset, "_codecs", None)
    return [dataset.codec] if names is None and dataset.codec is not None else list(names or ())


def byte_view(buffer: Buffer, codec_name: str) -> memoryview:
    """The bytes of a C-contiguous buffer, without a copy, as writable as the buffer is."""
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError, BufferError) as error:
        # Also what is a buffer and cannot be had: one that was released, an array of dates.
        cure = (
            "give sample.data"
            if hasattr(buffer, "sample_id")
            else "give bytes, a memoryview or another buffer"
        )
        raise CodecError(
            f"{codec_name}: a payload cannot be {a_type(buffer)}; {cure}", kind="decode"
        ) from error
    if view.ndim == 1 and view.format == "B" and view.c_contiguous:
        return view
    if not view.c_contiguous:
        raise CodecError(f"{codec_name}: the payload is not C-contiguous; give bytes(payload)", kind="decode")
    # Not memoryview.cast, which refuses empty views and formats such as big-endian.
    return PickleBuffer(view).raw()


def decode_error(codec_name: str, error: BaseException) -> CodecError:
    """What ``loads`` raises where a payload cannot be decoded; raise it from ``error``."""
    return CodecError(
        f"{codec_name}: the payload cannot be decoded ({reason(error)}); "
        "verify the cache, and decode with the codec that packed it",
        kind="decode",
    )


def encode_error(codec_name: str, obj: object, error: BaseException) -> CodecError:
    """What ``dumps`` raises where an object cannot be packed; raise it from ``error``."""
    return CodecError(
        f"{codec_name}: {a_type(obj)} cannot be packed ({reason(error)}); "
        "change what the message names, or pack it with another codec",
        kind="encode",
    )


def require(module: str) -> Any:
    """An optional package, imported at its first use."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CodecError(
            f"{module}: the package is not installed; pip install 'datasetrt[{module}]'",
            kind="missing-dependency",
        ) from error
