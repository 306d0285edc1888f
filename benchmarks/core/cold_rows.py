"""Reading what the page cache does not hold; it drops single files, which needs no root."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import stores
from .case import Case, Found, bytes_of, evict, files_of
from .data import BATCH
from .read_rows import shuffled
from .rows import Row, Target


def cold_ours(blocks: bool) -> Callable[[Case], float]:
    """Batches in random order, or in blocks, of which nothing is in memory."""

    def measure(case: Case) -> float:
        import datasetrt as drt

        sampler = drt.BlockShuffle(seed=1) if blocks else drt.Shuffle(seed=1)
        evict(case, case.folder("ours"))
        loader = stores.ours(case).loader(batch_size=BATCH, sampler=sampler)

        def epoch() -> Found:
            count = labels = 0
            for batch in loader:
                labels += int(batch.metadata["label"].sum())
                count += len(batch)
            return count, labels, None

        return case.rate(epoch, warm=False)

    return measure


def cold_raw(case: Case) -> float:
    """``os.pread`` in random order, by two threads."""
    plain = stores.raw(case)
    order: list[int] = shuffled(case.workload.count).tolist()
    evict(case, case.folder("raw"))
    file = os.open(plain.path, os.O_RDONLY)
    counts = [0, 0]

    def read(half: int) -> None:
        for i in order[half::2]:
            begin = plain.offsets[i]
            counts[half] += len(os.pread(file, plain.offsets[i + 1] - begin, begin)) > 0

    def epoch() -> Found:
        threads = [threading.Thread(target=read, args=(half,)) for half in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts), None, None

    return case.rate(epoch, warm=False)


def cold_sequential(case: Case) -> float:
    """Our own shard files from beginning to end, a mebibyte at a time, into one buffer."""
    shards = case.folder("ours") / "samples" / "shards"
    evict(case, case.folder("ours"))
    buffer = bytearray(1 << 20)

    def epoch() -> Found:
        total = sum(_length(path, buffer) for path in files_of(shards))
        assert total == bytes_of(shards)
        return case.workload.count, None, None

    return case.rate(epoch, warm=False)


def _length(path: Path, buffer: bytearray) -> int:
    total = 0
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            total += got
    return total


def cold_rival(case: Case) -> float:
    """Samples of dataset-rt in random order."""
    evict(case, case.folder("dataset-rt"))
    dataset: Any = stores.rival(case, shuffle=True)
    return case.rate(lambda: (sum(1 for _ in dataset), None, None), warm=False)


_NOTE = (
    "`posix_fadvise(DONTNEED)` on every file, checked with `mincore`; "
    "the host of a virtual disk may still hold them."
)

ROWS = [
    Row(
        "cold-shuffle",
        "cold cache, 64 KiB shuffled",
        "samples/s",
        {"ours": cold_ours(blocks=False), "os.pread, 2 threads": cold_raw, "dataset-rt": cold_rival},
        [Target("ours", "os.pread, 2 threads", 1.0)],
        "64k",
        ("ours", "dataset-rt", "raw"),
        limit="os.pread, 2 threads",
        note=_NOTE,
    ),
    Row(
        "cold-blocks",
        "cold cache, 64 KiB, `BlockShuffle`",
        "samples/s",
        {"ours": cold_ours(blocks=True), "sequential read": cold_sequential},
        [Target("ours", "sequential read", 0.85)],
        "64k",
        ("ours",),
        limit="sequential read",
        note=_NOTE,
    ),
]
