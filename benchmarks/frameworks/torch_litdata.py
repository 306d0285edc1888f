"""LitData, local chunks of pickled records, two worker processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import litdata
import records
from litdata.streaming.cache import Cache


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    cache = Cache(str(folder), chunk_bytes="64MB")
    for number, record in enumerate(records.records()):
        cache[number] = {"data": pickle.dumps(record, pickle.HIGHEST_PROTOCOL)}
    cache.done()
    cache.merge()


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = pickle.loads(sample["data"])
    return record


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    dataset = litdata.StreamingDataset(str(folder), shuffle=True, transform=decode)
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=records.BATCH, num_workers=2, persistent_workers=True
    )
    return lambda: loader
