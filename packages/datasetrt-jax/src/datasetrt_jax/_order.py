"""The rows and their order, from what a user names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import datasetrt as drt
from datasetrt.wording import a_type

from ._errors import invalid

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from ._decode import Decode

    Weights: TypeAlias = Literal[True] | pl.Expr | pl.Series | str | npt.ArrayLike

#: A dataset, or the folder of a cache.
Source: TypeAlias = drt.CachedDataset[Any] | os.PathLike[str] | str


def opened(
    source: Source, decode: Decode | None, *, seeded: bool = False
) -> tuple[drt.CachedDataset, Decode | None]:
    """The dataset without its transform, which stands in for a ``decode`` without a seed."""
    dataset = source if isinstance(source, drt.CachedDataset) else drt.open_dataset(source)
    stands_in = decode is None and seeded is not True
    return dataset.with_transform(None), dataset.transform if stands_in else decode


def ordered(
    dataset: drt.CachedDataset,
    sampler: drt.Sampler | None,
    shuffle: bool,
    seed: int,
    weights: Weights | None,
) -> tuple[drt.CachedDataset, drt.Sampler]:
    """Rows with their weights, and the sampler.

    Raises:
        InvalidInputError: The arguments contradict each other.
    """
    if not isinstance(shuffle, bool):
        raise invalid(f"shuffle = {shuffle!r} is {a_type(shuffle)}; give True or False")
    if sampler is not None:
        if weights is not None or seed != 0 or shuffle is not True:
            raise invalid(
                "sampler= says everything about the order; give it without shuffle, seed and weights"
            )
        return dataset, sampler
    if weights is not None:
        if shuffle is not True:
            raise invalid(
                "shuffle=False keeps the order of the rows, weights= draws them; give one of the two"
            )
        weighted = dataset if weights is True else dataset.with_weights(weights)
        return weighted, drt.Weighted(seed)
    return dataset, drt.Shuffle(seed) if shuffle else drt.Sequential()
