"""Steps, states and padding, compared with what the core's own loader does; TensorFlow has no part in it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import datasetrt as drt
import datasetrt_tf as drtf
from datasetrt_tf._plan import Cut, Plan, plan_of

SHUFFLE = drt.Shuffle(seed=3)
SIZES = [(n, batch, world) for n in (1, 3, 10, 16, 23) for batch in (1, 4, 7) for world in (1, 2, 3)]


def _plan(ds: drt.CachedDataset, cut: Cut, start: Any = 0, epochs: int | None = 3) -> Plan:
    return plan_of(ds, cut, start, epochs)


def _loader(ds: drt.CachedDataset, cut: Cut) -> drt.Loader[drt.SampleBatch]:
    return cut.loader(ds, cut.shards[0])


@pytest.fixture(scope="module")
def rows() -> drt.CachedDataset:
    return drt.testing.tiny_dataset(23)


@pytest.mark.parametrize(("n", "batch", "world"), SIZES)
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep", "fill"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_places_are_those_of_the_core(
    rows: drt.CachedDataset, n: int, batch: int, world: int, uneven: Any, drop_last: bool
) -> None:
    ds = rows[:n]
    for rank in range(world):
        cut = Cut(SHUFFLE, batch, (drt.Shard(rank, world, uneven),), drop_last)
        loader = _loader(ds, cut)
        if len(loader) == 0 and (uneven != "keep" or drop_last):
            with pytest.raises(drt.InvalidInputError, match="has no batch of"):
                _plan(ds, cut)
            continue
        plan = _plan(ds, cut)
        assert plan.total == 3 * len(loader)
        steps = itertools.count()
        for _ in range(3):
            for items in loader:
                step = plan.step(next(steps))
                assert (items.epoch, items.indices.tolist()) == _read(ds, cut, step.place)
                assert cut.pads or not items.padding.any()
        assert next(steps) == plan.total


def _read(ds: drt.CachedDataset, cut: Cut, place: Any) -> tuple[int, list[int]]:
    """What the core hands out at a place."""
    loader = _loader(ds, cut)
    loader.load_state_dict({**loader.state_dict(), "epoch": place.epoch, "position": place.position})
    batch = next(iter(loader))
    return batch.epoch, batch.indices.tolist()


@pytest.mark.parametrize(("n", "batch", "world"), SIZES)
@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("tail", ["short", "drop", "pad"])
def test_a_cursor_is_the_state_of_the_core_loader(
    rows: drt.CachedDataset, n: int, batch: int, world: int, uneven: Any, tail: Any
) -> None:
    # With "keep" the last rank may have a step less than others, and says no more than it knows.
    shard = drt.Shard(world - 1, world, uneven)
    ds = rows[:n]
    if tail == "pad" and uneven != "pad":
        with pytest.raises(drt.InvalidInputError, match="tail='pad' fills every batch up"):
            drtf.cursor(ds, batch, seed=3, global_step=0, tail=tail, shard=shard)
        return
    loader = ds.loader(batch_size=batch, sampler=SHUFFLE, shard=shard, drop_last=tail == "drop")
    if len(loader) == 0 and (uneven != "keep" or tail == "drop"):
        with pytest.raises(drt.InvalidInputError, match="has no batch of"):
            drtf.cursor(ds, batch, seed=3, global_step=0, tail=tail, shard=shard)
        return
    steps = 0
    for _ in range(2):
        for _ in loader:
            steps += 1
            state = drtf.cursor(ds, batch, seed=3, global_step=steps, tail=tail, shard=shard)
            assert state == loader.state_dict()


@pytest.mark.parametrize("uneven", ["pad", "drop"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("position", range(23))
def test_a_run_continues_from_any_position(
    rows: drt.CachedDataset, position: int, drop_last: bool, uneven: Any
) -> None:
    cut = Cut(SHUFFLE, 4, (drt.Shard(1, 2, uneven),), drop_last)
    state = {**rows.loader(sampler=SHUFFLE).state_dict(), "epoch": 1, "position": position}
    plan = _plan(rows, cut, state, 3)
    loader = _loader(rows, cut)
    loader.load_state_dict(state)
    found = [_read(rows, cut, plan.step(step).place) for step in range(plan.total or 0)]
    loops = [list(loader)]
    if loader.epoch < 3:  # a first loop without a batch leaves its epoch all the same
        loops += [list(loader) for _ in range(3 - loader.epoch)]
    expected = [(batch.epoch, batch.indices.tolist()) for loop in loops for batch in loop]
    assert found == [item for item in expected if item[0] < 3]


def test_num_epochs_counts_those_before_the_start(rows: drt.CachedDataset) -> None:
    cut = Cut(SHUFFLE, 4, (drt.Shard(),), drop_last=False)
    assert [_plan(rows, cut, start, 2).total for start in (0, 5, 6, 11, 12, 100)] == [12, 7, 6, 1, 0, 0]
    assert _plan(rows, cut, 100, None).total is None
    assert _plan(rows, cut, 8).step(0).place == (1, 8)


def test_neighbouring_ranks_take_turns(rows: drt.CachedDataset) -> None:
    shards = tuple(drt.Shard(rank, 3, "pad") for rank in (1, 2))
    plan = _plan(rows, Cut(SHUFFLE, 2, shards, drop_last=False), epochs=1)
    assert plan.total == 8
    assert [plan.step(element).shard.rank for element in range(4)] == [1, 2, 1, 2]
    assert [plan.step(element).place.position for element in range(4)] == [0, 0, 6, 6]


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("start", -1, "start = -1 is out of range"),
        ("start", True, "start = True is a bool"),
        ("start", 1.5, "start = 1.5 is a float"),
        ("num_epochs", 0, "num_epochs = 0 is out of range"),
        ("num_epochs", "2", "num_epochs = '2' is a str"),
    ],
)
def test_numbers_are_checked(rows: drt.CachedDataset, argument: str, value: Any, message: str) -> None:
    cut = Cut(SHUFFLE, 4, (drt.Shard(),), drop_last=False)
    with pytest.raises(drt.InvalidInputError, match=message):
        plan_of(rows, cut, **{"start": 0, "num_epochs": 1, argument: value})


def test_a_cursor_takes_no_argument_that_it_does_not_look_at(rows: drt.CachedDataset) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'decode'"):
        drtf.cursor(rows, 4, global_step=1, decode=None)  # type: ignore[call-arg]
    with pytest.raises(drt.InvalidInputError, match="global_step = -1"):
        drtf.cursor(rows, 4, global_step=-1)
