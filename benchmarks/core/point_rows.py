"""Single samples and lists of rows by number, and records decoded to arrays."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import stores
from .case import Case, Found, busy_thread
from .data import BATCH
from .read_rows import (
    RIVAL_SAMPLES,
    TWO_THREADS,
    batches_limit,
    filled,
    read_attributes,
    read_pairs,
    shuffled,
)
from .rows import Row, Target

#: Two threads, the second of which is woken for each batch.
WOKEN = "floor batches, a thread woken for each"


def some_rows(case: Case) -> list[int]:
    """Rows at random, enough for a tenth of a second."""
    found: list[int] = shuffled(case.workload.count)[: 100 * BATCH].tolist()
    return found


def get_ours(case: Case) -> float:
    """``ds[i]``, its metadata read."""
    dataset, rows = stores.ours(case), some_rows(case)
    return case.rate(lambda: read_attributes(map(dataset.__getitem__, rows)), len(rows))


def get_payloads(case: Case) -> float:
    """``ds[i]``, its bytes alone."""
    dataset, rows = stores.ours(case), some_rows(case)

    def read() -> Found:
        return sum(len(sample.data) > 0 for sample in map(dataset.__getitem__, rows)), None, None

    return case.rate(read, len(rows))


def get_rival(case: Case) -> float:
    """``get_item`` of dataset-rt."""
    dataset, rows = stores.rival(case, shuffle=False), some_rows(case)
    cache = next(iter(dataset)).cache_id
    rows = rows[: RIVAL_SAMPLES // 10]
    return case.rate(lambda: read_attributes(dataset.get_item(cache, i) for i in rows), len(rows))


def get_raw(case: Case) -> float:
    """``os.pread``, and a dict made from columns in memory."""
    plain, rows = stores.raw(case), some_rows(case)
    file = os.open(plain.path, os.O_RDONLY)
    offsets, metadata = plain.offsets, plain.metadata

    def get(i: int) -> tuple[bytes, dict[str, Any]]:
        begin = offsets[i]
        return os.pread(file, offsets[i + 1] - begin, begin), metadata(i)

    return case.rate(lambda: read_pairs(map(get, rows)), len(rows))


def get_lmdb(case: Case) -> float:
    """One get, and a dict of its head."""
    get, rows = stores.Lmdb(case).get, some_rows(case)
    return case.rate(lambda: read_pairs(map(get, rows)), len(rows))


def get_floor(case: Case) -> float:
    """The same from C, copied from a mapping."""
    rows = some_rows(case)
    get = stores.floor_samples(case, shuffled(1)).get
    return case.rate(lambda: read_pairs(map(get, rows)), len(rows))


def get_floor_read(case: Case) -> float:
    """The same from C by ``pread``."""
    rows = some_rows(case)
    read = stores.floor_samples(case, shuffled(1)).read
    return case.rate(lambda: read_pairs(map(read, rows)), len(rows))


def beside_busy(case: Case, get: Callable[[int], object]) -> float:
    """Samples a second while another thread of Python does nothing but count."""
    rows, count, window = some_rows(case), 0, 0.5 if case.quick else 2.0
    for row in rows:
        get(row)
    with busy_thread():
        begin = time.perf_counter()
        while time.perf_counter() - begin < window:
            for row in rows[count % len(rows) :][:16]:
                get(row)
                count += 1
        return count / (time.perf_counter() - begin)


def busy_ours(case: Case) -> float:
    """``ds[i]`` beside a busy thread."""
    return beside_busy(case, stores.ours(case).__getitem__)


def busy_raw(case: Case) -> float:
    """``os.pread`` beside a busy thread."""
    plain = stores.raw(case)
    file, offsets = os.open(plain.path, os.O_RDONLY), plain.offsets
    return beside_busy(case, lambda i: os.pread(file, offsets[i + 1] - offsets[i], offsets[i]))


def busy_lmdb(case: Case) -> float:
    """One get beside a busy thread."""
    return beside_busy(case, stores.Lmdb(case).get)


def take_ours(case: Case) -> float:
    """``take`` of 256 rows, with the metadata column that is read."""
    dataset, rows = stores.ours(case), shuffled(case.workload.count)[: 100 * BATCH]

    def epoch() -> Found:
        count = labels = 0
        for first in range(0, len(rows), BATCH):
            batch = dataset.take(rows[first : first + BATCH])
            labels += int(batch.metadata["label"].sum())
            count += len(batch)
        return count, labels, None

    return case.rate(epoch, len(rows))


def take_limit(threads: int) -> Callable[[Case], float]:
    """The payloads read into batches by C threads, nothing else."""

    def measure(case: Case) -> float:
        plain, rows = stores.raw(case), shuffled(case.workload.count)[: 100 * BATCH]

        def epoch() -> Found:
            filled(case, plain, rows, BATCH, threads=threads)
            return len(rows), None, None

        return case.rate(epoch, len(rows))

    return measure


def take_woken(case: Case) -> float:
    """The same, where a second C thread waits for half of each batch."""
    plain, rows = stores.raw(case), shuffled(case.workload.count)[: 100 * BATCH]

    def epoch() -> Found:
        case.floor.fill_woken(plain.path, plain.offsets, rows, BATCH)
        return len(rows), None, None

    return case.rate(epoch, len(rows))


def decoded(records: Iterable[dict[str, Any]]) -> Found:
    """The consumer of records, one dict of arrays each."""
    count = labels = 0
    for record in records:
        labels += int(record["label"])
        count += record["image"].shape == (64, 64, 3)
    return count, labels, None


def decode_oob(case: Case) -> float:
    """PickleOOB as the transform of batches, whose arrays are views of the batch."""
    import datasetrt as drt

    dataset = stores.ours(case, "ours-oob")
    loader = dataset.loader(batch_size=BATCH, sampler=drt.Shuffle(seed=1), transform=stores.oob())

    def records() -> Iterator[dict[str, Any]]:
        for batch in loader:
            yield from batch

    return case.rate(lambda: decoded(records()))


def decode_record(case: Case) -> float:
    """Record as the transform: one array a field and batch."""
    import datasetrt as drt

    dataset = stores.ours(case, "ours-record")
    loader = dataset.loader(batch_size=BATCH, sampler=drt.Shuffle(seed=1), transform=stores.columns())

    def epoch() -> Found:
        count = labels = 0
        for batch in loader:
            labels += int(batch["label"].sum())
            count += len(batch["image"])
        return count, labels, None

    return case.rate(epoch)


def decode_lmdb(case: Case) -> float:
    """``pickle.loads`` of each value."""
    get, loads = stores.Lmdb(case).get, pickle.loads
    order = shuffled(case.workload.count).tolist()
    return case.rate(lambda: decoded(loads(get(i)[0]) for i in order))


def decode_rival(case: Case) -> float:
    """``pickle.loads`` of each payload of dataset-rt."""
    dataset = stores.rival(case, shuffle=True)

    def records() -> Iterator[dict[str, Any]]:
        return (pickle.loads(sample.data) for sample in dataset)

    return case.rate(lambda: (decoded(records())[0], None, None))


_DECODE: dict[str, Callable[[Case], float]] = {
    "PickleOOB": decode_oob,
    "Record": decode_record,
    "lmdb + pickle.loads": decode_lmdb,
    "dataset-rt + pickle.loads": decode_rival,
    # The bytes of the records, not decoded.
    "floor batches": batches_limit(),
    TWO_THREADS: batches_limit(threads=2),
}

ROWS = [
    Row(
        "get-1k",
        "random `ds[i]` at 1 KiB",
        "samples/s",
        {
            "ours": get_ours,
            "ours, no metadata": get_payloads,
            "os.pread + dict": get_raw,
            "dataset-rt": get_rival,
            "lmdb": get_lmdb,
            "floor bytes": get_floor,
            "floor pread": get_floor_read,
        },
        [Target("ours", "os.pread + dict", 1.3)],
        "1k",
        ("ours", "dataset-rt", "lmdb", "raw"),
        "floor pread",
    ),
    Row(
        "get-busy",
        "random `ds[i]` at 1 KiB beside a busy thread of Python",
        "samples/s",
        {"ours": busy_ours, "os.pread": busy_raw, "lmdb": busy_lmdb},
        [],
        "1k",
        ("ours", "lmdb", "raw"),
        note="Who lets the interpreter go for a read has it again when the other thread's 5 ms are over.",
    ),
    Row(
        "take-1k",
        "`take` of 256 random rows at 1 KiB",
        "samples/s",
        {
            "ours": take_ours,
            "256 lmdb gets": get_lmdb,
            "floor batches": take_limit(threads=1),
            TWO_THREADS: take_limit(threads=2),
            WOKEN: take_woken,
        },
        [Target("ours", "256 lmdb gets", 3)],
        "1k",
        ("ours", "lmdb", "raw"),
        WOKEN,
    ),
    Row(
        "decode",
        "12 KiB records decoded to arrays",
        "samples/s",
        _DECODE,
        [Target("PickleOOB", "lmdb + pickle.loads", 1.5), Target("Record", "lmdb + pickle.loads", 6)],
        "records",
        ("ours-oob", "ours-record", "lmdb", "dataset-rt", "raw"),
        TWO_THREADS,
    ),
]
