"""Which part of which epoch each step reads: a pure function of the step.

How an epoch is cut into steps is the core's business: `Loader.plan`. Here epochs follow each other.

Nothing here holds a dataset: a plan is kept for longer than its dataset is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

import datasetrt as drt
from datasetrt.wording import a_type, shown

from ._order import invalid


class Place(NamedTuple):
    """Where a batch begins: samples of the epoch that were handed out before it, over all ranks."""

    epoch: int
    position: int


class Step(NamedTuple):
    """One batch of one rank."""

    shard: drt.Shard
    place: Place


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
    def fills(self) -> bool:
        """Whether every batch is full, because rows are repeated where need be."""
        return self.shards[0].uneven == "fill" and not self.drop_last

    @property
    def pads(self) -> bool:
        """Whether rows can be repeats."""
        shares = self.world_size > 1 and not self.drop_last and self.shards[0].uneven in (None, "pad")
        return self.fills or shares

    def loader(self, source: drt.CachedDataset, shard: drt.Shard, **options: Any) -> drt.Loader[Any]:
        """The core's loader for one rank; it checks all that it is given."""
        return source.loader(
            batch_size=self.batch_size,
            sampler=self.sampler,
            shard=shard,
            drop_last=self.drop_last,
            **options,
        )


@dataclass(frozen=True)
class Plan:
    """The steps of a run from a place on: the rest of its epoch, then whole epochs.

    ``whole`` is an epoch of one rank and ``rest`` what is left of that of ``start``, as the core cuts them;
    ``num_epochs`` counts the epochs before it too.
    """

    cut: Cut
    whole: drt.BatchPlan
    start: Place
    rest: drt.BatchPlan
    num_epochs: int | None

    @property
    def steps_per_epoch(self) -> int:
        """Batches of a whole epoch of one rank."""
        return len(self.whole)

    @property
    def total(self) -> int | None:
        """Elements of the pipeline, batches of all its ranks; None for an endless one."""
        if self.num_epochs is None:
            return None
        later = self.num_epochs - self.start.epoch - 1
        steps = 0 if later < 0 else len(self.rest) + later * len(self.whole)
        return steps * len(self.cut.shards)

    def from_epoch(self, epoch: int) -> Plan:
        """The same run, begun with this epoch."""
        return replace(self, start=Place(epoch, 0), rest=self.whole)

    def step(self, element: int) -> Step:
        """What element ``element`` of the pipeline holds."""
        step, rank = divmod(element, len(self.cut.shards))
        epoch, local = self._epoch(step)
        return Step(self.cut.shards[rank], Place(epoch, self._of(epoch).position_after(local)))

    def place_after(self, steps: int) -> Place:
        """Where the run is once every rank was given ``steps`` batches."""
        if steps == 0:
            return self.start
        epoch, local = self._epoch(steps - 1)
        position = self._of(epoch).position_after(local + 1)
        return Place(epoch + 1, 0) if position == self.whole.length else Place(epoch, position)

    def _epoch(self, step: int) -> tuple[int, int]:
        """Epoch of a step, and its number within what is read of that epoch."""
        if step < len(self.rest):
            return self.start.epoch, step
        later, local = divmod(step - len(self.rest), len(self.whole))
        return self.start.epoch + 1 + later, local

    def _of(self, epoch: int) -> drt.BatchPlan:
        return self.rest if epoch == self.start.epoch else self.whole


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
    loader = cut.loader(source, cut.shards[0])
    whole_epoch = loader.plan()
    if num_epochs is not None:
        num_epochs = whole("num_epochs", num_epochs, 1)
    if len(whole_epoch) == 0 and (num_epochs is None or not cut.keeps):
        raise invalid(
            f"an epoch of {whole_epoch.length} samples has no batch of {cut.batch_size} for each of "
            f"{cut.world_size} ranks; use a smaller batch_size or tail='short'"
        )
    place = _start(loader, start)
    plan = Plan(cut, whole_epoch, place, loader.plan(place.position), num_epochs)
    if plan.total is not None and plan.total >= 2**63:
        raise invalid(
            f"num_epochs = {num_epochs} makes {plan.total} batches, more than a pipeline counts; "
            "give fewer, or None for an endless one"
        )
    return plan


def _start(loader: drt.Loader[Any], start: Mapping[str, Any] | int) -> Place:
    if isinstance(start, Mapping):
        loader.load_state_dict(start)
        state = loader.state_dict()
        return Place(state["epoch"], state["position"])
    steps = whole("start", start, 0)
    epoch_plan = loader.plan()
    if steps and not len(epoch_plan):
        raise invalid(f"start = {steps} is beyond an epoch without batches; give 0")
    epoch, local = divmod(steps, len(epoch_plan)) if steps else (0, 0)
    return Place(epoch, epoch_plan.position_after(local) if local else 0)


def whole(what: str, value: object, low: int) -> int:
    """``value`` as an int of ``[low, 2**63)``.

    Raises:
        InvalidInputError: It is no whole number, or outside.
    """
    # Arrays have the method as well; those of one number are numbers to Python, and hardly meant here.
    if not isinstance(value, SupportsIndex) or isinstance(value, bool | np.bool_ | np.ndarray):
        raise invalid(f"{what} = {shown(value)} is {a_type(value)}; give a whole number")
    number = value.__index__()
    if not low <= number < 2**63:
        limits = f"of at least {low}" if number < low else "below 2**63"
        raise invalid(f"{what} = {shown(number)} is out of range; give a whole number {limits}")
    return number
