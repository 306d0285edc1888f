"""Indices that carry what is known of their place in the order, from the sampler to the dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import datasetrt as drt
from datasetrt.wording import a_type

from ._checks import invalid


class MarkedIndex(int):
    """A row number, with the seed for its transform and whether it is there as padding only.

    An int to everybody else: batch samplers, `Subset`, Accelerate and worker queues hand it on as it is.
    """

    seed: int
    padding: bool

    def __new__(cls, row: int, seed: int, padding: bool) -> Self:
        made = super().__new__(cls, row)
        made.seed = seed
        made.padding = padding
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return MarkedIndex, (int(self), self.seed, self.padding)


@dataclass(frozen=True)
class Marks:
    """What is known of the samples of a batch beside their rows; None where nobody needs it."""

    seeds: Sequence[int] | None = None
    real: npt.NDArray[np.bool_] | None = None


#: For a decode without seeds and batches without a mask.
UNMARKED = Marks()


def marked(
    order: drt.Sampler, dataset: drt.CachedDataset, epoch: int, positions: Any, padding: Any
) -> Iterator[MarkedIndex]:
    """The rows at some positions, each with what is known of its place."""
    rows = order.indices_at(dataset, positions, epoch).tolist()
    seeds = order.transform_seeds(dataset, positions, epoch).tolist()
    return map(MarkedIndex, rows, seeds, padding.tolist())


def marks_of(indices: Sequence[Any]) -> Marks:
    """What the indices of a batch carry.

    Raises:
        InvalidInputError: One is a plain number, which says nothing of its place.
    """
    for index in indices:
        if not isinstance(index, MarkedIndex):
            raise invalid(
                f"index {index!r} is {a_type(index)}, but seeded=True and mask_key= need indices "
                "that say where they stand in the order: those of an EpochSampler made for this "
                "TorchDataset; use make_dataloader, or leave the two out"
            )
    return Marks([index.seed for index in indices], np.array([not index.padding for index in indices], bool))
