"""What is used and dropped leaves nothing behind: the count of blocks that Python holds stays the same."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import polars as pl
import pytest

import datasetrt as drt
from tests.rows import RowSource

SAMPLES = 100
ROUNDS = 20
#: A leak of one object a round is seen; what caches and free lists take or give once is not taken for one.
MOST_BLOCKS = ROUNDS - 1


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> drt.CachedDataset:
    """Payloads so long that offsets are no small integers, which Python never frees."""
    rows = [(number.to_bytes(8, "little") * 125, {"label": 1000 + number}) for number in range(SAMPLES)]
    root = tmp_path_factory.mktemp("caches")
    drt.write_cache(RowSource("s", rows), root, config=drt.WriterConfig(progress=False))
    return drt.open_dataset(root / "s")


def read_payloads(ds: drt.CachedDataset) -> None:
    for batch in ds.loader(batch_size=50, sampler=drt.Shuffle(seed=1)):
        assert len(batch.payloads) == 50


def split_payloads(ds: drt.CachedDataset) -> None:
    assert [len(part) for part in ds.take(range(SAMPLES)).split([8, 992])] == [8 * SAMPLES, 992 * SAMPLES]


def read_samples(ds: drt.CachedDataset) -> None:
    assert sum(len(sample.data) for sample in ds) == 1000 * SAMPLES
    for batch in ds.loader(batch_size=50):
        assert sum(sample.metadata["label"] >= 1000 for sample in batch) == 50


def read_columns(ds: drt.CachedDataset) -> None:
    batch = ds.take(range(SAMPLES))
    assert batch.metadata["label"].tolist() == batch.metadata.to_polars()["label"].to_list()
    assert batch.indices.tolist() == list(range(SAMPLES))


def select_rows(ds: drt.CachedDataset) -> None:
    assert len(ds.filter(pl.col("label") >= 1090).with_weights(pl.col("label") + 1.0)) == 10


def stop_early(ds: drt.CachedDataset) -> None:
    loader = ds.loader(batch_size=50, sampler=drt.Shuffle(seed=1))
    assert len(next(iter(loader))) == 50
    loader.load_state_dict(loader.state_dict())


def be_refused(ds: drt.CachedDataset) -> None:
    for index in range(SAMPLES, SAMPLES + 5):
        with pytest.raises(IndexError):
            ds[index]


@pytest.mark.parametrize(
    "use",
    [read_payloads, split_payloads, read_samples, read_columns, select_rows, stop_early, be_refused],
    ids=lambda use: use.__name__,
)
def test_nothing_stays_behind(use: Callable[[drt.CachedDataset], None], dataset: drt.CachedDataset) -> None:
    grown = []
    # The least of these counts: lazy imports, caches and free lists fill up in the first ones.
    for _ in range(4):
        before = blocks()
        for _ in range(ROUNDS):
            use(dataset)
        grown.append(blocks() - before)
    assert min(grown) <= MOST_BLOCKS, grown


def blocks() -> int:
    """How many pieces of memory Python objects hold."""
    gc.collect()
    return sys.getallocatedblocks()
