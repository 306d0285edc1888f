"""Orders through the public API against the golden vectors, the twin, and the laws they obey."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import datasetrt as drt
from testdata.sampler import build
from tests import sampler_twin as twin
from tests.rows import RowSource

ROWS = 5000
GOLDEN_FILE = Path(build.__file__).with_name("v1.json")
GOLDEN = json.loads(GOLDEN_FILE.read_text(encoding="utf-8"))
# Larger orders are compared in Rust, where they need no dataset.
WITH_A_DATASET = {
    f"{number}-{case['sampler']['name']}-{case['rows']}": case
    for number, case in enumerate(GOLDEN["orders"])
    if case["rows"] <= ROWS and case["length"] < 2**63
}

SAMPLERS = [
    drt.Sequential(),
    drt.Shuffle(seed=7),
    drt.BlockShuffle(seed=7, block_samples=8, window_blocks=4),
    drt.Weighted(seed=7),
    drt.Weighted(seed=7, replacement=False),
]
PERMUTATIONS = [SAMPLERS[0], SAMPLERS[1], SAMPLERS[2], SAMPLERS[4]]

Rows = Callable[..., drt.CachedDataset]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, quiet: drt.WriterConfig) -> Rows:
    """A dataset with any number of rows up to ``ROWS``, and weights if given."""
    source = RowSource("bytes", [(b"x", {})] * ROWS)
    report = drt.write_cache(source, tmp_path_factory.mktemp("sampler"), config=quiet)
    every = drt.open_dataset(report.path)

    def make(count: int, weights: list[float] | None = None) -> drt.CachedDataset:
        return every[:count] if weights is None else every[:count].with_weights(weights)

    return make


def sampler_of(arguments: dict[str, object]) -> drt.Sampler:
    """The public sampler that a golden case describes."""
    given = {name: value for name, value in arguments.items() if name != "name"}
    return getattr(drt, str(arguments["name"]))(**given)


@pytest.mark.parametrize("case", WITH_A_DATASET.values(), ids=WITH_A_DATASET)
def test_orders_are_the_golden_ones(rows: Rows, case: dict) -> None:
    ds = rows(case["rows"], build.weights_of(case["weights"], case["rows"]))
    sampler, epoch, start = sampler_of(case["sampler"]), case["epoch"], case["start"]
    found = sampler.indices(ds, epoch=epoch, start=start, stop=start + len(case["indices"]))
    assert found.dtype == np.int64
    assert found.tolist() == case["indices"]
    if case["sampler"].get("replacement") is not True:
        assert sampler.position_of(ds, case["indices"][-1], epoch=epoch) == start + len(found) - 1


def test_most_golden_cases_are_compared_here() -> None:
    assert len(WITH_A_DATASET) > 100


def test_golden_file_is_what_its_builder_writes() -> None:
    assert build.text(build.document()) == GOLDEN_FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", GOLDEN["philox"], ids=lambda case: str(case["counter"]))
def test_philox_is_numpys(case: dict) -> None:
    """NumPy counts up before it makes a block, so it starts one lower."""
    counter = sum(word << 64 * place for place, word in enumerate(case["counter"]))
    key = sum(word << 64 * place for place, word in enumerate(case["key"]))
    numpys = np.random.Philox(counter=(counter - 1) % 2**256, key=key).random_raw(4)
    assert twin.philox(case["counter"], case["key"]) == numpys.tolist() == case["words"]


@given(st.integers(1, 2**53))
def test_exponential_is_a_logarithm(v: int) -> None:
    assert twin.exponential(v) == pytest.approx(-math.log(v / 2**53), rel=1e-15, abs=0)


SEEDS = st.integers(0, 2**64 - 1)
SIZES = st.integers(1, 300)


@settings(deadline=None)
@given(
    arguments=st.one_of(
        st.fixed_dictionaries({"name": st.just("Shuffle"), "seed": SEEDS}),
        st.fixed_dictionaries(
            {"name": st.just("BlockShuffle"), "seed": SEEDS, "block_samples": SIZES, "window_blocks": SIZES}
        ),
        st.fixed_dictionaries(
            {
                "name": st.just("Weighted"),
                "seed": SEEDS,
                "num_samples": st.none(),
                "replacement": st.booleans(),
            }
        ),
    ),
    count=st.integers(1, 400) | st.integers(1025, 1200),
    epoch=SEEDS,
    weigh=st.booleans(),
)
def test_orders_are_the_twins(
    rows: Rows, arguments: dict[str, object], count: int, epoch: int, weigh: bool
) -> None:
    weights = [1 / (row + 0.3) for row in range(count)] if weigh else None
    expected = twin.order(arguments, count, weights, epoch)
    found = sampler_of(arguments).indices(rows(count, weights), epoch=epoch)
    assert found.tolist() == expected.indices(0, expected.length)


def test_seeds_of_transforms_are_the_twins(rows: Rows) -> None:
    ds = rows(20)
    loader = ds.loader(
        batch_size=None, sampler=drt.Shuffle(seed=9), transform=lambda sample, seed: seed, seeded=True
    )
    for epoch in range(2):
        assert list(loader) == [twin.transform_seed(9, epoch, position) for position in range(20)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_any_part_is_a_part_of_the_whole(rows: Rows, sampler: drt.Sampler) -> None:
    ds = rows(1500)
    whole = sampler.indices(ds, epoch=2)
    assert len(whole) == 1500
    for start, stop in [(0, 0), (0, 1), (700, 1033), (1499, 1500), (1500, 1500)]:
        assert sampler.indices(ds, epoch=2, start=start, stop=stop).tolist() == whole[start:stop].tolist()
    assert sampler.indices(ds, epoch=2, start=1400).tolist() == whole[1400:].tolist()
    assert sampler.indices(ds).tolist() == sampler.indices(ds, epoch=0, start=0, stop=1500).tolist()


@pytest.mark.parametrize("sampler", PERMUTATIONS, ids=repr)
@pytest.mark.parametrize("count", [1, 2, 3, 100, 1500])
def test_every_row_once_and_back(rows: Rows, sampler: drt.Sampler, count: int) -> None:
    ds = rows(count)
    order = sampler.indices(ds, epoch=1)
    assert sorted(order.tolist()) == list(range(count))
    for position in range(0, count, 97):
        assert sampler.position_of(ds, int(order[position]), epoch=1) == position


def test_seed_and_epoch_are_not_added(rows: Rows) -> None:
    def block_shuffle(seed: int) -> drt.Sampler:
        return drt.BlockShuffle(seed, block_samples=8, window_blocks=4)

    ds = rows(100)
    for make in (drt.Shuffle, drt.Weighted, block_shuffle):
        later_epoch, later_seed = make(0).indices(ds, epoch=1), make(1).indices(ds, epoch=0)
        assert later_epoch.tolist() != later_seed.tolist()


def test_windows_of_blocks_hold_whole_blocks(rows: Rows) -> None:
    sampler = drt.BlockShuffle(seed=3, block_samples=10, window_blocks=5)
    order = sampler.indices(rows(1000))
    windows = order.reshape(20, 50) // 10
    assert all(len(set(window)) == 5 for window in windows.tolist())
    assert sorted(set(windows.flatten().tolist())) == list(range(100))
    assert any(sorted(window) != window for window in order.reshape(20, 50).tolist())


def test_weights_are_the_datasets(rows: Rows) -> None:
    ds = rows(4, [1e-12, 1.0, 1e-12, 1e-12])
    assert drt.Weighted(seed=0, num_samples=50).indices(ds).tolist() == [1] * 50
    assert drt.Weighted(seed=0, num_samples=1, replacement=False).indices(ds).tolist() == [1]
    assert set(drt.Weighted(seed=0, num_samples=50).indices(rows(4)).tolist()) == {0, 1, 2, 3}


def test_more_rows_than_there_are_cannot_be_drawn_once(rows: Rows) -> None:
    sampler = drt.Weighted(seed=0, num_samples=11, replacement=False)
    with pytest.raises(drt.InvalidInputError, match=r"num_samples is 11.* 10 rows.*replacement=True"):
        sampler.indices(rows(10))


def test_draws_have_no_position(rows: Rows) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"row 3 .*replacement"):
        drt.Weighted(seed=0).position_of(rows(10), 3)
    once = drt.Weighted(seed=0, num_samples=4, replacement=False)
    missing = next(row for row in range(10) if row not in once.indices(rows(10)))
    with pytest.raises(drt.InvalidInputError, match=f"row {missing} is not among the 4 of 10 rows"):
        once.position_of(rows(10), missing)
