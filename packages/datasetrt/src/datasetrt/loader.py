"""Batches of a dataset in the order of a sampler, epoch after epoch, from any position on."""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
    get_args,
)

import numpy as np

from ._core import SampleBatch, Stream
from .checks import WORD, choice, count, flag, invalid, whole
from .sampler import Sampler, Shard
from .state import LoaderState, checked_state
from .transform import Assembly, Drawn

if TYPE_CHECKING:
    from .dataset import CachedDataset

T_co = TypeVar("T_co", covariant=True)

OnCorrupt: TypeAlias = Literal["raise", "substitute"]

PREFETCH_BYTES = 256 * 1024 * 1024

_log = logging.getLogger("datasetrt")


@dataclass(frozen=True)
class LoaderOptions:
    """How a loader cuts and reads batches; checked when it is made."""

    batch_size: int | None
    drop_last: bool
    shard: Shard
    threads: int | None
    prefetch_batches: int
    prefetch_bytes: int
    on_corrupt: OnCorrupt

    def __post_init__(self) -> None:
        for name in ("batch_size", "threads"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, count(name, getattr(self, name)))
        for name, least in (("prefetch_batches", 0), ("prefetch_bytes", 1)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least))
        flag("drop_last", self.drop_last)
        choice("on_corrupt", self.on_corrupt, get_args(OnCorrupt))
        if not isinstance(self.shard, Shard):
            raise invalid(f"shard = {self.shard!r} is a {type(self.shard).__name__}; give a Shard")
        if self.batch_size is None and self.drop_last:
            raise invalid("drop_last=True needs a batch_size; with batch_size=None there is no last batch")


class LoaderKwargs(TypedDict, total=False):
    """The arguments of :meth:`CachedDataset.loader` that do not change the type of what a loop yields."""

    sampler: Sampler
    drop_last: bool
    shard: Shard
    threads: int | None
    prefetch_batches: int
    prefetch_bytes: int
    on_corrupt: OnCorrupt


class _Cursor(NamedTuple):
    """A place in the run: what was delivered of which epoch, counted over all ranks."""

    epoch: int
    position: int


class Loader(Generic[T_co]):
    """Batches of a dataset, epoch after epoch; made by :meth:`CachedDataset.loader`.

    Each ``iter(loader)`` is the next epoch, also after a loop that was left early. Epochs are read ahead by
    native threads, which end with the iterator.

    The state counts what was handed out, on the assumption that all ranks are in step. It is the same on all
    ranks, and for any world size, batch size, number of threads and prefetch. The newest iterator owns it.
    Once the last batch of an epoch is handed out, the state is the start of the next epoch.

    A loader pickles with its place in the run, if its transform and collate pickle.

    Example:
        >>> import datasetrt as drt
        >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, sampler=drt.Shuffle(seed=7))
        >>> [len(batch) for batch in loader], loader.epoch
        ([4, 4, 2], 1)
    """

    def __init__(
        self, dataset: CachedDataset, sampler: Sampler, options: LoaderOptions, work: Assembly
    ) -> None:
        if not isinstance(sampler, Sampler):
            raise invalid(
                f"sampler = {sampler!r} is a {type(sampler).__name__}; give Shuffle(seed=…) or another one"
            )
        self._dataset = dataset
        self._sampler = sampler
        self._options = options
        self._uneven = options.shard._uneven_for(sampler)
        self._work = work
        # What the state says, and where the next loop begins: the same, unless a loop runs or was left.
        self._cursor = self._next = _Cursor(0, 0)
        self._live: weakref.ref[LoaderIterator[T_co]] | None = None
        self._meter = _Meter()
        self._length: int | None = None
        # What cannot be bound to the dataset is refused now, not in the first loop.
        dataset._order(sampler)

    @property
    def dataset(self) -> CachedDataset:
        """The dataset that is read."""
        return self._dataset

    @property
    def sampler(self) -> Sampler:
        """The order in which it is read."""
        return self._sampler

    @property
    def shard(self) -> Shard:
        """Which part of each global batch this loader delivers."""
        return self._options.shard

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch of this rank; None where the loop gets samples."""
        return self._options.batch_size

    @property
    def epoch(self) -> int:
        """The epoch that the state is in."""
        return self._cursor.epoch

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank; samples, with ``batch_size=None``."""
        if self._length is None:
            stream = self._stream(_Cursor(0, 0))
            self._length = len(stream)
            stream.close()
        return self._length

    def __iter__(self) -> LoaderIterator[T_co]:
        """Begin the next epoch, or continue the one that a loaded state is in."""
        start = self._next
        iterator: LoaderIterator[T_co] = LoaderIterator(self, start)
        self._cursor, self._next = start, _Cursor(start.epoch + 1, 0)
        self._live = weakref.ref(iterator)
        self._meter = iterator._meter
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop be this epoch.

        A loaded state that is in this epoch keeps its position. Otherwise the next loop begins the epoch
        from its start, also where the last loop over it was left early. A loop that runs is not disturbed:
        until it ends, the state speaks of it.

        Args:
            epoch: In ``[0, 2**64)``.

        Raises:
            InvalidInputError: Out of range, or no whole number.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, sampler=drt.Shuffle(seed=7))
            >>> loader.set_epoch(3)
            >>> loader.epoch, next(iter(loader)).epoch
            (3, 3)
        """
        epoch = whole("epoch", epoch, 0, WORD)
        if epoch != self._next.epoch:
            self._next = _Cursor(epoch, 0)
        if self._running() is None:
            self._cursor = self._next

    def state_dict(self) -> LoaderState:
        """Where the run is: a small dict that JSON keeps exactly.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
            >>> first = next(iter(loader))
            >>> state = loader.state_dict()
            >>> state["epoch"], state["position"], state["sampler"]
            (0, 4, {'kind': 'sequential'})
        """
        return {
            "version": 1,
            "fingerprint": self._dataset.fingerprint,
            "sampler": self._sampler._state(),
            "epoch": self._cursor.epoch,
            "position": self._cursor.position,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the place that a state names: the next loop finishes its epoch.

        Everything is checked before anything changes. An iterator made before goes on, but no longer counts.

        Args:
            state: What :meth:`state_dict` gave, of any rank and any world size.

        Raises:
            StateError: It is malformed, or belongs to other rows, other weights or another sampler; names the
                difference.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
            >>> state = {**loader.state_dict(), "position": 8}
            >>> loader.load_state_dict(state)
            >>> [batch.indices.tolist() for batch in loader]
            [[8, 9]]
        """
        length = len(self._dataset._order(self._sampler))
        epoch, position = checked_state(state, self._dataset.fingerprint, self._sampler._state(), length)
        self._live = None
        self._cursor = self._next = _Cursor(epoch, position)

    def stats(self) -> dict[str, float]:
        """Where the time of the newest loop went.

        Returns:
            ``samples`` and ``bytes`` that were read; ``consumer_wait_seconds``, in which the loop waited for
            data; ``reader_wait_seconds``, in which readers waited because enough was read ahead;
            ``read_seconds`` spent reading, summed over threads; ``transform_seconds`` spent in transform and
            collate; and ``input_bound``: whether the loop waited for data longer than readers waited for it.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
            >>> batches = list(loader)
            >>> loader.stats()["samples"]
            10
        """
        return self._meter.figures()

    def close(self) -> None:
        """End the loop that runs, with its native threads; the state stays, and the next loop may begin."""
        running = self._running()
        if running is not None:
            running.close()

    def __enter__(self) -> Loader[T_co]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # A loop belongs to its process; its place in the run travels.
        return {**self.__dict__, "_live": None, "_meter": _Meter()}

    def __repr__(self) -> str:
        shard = self._options.shard
        ranks = f", rank {shard.rank} of {shard.world_size}" if shard.world_size > 1 else ""
        return (
            f"Loader({self._sampler}, batch_size={self._options.batch_size}{ranks}, "
            f"epoch {self._cursor.epoch}, position {self._cursor.position})"
        )

    def _stream(self, start: _Cursor) -> Stream:
        options = self._options
        samples = self._dataset._samples_per_read if options.batch_size is None else 1
        return Stream(
            self._dataset._view,
            self._dataset._order(self._sampler),
            epoch=start.epoch,
            start=start.position,
            batch_size=1 if options.batch_size is None else options.batch_size,
            rank=options.shard.rank,
            world_size=options.shard.world_size,
            uneven=self._uneven,
            drop_last=options.drop_last,
            steps_per_read=samples,
            threads=options.threads,
            prefetch_batches=options.prefetch_batches,
            prefetch_bytes=options.prefetch_bytes,
            on_corrupt=options.on_corrupt,
        )

    def _running(self) -> LoaderIterator[T_co] | None:
        iterator = None if self._live is None else self._live()
        return None if iterator is None or iterator._ended else iterator

    def _delivered(self, iterator: LoaderIterator[T_co], epoch: int, position: int | None) -> None:
        """Count what an iterator handed out; no position means that its epoch is over."""
        if self._live is not None and self._live() is iterator:
            self._cursor = self._next if position is None else _Cursor(epoch, position)


class LoaderIterator(Iterator[T_co]):
    """One loop over a loader: the rest of one epoch, from the place where the loader was when it was made.

    An exception of transform or collate leaves it at the same batch, which the next call tries again.
    Dropping it ends its native threads, as does :meth:`close`.

    Example:
        >>> import datasetrt as drt
        >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
        >>> with iter(loader) as batches:
        ...     next(batches).indices.tolist()
        [0, 1, 2, 3]
    """

    def __init__(self, loader: Loader[T_co], start: _Cursor) -> None:
        # Set first, so that an iterator that could not be made can be dropped.
        self._ended = True
        self._loader = loader
        self._work = loader._work
        self._by_sample = loader.batch_size is None
        self._epoch = start.epoch
        self._steps = 0
        # What is being handed out; it stays until that succeeds.
        self._pending: SampleBatch | Drawn | None = None
        self._ahead: deque[Drawn] = deque()
        self._order = loader._dataset._order(loader.sampler)
        self._length = len(self._order)
        self._stream = loader._stream(start)
        self._meter = _Meter(self._stream)
        self._ended = False

    def __iter__(self) -> LoaderIterator[T_co]:
        return self

    def __next__(self) -> T_co:
        pending = self._fetch() if self._pending is None else self._pending
        begin = time.perf_counter()
        try:
            if isinstance(pending, Drawn):
                result = self._work.sample(pending)
            else:
                result = self._work.batch(pending, self._order)
        finally:
            self._meter.transform_seconds += time.perf_counter() - begin
        self._hand_out()
        return cast(T_co, result)

    def close(self) -> None:
        """End the loop and its native threads; the next call of ``next`` raises StopIteration."""
        if not self._ended:
            self._ended = True
            self._pending = None
            self._ahead.clear()
            self._meter.stop()
            self._stream.close()

    def __enter__(self) -> LoaderIterator[T_co]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _fetch(self) -> SampleBatch | Drawn:
        if self._ended:
            raise StopIteration
        if self._by_sample:
            if not self._ahead:
                self._ahead.extend(self._read_samples())
            self._pending = self._ahead.popleft() if self._ahead else None
        else:
            self._pending = self._stream.next()
            self._log_substitutions()
        if self._pending is None:
            self._finish()
            raise StopIteration
        return self._pending

    def _read_samples(self) -> Iterator[Drawn]:
        samples, positions = self._stream.next_samples()
        self._log_substitutions()
        seeds: Iterable[int] = repeat(0)
        if self._work.seeded:
            seeds = self._order.transform_seeds(self._epoch, np.array(positions, np.int64))
        return map(Drawn, samples, repeat(self._epoch), positions, seeds)

    def _log_substitutions(self) -> None:
        for lost in self._stream.substitutions():
            _log.warning(
                "sample %d of cache %s cannot be read; row %d takes its place at position %d of epoch %d: %s",
                lost["sample_id"],
                lost["cache_id"],
                lost["replacement_row"],
                lost["position"],
                self._epoch,
                lost["message"],
            )

    def _hand_out(self) -> None:
        self._pending = None
        self._steps += 1
        position = self._stream.position_after(self._steps)
        if position < self._length:
            self._loader._delivered(self, self._epoch, position)
        else:
            self._finish()

    def _finish(self) -> None:
        self._loader._delivered(self, self._epoch, None)
        self.close()


@dataclass(eq=False)
class _Meter:
    """The figures of one loop; they outlive it."""

    stream: Stream | None = None
    transform_seconds: float = 0.0
    native: dict[str, float] = field(default_factory=dict)

    def stop(self) -> None:
        if self.stream is not None:
            self.native, self.stream = self.stream.stats(), None

    def figures(self) -> dict[str, float]:
        native = self.native if self.stream is None else self.stream.stats()
        names = ("samples", "bytes", "consumer_wait_seconds", "reader_wait_seconds", "read_seconds")
        found = {name: native.get(name, 0) for name in names}
        input_bound = found["consumer_wait_seconds"] > found["reader_wait_seconds"]
        return {**found, "transform_seconds": self.transform_seconds, "input_bound": input_bound}
