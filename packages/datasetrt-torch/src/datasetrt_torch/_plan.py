"""Which positions of an epoch one rank gets: the arithmetic of the core's loader, for index samplers.

A global batch is ``world`` batches that lie next to each other in the order, and rank ``r`` takes the
``r``-th. With a batch of one position this deals position by position, as ``DistributedSampler`` does.
``tests/adapters/torch/test_plan.py`` compares it with the core's loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Positions that are looked up in one call where they are consecutive anyway.
_SPAN = 4096


@dataclass(frozen=True)
class Plan:
    """The positions of one rank from ``start`` to the end of an epoch of ``length`` positions."""

    length: int
    start: int
    batch: int
    rank: int
    world: int
    uneven: str
    drop_last: bool

    @property
    def _global(self) -> int:
        return self.batch * self.world

    @property
    def _full_steps(self) -> int:
        return (self.length - self.start) // self._global

    @property
    def _rest(self) -> int:
        """Positions of the last global batch, if it is not full."""
        return (self.length - self.start) % self._global

    @property
    def _share(self) -> tuple[int, int]:
        """This rank's part of the last global batch, counted from its start; padding from `_rest` on."""
        rest = 0 if self.drop_last else self._rest
        each, more = divmod(rest, self.world)
        if self.uneven == "keep":
            first = self.rank * each + min(self.rank, more)
            return first, first + each + (self.rank < more)
        if self.uneven == "pad":
            each += more > 0
        return self.rank * each, (self.rank + 1) * each

    @property
    def samples(self) -> int:
        """How many positions there are, padding included."""
        first, end = self._share
        return self._full_steps * self.batch + end - first

    @property
    def steps(self) -> int:
        """In how many batches they come."""
        first, end = self._share
        return self._full_steps + (end > first)

    def spans(self) -> Iterator[tuple[int, int]]:
        """The positions in order, as ``(first, end)`` of consecutive ones."""
        tail = self.start + self._full_steps * self._global
        if self.world == 1:
            for first in range(self.start, tail, _SPAN):
                yield first, min(first + _SPAN, tail)
        else:
            for first in range(self.start + self.rank * self.batch, tail, self._global):
                yield first, first + self.batch
        first, end = self._share
        if first < min(end, self._rest):
            yield tail + first, tail + min(end, self._rest)
        for at in range(max(first, self._rest), end):
            # Padding begins at the first position of the epoch, and goes round if need be.
            position = (at - self._rest) % self.length
            yield position, position + 1

    def position_after(self, steps: int) -> int:
        """How far the run is once every rank has taken so many steps; ``length`` when nothing is left."""
        if self.drop_last:
            last = False
        elif self.uneven == "drop":
            last = self._rest >= self.world
        else:
            last = self._rest > 0
        if steps >= self._full_steps + last:
            return self.length
        return self.start + steps * self._global
