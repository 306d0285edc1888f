"""How epochs are cut into steps, whatever the number of processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from ._errors import invalid

Tail: TypeAlias = Literal["drop", "pad"]


class Place(NamedTuple):
    """Where a global batch begins: an epoch, and a position in its order."""

    epoch: int
    position: int


class Part(NamedTuple):
    """What one process reads of the last global batch: positions, and how many of them count."""

    start: int
    samples: int
    valid: int


@dataclass(frozen=True)
class Plan:
    """The steps of an epoch: global batches, cut off the front of the order.

    Args:
        length: Positions in an epoch.
        global_batch: Samples in a step of all processes.
        tail: What becomes of the samples that are left over.
    """

    length: int
    global_batch: int
    tail: Tail

    def __post_init__(self) -> None:
        if self.steps() == 0:
            raise invalid(
                f"an epoch of {self.length} samples has no global batch of {self.global_batch}; "
                "give a smaller global_batch, or tail='pad'"
            )

    def steps(self, position: int = 0) -> int:
        """Steps from a position to the end of the epoch."""
        rest = max(0, self.length - position)
        return -(-rest // self.global_batch) if self.tail == "pad" else rest // self.global_batch

    def settled(self, place: Place) -> Place:
        """The place itself, or the next epoch if no step is left in its own."""
        return place if self.steps(place.position) else Place(place.epoch + 1, 0)

    def after(self, place: Place) -> Place:
        """Where the step that begins at a place leaves off."""
        return self.settled(Place(place.epoch, place.position + self.global_batch))

    def place_of(self, step: int, start: Place) -> Place:
        """Where a step begins, counted from a place on."""
        start = self.settled(start)
        left = self.steps(start.position)
        if step < left:
            return Place(start.epoch, start.position + step * self.global_batch)
        epochs, rest = divmod(step - left, self.steps())
        return Place(start.epoch + 1 + epochs, rest * self.global_batch)

    def part(self, position: int, index: int, count: int) -> Part:
        """What process ``index`` of ``count`` reads of the step at ``position``.

        Padding repeats the last sample of the epoch, so that the global batch is the same for any number of
        processes. A process that has nothing but padding reads that one sample.
        """
        local = self.global_batch // count
        end = min(self.length, position + self.global_batch)
        valid = max(0, min(local, end - position - index * local))
        start = position + index * local if valid else end - 1
        return Part(start, max(1, valid), valid)
