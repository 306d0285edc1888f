"""Samplers as users hold them: frozen values with checked fields, and their two questions to a dataset."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

import datasetrt as drt

PERMUTATIONS = [
    drt.Sequential(),
    drt.Shuffle(seed=7),
    drt.BlockShuffle(seed=7),
    drt.BlockShuffle(seed=7, block_samples=9, window_blocks=2),
]
DRAWS = [
    drt.Weighted(seed=7),
    drt.Weighted(seed=7, num_samples=250),
    drt.Weighted(seed=7, num_samples=40, replacement=False),
]


def kind(value: object) -> str:
    return str(value).replace("replacement", "")


@pytest.mark.parametrize("sampler", PERMUTATIONS, ids=kind)
def test_a_permutation_has_every_row_once_and_an_inverse(
    sampler: drt.Sampler, tiny: drt.CachedDataset
) -> None:
    for epoch in (0, 3, 2**64 - 1):
        rows = sampler.indices(tiny, epoch=epoch)
        assert rows.dtype == np.int64
        assert sorted(rows) == list(range(100))
        assert [sampler.position_of(tiny, int(row), epoch=epoch) for row in rows] == list(range(100))


@pytest.mark.parametrize("sampler", [*PERMUTATIONS, *DRAWS], ids=kind)
def test_any_part_of_an_order_is_that_part_of_the_whole(
    sampler: drt.Sampler, tiny: drt.CachedDataset
) -> None:
    whole = sampler.indices(tiny, epoch=2)
    assert len(whole) == (getattr(sampler, "num_samples", None) or 100)
    for start, stop in ((0, 0), (0, 1), (13, 29), (len(whole) - 1, len(whole)), (len(whole), len(whole))):
        np.testing.assert_array_equal(sampler.indices(tiny, 2, start, stop), whole[start:stop])
    np.testing.assert_array_equal(sampler.indices(tiny, epoch=2, start=13), whole[13:])


@pytest.mark.parametrize("sampler", [*PERMUTATIONS[1:], *DRAWS], ids=kind)
def test_epochs_differ_and_repeat(sampler: drt.Sampler, tiny: drt.CachedDataset) -> None:
    first, second = sampler.indices(tiny, epoch=0), sampler.indices(tiny, epoch=1)
    assert first.tolist() != second.tolist()
    np.testing.assert_array_equal(sampler.indices(tiny, epoch=0), first)


def test_sequential_is_the_same_in_every_epoch(tiny: drt.CachedDataset) -> None:
    for epoch in (0, 5):
        assert drt.Sequential().indices(tiny, epoch=epoch).tolist() == list(range(100))


def test_rows_are_those_of_the_view(tiny: drt.CachedDataset) -> None:
    view = tiny[50:60]
    assert sorted(drt.Shuffle(seed=1).indices(view)) == list(range(10))
    with pytest.raises(drt.InvalidInputError, match="row = 50"):
        drt.Shuffle(seed=1).position_of(view, 50)


@pytest.mark.parametrize("sampler", DRAWS, ids=kind)
def test_draws_have_no_inverse_unless_each_row_comes_once(
    sampler: drt.Weighted, tiny: drt.CachedDataset
) -> None:
    if sampler.replacement:
        with pytest.raises(drt.InvalidInputError):
            sampler.position_of(tiny, 3)
        return
    rows = sampler.indices(tiny)
    assert sampler.position_of(tiny, int(rows[5])) == 5


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"start": -1}, "start = -1"),
        ({"start": 101}, "start = 101"),
        ({"stop": 101}, "stop = 101"),
        ({"start": 5, "stop": 4}, "start = 5 is out of range; give a whole number from 0 to 4"),
        ({"start": True}, "start = True"),
        ({"stop": 4.0}, "stop = 4.0"),
        ({"epoch": -1}, "epoch = -1"),
        ({"epoch": 2**64}, "epoch = "),
        ({"epoch": np.array([1])}, "epoch = "),
    ],
    ids=str,
)
def test_positions_and_epochs_are_checked(
    values: dict[str, Any], words: str, tiny: drt.CachedDataset
) -> None:
    with pytest.raises(drt.InvalidInputError) as refused:
        drt.Shuffle(seed=1).indices(tiny, **values)
    assert words in str(refused.value)


@pytest.mark.parametrize("row", [-1, 100, True, 1.0, None], ids=repr)
def test_rows_are_checked(row: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="row = "):
        drt.Shuffle(seed=1).position_of(tiny, row)


@pytest.mark.parametrize("seed", [-1, 2**64, True, 1.0, "7", None, np.array([7])], ids=repr)
@pytest.mark.parametrize("sampler", [drt.Shuffle, drt.BlockShuffle, drt.Weighted])
def test_seeds_are_checked(sampler: Any, seed: Any) -> None:
    with pytest.raises(drt.InvalidInputError, match="seed = "):
        sampler(seed=seed)


@pytest.mark.parametrize("sampler", [drt.Shuffle, drt.BlockShuffle, drt.Weighted])
def test_numpy_seeds_become_ints(sampler: Any) -> None:
    made = sampler(seed=np.uint64(2**64 - 1))
    assert type(made.seed) is int
    assert made == sampler(2**64 - 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: drt.BlockShuffle(1, block_samples=0), "block_samples = 0"),
        (lambda: drt.BlockShuffle(1, window_blocks=True), "window_blocks = True"),
        (lambda: drt.Weighted(1, num_samples=0), "num_samples = 0"),
        (lambda: drt.Weighted(1, num_samples=2**63), "num_samples = "),
        (lambda: drt.Weighted(1, replacement=1), "replacement = 1"),  # type: ignore[arg-type]
        (
            lambda: drt.Shard(rank=2, world_size=2),
            "rank = 2 is out of range; give a whole number from 0 to 1",
        ),
        (lambda: drt.Shard(rank=-1), "rank = -1"),
        (lambda: drt.Shard(world_size=0), "world_size = 0"),
        (lambda: drt.Shard(world_size=True), "world_size = True"),
        (lambda: drt.Shard(0, 2, "wrap"), "uneven = 'wrap'"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_fields_are_checked(make: Any, words: str) -> None:
    with pytest.raises(drt.InvalidInputError) as refused:
        make()
    assert words in str(refused.value)


def test_too_many_draws_without_replacement_are_refused(tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="101"):
        drt.Weighted(1, num_samples=101, replacement=False).indices(tiny)


@pytest.mark.parametrize("sampler", [*PERMUTATIONS, *DRAWS], ids=kind)
def test_samplers_are_values(sampler: drt.Sampler) -> None:
    assert pickle.loads(pickle.dumps(sampler)) == sampler
    assert hash(pickle.loads(pickle.dumps(sampler))) == hash(sampler)
    with pytest.raises(FrozenInstanceError):
        sampler.seed = 8  # type: ignore[attr-defined]


def test_samplers_with_other_fields_differ() -> None:
    assert len({*PERMUTATIONS, *DRAWS, drt.Shuffle(8)}) == len(PERMUTATIONS) + len(DRAWS) + 1


def test_block_shuffle_takes_its_sizes_by_name() -> None:
    with pytest.raises(TypeError):
        drt.BlockShuffle(1, 2, 3)  # type: ignore[call-arg]
    assert repr(drt.BlockShuffle(1)) == "BlockShuffle(seed=1, block_samples=256, window_blocks=64)"
