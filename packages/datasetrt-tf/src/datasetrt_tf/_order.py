"""Which samples in which order: from ``shuffle``, ``seed`` and ``weights`` to a dataset and a sampler."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import datasetrt as drt
from datasetrt.wording import a_type

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

Source: TypeAlias = "drt.CachedDataset[Any] | str | os.PathLike[str]"
Weights: TypeAlias = "Literal[True] | str | pl.Expr | pl.Series | npt.ArrayLike"


def invalid(message: str) -> drt.InvalidInputError:
    """The refusal of an argument."""
    return drt.InvalidInputError(message, kind="invalid-argument")


def ordered(
    source: Source, shuffle: bool, seed: int, weights: Weights | None, sampler: drt.Sampler | None
) -> tuple[drt.CachedDataset[Any], drt.Sampler]:
    """The dataset and the sampler that these arguments of the public functions mean.

    Args:
        source: A dataset, or the path of a cache.
        shuffle: :class:`datasetrt.Shuffle` where True, :class:`datasetrt.Sequential` where False.
        seed: For the order or the draws.
        weights: None for none; True for the weight column, or what ``with_weights`` takes: then the order is
            :class:`datasetrt.Weighted`.
        sampler: Used as it is where given.

    Raises:
        InvalidInputError: A value is of a wrong type or out of range, or two of them contradict each other.
    """
    opened: drt.CachedDataset[Any] = (
        source if isinstance(source, drt.CachedDataset) else drt.open_dataset(source)
    )
    if not isinstance(shuffle, bool):
        raise invalid(f"shuffle = {shuffle!r} is {a_type(shuffle)}; give True or False")
    if sampler is not None:
        if weights is not None or seed != 0 or not shuffle:
            raise invalid(f"sampler = {sampler!r} says it all; leave out shuffle, seed and weights")
        return opened, sampler
    if weights is None:
        return opened, drt.Shuffle(seed) if shuffle else drt.Sequential()
    if not shuffle:
        raise invalid("weights are for random draws, and shuffle=False asks for none; leave one of them out")
    weighted: Any = opened if weights is True else opened.with_weights(weights)
    return weighted, drt.Weighted(seed)
