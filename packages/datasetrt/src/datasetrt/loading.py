"""How a dataset is loaded: the one method with many types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeVar, Unpack, cast, overload

import typing_extensions

from ._core import CachedSample, SampleBatch
from .checks import invalid
from .loader import PREFETCH_BYTES, Loader, LoaderKwargs, LoaderOptions, OnCorrupt
from .sampler import Sampler, Sequential, Shard
from .transform import assembly

if TYPE_CHECKING:
    from .codecs import Codec
    from .dataset import CachedDataset

T = TypeVar("T")
R = TypeVar("R")
B = TypeVar("B")
#: What a row gives; a plain CachedDataset gives samples. ``typing`` has such defaults from Python 3.13 on.
T_co = typing_extensions.TypeVar("T_co", covariant=True, default=CachedSample)

_SEQUENTIAL = Sequential()
_WHOLE = Shard()


class Loadable(Generic[T_co]):
    """The part of :class:`CachedDataset` that makes loaders."""

    __slots__ = ()

    # The type of what a loop yields follows from the dataset's transform, batch_size, transform and collate.
    # Only a dataset of Any, such as one with a codec, passes for one of Never: what a codec makes of a batch
    # is its own choice. It comes first, because it passes for one of samples as well.
    # The two after it overlap where a dataset of samples passes for one of objects, not told apart.

    @overload
    def loader(
        self: Loadable[Never],
        *,
        batch_size: int = 256,
        transform: None = None,
        collate: None = None,
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[Any]: ...
    @overload
    def loader(  # type: ignore[overload-overlap]
        self: Loadable[CachedSample],
        *,
        batch_size: int = 256,
        transform: None = None,
        collate: None = None,
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[SampleBatch]: ...
    @overload
    def loader(
        self: Loadable[R],
        *,
        batch_size: int = 256,
        transform: None = None,
        collate: None = None,
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[list[R]]: ...
    @overload
    def loader(
        self,
        *,
        batch_size: int = 256,
        transform: Callable[[CachedSample], T],
        collate: None = None,
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[list[T]]: ...
    @overload
    def loader(
        self,
        *,
        batch_size: int = 256,
        transform: Callable[[CachedSample, int], T],
        collate: None = None,
        seeded: Literal[True],
        **options: Unpack[LoaderKwargs],
    ) -> Loader[list[T]]: ...
    @overload
    def loader(
        self,
        *,
        batch_size: int = 256,
        transform: Codec[Any],
        collate: None = None,
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[Any]: ...
    @overload
    def loader(
        self: Loadable[R],
        *,
        batch_size: int = 256,
        transform: None = None,
        collate: Callable[[list[R]], B],
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[B]: ...
    @overload
    def loader(
        self,
        *,
        batch_size: int = 256,
        transform: Callable[[CachedSample], T] | Codec[T],
        collate: Callable[[list[T]], B],
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[B]: ...
    @overload
    def loader(
        self,
        *,
        batch_size: int = 256,
        transform: Callable[[CachedSample, int], T],
        collate: Callable[[list[T]], B],
        seeded: Literal[True],
        **options: Unpack[LoaderKwargs],
    ) -> Loader[B]: ...
    @overload
    def loader(
        self,
        *,
        batch_size: None,
        transform: None = None,
        collate: None = None,
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[T_co]: ...
    @overload
    def loader(
        self,
        *,
        batch_size: None,
        transform: Callable[[CachedSample], T] | Codec[T],
        collate: None = None,
        seeded: Literal[False] = False,
        **options: Unpack[LoaderKwargs],
    ) -> Loader[T]: ...
    @overload
    def loader(
        self,
        *,
        batch_size: None,
        transform: Callable[[CachedSample, int], T],
        collate: None = None,
        seeded: Literal[True],
        **options: Unpack[LoaderKwargs],
    ) -> Loader[T]: ...
    def loader(
        self,
        *,
        batch_size: int | None = 256,
        sampler: Sampler = _SEQUENTIAL,
        transform: Callable[..., Any] | Codec[Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        seeded: bool = False,
        drop_last: bool = False,
        shard: Shard = _WHOLE,
        threads: int | None = None,
        prefetch_batches: int = 2,
        prefetch_bytes: int = PREFETCH_BYTES,
        on_corrupt: OnCorrupt = "raise",
    ) -> Loader[Any]:
        """Batches in the order of a sampler, epoch after epoch, resumable at any batch.

        Args:
            batch_size: Samples in a batch of this rank; None to get samples instead of batches.
            sampler: The order; :class:`Sequential` is that of the active table.
            transform: A function of a sample, called in the loop's own thread; or a codec, which decodes each
                payload. A codec that can decode a whole batch does so where there is no ``collate``, and the
                loop gets what its ``loads_batch`` returns. None takes that of the dataset, if it has one
                (:meth:`CachedDataset.with_transform`). Without transform and collate the loop gets
                :class:`SampleBatch`; with a transform alone, a list of its results.
            collate: A function of the list of a batch's results (or samples); the loop gets its result.
            seeded: Call ``transform(sample, seed)``, with a seed in ``[0, 2**63)`` that depends on the
                sampler's seed, the epoch and the position alone: the same however a run is split or resumed.
            drop_last: Leave out the last global batch if it is not full.
            shard: Which part of each global batch this process takes.
            threads: Native threads that read; None takes what the process may use.
            prefetch_batches: Batches read ahead; 0 reads each when it is asked for.
            prefetch_bytes: Threads begin no further batch while so many bytes are ready, whatever the number
                of batches; the batch that each is at comes on top.
            on_corrupt: ``"raise"``, or ``"substitute"``: a sample whose record is damaged (kinds
                ``record-checksum``, ``bad-record``, ``decompression``, ``unexpected-end``) is replaced by
                another, always the same one, and logged; batches keep their length. What concerns a whole
                file, such as ``shard-mismatch``, is raised.

        Raises:
            InvalidInputError: An argument breaks a rule; :class:`Sequential` with several ranks and no
                ``uneven``; a sampler that does not fit the dataset.
            CodecError: The payloads were packed by another codec; names both.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> label = lambda sample: sample.metadata["label"]
            >>> list(ds.loader(batch_size=4, transform=label, collate=sum))
            [6, 22, 17]
        """
        options = LoaderOptions(
            batch_size, drop_last, shard, threads, prefetch_batches, prefetch_bytes, on_corrupt
        )
        if batch_size is None and collate is not None:
            raise invalid("collate needs a batch_size; with batch_size=None the loop gets samples")
        ds = cast("CachedDataset[Any]", self)
        return Loader(ds, sampler, options, assembly(ds, transform, collate, seeded))
