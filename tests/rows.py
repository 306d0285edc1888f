"""Ready rows that tell their own number, and a source over rows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import datasetrt as drt

Row = tuple[bytes, Mapping[str, bool | int | float | str | None]]


class RowSource:
    """A named source over ready ``(payload, metadata)`` rows.

    ``optional`` sets the optional attributes of a source: fingerprint, schema, codec.
    """

    def __init__(self, name: str, rows: Sequence[Row], **optional: object) -> None:
        self.name = name
        self.rows = rows
        self.__dict__.update(optional)

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for data, metadata in self.rows:
            yield drt.CacheInput(data, metadata)

    def __len__(self) -> int:
        return len(self.rows)


def rows_of(count: int) -> list[Row]:
    """Payloads of 8 to 70 bytes that start with their row number, and one metadata column of each type."""
    random_bytes = random.Random(count).randbytes
    return [
        (
            number.to_bytes(8, "little") + random_bytes(number * 31 % 63),
            {
                "label": number % 10,
                "split": "val" if number % 5 == 0 else "train",
                "score": number / 8,
                "even": number % 2 == 0,
            },
        )
        for number in range(count)
    ]


def wait_for_files(folder: Path, count: int) -> None:
    """Return once there are so many files below a folder: what an interrupted write keeps is there then."""
    deadline = time.monotonic() + 30
    while sum(path.is_file() for path in folder.rglob("*")) < count:
        assert time.monotonic() < deadline, f"{folder} has fewer than {count} files"
        time.sleep(0.02)


def number_of(payload: bytes | memoryview) -> int:
    """The row number that :func:`rows_of` put into a payload."""
    return int.from_bytes(bytes(payload[:8]), "little")
