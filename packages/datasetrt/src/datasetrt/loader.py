"""Batches of a dataset in the order of a sampler, epoch after epoch, from any position on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, get_args

from ._core import BatchInfo, BatchPlan, Handout, Memory, Stream
from .checks import BATCH_SAMPLES, COUNTABLE, THREADS, choice, flag, invalid, whole
from .figures import NOTHING, LoaderStats, of_loop
from .loop import Cursor, LoaderIterator, Loop
from .sampler import Sampler, Shard
from .state import LoaderState, checked_state
from .transform import Assembly
from .wording import a_type, shown

if TYPE_CHECKING:
    from .dataset import CachedDataset

T_co = TypeVar("T_co", covariant=True)

OnCorrupt: TypeAlias = Literal["raise", "substitute"]

PREFETCH_BYTES = 256 * 1024 * 1024


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
        for name, most in (("batch_size", BATCH_SAMPLES), ("threads", THREADS)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(name, getattr(self, name), 1, most + 1))
        for name, least in (("prefetch_batches", 0), ("prefetch_bytes", 1)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least, COUNTABLE))
        flag("drop_last", self.drop_last)
        choice("on_corrupt", self.on_corrupt, get_args(OnCorrupt))
        if not isinstance(self.shard, Shard):
            raise invalid(f"shard = {shown(self.shard)} is {a_type(self.shard)}; give a Shard")
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


class Loader(Generic[T_co]):
    """Batches of a dataset, epoch after epoch; made by :meth:`CachedDataset.loader`.

    Each loop over it is the next epoch, also after a loop that was left early. An epoch begins with the first
    batch that is asked for: an ``iter(loader)`` of which nothing is pulled counts for nothing. Epochs are
    read ahead by native threads, which end with the iterator.

    The state counts what was handed out, on the assumption that all ranks are in step. It is the same on all
    ranks, and for any world size, batch size, number of threads and prefetch. The loop that
    began last owns it.
    Once the last batch of an epoch is handed out, the state is the start of the next epoch.

    :attr:`last` tells which samples of a batch are padding, also where a transform or a codec made it.

    A loader pickles with its place in the run, if its transform and collate pickle.

    Example:
        >>> import datasetrt as drt
        >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, sampler=drt.Shuffle(seed=7))
        >>> [len(batch) for batch in loader], loader.epoch
        ([4, 4, 2], 1)
    """

    def __init__(
        self, dataset: CachedDataset[Any], sampler: Sampler, options: LoaderOptions, work: Assembly
    ) -> None:
        if not isinstance(sampler, Sampler):
            raise invalid(
                f"sampler = {shown(sampler)} is {a_type(sampler)}; give Shuffle(seed=…) or another one"
            )
        self._dataset = dataset
        self._sampler = sampler
        self._options = options
        self._uneven = options.shard._uneven_for(sampler)
        self._work = work
        # Where the run is where no loop says so, and where the next loop begins.
        self._cursor = self._next = Cursor(0, 0)
        # The newest loop, as far as the state speaks of it, and as far as its figures are asked for.
        self._loop: Loop | None = None
        self._newest: Loop | None = None
        self._memory = self._new_memory()
        # What cannot be bound to the dataset is refused now, not in the first loop.
        dataset._order(sampler)
        if options.batch_size is not None:
            work.split  # noqa: B018 - refuses widths that are none

    @property
    def dataset(self) -> CachedDataset[Any]:
        """The dataset that is read.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> ds.loader(batch_size=4).dataset is ds
            True
        """
        return self._dataset

    @property
    def sampler(self) -> Sampler:
        """The order in which it is read.

        Example:
            >>> import datasetrt as drt
            >>> drt.testing.tiny_dataset().loader(sampler=drt.Shuffle(seed=7)).sampler
            Shuffle(seed=7)
        """
        return self._sampler

    @property
    def shard(self) -> Shard:
        """Which part of each global batch this loader delivers.

        Example:
            >>> import datasetrt as drt
            >>> drt.testing.tiny_dataset().loader().shard
            Shard(rank=0, world_size=1, uneven=None)
        """
        return self._options.shard

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch of this rank; None where the loop gets samples.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> ds.loader().batch_size, ds.loader(batch_size=None).batch_size
            (256, None)
        """
        return self._options.batch_size

    @property
    def epoch(self) -> int:
        """The epoch that the state is in.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
            >>> before, batches = loader.epoch, list(loader)
            >>> before, loader.epoch
            (0, 1)
        """
        return self._where().epoch

    @property
    def last(self) -> BatchInfo | None:
        """What the batch is made of that the newest loop was handed last; None before its first one.

        Tells which samples only fill up the batch (``padding``), which stand in for damaged ones
        (``substituted``), and where each stands in the order, whatever a transform, a codec or a collate made
        of them. With ``batch_size=None`` it is about the one sample. Read it in the loop, before the next
        batch is asked for; where something between the loader and you reads ahead, have collate keep it.

        Example:
            >>> import datasetrt as drt
            >>> shard = drt.Shard(rank=1, world_size=2, uneven="pad")
            >>> ds = drt.testing.tiny_dataset(5)
            >>> loader = ds.loader(batch_size=2, transform=lambda sample: sample.sample_id, shard=shard)
            >>> for batch in loader:
            ...     print(batch, loader.last.padding.tolist())
            [2, 3] [False, False]
            [0] [True]
        """
        return None if self._newest is None else self._newest.last

    def plan(self, position: int = 0) -> BatchPlan:
        """The positions of each step of this rank, from a position of an epoch on: what loops go by.

        With :meth:`Sampler.indices_at` and :meth:`Sampler.transform_seeds` it is all that is needed to
        read the batch of any step in any process, as this loader would.

        Args:
            position: Where the first step begins, counted over all ranks as in a state.

        Raises:
            InvalidInputError: The epoch has no such position.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> loader = ds.loader(batch_size=4, sampler=drt.Shuffle(seed=7))
            >>> rows = loader.sampler.indices_at(ds, loader.plan().positions(1))
            >>> rows.tolist() == list(loader)[1].indices.tolist()
            True
        """
        length = len(self._dataset._order(self._sampler))
        return self._plan(whole("position", position, 0, length + 1))

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank; samples, with ``batch_size=None``.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> len(ds.loader(batch_size=4)), len(ds.loader(batch_size=4, drop_last=True))
            (3, 2)
        """
        return len(self._plan(0))

    def __iter__(self) -> LoaderIterator[T_co]:
        """The next epoch, or the rest of the one that a loaded state is in.

        It begins with the first ``next``, which raises :class:`InvalidInputError` where the last epoch,
        ``2**63 - 1``, is over.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
            >>> for batch in loader:
            ...     break
            >>> [batch.epoch for batch in loader]
            [1, 1, 1]
        """
        return LoaderIterator(self._begin, self._work, by_sample=self._options.batch_size is None)

    def _begin(self) -> Loop:
        """The loop that begins now; it is the one that the state speaks of."""
        start = self._next
        if start.epoch >= COUNTABLE:
            raise invalid(f"epoch {COUNTABLE - 1} was the last one; begin another run with set_epoch")
        plan = self._plan(start.position)
        stream, order = self._stream(start.epoch, plan), self._dataset._order(self._sampler)
        loop = Loop(start.epoch, stream, order, plan, Handout())
        self._next = Cursor(start.epoch + 1, 0)
        self._loop = self._newest = loop
        return loop

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop be this epoch.

        A loaded state that is in this epoch keeps its position. Otherwise the next loop begins the epoch
        from its start, also where the last loop over it was left early. A loop that runs is not disturbed:
        until it ends, the state speaks of it.

        Args:
            epoch: In ``[0, 2**63)``.

        Raises:
            InvalidInputError: Out of range, or no whole number.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4, sampler=drt.Shuffle(seed=7))
            >>> loader.set_epoch(3)
            >>> loader.epoch, next(iter(loader)).epoch
            (3, 3)
        """
        epoch = whole("epoch", epoch, 0, COUNTABLE)
        if epoch != self._next.epoch:
            self._next = Cursor(epoch, 0)
        if self._loop is None or self._loop.ended:
            self._loop = None
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
        epoch, position = self._where()
        return {
            "version": 1,
            "fingerprint": self._dataset.fingerprint,
            "sampler": self._sampler._state(),
            "epoch": epoch,
            "position": position,
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
        self._loop = None
        self._cursor = self._next = Cursor(epoch, position)

    def stats(self) -> LoaderStats:
        """Where the time of the newest loop went.

        Returns:
            All of the newest loop so far, and 0 or False before the first one. Of samples: ``samples``,
            padding included, and ``bytes``, of their payloads, that left the readers for the loop. In
            readers, summed over threads:

            - ``read_seconds``: reading files.
            - ``verify_seconds``: comparing checksums.
            - ``decompress_seconds``: decompressing.
            - ``gather_seconds``: looking up rows, and their metadata once the loop has asked for some.
            - ``reader_wait_seconds``: waiting, because enough was read ahead.

            In the loop's own thread:

            - ``consumer_wait_seconds``: waiting for data, or reading it itself.
            - ``hand_over_seconds``: making Python objects of what was read.
            - ``transform_seconds``: in transform and collate.
            - ``consumer_seconds``: everything else since the first ``next``: what the loop does.

            And what that means:

            - ``input_bound``: True where the loop waited for data longer than readers waited for it, and for
              at least 5 % of its time.
            - ``advice``: the same in a sentence, with what to change.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
            >>> batches = list(loader)
            >>> loader.stats()["samples"]
            10
        """
        return of_loop(NOTHING, 0.0, 0.0) if self._newest is None else self._newest.figures()

    def close(self) -> None:
        """End the loop that runs, with its native threads; the state stays, and the next loop may begin.

        Example:
            >>> import datasetrt as drt
            >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
            >>> batches = iter(loader)
            >>> batch = next(batches)
            >>> loader.close()
            >>> list(batches), loader.state_dict()["position"]
            ([], 4)
        """
        if self._newest is not None:
            self._newest.end()

    def __enter__(self) -> Loader[T_co]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        # A loop belongs to its process; its place in the run travels, and the copy goes on from there.
        place = self._where()
        state = {**self.__dict__, "_cursor": place, "_next": place, "_loop": None, "_newest": None}
        del state["_memory"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._memory = self._new_memory()

    def __repr__(self) -> str:
        shard = self._options.shard
        ranks = f", rank {shard.rank} of {shard.world_size}" if shard.world_size > 1 else ""
        return (
            f"Loader({self._sampler}, batch_size={self._options.batch_size}{ranks}, "
            f"epoch {self._where().epoch}, position {self._where().position})"
        )

    def _where(self) -> Cursor:
        if self._loop is None:
            return self._cursor
        return self._loop.cursor() or self._next

    def _new_memory(self) -> Memory:
        options = self._options
        return Memory(prefetch_batches=options.prefetch_batches, prefetch_bytes=options.prefetch_bytes)

    def _plan(self, start: int) -> BatchPlan:
        options = self._options
        return BatchPlan(
            len(self._dataset._order(self._sampler)),
            start,
            1 if options.batch_size is None else options.batch_size,
            options.shard.rank,
            options.shard.world_size,
            self._uneven,
            options.drop_last,
        )

    def _stream(self, epoch: int, plan: BatchPlan) -> Stream:
        options = self._options
        samples = self._dataset._samples_per_read if options.batch_size is None else 1
        return Stream(
            self._dataset._view,
            self._dataset._order(self._sampler),
            plan,
            epoch=epoch,
            steps_per_read=samples,
            threads=options.threads,
            prefetch_batches=options.prefetch_batches,
            prefetch_bytes=options.prefetch_bytes,
            on_corrupt=options.on_corrupt,
            split=None if options.batch_size is None else self._work.split,
            memory=self._memory,
        )
