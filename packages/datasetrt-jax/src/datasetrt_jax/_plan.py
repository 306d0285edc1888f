"""How epochs follow each other, step after step, whatever the number of processes.

Which positions a step has, and which of them are padding, is the core's business: `Loader.plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import datasetrt as drt

from ._errors import invalid

Tail: TypeAlias = Literal["drop", "pad"]


class Place(NamedTuple):
    """Where a global batch begins: an epoch, and a position in its order."""

    epoch: int
    position: int


class Step(NamedTuple):
    """What one process gets of a global batch; arrays of one entry a sample."""

    epoch: int
    positions: npt.NDArray[np.int64]
    padding: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Plan:
    """The steps of all epochs: global batches, cut off the front of the order.

    Args:
        loader: A loader of whole global batches; never looped over.
        tail: What becomes of the samples that are left over.
    """

    loader: drt.Loader[Any]
    tail: Tail

    def __post_init__(self) -> None:
        if self.steps() == 0:
            raise invalid(
                f"an epoch of {self.loader.plan().length} samples has no global batch of "
                f"{self.global_batch}; give a smaller global_batch, or tail='pad'"
            )

    @property
    def global_batch(self) -> int:
        """Samples in a step of all processes."""
        return self.loader.batch_size or 1

    def steps(self, position: int = 0) -> int:
        """Steps from a position to the end of the epoch."""
        return len(self.loader.plan(position))

    def settled(self, place: Place) -> Place:
        """The place itself, or the next epoch if no step is left in its own."""
        return place if self.steps(place.position) else Place(place.epoch + 1, 0)

    def after(self, place: Place) -> Place:
        """Where the step that begins at a place leaves off."""
        rest = self.loader.plan(place.position)
        position = rest.position_after(1)
        return Place(place.epoch + 1, 0) if position == rest.length else Place(place.epoch, position)

    def place_of(self, step: int, start: Place) -> Place:
        """Where a step begins, counted from a place on."""
        start = self.settled(start)
        rest = self.loader.plan(start.position)
        if step < len(rest):
            return Place(start.epoch, rest.position_after(step))
        whole = self.loader.plan()
        epochs, local = divmod(step - len(rest), len(whole))
        return Place(start.epoch + 1 + epochs, whole.position_after(local))


def make_plan(dataset: drt.CachedDataset, sampler: drt.Sampler, global_batch: int, tail: Tail) -> Plan:
    """The plan of a dataset in the order of a sampler.

    Raises:
        InvalidInputError: An epoch has no step, or the sampler does not fit.
    """
    # "fill" makes every batch full, by repeating samples from the start of the epoch.
    shard = drt.Shard(uneven="fill")
    loader = dataset.loader(batch_size=global_batch, sampler=sampler, drop_last=tail == "drop", shard=shard)
    return Plan(loader, tail)
