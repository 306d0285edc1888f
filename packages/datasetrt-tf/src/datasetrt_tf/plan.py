"""Which part of which epoch each step reads: a pure function of the step, with the core's own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import datasetrt as drt

from .order import invalid


class Place(NamedTuple):
    """Where a batch begins: samples of the epoch that were handed out before it, over all ranks."""

    epoch: int
    position: int


class Step(NamedTuple):
    """One batch of one rank; its first ``real`` rows are no padding."""

    shard: drt.Shard
    place: Place
    real: int


@dataclass(frozen=True)
class Run:
    """Batches of some ranks, one rank after the other, through one epoch after the other.

    ``shards`` are the ranks that one pipeline feeds: one, or the neighbours that share a worker.
    """

    source: drt.CachedDataset
    sampler: drt.Sampler
    batch_size: int
    shards: tuple[drt.Shard, ...]
    drop_last: bool

    @property
    def global_batch(self) -> int:
        """Samples that all ranks take together in one step."""
        return self.batch_size * self.shards[0].world_size

    @property
    def pads(self) -> bool:
        """Whether rows can be repeats that give all ranks equally many."""
        shard = self.shards[0]
        return shard.world_size > 1 and not self.drop_last and shard.uneven in (None, "pad")

    def loader(self, shard: drt.Shard, **options: Any) -> drt.Loader[Any]:
        """The core's loader for one rank; it checks all that it is given."""
        return self.source.loader(
            batch_size=self.batch_size,
            sampler=self.sampler,
            shard=shard,
            drop_last=self.drop_last,
            **options,
        )

    def samples(self) -> int:
        """Samples of a whole epoch, over all ranks."""
        return len(self.source.loader(batch_size=1, sampler=self.sampler))

    def steps(self, samples: int) -> int:
        """Steps in which a rank takes its part of so many samples.

        The core counts them: only the length matters, so that one row drawn ``samples`` times stands in.
        """
        if samples <= 0:
            return 0
        stand_in = drt.Weighted(seed=0, num_samples=samples)
        return len(
            self.source[:1].loader(
                batch_size=self.batch_size, sampler=stand_in, shard=self.shards[0], drop_last=self.drop_last
            )
        )

    def state(self, place: Place) -> drt.LoaderState:
        """The loader's state at a place."""
        state = self.source.loader(sampler=self.sampler).state_dict()
        return {**state, "epoch": place.epoch, "position": place.position}

    def place_of(self, state: Mapping[str, Any]) -> Place:
        """Where a saved state is.

        Raises:
            StateError: It is malformed, or belongs to other rows, other weights or another sampler.
        """
        loader = self.source.loader(sampler=self.sampler)
        loader.load_state_dict(state)
        loaded = loader.state_dict()
        return Place(loaded["epoch"], loaded["position"])


class Plan:
    """The steps of a run from a place on: the rest of its epoch, then whole epochs.

    Args:
        run: What is read.
        start: A saved state, or the number of whole steps since the beginning of epoch 0.
        num_epochs: Epochs of the whole run, those before ``start`` included; None never ends.

    Raises:
        StateError: The state does not belong here.
        InvalidInputError: A number is out of range, or an epoch has no batch.
    """

    def __init__(self, run: Run, start: Mapping[str, Any] | int, num_epochs: int | None) -> None:
        self.run = run
        self.samples = run.samples()
        # Refuses what the core refuses, before anything is counted: a batch size, a shard with Sequential.
        self.steps_per_epoch = len(run.loader(run.shards[0]))
        self._check_epoch(num_epochs)
        self.start = run.place_of(start) if isinstance(start, Mapping) else self._whole_steps(start)
        self._first = run.steps(self.samples - self.start.position)
        self.num_epochs = num_epochs

    @property
    def total(self) -> int | None:
        """Elements of the pipeline: batches of all its ranks; None for an endless one."""
        if self.num_epochs is None:
            return None
        later = self.num_epochs - self.start.epoch - 1
        steps = 0 if later < 0 else self._first + later * self.steps_per_epoch
        return steps * len(self.run.shards)

    def step(self, element: int) -> Step:
        """What element ``element`` of the pipeline holds."""
        step, rank = divmod(element, len(self.run.shards))
        epoch, local = self._epoch(step)
        place = Place(epoch, self._begin(epoch) + local * self.run.global_batch)
        shard = self.run.shards[rank]
        return Step(shard, place, self._real(place.position, shard.rank))

    def place_after(self, steps: int) -> Place:
        """Where the run is once every rank was given ``steps`` batches."""
        if steps == 0:
            return self.start
        epoch, local = self._epoch(steps - 1)
        position = self._begin(epoch) + (local + 1) * self.run.global_batch
        last = local + 1 == (self._first if epoch == self.start.epoch else self.steps_per_epoch)
        # With "keep" another rank may have one more batch, and the state is the same on all ranks.
        over = last and not (self.run.shards[0].uneven == "keep" and not self.run.drop_last)
        return Place(epoch + 1, 0) if over or position >= self.samples else Place(epoch, position)

    def _epoch(self, step: int) -> tuple[int, int]:
        """Epoch of a step, and its number within what is read of that epoch."""
        if step < self._first:
            return self.start.epoch, step
        later, local = divmod(step - self._first, self.steps_per_epoch)
        return self.start.epoch + 1 + later, local

    def _begin(self, epoch: int) -> int:
        return self.start.position if epoch == self.start.epoch else 0

    def _real(self, position: int, rank: int) -> int:
        """Rows of a rank's batch that are no padding; those of a batch that cannot have any, too."""
        left = self.samples - position
        if left >= self.run.global_batch:
            return self.run.batch_size
        share = -(-left // self.run.shards[0].world_size)
        return max(0, min(share, left - rank * share)) if self.run.pads else self.run.batch_size

    def _whole_steps(self, start: object) -> Place:
        steps = whole("start", start, 0)
        if steps and not self.steps_per_epoch:
            raise invalid(f"start = {steps} is beyond an epoch without batches; give 0")
        epoch, local = divmod(steps, self.steps_per_epoch) if steps else (0, 0)
        return Place(epoch, local * self.run.global_batch)

    def _check_epoch(self, num_epochs: object) -> None:
        if num_epochs is not None:
            whole("num_epochs", num_epochs, 1)
        if self.steps_per_epoch == 0 and (num_epochs is None or self.run.shards[0].uneven != "keep"):
            raise invalid(
                f"an epoch of {self.samples} samples has no batch of {self.run.batch_size} for each of "
                f"{self.run.shards[0].world_size} ranks; use a smaller batch_size or tail='short'"
            )


def whole(what: str, value: object, low: int) -> int:
    """``value`` as an int of at least ``low``.

    Raises:
        InvalidInputError: It is no whole number, or smaller.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise invalid(f"{what} = {value!r} is a {type(value).__name__}; give a whole number")
    number = int(value.__index__())
    if number < low:
        raise invalid(f"{what} = {number} is out of range; give a whole number of at least {low}")
    return number
