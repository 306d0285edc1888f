"""One loop over a loader: an epoch, from some position on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ._core import Handout, Steps
from .errors import DatasetRTError
from .figures import LoaderStats, of_loop
from .transform import Assembly, Drawn

if TYPE_CHECKING:
    from ._core import BatchInfo, BatchPlan, CachedSample, Order, SampleBatch, Stream

T_co = TypeVar("T_co", covariant=True)

_log = logging.getLogger("datasetrt")


class Cursor(NamedTuple):
    """A place in the run: what was handed out of which epoch, counted over all ranks."""

    epoch: int
    position: int


@dataclass(eq=False)
class Loop:
    """How far a loop is and where its time went; its loader knows it for longer than it lasts."""

    epoch: int
    stream: Stream
    order: Order
    plan: BatchPlan
    #: Counts the steps, and holds samples that are handed out as they are.
    handout: Handout
    #: What was handed out last, but for samples as they are.
    handed: BatchInfo | None = None
    transform_seconds: float = 0.0
    #: No step is left on this rank, or nobody asks for one any more.
    ended: bool = False
    _exhausted: bool = False
    _began: float = field(default_factory=time.perf_counter)
    #: How long it ran, once it has ended.
    _lasted: float | None = None

    @property
    def last(self) -> BatchInfo | None:
        """What was handed out last."""
        return self.handout.last if self.handed is None else self.handed

    def cursor(self) -> Cursor | None:
        """Where the run is because of this loop; None once its epoch is over."""
        position = self.plan.position_after(self.handout.steps)
        return None if self._exhausted or position >= self.plan.length else Cursor(self.epoch, position)

    def exhaust(self) -> None:
        """Note that this rank has no step left, though another one may."""
        self._exhausted = True
        self.end()

    def end(self) -> None:
        """End the native threads; harmless when repeated."""
        # Refused while another thread waits for the stream, which must then find the loop as it was.
        self.stream.close()
        if self._lasted is None:
            self._lasted = time.perf_counter() - self._began
        self.ended = True
        self.handout.clear()

    def figures(self) -> LoaderStats:
        """Counts and seconds so far."""
        lasted = time.perf_counter() - self._began if self._lasted is None else self._lasted
        stream = self.stream.stats()
        stream["hand_over_seconds"] += self.handout.hand_over_seconds
        return of_loop(stream, self.transform_seconds, lasted)


class LoaderIterator(Steps, Iterator[T_co]):
    """One loop over a loader, made by ``iter(loader)``: the rest of one epoch, from where the loader is.

    An iterator of which nothing was ever asked has begun no epoch: some frameworks make one only to see
    whether they can. Its native threads start with the second ``next``, or during the first one where that
    takes more than half a millisecond.

    An exception of transform or collate leaves it at the same batch, which the next call tries again.
    Dropping it ends its native threads, as does :meth:`close`.

    One call of ``next`` at a time: another one, of another thread or of the transform that the first one
    runs, is refused with a :class:`DatasetRTError` of the kind ``closed``, and changes nothing.

    Example:
        >>> import datasetrt as drt
        >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
        >>> with iter(loader) as batches:
        ...     next(batches).indices.tolist()
        [0, 1, 2, 3]
    """

    # The call of next that runs. Never waited for: a transform may do whatever it likes. No lock, because
    # Ctrl-C can come between taking one and the next line. Python handles signals at calls and jumps back, so
    # never between a test of this and the line after it.
    _holder: object = None

    def __init__(self, begin: Callable[[], Loop], work: Assembly, *, by_sample: bool) -> None:
        # Makes the loop with the first call of next; None from then on, and once it is closed.
        self._begin: Callable[[], Loop] | None = begin
        self._loop: Loop | None = None
        self._work = work
        self._by_sample = by_sample
        self._as_is = work.nothing
        self._passes_on = by_sample and work.nothing
        # What the stream gave and is not unpacked yet, and what is to be handed out, the next one last. Both
        # stay until that has succeeded.
        self._read: list[Any] = []
        self._ready: list[tuple[SampleBatch | CachedSample | Drawn, BatchInfo]] = []

    def __iter__(self) -> LoaderIterator[T_co]:
        return self

    @property
    def last(self) -> BatchInfo | None:
        """What the batch is made of that was handed out last: see :attr:`Loader.last`.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, transform=lambda sample: sample.data)
            >>> batches = iter(loader)
            >>> batches.last is None, len(next(batches)), batches.last.indices.tolist()
            (True, 4, [0, 1, 2, 3])
        """
        return None if self._loop is None else self._loop.last

    if TYPE_CHECKING:

        def __next__(self) -> T_co: ...

    def _advance(self) -> T_co:
        """What ``next`` gives where no sample is ready to be passed on; NotImplemented once some are."""
        holder = object()
        try:
            if self.__dict__.setdefault("_holder", holder) is not holder:
                raise DatasetRTError(
                    "this iterator is being advanced already, by another thread or by its own transform; "
                    "give each thread its own, and leave it alone in its transform",
                    kind="closed",
                )
            return self._step()
        finally:
            if self._holder is holder:
                del self._holder

    def _step(self) -> T_co:
        if self._begin is not None:
            self._loop = self._begin()
            self._begin = None
        loop = self._loop
        if loop is None:  # closed before it began
            raise StopIteration
        if loop.ended:
            raise StopIteration
        if self._passes_on:
            # Each time: Ctrl-C may have come between the begin of the loop and the first one.
            self._hand_out(loop.handout)
            self._fill(loop)
            return NotImplemented  # type: ignore[no-any-return]
        if not self._ready:
            self._fill(loop)
        pending, info = self._ready[-1]
        result: T_co = pending if self._as_is else self._worked(pending, loop)  # type: ignore[assignment]
        # From here on without a call, at which Python would look for signals: it counts, or it comes again.
        # The loop ends with the next call, which finds nothing more.
        loop.handed = info
        del self._ready[-1]
        loop.handout.steps += 1
        return result

    def close(self) -> None:
        """End the loop and its native threads; the next call of ``next`` raises StopIteration.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
            >>> batches = iter(loader)
            >>> batches.close()
            >>> next(batches, None) is None
            True
        """
        self._begin = None
        if self._loop is not None:
            self._loop.end()
        # A call of next that runs is still handing these out; it may be the one whose transform closes.
        holder = object()
        try:
            if self.__dict__.setdefault("_holder", holder) is holder:
                self._read = []
                self._ready = []
        finally:
            if self._holder is holder:
                del self._holder

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies would take batches from each other, and the first one that is dropped would end the rest.
        raise TypeError(
            "a LoaderIterator cannot be copied or pickled; copy its loader, or save loader.state_dict()"
        )

    def __enter__(self) -> LoaderIterator[T_co]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        loop = getattr(self, "_loop", None)  # Not there where __init__ never ran.
        if loop is not None:
            loop.end()

    def _fill(self, loop: Loop) -> None:
        """Read what is handed out next.

        Raises:
            StopIteration: There is nothing left.
        """
        if self._passes_on:
            more = loop.stream.fill(loop.handout)
        else:
            if not self._read:
                read: Callable[[], Any] = loop.stream.next_samples if self._by_sample else loop.stream.next
                # In one call, so that a signal that comes while the stream reads finds what it gave there.
                self._read.extend(islice(iter(read, None), 1))
            more = bool(self._read)
        _log_substitutions(loop)
        if not more:
            # Closed while we waited, an epoch is not over.
            if not loop.ended:
                loop.exhaust()
            raise StopIteration
        if self._passes_on:
            return
        found = self._read[0]
        ready = self._samples(loop, *found) if self._by_sample else [(found, found.info)]
        # Again without a call in between.
        self._ready = ready
        self._read = []

    def _samples(self, loop: Loop, samples: list[CachedSample], info: BatchInfo) -> list[Any]:
        """Each sample with what is known of it, the first one last."""
        each = map(info.one, range(len(info)))
        seeds: Iterable[int] = repeat(0)
        if self._work.seeded:
            seeds = loop.order.transform_seeds(loop.epoch, info.positions).tolist()
        drawn = map(Drawn, samples, repeat(loop.epoch), info.positions.tolist(), seeds)
        return list(zip(drawn, each, strict=True))[::-1]

    def _worked(self, pending: Any, loop: Loop) -> Any:
        begin = time.perf_counter()
        try:
            if self._by_sample:
                return self._work.sample(pending)
            return self._work.batch(pending, loop.order)
        finally:
            loop.transform_seconds += time.perf_counter() - begin


def _log_substitutions(loop: Loop) -> None:
    for lost in loop.stream.substitutions():
        _log.warning(
            "sample %d of cache %s cannot be read; row %d is read in its place "
            "at position %d of epoch %d: %s",
            lost["sample_id"],
            lost["cache_id"],
            lost["replacement_row"],
            lost["position"],
            loop.epoch,
            lost["message"],
        )
