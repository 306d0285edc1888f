"""Which part of which epoch each step reads: a pure function of the step, with the core's own arithmetic.

Nothing here holds a dataset: a plan is kept for longer than its dataset is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import datasetrt as drt

from ._order import invalid


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
class Cut:
    """How an order is cut into batches.

    ``shards`` are the ranks that one pipeline feeds, in turn: one, or the neighbours that share a worker.
    """

    sampler: drt.Sampler
    batch_size: int
    shards: tuple[drt.Shard, ...]
    drop_last: bool

    @property
    def world_size(self) -> int:
        """Ranks that share a global batch, in this pipeline and others."""
        return self.shards[0].world_size

    @property
    def global_batch(self) -> int:
        """Samples that all ranks take together in one step."""
        return self.batch_size * self.world_size

    @property
    def keeps(self) -> bool:
        """Whether one rank may have a batch more than another."""
        return self.shards[0].uneven == "keep" and not self.drop_last

    @property
    def pads(self) -> bool:
        """Whether rows can be repeats that give all ranks equally many."""
        return self.world_size > 1 and not self.drop_last and self.shards[0].uneven in (None, "pad")

    def loader(self, source: drt.CachedDataset, shard: drt.Shard, **options: Any) -> drt.Loader[Any]:
        """The core's loader for one rank; it checks all that it is given."""
        return source.loader(
            batch_size=self.batch_size,
            sampler=self.sampler,
            shard=shard,
            drop_last=self.drop_last,
            **options,
        )

    def steps(self, source: drt.CachedDataset, samples: int) -> int:
        """Steps in which a rank takes its part of so many samples.

        The core counts them. Only their number matters, so that one row, drawn so often, stands in.
        """
        if samples <= 0:
            return 0
        drawn = drt.Weighted(seed=0, num_samples=samples)
        stand_in = Cut(drawn, self.batch_size, self.shards, self.drop_last)
        return len(stand_in.loader(source[:1], self.shards[0]))


@dataclass(frozen=True)
class Plan:
    """The steps of a run from a place on: the rest of its epoch, then whole epochs.

    ``samples`` and ``steps_per_epoch`` are those of a whole epoch, over all ranks and of one rank;
    ``first_steps`` are left in the epoch of ``start``; ``num_epochs`` counts the epochs before it too.
    """

    cut: Cut
    samples: int
    steps_per_epoch: int
    start: Place
    first_steps: int
    num_epochs: int | None

    @property
    def total(self) -> int | None:
        """Elements of the pipeline, batches of all its ranks; None for an endless one."""
        if self.num_epochs is None:
            return None
        later = self.num_epochs - self.start.epoch - 1
        steps = 0 if later < 0 else self.first_steps + later * self.steps_per_epoch
        return steps * len(self.cut.shards)

    def from_epoch(self, epoch: int) -> Plan:
        """The same run, begun with this epoch."""
        return replace(self, start=Place(epoch, 0), first_steps=self.steps_per_epoch)

    def step(self, element: int) -> Step:
        """What element ``element`` of the pipeline holds."""
        step, rank = divmod(element, len(self.cut.shards))
        epoch, local = self._epoch(step)
        position = self._begin(epoch) + local * self.cut.global_batch
        shard = self.cut.shards[rank]
        return Step(shard, Place(epoch, position), self._real(position, shard.rank))

    def place_after(self, steps: int) -> Place:
        """Where the run is once every rank was given ``steps`` batches."""
        if steps == 0:
            return self.start
        epoch, local = self._epoch(steps - 1)
        position = self._begin(epoch) + (local + 1) * self.cut.global_batch
        last = local + 1 == (self.first_steps if epoch == self.start.epoch else self.steps_per_epoch)
        # The state is the same on all ranks, and another one may have a batch left.
        over = last and not self.cut.keeps
        return Place(epoch + 1, 0) if over or position >= self.samples else Place(epoch, position)

    def _epoch(self, step: int) -> tuple[int, int]:
        """Epoch of a step, and its number within what is read of that epoch."""
        if step < self.first_steps:
            return self.start.epoch, step
        later, local = divmod(step - self.first_steps, self.steps_per_epoch)
        return self.start.epoch + 1 + later, local

    def _begin(self, epoch: int) -> int:
        return self.start.position if epoch == self.start.epoch else 0

    def _real(self, position: int, rank: int) -> int:
        """Rows of a rank's batch that are no padding, as far as there can be padding."""
        left = self.samples - position
        if left >= self.cut.global_batch or not self.cut.pads:
            return self.cut.batch_size
        share = -(-left // self.cut.world_size)
        return max(0, min(share, left - rank * share))


def plan_of(
    source: drt.CachedDataset, cut: Cut, start: Mapping[str, Any] | int, num_epochs: int | None
) -> Plan:
    """The plan of a run over a dataset.

    Args:
        source: The dataset.
        cut: The order and how it is cut.
        start: A saved state, or the number of whole steps since the beginning of epoch 0.
        num_epochs: Epochs of the whole run, those before ``start`` included; None never ends.

    Raises:
        StateError: The state is malformed, or belongs to other rows, other weights or another sampler.
        InvalidInputError: A number is out of range, or an epoch has no batch.
    """
    # The core refuses what it does not take before anything is counted.
    steps_per_epoch = len(cut.loader(source, cut.shards[0]))
    samples = len(source.loader(batch_size=1, sampler=cut.sampler))
    if num_epochs is not None:
        whole("num_epochs", num_epochs, 1)
    if steps_per_epoch == 0 and (num_epochs is None or not cut.keeps):
        raise invalid(
            f"an epoch of {samples} samples has no batch of {cut.batch_size} for each of {cut.world_size} "
            "ranks; use a smaller batch_size or tail='short'"
        )
    place = _start(source, cut, start, steps_per_epoch)
    first_steps = cut.steps(source, samples - place.position)
    return Plan(cut, samples, steps_per_epoch, place, first_steps, num_epochs)


def _start(
    source: drt.CachedDataset, cut: Cut, start: Mapping[str, Any] | int, steps_per_epoch: int
) -> Place:
    if isinstance(start, Mapping):
        loader = source.loader(sampler=cut.sampler)
        loader.load_state_dict(start)
        state = loader.state_dict()
        return Place(state["epoch"], state["position"])
    steps = whole("start", start, 0)
    if steps and not steps_per_epoch:
        raise invalid(f"start = {steps} is beyond an epoch without batches; give 0")
    epoch, local = divmod(steps, steps_per_epoch) if steps else (0, 0)
    return Place(epoch, local * cut.global_batch)


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
