"""The batch of a step as named arrays: a pure function of the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import datasetrt as drt

from ._columns import Array, Column, Ragged
from ._decoding import Decoding, Layout
from ._order import invalid
from ._plan import Plan, Step

Batch = dict[str, Array | Ragged]


@dataclass(frozen=True)
class Assembly:
    """All that makes a batch of what the core reads, apart from the dataset itself.

    ``mask`` names the column that is False where a row only fills up; None where no row can.
    ``substituted`` names the one that is True where a sample stands in for a damaged one; None for none.
    """

    plan: Plan
    decoding: Decoding
    layout: Layout
    mask: str | None
    on_corrupt: str
    substituted: str | None = None

    @property
    def static_rows(self) -> int | None:
        """Samples of every batch; None where the last one of an epoch may be shorter."""
        static = self.plan.cut.drop_last or self.plan.cut.fills
        return self.plan.cut.batch_size if static else None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of every batch, those that mark rows included."""
        flags = (
            Column(name, np.dtype(bool), ()) for name in (self.mask, self.substituted) if name is not None
        )
        return (*self.layout.columns, *flags)

    def batch(self, item: Any, info: drt.BatchInfo | None) -> Batch:
        """The columns of what the core's loader gave, and what it says of that."""
        assert info is not None  # something was handed out
        arrays = self.layout.arrays(self.decoding.decoded(item))
        if self.mask is not None:
            arrays[self.mask] = ~info.padding
        if self.substituted is not None:
            arrays[self.substituted] = info.substituted
        return arrays

    def loader(self, source: drt.CachedDataset, shard: drt.Shard, **options: Any) -> drt.Loader[Any]:
        """The core's loader for a rank."""
        arguments = self.decoding.arguments
        return self.plan.cut.loader(source, shard, on_corrupt=self.on_corrupt, **arguments, **options)


class Reader:
    """Reads the batches of a dataset. Safe to use from several threads."""

    def __init__(self, source: drt.CachedDataset, assembly: Assembly) -> None:
        self._source = source
        self._assembly = assembly
        # Loaders that no thread uses now, by rank: to make one takes as long as to read a small batch.
        self._idle: dict[int, list[drt.Loader[Any]]] = {s.rank: [] for s in assembly.plan.cut.shards}

    def read(self, element: int) -> Batch:
        """The batch that is element ``element`` of the pipeline, whatever was read before.

        Read in the thread that asks: the pipeline around it asks for several at a time.
        """
        step = self._assembly.plan.step(element)
        loader = self._loader(step.shard)
        with iter(_at(loader, step)) as batches:
            item = next(batches)
            batch = self._assembly.batch(item, batches.last)
        self._idle[step.shard.rank].append(loader)
        return batch

    def run(self) -> Iterator[Batch]:
        """All batches of one rank from the start on, without end, read ahead by the core's threads."""
        first = self._assembly.plan.step(0)
        loader = _at(self._assembly.loader(self._source, first.shard), first)
        while True:
            with iter(loader) as batches:
                for item in batches:
                    yield self._assembly.batch(item, batches.last)

    def _loader(self, shard: drt.Shard) -> drt.Loader[Any]:
        try:
            return self._idle[shard.rank].pop()
        except IndexError:  # all are in use
            return self._assembly.loader(self._source, shard, threads=1, prefetch_batches=0)


def _at(loader: drt.Loader[Any], step: Step) -> drt.Loader[Any]:
    """The loader, at the place of a step."""
    epoch, position = step.place
    loader.load_state_dict({**loader.state_dict(), "epoch": epoch, "position": position})
    return loader


def check_names(layout: Layout, mask: str | None, substituted: str | None) -> None:
    """Refuse marks that cannot be told apart from a column, or that there is no place for.

    Raises:
        InvalidInputError: A name is taken, or decode does not return a dict.
    """
    if mask is not None and layout.form != "mapping":
        raise invalid(
            f"batches can have rows that only fill up, which the column {mask!r} tells; that needs a decode "
            "that returns a dict, and it returns a tuple or a single value"
        )
    if substituted is not None and layout.form != "mapping":
        raise invalid(
            f"substituted_key = {substituted!r} needs a decode that returns a dict, and it returns a tuple "
            "or a single value"
        )
    for what, name in (("mask_key", mask), ("substituted_key", substituted)):
        if name is not None and layout.column(name) is not None:
            raise invalid(f"{what} = {name!r} is the name of a column; give another one")
    if mask is not None and mask == substituted:
        raise invalid(f"mask_key and substituted_key are both {mask!r}; give two names")
