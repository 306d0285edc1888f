"""MosaicML Streaming, local shards of pickled records, two worker processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import records
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader


def write(folder: Path) -> None:
    with MDSWriter(out=str(folder), columns={"data": "bytes"}) as writer:
        for record in records.records():
            writer.write({"data": pickle.dumps(record, pickle.HIGHEST_PROTOCOL)})


class Decoded(StreamingDataset):
    def __getitem__(self, number: int) -> dict[str, Any]:
        record: dict[str, Any] = pickle.loads(super().__getitem__(number)["data"])
        return record


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    clean_stale_shared_memory()
    dataset = Decoded(local=str(folder), remote=None, shuffle=True, batch_size=records.BATCH)
    loader = DataLoader(dataset, batch_size=records.BATCH, num_workers=2, persistent_workers=True)
    return lambda: loader
