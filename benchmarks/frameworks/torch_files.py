"""One pickle a file, read by torch's own DataLoader with two worker processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import records
from torch.utils.data import DataLoader, Dataset


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, record in enumerate(records.records()):
        (folder / f"{number:06d}.pkl").write_bytes(pickle.dumps(record, pickle.HIGHEST_PROTOCOL))


class Files(Dataset[dict[str, Any]]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return records.COUNT

    def __getitem__(self, number: int) -> dict[str, Any]:
        record: dict[str, Any] = pickle.loads((self.folder / f"{number:06d}.pkl").read_bytes())
        return record


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    loader = DataLoader(
        Files(folder), batch_size=records.BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )
    return lambda: loader
