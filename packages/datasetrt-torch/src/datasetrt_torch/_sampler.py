"""The core's order as a sampler of PyTorch, with a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data.distributed import DistributedSampler

import datasetrt as drt
from datasetrt.wording import a_type

from ._checks import count, flag, invalid, within
from ._dataset import TorchDataset
from ._marked import marked
from ._order import Weights, ordered
from ._shards import Sharding, Uneven, resolve

# Positions that are looked up in one call.
_SPAN = 4096


class _Cursor(NamedTuple):
    epoch: int
    position: int


class _Run:
    """One loop over the sampler: how far it is through the rest of one epoch."""

    def __init__(self, sampler: EpochSampler, start: _Cursor) -> None:
        self.epoch = start.epoch
        self.plan = sampler._ledger.plan(start.position)
        #: Indices of a step, but for the last one.
        self.batch = sampler._ledger.batch_size or 1
        self.taken = 0
        self.exhausted = False
        self._rows = self._read(sampler)

    def _read(self, sampler: EpochSampler) -> Iterator[int]:
        steps, at_once = len(self.plan), max(1, _SPAN // self.batch)
        for first in range(0, steps, at_once):
            stop = min(first + at_once, steps)
            positions = self.plan.positions(first, stop)
            if sampler._marks:
                padding = self.plan.padding(first, stop)
                yield from marked(sampler._order, sampler._rows, self.epoch, positions, padding)
            else:
                yield from sampler._order.indices_at(sampler._rows, positions, self.epoch).tolist()

    def take(self) -> int:
        try:
            row = next(self._rows)
        except StopIteration:
            self.exhausted = True
            raise
        self.taken += 1
        return row

    @property
    def over(self) -> bool:
        """Whether nothing is left of the epoch."""
        return self.cursor().epoch != self.epoch

    def cursor(self, steps: int | None = None) -> _Cursor:
        """Where the run is: after so many steps, or after what was taken."""
        plan = self.plan
        if steps is None:
            steps = len(plan) if self.taken == plan.samples else self.taken // self.batch
            if self.exhausted:
                return _Cursor(self.epoch + 1, 0)
        position = plan.position_after(steps)
        return _Cursor(self.epoch + 1, 0) if position == plan.length else _Cursor(self.epoch, position)


class _Indices(Iterator[int]):
    """What a loop over the sampler pulls. The epoch begins with the first pull: some loaders make more
    iterators than they use, and the surplus ones must not count.
    """

    def __init__(self, sampler: EpochSampler) -> None:
        self._sampler = sampler
        self._run: _Run | None = None
        self._over = False

    def __iter__(self) -> _Indices:
        return self

    def __next__(self) -> int:
        if self._over:
            raise StopIteration
        if self._run is None:
            self._run = self._sampler._begin()
        return self._run.take()

    # A StatefulDataLoader saves this beside the sampler's own state. The two differ at the end of an epoch:
    # the sampler is at the next one then, while a loop that is restored at its end has nothing left.

    def state_dict(self) -> dict[str, Any]:
        over = self._over or (self._run is not None and self._run.over)
        where = self._sampler._next if self._run is None else self._run.cursor()
        return {"over": over, "cursor": self._sampler._state(where)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sampler.load_state_dict(state["cursor"])
        self._run = None
        self._over = bool(state["over"])


class EpochSampler(DistributedSampler[int]):
    """The order of a `datasetrt` sampler, for a DataLoader, sharded and resumable at any batch.

    Gives the rows of exactly the order that ``dataset.loader(sampler=…)`` reads. Each loop over it is the
    next epoch, also where nobody calls `set_epoch`. It is a ``DistributedSampler``, so that Lightning keeps
    it, and has no ``generator``, which Accelerate would reseed.

    The state is that of the core's loader: the same on all ranks, and good for any world size, number of
    workers and framework. It counts what the loader took from the sampler. A plain DataLoader with workers
    takes more than it has delivered: use `state_at` there. A StatefulDataLoader keeps track by itself.

    Args:
        data: The dataset that the DataLoader reads, as a `TorchDataset` or `datasetrt.CachedDataset`.
        sampler: The order, one of `datasetrt`'s; in place of the next five.
        shuffle: True is ``Shuffle(seed)``, False is ``Sequential()``.
        seed: In ``[0, 2**64)``.
        weights: Draw by weight, ``Weighted(seed, num_samples, replacement)``: True for the weight column; or
            one number a row, or what else ``dataset.with_weights`` takes.
        num_samples: Draws in an epoch; None is as many as there are rows.
        replacement: False draws each row at most once.
        sharding: Which part of the data this process gets: ``"auto"`` asks ``torch.distributed``, ``"none"``
            is all of it, or a `ShardSpec`.
        uneven: What becomes of a last global batch that the ranks cannot share evenly: ``"pad"`` repeats
            samples, which ``TorchDataset(mask_key=…)`` marks; ``"fill"`` repeats so many that every batch is
            full, which needs ``batch_size``; ``"drop"`` leaves some out, ``"keep"`` gives some ranks fewer,
            with which a collective operation may hang. Must be given for ``Sequential`` on several ranks,
            as in evaluation; else the default is ``"pad"``.
        batch_size: That of the DataLoader, for one rank. With it each rank takes a contiguous part of a
            global batch, as with `NativeLoader` and the core's loader; without it positions are dealt one by
            one, as ``DistributedSampler`` does. The samples of a global batch are the same.
        drop_last: Leave out the last global batch if it is not full; needs ``batch_size``.

    Raises:
        InvalidInputError: The arguments break a rule, or who gets which data is ambiguous; names ways out.

    Example:
        >>> import datasetrt as drt, datasetrt_torch as drtt
        >>> ds = drt.testing.tiny_dataset()
        >>> sampler = drtt.EpochSampler(ds, seed=7)
        >>> list(sampler) == drt.Shuffle(seed=7).indices(ds, epoch=0).tolist()
        True
        >>> list(sampler) == drt.Shuffle(seed=7).indices(ds, epoch=1).tolist()
        True
    """

    def __init__(
        self,
        data: TorchDataset[Any] | drt.CachedDataset[Any],
        *,
        sampler: drt.Sampler | None = None,
        shuffle: bool = True,
        seed: int = 0,
        weights: Weights | None = None,
        num_samples: int | None = None,
        replacement: bool = True,
        sharding: Sharding = "auto",
        uneven: Uneven | None = None,
        batch_size: int | None = None,
        drop_last: bool = False,
    ) -> None:
        flag("drop_last", drop_last)
        if batch_size is not None:
            batch_size = count("batch_size", batch_size)
        elif drop_last:
            raise invalid(
                "drop_last=True needs batch_size=, the DataLoader's, to know which batch is not full"
            )
        self._rows, self._order = ordered(
            _dataset_of(data),
            sampler=sampler,
            shuffle=shuffle,
            seed=seed,
            weights=weights,
            num_samples=num_samples,
            replacement=replacement,
        )
        self._sharding = resolve(sharding, uneven)
        shard = self._sharding.shard
        if shard.uneven == "fill" and batch_size is None:
            raise invalid("uneven='fill' needs batch_size=, the DataLoader's, to know when a batch is full")
        # Where one process has it all, batches only matter for the last one: positions are exact without.
        positions = shard.world_size == 1 and not drop_last and shard.uneven != "fill"
        # Never looped over: it knows the rules of states, and which positions each step has.
        self._ledger = self._rows.loader(
            batch_size=1 if positions or batch_size is None else batch_size,
            sampler=self._order,
            shard=shard,
            drop_last=drop_last,
        )
        self._marks = isinstance(data, TorchDataset) and data.needs_marks
        self._batch_size = batch_size
        self._run: _Run | None = None
        # Where the run is where no loop says so, and where the next loop begins.
        self._cursor = self._next = _Cursor(0, 0)
        #: Why the sampler does not know what was consumed; set by who gives it to a loader that reads ahead.
        self._read_ahead: str | None = None
        super().__init__(
            data,  # type: ignore[arg-type]  # a CachedDataset has what a dataset needs
            num_replicas=shard.world_size,
            rank=shard.rank,
            shuffle=not isinstance(self._order, drt.Sequential),
            seed=seed,
            drop_last=drop_last,
        )
        # The base class counts rows of the dataset; these are positions of the order.
        self.num_samples = len(self)
        self.total_size = self.num_samples * shard.world_size

    @property
    def order(self) -> drt.Sampler:
        """The order, as a sampler of the core.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> sampler = drtt.EpochSampler(drt.testing.tiny_dataset(), seed=7)
            >>> sampler.order
            Shuffle(seed=7)
        """
        return self._order

    @property
    def epoch(self) -> int:
        """The epoch that the state is in.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> sampler = drtt.EpochSampler(drt.testing.tiny_dataset(), seed=7)
            >>> before, rows = sampler.epoch, list(sampler)
            >>> before, sampler.epoch
            (0, 1)
        """
        return self._where().epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def __len__(self) -> int:
        """Indices of a whole epoch on this rank, however far the run is.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> spec = drtt.ShardSpec(rank=0, world_size=4)
            >>> len(drtt.EpochSampler(drt.testing.tiny_dataset(), sharding=spec))
            3
        """
        return self._ledger.plan().samples

    def __iter__(self) -> Iterator[int]:
        """Begin the next epoch, or finish the one that a loaded state is in.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> list(drtt.EpochSampler(drt.testing.tiny_dataset()[:4], shuffle=False))
            [0, 1, 2, 3]
        """
        self._sharding.recheck()
        return _Indices(self)

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop be this epoch.

        A loaded state that is in this epoch keeps its position; otherwise the epoch begins from its start.
        A loop that runs is not disturbed.

        Args:
            epoch: In ``[0, 2**63)``.

        Raises:
            InvalidInputError: Out of range, or no whole number.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> sampler = drtt.EpochSampler(drt.testing.tiny_dataset(), seed=7)
            >>> sampler.set_epoch(5)
            >>> list(sampler) == drt.Shuffle(seed=7).indices(drt.testing.tiny_dataset(), epoch=5).tolist()
            True
        """
        self._ledger.set_epoch(epoch)
        epoch = self._ledger.epoch
        if epoch != self._next.epoch:
            self._next = _Cursor(epoch, 0)
        if self._run is None or self._run.over:
            self._run = None
            self._cursor = self._next

    def state_dict(self) -> drt.LoaderState:
        """Where the run is, as the core's loader would say it: a small dict for JSON.

        Raises:
            StateError: The sampler was made for a plain DataLoader with workers, which takes more than it
                delivers; use `state_at`.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> sampler = drtt.EpochSampler(drt.testing.tiny_dataset(), seed=7)
            >>> first = next(iter(sampler))
            >>> sampler.state_dict()["position"]
            1
        """
        if self._read_ahead is not None:
            raise drt.StateError(self._read_ahead, kind="bad-state")
        return self._state(self._where())

    def state_at(self, batches: int, batch_size: int | None = None) -> drt.LoaderState:
        """The state once so many batches of the newest loop were consumed, whatever was read ahead.

        Args:
            batches: Batches that this rank's loop was handed since it began; on a resumed run, since then.
            batch_size: That of the DataLoader, for one rank; not needed where the sampler was given it.

        Raises:
            InvalidInputError: There are not so many, or ``batch_size`` is not known.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> sampler = drtt.EpochSampler(drt.testing.tiny_dataset(), batch_size=4)
            >>> sampler.state_at(batches=2)["position"], sampler.state_at(batches=3)["epoch"]
            (8, 1)
        """
        size = self._batch_size or batch_size
        if size is None:
            raise invalid("state_at needs to know the batches; give batch_size=, the DataLoader's")
        if batch_size is not None and count("batch_size", batch_size) != size:
            raise invalid(f"batch_size = {batch_size}, but the sampler was made for {size}; leave it out")
        run = self._run or _Run(self, self._next)
        most = -(-run.plan.samples // size)
        batches = within("batches", batches, most, f"the loop has {most}")
        steps = batches if run.batch == size else batches * size
        return self._state(run.cursor(steps))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the place that a state names: the next loop finishes its epoch.

        Everything is checked before anything changes.

        Args:
            state: That of a sampler, a `NativeLoader` or a core loader, of any rank and world size.

        Raises:
            StateError: It is malformed, or belongs to other rows, other weights or another order.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> sampler = drtt.EpochSampler(drt.testing.tiny_dataset(), seed=7)
            >>> state = drt.testing.tiny_dataset().loader(sampler=drt.Shuffle(seed=7)).state_dict()
            >>> sampler.load_state_dict({**state, "epoch": 2, "position": 8})
            >>> sampler.epoch, len(list(sampler))
            (2, 2)
        """
        self._ledger.load_state_dict(state)
        found = self._ledger.state_dict()
        self._run = None
        self._cursor = self._next = _Cursor(found["epoch"], found["position"])

    def __getstate__(self) -> dict[str, Any]:
        # A loop belongs to its process; its place in the run travels, and the copy goes on from there.
        place = self._where()
        return {**self.__dict__, "_run": None, "_cursor": place, "_next": place}

    def __repr__(self) -> str:
        shard = self._sharding.shard
        ranks = f", rank {shard.rank} of {shard.world_size}" if shard.world_size > 1 else ""
        return f"EpochSampler({self._order}{ranks}, epoch {self.epoch})"

    def _begin(self) -> _Run:
        """The loop that begins now; it is the one that the state speaks of."""
        self._run = _Run(self, self._next)
        self._next = _Cursor(self._next.epoch + 1, 0)
        return self._run

    def _where(self) -> _Cursor:
        if self._run is None:
            return self._cursor
        return self._next if self._run.over else self._run.cursor()

    def _state(self, where: _Cursor) -> drt.LoaderState:
        return {**self._ledger.state_dict(), "epoch": where.epoch, "position": where.position}


def _dataset_of(data: object) -> drt.CachedDataset:
    if isinstance(data, TorchDataset):
        return data.dataset
    if isinstance(data, drt.CachedDataset):
        return data
    raise invalid(
        f"data is {a_type(data)}; give the TorchDataset or CachedDataset, and choose rows with its "
        "filter() or a slice rather than with Subset or random_split"
    )
