"""Which order ``shuffle``, ``seed`` and ``weights`` mean: one of the core's samplers."""

from __future__ import annotations

from typing import Any, TypeAlias

import datasetrt as drt
from datasetrt.wording import a_type

from ._checks import flag, invalid

#: True, for the weight column; or weights as `CachedDataset.with_weights` takes them.
Weights: TypeAlias = Any


def ordered(
    dataset: drt.CachedDataset,
    *,
    sampler: drt.Sampler | None,
    shuffle: bool,
    seed: int,
    weights: Weights | None,
    num_samples: int | None = None,
    replacement: bool = True,
) -> tuple[drt.CachedDataset, drt.Sampler]:
    """The dataset with its weights, and the order in which it is read.

    Raises:
        InvalidInputError: The arguments contradict each other, or do not fit the dataset.
    """
    flag("shuffle", shuffle)
    if sampler is not None:
        if not isinstance(sampler, drt.Sampler):
            raise invalid(
                f"sampler = {sampler!r} is {a_type(sampler)}; give one of datasetrt, such as "
                "datasetrt.Shuffle(seed=7), or use torch.utils.data.DataLoader itself"
            )
        if (shuffle, seed, num_samples, replacement) != (True, 0, None, True) or weights is not None:
            raise invalid(f"sampler = {sampler!r} says it all; leave out shuffle, seed, weights and the like")
        return dataset, sampler
    if weights is None:
        if num_samples is not None or not replacement:
            raise invalid(
                "num_samples and replacement are about weighted draws; give weights=True, or weights"
            )
        return dataset, drt.Shuffle(seed) if shuffle else drt.Sequential()
    if not shuffle:
        raise invalid("weights mean random draws, and shuffle=False forbids them; leave one out")
    if weights is not True:
        dataset = dataset.with_weights(weights)
    return dataset, drt.Weighted(seed, num_samples, replacement)
