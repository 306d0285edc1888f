"""grain over ArrayRecord with pickled records; the setting that was fastest of 0 and 2 threads is used."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grain
import records
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    writer = ArrayRecordWriter(str(folder / "data.array_record"), "group_size:1")
    for record in records.records():
        writer.write(pickle.dumps(record, pickle.HIGHEST_PROTOCOL))
    writer.close()


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    source = ArrayRecordDataSource([str(folder / "data.array_record")])

    def epoch() -> Iterable[dict[str, Any]]:
        pipeline = grain.MapDataset.source(source).shuffle(seed=1).map(pickle.loads).batch(records.BATCH)
        return pipeline.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))

    return epoch
