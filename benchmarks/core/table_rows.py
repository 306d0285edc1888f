"""Selecting rows, and what a sample costs on disk."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from . import stores
from .case import Case, Found, WrongResultError, bytes_of
from .data import BATCH
from .rows import Row, Target


def filter_ours(case: Case) -> float:
    """From the open table to the first batch of the rows that are left."""
    import polars as pl

    import datasetrt as drt

    dataset = stores.ours(case)

    def first_batch(label: int) -> int:
        kept = dataset.filter(pl.col("label") == label)
        batch: Any = next(iter(kept.loader(batch_size=BATCH, sampler=drt.Shuffle(seed=1))))
        if set(batch.metadata["label"].tolist()) != {label}:
            raise WrongResultError(f"the batch has other labels than {label}")
        return len(kept)

    return filtered(len(dataset.metadata), first_batch)


def filter_polars(case: Case) -> float:
    """The filter alone."""
    import polars as pl

    table = stores.ours(case).metadata
    return filtered(len(table), lambda label: len(table.filter(pl.col("label") == label)))


def filtered(rows: int, run: Callable[[int], int]) -> float:
    """Milliseconds, the median of nine labels after one."""
    seconds = []
    for label in range(10):
        begin = time.perf_counter()
        left = run(label)
        seconds.append(time.perf_counter() - begin)
        if left != rows // 100:
            raise WrongResultError(f"{left} of {rows} rows are left")
    return statistics.median(seconds[1:]) * 1e3


def disk_ours(case: Case) -> float:
    """Bytes a sample that are neither payload nor in the metadata file."""
    metadata = case.folder("ours") / "samples" / "metadata.arrow"
    return per_sample(case, bytes_of(case.folder("ours")) - metadata.stat().st_size)


def disk_ours_whole(case: Case) -> float:
    """Bytes a sample beyond the payload."""
    return per_sample(case, bytes_of(case.folder("ours")))


def disk_rival(case: Case) -> float:
    """Bytes a sample beyond the payload: dataset-rt keeps metadata in every record, and once more."""
    return per_sample(case, bytes_of(case.folder("dataset-rt")))


def stored(store: str) -> Callable[[Case], float]:
    """Bytes a sample in the shards and the manifest."""

    def measure(case: Case) -> float:
        folder = case.folder(store) / "samples"
        manifest = (folder / "manifest.json").stat().st_size
        return (bytes_of(folder / "shards") + manifest) / case.workload.count

    return measure


def read(store: str) -> Callable[[Case], float]:
    """Batches of pickles that nobody unpacks."""

    def measure(case: Case) -> float:
        import datasetrt as drt

        loader = stores.ours(case, store).loader(batch_size=BATCH, sampler=drt.Shuffle(seed=1))

        def epoch() -> Found:
            count = labels = 0
            for one in loader:
                labels += int(one.metadata["label"].sum())
                count += len(one)
            return count, labels, None

        return case.rate(epoch)

    return measure


def per_sample(case: Case, stored: int) -> float:
    """Of so many bytes, those beyond the payloads."""
    assert case.workload.size is not None
    return stored / case.workload.count - case.workload.size


ROWS = [
    Row(
        "filter",
        "filter to 1 % of 1,000,000 rows, first batch",
        "ms",
        {"ours": filter_ours, "polars": filter_polars},
        [Target("ours", "polars", 1.5, at_least=False)],
        "64b",
        ("ours",),
        limit="polars",
        note="The table is built before, for both; polars reads no payload.",
    ),
    Row(
        "dictionary",
        "1 KiB pickled dicts, bytes in shards: zstd with a dictionary of the cache",
        "B/sample",
        {
            "with": stored("ours-zstd-dictionary"),
            "without": stored("ours-zstd"),
            "uncompressed": stored("ours"),
        },
        [Target("with", "without", 0.6, at_least=False)],
        "dicts",
        ("ours", "ours-zstd", "ours-zstd-dictionary"),
        note="The manifest, with the dictionary in it, counts.",
    ),
    Row(
        "dictionary-read",
        "1 KiB pickled dicts, shuffled, batches of 256: zstd with a dictionary of the cache",
        "samples/s",
        {"with": read("ours-zstd-dictionary"), "without": read("ours-zstd"), "uncompressed": read("ours")},
        [Target("with", "without", 1.0)],
        "dicts",
        ("ours", "ours-zstd", "ours-zstd-dictionary"),
    ),
    Row(
        "disk",
        "bytes on disk at 64 B payloads beyond payload and metadata",
        "B/sample",
        {"ours": disk_ours, "ours, with metadata": disk_ours_whole, "dataset-rt, with metadata": disk_rival},
        [Target("ours", None, 24, at_least=False)],
        "64b",
        ("ours", "dataset-rt"),
    ),
]
