"""Datasets that the tests of the PyTorch adapter read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import datasetrt as drt
from tests.adapters.torch.records import RECORD, record


def pytest_itemcollected(item: pytest.Item) -> None:
    # torchdata 0.11 calls a function that PyTorch 2.15 has deprecated.
    item.add_marker(pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"))


@pytest.fixture(scope="session")
def records_folder(tmp_path_factory: pytest.TempPathFactory, quiet: drt.WriterConfig) -> Path:
    """A cache of 50 records, each of which holds its own number."""
    source = drt.MapSource("records", range(50), record, codec=RECORD)
    return Path(drt.write_cache(source, tmp_path_factory.mktemp("records"), config=quiet).path)


@pytest.fixture
def records(records_folder: Path) -> drt.CachedDataset:
    """A freshly opened dataset of 50 records."""
    return drt.open_dataset(records_folder)


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[[drt.CachedDataset, int], Path]:
    """Copies the cache of a dataset, and damages the payload of a row there."""

    def copied(ds: drt.CachedDataset, row: int) -> Path:
        folder = Path(shutil.copytree(ds.caches[0].path, tmp_path / "damaged"))
        (shard,) = (folder / "shards").iterdir()
        content = bytearray(shard.read_bytes())
        content[content.find(ds[row].data)] ^= 1
        shard.write_bytes(content)
        return folder

    return copied
