"""Epochs in random order: sample by sample, and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from typing import Any

from . import stores
from .case import Case, Found
from .data import BATCH
from .rows import Row, Target

#: What two cores can read from files, whoever reads.
TWO_THREADS = "floor batches, 2 threads"
#: dataset-rt draws with replacement and is slow: part of an epoch tells its rate.
RIVAL_SAMPLES = 100_000


def shuffled(count: int) -> Any:
    """Rows in random order, as int64."""
    import numpy as np

    return np.random.default_rng(0).permutation(count)


def samples_ours(case: Case) -> float:
    """Every CachedSample, with its metadata read."""
    import datasetrt as drt

    loader = stores.ours(case).loader(batch_size=None, sampler=drt.Shuffle(seed=1))
    return case.rate(lambda: read_attributes(loader))


def samples_rival(case: Case) -> float:
    """Every sample of dataset-rt, with its metadata read."""
    dataset = stores.rival(case, shuffle=True)
    count = min(case.workload.count, RIVAL_SAMPLES)
    return case.rate(lambda: read_attributes(islice(dataset, count)), count)


def touched_rival(case: Case) -> float:
    """The same, and every byte."""
    dataset = stores.rival(case, shuffle=True)
    touch = case.floor.touch

    def epoch() -> Found:
        count = labels = words = 0
        for sample in islice(dataset, case.workload.count):
            words += touch(sample.data)
            labels += sample.metadata["label"]
            count += 1
        return count, None, None

    return case.rate(epoch)


def read_attributes(samples: Iterable[Any]) -> Found:
    """The consumer of samples with attributes."""
    count = labels = 0
    for sample in samples:
        metadata = sample.metadata
        labels += metadata["label"]
        count += len(sample.data) > 0
    return count, labels, None


def read_pairs(pairs: Iterable[tuple[Any, dict[str, Any]]]) -> Found:
    """The consumer of pairs."""
    count = labels = 0
    for payload, metadata in pairs:
        labels += metadata["label"]
        count += len(payload) > 0
    return count, labels, None


def samples_lmdb(case: Case) -> float:
    """One get a sample."""
    get = stores.Lmdb(case).get
    order = shuffled(case.workload.count).tolist()
    return case.rate(lambda: read_pairs(map(get, order)))


def samples_floor(case: Case) -> float:
    """The C iterator of bytes and dict."""
    order = shuffled(case.workload.count)
    return case.rate(lambda: read_pairs(stores.floor_samples(case, order)))


def touched_lmdb(case: Case) -> float:
    """One get a sample, and every byte."""
    get = stores.Lmdb(case).get
    order = shuffled(case.workload.count).tolist()
    return case.rate(lambda: touch_pairs(case, map(get, order)))


def touched_floor(case: Case) -> float:
    """The C iterator, and every byte."""
    order = shuffled(case.workload.count)
    return case.rate(lambda: touch_pairs(case, stores.floor_samples(case, order)))


def touch_pairs(case: Case, pairs: Iterable[tuple[Any, dict[str, Any]]]) -> Found:
    """The consumer that reads every byte."""
    touch = case.floor.touch
    count = labels = words = 0
    for payload, metadata in pairs:
        words += touch(payload)
        labels += metadata["label"]
        count += 1
    return count, labels, words


def batches_ours(touched: bool) -> Callable[[Case], float]:
    """Batches with their metadata columns, touched or not."""

    def measure(case: Case) -> float:
        import datasetrt as drt

        loader = stores.ours(case).loader(batch_size=batch(case), sampler=drt.Shuffle(seed=1))
        touch = case.floor.touch

        def epoch() -> Found:
            count = labels = words = 0
            for one in loader:
                if touched:
                    words += touch(one.buffer)
                labels += int(one.metadata["label"].sum())
                count += len(one)
            return count, labels, words if touched else None

        return case.rate(epoch)

    return measure


def batches_limit(*, touched: bool = False, threads: int = 1) -> Callable[[Case], float]:
    """Payloads read into batches by C threads, which make no objects and check nothing."""

    def measure(case: Case) -> float:
        plain, order = stores.raw(case), shuffled(case.workload.count)

        def epoch() -> Found:
            words = filled(case, plain, order, batch(case), touched=touched, threads=threads)
            return len(order), None, words if touched else None

        return case.rate(epoch)

    return measure


def filled(
    case: Case, plain: stores.Raw, order: Any, batch_size: int, *, touched: bool = False, threads: int = 1
) -> int:
    """Have each C thread read its part of some rows; the sum of all their words, if they are touched."""

    def fill(part: Any) -> int:
        words: int = case.floor.fill(plain.path, plain.offsets, part, batch_size, touched)
        return words

    steps = -(-len(order) // batch_size)
    bounds = [batch_size * (steps * number // threads) for number in range(1, threads)]
    parts = [order[first:end] for first, end in pairwise([0, *bounds, len(order)])]
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(fill, parts))


def batch(case: Case) -> int:
    """256, or fewer of large payloads: at most 16 MiB."""
    size = case.workload.size
    return BATCH if size is None else min(BATCH, (16 << 20) // size)


ROWS = [
    Row(
        "samples-1k",
        "1 KiB, shuffled epoch, `CachedSample` with metadata read",
        "samples/s",
        {
            "ours": samples_ours,
            "dataset-rt": samples_rival,
            "lmdb": samples_lmdb,
            "floor bytes": samples_floor,
        },
        [Target("ours", "dataset-rt", 8), Target("ours", "lmdb", 1.5)],
        "1k",
        ("ours", "dataset-rt", "lmdb", "raw"),
        "floor bytes",
    ),
    Row(
        "batches-1k",
        "1 KiB, shuffled epoch, batches of 256",
        "samples/s",
        {
            "ours": batches_ours(touched=False),
            "dataset-rt": samples_rival,
            "floor bytes": samples_floor,
            "floor batches": batches_limit(),
        },
        [Target("ours", "dataset-rt", 14), Target("ours", "floor bytes", 1.1)],
        "1k",
        ("ours", "dataset-rt", "raw"),
        "floor batches",
    ),
    Row(
        "batches-64b",
        "1,000,000 of 64 B, shuffled, batches of 256",
        "samples/s",
        {
            "ours": batches_ours(touched=False),
            "dataset-rt": samples_rival,
            "floor batches": batches_limit(),
        },
        [Target("ours", "dataset-rt", 20)],
        "64b",
        ("ours", "dataset-rt", "raw"),
        "floor batches",
    ),
    Row(
        "batches-64k",
        "64 KiB, shuffled, batches, touched",
        "samples/s",
        {
            "ours": batches_ours(touched=True),
            "dataset-rt": touched_rival,
            "lmdb": touched_lmdb,
            "floor batches": batches_limit(touched=True),
            TWO_THREADS: batches_limit(touched=True, threads=2),
        },
        [Target("ours", "dataset-rt", 2.8), Target("ours", "lmdb", 1.0)],
        "64k",
        ("ours", "dataset-rt", "lmdb", "raw"),
        TWO_THREADS,
    ),
    Row(
        "batches-2m",
        "2 MiB, shuffled, batches, touched",
        "samples/s",
        {
            "ours": batches_ours(touched=True),
            "dataset-rt": touched_rival,
            "floor bytes": touched_floor,
            "floor batches": batches_limit(touched=True),
            TWO_THREADS: batches_limit(touched=True, threads=2),
        },
        [Target("ours", "dataset-rt", 2.5), Target("ours", "floor bytes", 1.1)],
        "2m",
        ("ours", "dataset-rt", "raw"),
        TWO_THREADS,
    ),
]
