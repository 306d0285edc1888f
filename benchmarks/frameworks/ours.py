"""The records in a datasetrt cache, packed with the Record codec; shared by the three adapters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import records

import datasetrt as drt

CODEC = drt.codecs.Record(
    {"image": ("uint8", records.IMAGE), "label": ("int64", ()), "boxes": ("float32", records.BOXES)}
)


class Source:
    """The records as a source."""

    name = "records"
    codec = CODEC

    def __iter__(self) -> Iterator[drt.CacheInput]:
        return (drt.CacheInput(CODEC.dumps(record), {}) for record in records.records())


def write(folder: Path) -> None:
    drt.write_cache(Source(), folder, config=drt.WriterConfig(progress=False))


def dataset(folder: Path) -> drt.CachedDataset:
    return drt.open_dataset(folder / "records")
