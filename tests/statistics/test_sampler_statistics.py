"""Orders of the built package look random: chi-square tests with fixed seeds, which always pass or never.

The engine has sharper ones, `sampler/statistics.rs`. These see what may go wrong on the way to Python: seeds,
epochs or weights that are cut, mixed up or not passed on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import permutations

import numpy as np
import pytest

import datasetrt as drt
from tests.rows import RowSource

# In standard deviations; sound generators exceed it once in 150,000 scores.
LIMIT = 4.5

Rows = Callable[..., drt.CachedDataset]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, quiet: drt.WriterConfig) -> Rows:
    """A dataset with any number of rows up to 1025, and weights if given."""
    source = RowSource("bytes", [(b"x", {})] * 1025)
    report = drt.write_cache(source, tmp_path_factory.mktemp("statistics"), config=quiet)
    every = drt.open_dataset(report.path)

    def make(count: int, weights: list[float] | None = None) -> drt.CachedDataset:
        return every[:count] if weights is None else every[:count].with_weights(weights)

    return make


def score(observed: Iterable[int], shares: Iterable[float]) -> float:
    """How far counts are from their expected shares, in standard deviations (Wilson and Hilferty)."""
    counts, expected = np.array(list(observed), float), np.array(list(shares), float)
    expected *= counts.sum() / expected.sum()
    assert expected.min() >= 5, "too few draws for chi-square"
    free = len(counts) - 1
    width = 2 / (9 * free)
    return float((np.cbrt(((counts - expected) ** 2 / expected).sum() / free) - (1 - width)) / np.sqrt(width))


def assert_uniform(values: Iterable[int], cells: int) -> None:
    counts = np.bincount(np.array(list(values)), minlength=cells)
    assert abs(score(counts, np.ones(cells))) < LIMIT


@pytest.mark.parametrize("count", [2, 3, 5, 8, 17, 100, 1025])
def test_every_row_is_equally_likely_over_seeds_and_epochs(rows: Rows, count: int) -> None:
    ds, runs = rows(count), 10 * max(count, 200)
    last = count - 1
    assert_uniform((int(drt.Shuffle(i).indices(ds, 0, last, count)[0]) for i in range(runs)), count)
    assert_uniform((int(drt.Shuffle(5).indices(ds, i, last, count)[0]) for i in range(runs)), count)


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize(
    "make",
    [
        drt.Shuffle,
        lambda seed: drt.BlockShuffle(seed, block_samples=2, window_blocks=2),
        lambda seed: drt.Weighted(seed, replacement=False),
    ],
    ids=["shuffle", "block-shuffle", "once"],
)
def test_all_orders_of_a_few_rows_are_equally_likely(
    rows: Rows, make: Callable[[int], drt.Sampler], count: int
) -> None:
    ds, orders = rows(count), list(permutations(range(count)))
    found = Counter(tuple(make(i % 50).indices(ds, i // 50).tolist()) for i in range(200 * len(orders)))
    assert abs(score((found[order] for order in orders), np.ones(len(orders)))) < LIMIT


@pytest.mark.parametrize("count", [17, 1025])
@pytest.mark.parametrize(
    "other",
    [lambda s, e: (s + 1, e), lambda s, e: (s, e + 1), lambda s, e: (s + 1, e - 1)],
    ids=["seeds", "epochs", "sums"],
)
def test_neighbouring_seeds_and_epochs_are_unrelated(
    rows: Rows, count: int, other: Callable[[int, int], tuple[int, int]]
) -> None:
    """Unrelated permutations have one equal entry on average."""
    ds, pairs, equal = rows(count), 400, 0
    for seed, epoch in ((s, e) for s in range(20) for e in range(1, 21)):
        other_seed, other_epoch = other(seed, epoch)
        here = drt.Shuffle(seed).indices(ds, epoch)
        equal += int((here == drt.Shuffle(other_seed).indices(ds, other_epoch)).sum())
    assert abs(equal - pairs) < LIMIT * pairs**0.5


def test_draws_follow_the_weights(rows: Rows) -> None:
    weights = [1.0 + row % 7 for row in range(100)]
    ds = rows(100, weights)
    drawn = drt.Weighted(3, num_samples=50_000).indices(ds)
    assert abs(score(np.bincount(drawn, minlength=100), weights)) < LIMIT
    over_epochs = [int(drt.Weighted(3).indices(ds, i, 5, 6)[0]) for i in range(5000)]
    assert abs(score(np.bincount(over_epochs, minlength=100), weights)) < LIMIT


def test_draws_without_replacement_follow_the_weights_that_are_left(rows: Rows) -> None:
    weights = [1.0, 2.0, 5.0]
    ds = rows(3, weights)
    orders = list(permutations(range(3)))
    shares = [weights[a] / 8 * weights[b] / (8 - weights[a]) for a, b, _ in orders]
    once = drt.Weighted(1, replacement=False)
    found = Counter(tuple(once.indices(ds, epoch).tolist()) for epoch in range(5000))
    assert abs(score((found[order] for order in orders), shares)) < LIMIT


def test_seeds_of_transforms_are_spread(rows: Rows) -> None:
    loader = rows(1000).loader(
        batch_size=None, sampler=drt.Sequential(), transform=lambda sample, seed: seed, seeded=True
    )
    seeds = [seed for _ in range(4) for seed in loader]
    assert len(set(seeds)) == 4000
    assert_uniform((seed >> 57 for seed in seeds), 64)
    assert_uniform((seed % 64 for seed in seeds), 64)
