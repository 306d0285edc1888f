"""Seeds and padding travel with the indices: from the sampler, through workers, to decode and to the mask."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.records import RECORD, decode

SHUFFLE = drt.Shuffle(seed=7)


def decode_with_seed(sample: drt.CachedSample, seed: int) -> dict[str, Any]:
    """The number of the record, and the seed."""
    return {"id": sample.sample_id, "seed": seed}


def seeds_of(loader: Any) -> list[int]:
    return [seed for batch in loader for seed in batch["seed"].tolist()]


@pytest.mark.parametrize("output", ["samples", "columns"])
@pytest.mark.parametrize("workers", [0, 2])
def test_seeds_do_not_depend_on_workers(records: drt.CachedDataset, workers: int, output: Any) -> None:
    data = drtt.TorchDataset(records, decode=decode_with_seed, seeded=True, output=output)
    loader = drtt.make_dataloader(
        data, 8, sampler=SHUFFLE, num_workers=workers, stateful=False, persistent_workers=False
    )
    core = records.loader(batch_size=8, sampler=SHUFFLE, transform=decode_with_seed, seeded=True)
    for _ in range(2):
        expected = [each["seed"] for batch in core for each in batch]
        assert seeds_of(loader) == expected


def test_indices_are_ints_that_pickle(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records, decode=decode_with_seed, seeded=True)
    sampler = drtt.EpochSampler(data, sampler=SHUFFLE)
    first = next(iter(sampler))
    assert first == SHUFFLE.indices(records)[0]
    again = pickle.loads(pickle.dumps(first))
    seed = int(SHUFFLE.transform_seeds(records, [0])[0])
    assert (again, again.seed, again.padding) == (first, seed, False)
    assert data[first] == {"id": int(first), "seed": seed}


def test_indices_of_others_are_refused(records: drt.CachedDataset) -> None:
    for options in ({"decode": decode_with_seed, "seeded": True}, {"decode": decode, "mask_key": "real"}):
        data = drtt.TorchDataset(records, **options)
        for wrong in (3, [3, 4], torch.tensor([3])):
            with pytest.raises(drt.InvalidInputError, match="use make_dataloader"):
                data[wrong]
        plain = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
        with pytest.raises(drt.InvalidInputError, match="EpochSampler"):
            next(iter(plain))


@pytest.mark.parametrize("options", [{}, {"decode": RECORD}])
def test_a_seed_needs_a_function_that_takes_it(records: drt.CachedDataset, options: dict[str, Any]) -> None:
    for make in (drtt.TorchDataset, lambda ds, **given: drtt.NativeLoader(ds, 8, **given)):
        with pytest.raises(drt.InvalidInputError, match="seeded=True needs a decode that takes a seed"):
            make(records, seeded=True, **options)
        with pytest.raises(drt.InvalidInputError, match="seeded"):
            make(records, seeded=1, decode=decode)


@pytest.mark.parametrize("uneven", ["pad", "fill"])
def test_a_dataloader_masks_what_the_sampler_repeats(records: drt.CachedDataset, uneven: Any) -> None:
    real, padded = [], []
    for rank in range(4):
        data = drtt.TorchDataset(records, decode=RECORD, output="columns", mask_key="real")
        shard = drtt.ShardSpec(rank, 4)
        loader = drtt.make_dataloader(data, 4, shuffle=False, sharding=shard, uneven=uneven, stateful=False)
        for batch in loader:
            assert batch["real"].dtype == torch.bool
            real += batch["id"][batch["real"]].tolist()
            padded += batch["id"][~batch["real"]].tolist()
    assert sorted(real) == list(range(50))
    assert padded == list(range(2 if uneven == "pad" else 14))


def test_a_filled_batch_needs_to_know_its_size(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="uneven='fill' needs batch_size"):
        drtt.EpochSampler(records, uneven="fill")


def test_substitutes_are_marked(
    records: drt.CachedDataset, damaged: Callable[[drt.CachedDataset, int], Path]
) -> None:
    ds = drt.open_dataset(damaged(records, 17))
    options: Any = {"decode": RECORD, "shuffle": False, "on_corrupt": "substitute"}
    loader = drtt.NativeLoader(ds, 8, substituted_key="stand_in", **options)
    marks = [mark for batch in loader for mark in batch["stand_in"].tolist()]
    assert [row for row, mark in enumerate(marks) if mark] == [17]
    assert "stand_in" not in next(iter(drtt.NativeLoader(ds, 8, **options)))
    with pytest.raises(drt.InvalidInputError, match="another substituted_key"):
        next(iter(drtt.NativeLoader(ds, 8, substituted_key="id", **options)))
