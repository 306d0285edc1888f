"""The plan of a loader: positions and padding of any step, rows and seeds of any positions."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import datasetrt as drt

SHUFFLE = drt.Shuffle(seed=5)
CASES = [
    (rows, batch, world) for rows in (1, 2, 7, 12, 31, 100) for batch in (1, 3, 4) for world in (1, 2, 3, 5)
]


@pytest.mark.parametrize("uneven", ["pad", "drop", "keep", "fill"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_plan_is_what_the_loop_does(uneven: Any, drop_last: bool, tiny: drt.CachedDataset) -> None:
    for rows, batch, world in CASES:
        for start, rank in itertools.product({0, rows // 3, rows - 1}, range(world)):
            shard = drt.Shard(rank, world, uneven)
            ds = tiny[:rows]
            loader = ds.loader(batch_size=batch, sampler=SHUFFLE, drop_last=drop_last, shard=shard)
            plan = loader.plan(start)
            place = repr(plan)
            loader.load_state_dict({**loader.state_dict(), "position": start})
            found = []
            for step, delivered in enumerate(loader):
                assert plan.positions(step).tolist() == delivered.positions.tolist(), place
                assert plan.padding(step).tolist() == delivered.padding.tolist(), place
                state = loader.state_dict()
                after = plan.position_after(step + 1)
                assert (state["epoch"], state["position"]) == ((1, 0) if after == rows else (0, after)), place
                found.append(delivered)
            assert len(plan) == len(found)
            assert plan.samples == sum(map(len, found))
            assert plan.length == rows
            everything = plan.positions(0, len(plan))
            assert everything.tolist() == [int(at) for each in found for at in each.positions]
            assert len(plan.padding(0, len(plan))) == len(everything) == plan.samples


def test_a_plan_travels_and_compares(tiny: drt.CachedDataset) -> None:
    loader = tiny.loader(batch_size=8, shard=drt.Shard(1, 3, "pad"))
    plan = loader.plan(16)
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.positions(0, len(again)).tolist() == plan.positions(0, len(plan)).tolist()
    assert plan != loader.plan()
    assert plan != 3
    assert repr(plan) == "BatchPlan(4 steps from position 16 of 100, batch_size=8, rank 1 of 3)"


def test_steps_that_are_not_there_are_refused(tiny: drt.CachedDataset) -> None:
    plan = tiny.loader(batch_size=8).plan()
    for step, stop in ((13, None), (0, 14), (5, 4), (2**64 - 1, None)):
        with pytest.raises(IndexError, match="no such steps in a plan of 13"):
            plan.positions(step, stop)
        with pytest.raises(IndexError, match="no such steps in a plan of 13"):
            plan.padding(step, stop)
    assert plan.positions(13, 13).tolist() == []
    with pytest.raises(drt.InvalidInputError, match="position = 101"):
        tiny.loader(batch_size=8).plan(101)
    assert len(tiny.loader(batch_size=8).plan(100)) == 0


def test_too_many_positions_at_once_are_refused(tiny: drt.CachedDataset) -> None:
    draws = drt.Weighted(seed=1, num_samples=2**40)
    plan = tiny.loader(batch_size=2**20, sampler=draws).plan()
    assert plan.positions(2**19).tolist()[0] == 2**39
    with pytest.raises(drt.InvalidInputError, match="too many at once"):
        plan.positions(0, len(plan))


SAMPLERS = [
    drt.Sequential(),
    SHUFFLE,
    drt.BlockShuffle(seed=3, block_samples=8, window_blocks=2),
    drt.Weighted(seed=9),
    drt.Weighted(seed=9, num_samples=50, replacement=False),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_rows_at_positions_are_those_of_the_order(sampler: drt.Sampler, tiny: drt.CachedDataset) -> None:
    order = sampler.indices(tiny, epoch=2)
    at = np.random.default_rng(1).integers(0, len(order), 300, dtype=np.uint16)
    assert sampler.indices_at(tiny, at, epoch=2).tolist() == order[at].tolist()
    assert sampler.indices_at(tiny, list(range(7)), epoch=2).tolist() == order[:7].tolist()
    assert sampler.indices_at(tiny, []).tolist() == []
    assert sampler.indices_at(tiny, [1]).dtype == np.int64


def seed_of(_sample: drt.CachedSample, seed: int) -> int:
    return seed


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("batch_size", [7, None])
def test_seeds_are_those_that_the_loader_gives(
    sampler: drt.Sampler, batch_size: int | None, tiny: drt.CachedDataset
) -> None:
    options: Any = {"batch_size": batch_size, "sampler": sampler, "transform": seed_of, "seeded": True}
    loader: Any = tiny.loader(**options)
    for epoch in range(2):
        given = [seed for each in loader for seed in (each if isinstance(each, list) else [each])]
        seeds = sampler.transform_seeds(tiny, np.arange(len(given)), epoch=epoch)
        assert (seeds.dtype, seeds.tolist()) == (np.uint64, given)
        assert sampler.transform_seeds(tiny, [3, 1], epoch=epoch).tolist() == [given[3], given[1]]
    assert sampler.transform_seeds(tiny, []).shape == (0,)


@pytest.mark.parametrize("name", ["indices_at", "transform_seeds"])
@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        ([100], drt.SampleIndexError, "position 100"),
        ([-1], drt.SampleIndexError, "position -1"),
        ([2**63], drt.SampleIndexError, f"position {2**63}"),
        ([2**64], drt.SampleIndexError, f"position {2**64}"),
        ((0, -(2**64)), drt.SampleIndexError, "position -"),
        ([0.5], drt.InvalidInputError, "0.5, a float, at place 0"),
        ([1, True], drt.InvalidInputError, "True, a bool, at place 1"),
        ([[1]], drt.InvalidInputError, r"\[1\], a list, at place 0"),
        (np.array([0.5]), drt.InvalidInputError, "positions are float64"),
        (np.array([True]), drt.InvalidInputError, "positions are bool"),
        (np.array([[1]]), drt.InvalidInputError, r"of shape \(1, 1\)"),
        (np.array([2**64 - 1], ">u8"), drt.SampleIndexError, f"position {2**64 - 1}"),
        (3, drt.InvalidInputError, r"of shape \(\)"),
        (range(3, 200), drt.SampleIndexError, "position 199"),
        ("12", drt.InvalidInputError, "whole numbers"),
    ],
)
def test_what_is_no_position_is_refused(
    name: str, positions: Any, error: type[Exception], message: str, tiny: drt.CachedDataset
) -> None:
    with pytest.raises(error, match=message):
        getattr(SHUFFLE, name)(tiny, positions)
    with pytest.raises(drt.InvalidInputError, match="epoch = -1"):
        getattr(SHUFFLE, name)(tiny, [1], epoch=-1)


def test_numbers_of_steps_that_cannot_be_are_refused() -> None:
    plan = drt.testing.tiny_dataset().loader(batch_size=3).plan()
    for step in (len(plan), 58, -1, 2**64, 10**30):
        for ask in (plan.positions, plan.padding):
            with pytest.raises(drt.SampleIndexError, match="plan of 4"):
                ask(step)
    for steps in ((0, 5), (2, 1), (0, -1)):
        with pytest.raises(drt.SampleIndexError):
            plan.positions(*steps)
    for steps_done in (-1, 2**64):
        with pytest.raises(drt.InvalidInputError):
            plan.position_after(steps_done)
