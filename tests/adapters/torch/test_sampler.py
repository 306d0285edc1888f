"""EpochSampler: the core's order, epochs, sharding, and a state that moves."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, Subset

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.records import decode, ids_of, joined, slices

SHUFFLE = drt.Shuffle(seed=7)


def order(ds: drt.CachedDataset, epoch: int = 0, sampler: drt.Sampler = SHUFFLE) -> list[int]:
    return sampler.indices(ds, epoch=epoch).tolist()


def ranks(ds: drt.CachedDataset, world: int, **options: Any) -> list[drtt.EpochSampler]:
    return [drtt.EpochSampler(ds, sharding=drtt.ShardSpec(rank, world), **options) for rank in range(world)]


# The order


@pytest.mark.parametrize(
    ("options", "sampler"),
    [
        ({"seed": 7}, SHUFFLE),
        ({"shuffle": False}, drt.Sequential()),
        ({"seed": 7, "weights": True}, drt.Weighted(7)),
        ({"seed": 7, "weights": True, "num_samples": 20}, drt.Weighted(7, 20)),
        ({"seed": 7, "weights": True, "replacement": False}, drt.Weighted(7, None, False)),
        ({"sampler": drt.BlockShuffle(7, block_samples=4)}, drt.BlockShuffle(7, block_samples=4)),
    ],
)
def test_the_order_is_that_of_the_core(
    records: drt.CachedDataset, options: dict[str, Any], sampler: drt.Sampler
) -> None:
    found = drtt.EpochSampler(records, **options)
    for epoch in range(3):  # each loop is the next epoch
        assert list(found) == order(records, epoch, sampler)
    assert found.order == sampler
    assert len(found) == len(order(records, 0, sampler))


def test_weights_may_be_given(records: drt.CachedDataset) -> None:
    weights = np.where(np.arange(len(records)) < 5, 100.0, 1.0)
    sampler = drtt.EpochSampler(drtt.TorchDataset(records), seed=3, weights=weights)
    weighted = records.with_weights(weights)
    assert list(sampler) == drt.Weighted(3).indices(weighted).tolist()
    # The state is that of a core loader over the same weights.
    weighted.loader(sampler=drt.Weighted(3)).load_state_dict(sampler.state_dict())


def test_it_is_a_distributed_sampler(records: drt.CachedDataset) -> None:
    sampler = drtt.EpochSampler(records, sharding=drtt.ShardSpec(1, 4), batch_size=8)
    assert isinstance(sampler, DistributedSampler)
    assert (sampler.rank, sampler.num_replicas, sampler.dataset) == (1, 4, records)
    assert sampler.num_samples == len(sampler) == 13
    assert sampler.total_size == 52
    assert not hasattr(sampler, "generator"), "Accelerate would reseed it"


def test_epochs_can_be_set(records: drt.CachedDataset) -> None:
    sampler = drtt.EpochSampler(records, seed=7)
    sampler.set_epoch(3)
    assert list(sampler) == order(records, 3)
    sampler.set_epoch(0)
    assert list(sampler) == order(records, 0)
    sampler.epoch = 5  # as an attribute of DistributedSampler
    assert list(sampler) == order(records, 5)
    assert sampler.epoch == 6
    for wrong in (-1, 1.5, "1", None):
        with pytest.raises(drt.InvalidInputError, match="epoch"):
            sampler.set_epoch(wrong)  # type: ignore[arg-type]
    assert sampler.epoch == 6


def test_iterators_that_nobody_pulls_do_not_count(records: drt.CachedDataset) -> None:
    sampler = drtt.EpochSampler(records, seed=7)
    surplus = [iter(sampler) for _ in range(3)]
    assert list(sampler) == order(records, 0)
    assert list(surplus[0]) == order(records, 1)


def test_a_loop_left_early_ends_its_epoch(records: drt.CachedDataset) -> None:
    sampler = drtt.EpochSampler(records, seed=7)
    assert list(itertools.islice(sampler, 10)) == order(records)[:10]
    assert list(sampler) == order(records, 1)


# Sharding


@pytest.mark.parametrize(("world", "batch_size"), [(1, 8), (2, 4), (4, 2), (3, 5)])
def test_batches_of_all_ranks_are_slices_of_the_order(
    records: drt.CachedDataset, world: int, batch_size: int
) -> None:
    samplers = ranks(records, world, seed=7, batch_size=batch_size, uneven="keep")
    batches = [slices(list(sampler), batch_size) for sampler in samplers]
    side_by_side = [joined(parts) for parts in itertools.zip_longest(*batches, fillvalue=[])]
    assert side_by_side == slices(order(records), world * batch_size)


def test_without_a_batch_size_positions_are_dealt_one_by_one(records: drt.CachedDataset) -> None:
    samplers = ranks(records, 4, seed=7, uneven="keep")
    found = [list(sampler) for sampler in samplers]
    assert found == [order(records)[rank::4] for rank in range(4)]


def test_ranks_get_equally_many(records: drt.CachedDataset) -> None:
    for uneven, expected in (("pad", 13), ("drop", 12)):
        samplers = ranks(records, 4, seed=7, batch_size=4, uneven=uneven)
        found = [list(sampler) for sampler in samplers]
        assert {len(rows) for rows in found} == {expected} == {len(sampler) for sampler in samplers}
    padded = [row for sampler in ranks(records, 4, seed=7, batch_size=4) for row in sampler]
    assert set(padded) == set(range(50))
    whole = ranks(records, 4, seed=7, batch_size=4, drop_last=True)
    assert [len(list(sampler)) for sampler in whole] == [12] * 4


def test_evaluation_on_several_ranks_has_to_say_what_uneven_means(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="uneven='pad', 'fill', 'drop' or 'keep'"):
        drtt.EpochSampler(records, shuffle=False, sharding=drtt.ShardSpec(0, 2))
    drtt.EpochSampler(records, shuffle=False, sharding=drtt.ShardSpec(0, 2), uneven="keep")


# The state


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_run_resumes_at_every_index(records: drt.CachedDataset, batch_size: int | None) -> None:
    def make() -> drtt.EpochSampler:
        return drtt.EpochSampler(records, seed=7, batch_size=batch_size)

    drt.testing.assert_resumes(make)


def test_the_state_is_that_of_the_core(records: drt.CachedDataset) -> None:
    sampler = drtt.EpochSampler(records, seed=7)
    loader = records.loader(batch_size=10, sampler=SHUFFLE)
    assert sampler.state_dict() == loader.state_dict()
    rows, batches = iter(sampler), iter(loader)
    for _ in range(5):
        assert list(itertools.islice(rows, 10)) == next(batches).indices.tolist()
        assert sampler.state_dict() == loader.state_dict()
    assert sampler.state_dict()["epoch"] == 1, "once the last one is handed out, the next epoch is up"


def test_a_run_of_four_ranks_continues_on_two_and_one(records: drt.CachedDataset) -> None:
    before = ranks(records, 4, seed=7, batch_size=3)
    loops = [iter(sampler) for sampler in before]
    seen = [list(itertools.islice(loop, 6)) for loop in loops]  # two global batches of 12
    states = [json.dumps(sampler.state_dict()) for sampler in before]
    assert len(set(states)) == 1
    assert json.loads(states[0])["position"] == 24
    for world in (2, 1):
        after = ranks(records, world, seed=7, batch_size=12 // world, uneven="keep")
        for sampler in after:
            sampler.load_state_dict(json.loads(states[0]))
        rest = [row for sampler in after for row in sampler]
        assert sorted(rest) == sorted(order(records)[24:])
        assert sorted(rest + joined(seen)) == list(range(50))


def test_set_epoch_keeps_a_restored_position_of_the_same_epoch(records: drt.CachedDataset) -> None:
    state = {**drtt.EpochSampler(records, seed=7).state_dict(), "epoch": 2, "position": 30}
    sampler = drtt.EpochSampler(records, seed=7)
    sampler.load_state_dict(state)
    sampler.set_epoch(2)  # as Lightning and Accelerate do before each loop
    assert list(sampler) == order(records, 2)[30:]
    sampler.load_state_dict(state)
    sampler.set_epoch(3)
    assert list(sampler) == order(records, 3)
    assert len(sampler) == 50, "the length is that of a whole epoch"


def test_a_wrong_state_is_refused_before_anything_changes(records: drt.CachedDataset) -> None:
    sampler = drtt.EpochSampler(records, seed=7)
    next(iter(sampler))
    good = sampler.state_dict()
    for wrong in (
        drtt.EpochSampler(records, seed=8).state_dict(),
        drtt.EpochSampler(records[:49], seed=7).state_dict(),
        {**good, "position": 51},
        {**good, "position": -1},
        {**good, "epoch": "1"},
        {key: value for key, value in good.items() if key != "epoch"},
        {},
        None,
    ):
        with pytest.raises(drt.StateError):
            sampler.load_state_dict(wrong)  # type: ignore[arg-type]
        assert sampler.state_dict() == good


def test_state_at_counts_batches(records: drt.CachedDataset) -> None:
    sampler = drtt.EpochSampler(records, seed=7)
    rows = list(sampler)  # a loader that read far ahead
    for batches in range(1, 8):
        state = sampler.state_at(batches=batches, batch_size=8)
        other = drtt.EpochSampler(records, seed=7)
        other.load_state_dict(state)
        assert list(other) == (rows[8 * batches :] or order(records, 1))
    with pytest.raises(drt.InvalidInputError, match="batch_size"):
        sampler.state_at(batches=1)
    for wrong in (-1, 8, 1.0):
        with pytest.raises(drt.InvalidInputError, match="the loop has 7"):
            sampler.state_at(batches=wrong, batch_size=8)  # type: ignore[arg-type]
    with pytest.raises(drt.InvalidInputError, match="made for 4"):
        drtt.EpochSampler(records, batch_size=4).state_at(batches=1, batch_size=8)


def test_state_at_agrees_on_all_ranks_and_after_a_resume(records: drt.CachedDataset) -> None:
    for sampler in ranks(records, 2, seed=7, batch_size=4):
        sampler.load_state_dict({**sampler.state_dict(), "position": 20})
        list(sampler)
        assert sampler.state_at(batches=2)["position"] == 36
        assert sampler.state_at(batches=4)["epoch"] == 1


def test_it_pickles_with_its_place(records: drt.CachedDataset) -> None:
    sampler = drtt.EpochSampler(records, seed=7)
    head = list(itertools.islice(sampler, 20))
    copy = pickle.loads(pickle.dumps(sampler))
    assert copy.state_dict() == sampler.state_dict()
    assert head + list(copy) == order(records)
    assert "epoch 1" in repr(copy)


def test_a_plain_dataloader_of_this_process_resumes(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records, decode=decode)
    sampler = drtt.EpochSampler(data, seed=7)
    loader: DataLoader[Any] = DataLoader(data, batch_size=8, sampler=sampler)
    head = ids_of(itertools.islice(loader, 3))
    state = sampler.state_dict()
    assert state["position"] == 24
    again = drtt.EpochSampler(data, seed=7)
    again.load_state_dict(state)
    tail = ids_of(DataLoader(data, batch_size=8, sampler=again))
    assert head + tail == slices(order(records), 8)


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": SHUFFLE, "seed": 7}, "says it all"),
        ({"sampler": torch.utils.data.SequentialSampler([1])}, "give one of datasetrt"),
        ({"shuffle": False, "weights": True}, "leave one out"),
        ({"num_samples": 5}, "about weighted draws"),
        ({"shuffle": 1}, "give True or False"),
        ({"drop_last": True}, "needs batch_size="),
        ({"batch_size": 0}, "at least 1"),
        ({"batch_size": True}, "at least 1"),
        ({"seed": -1}, "seed = -1"),
        ({"weights": [1.0]}, "weights"),
        ({"uneven": "wrap"}, "'pad' or 'fill' or 'drop' or 'keep'"),
        ({"sharding": "yes"}, "'auto' or 'none'"),
        ({"sharding": drtt.ShardSpec(0, 2, "drop"), "uneven": "pad"}, "say it once"),
    ],
)
def test_contradictions_are_refused(
    records: drt.CachedDataset, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        drtt.EpochSampler(records, **options)


def test_parts_of_a_dataset_are_refused_with_the_cure(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"filter\(\) or a slice rather than with Subset"):
        drtt.EpochSampler(Subset(drtt.TorchDataset(records), [0, 1]))  # type: ignore[arg-type]
