"""Writing: samples that are ready in memory, and samples that worker processes make."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import data, stores
from .case import Case, WrongResultError
from .rows import Row, Target

#: As many bytes of payloads are made beforehand, so that making them costs no contender anything.
_READY_BYTES = 32 << 20


def ready(case: Case) -> Iterator[tuple[bytes, data.Metadata]]:
    """The samples of a workload over payloads made once."""
    assert case.workload.size is not None
    number = min(case.workload.count, _READY_BYTES // case.workload.size)
    payloads = [data.payload(i, case.workload.size) for i in range(number)]

    def samples() -> Iterator[tuple[bytes, data.Metadata]]:
        for i in range(case.workload.count):
            yield payloads[i % number], data.metadata(i)

    return samples()


def timed(case: Case, write: Callable[[Path], None]) -> float:
    """Samples a second into an empty folder, which is removed before its pages have to be written back."""
    folder = case.data / "written"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        begin = time.perf_counter()
        write(folder)
        return case.workload.count / (time.perf_counter() - begin)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Ready:
    """Samples that are ready, as a source of datasetrt."""

    name = "samples"

    def __init__(self, samples: Iterator[tuple[bytes, data.Metadata]]) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        import datasetrt as drt

        for payload, metadata in self._samples:
            yield drt.CacheInput(payload, metadata)


def write_ours(case: Case) -> float:
    """Checksummed, synced and published."""
    import datasetrt as drt

    samples, config = ready(case), drt.WriterConfig(progress=False)

    def write(folder: Path) -> None:
        drt.write_cache(Ready(samples), folder, config=config)

    return timed(case, write)


def write_rival(case: Case) -> float:
    """Not synced."""
    import dataset_rt  # noqa: F401

    samples = ready(case)
    return timed(case, lambda folder: stores.rival_write(samples, folder))


def write_floor(case: Case) -> float:
    """The payloads alone, end to end into one file, which is synced."""
    samples = ready(case)

    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        with (folder / "payloads").open("wb", buffering=1 << 20) as file:
            for payload, _ in samples:
                file.write(payload)
            file.flush()
            os.fsync(file.fileno())

    return timed(case, write)


def burn(number: int) -> Any:
    """An item whose sample takes about a millisecond of one core."""
    import datasetrt as drt

    total = 0
    for i in range(60_000):
        total += i * i
    return drt.CacheInput(total.to_bytes(8, "little"), {"number": number})


def workers(count: int) -> Callable[[Case], float]:
    """Items a second of a MapSource with so many processes, their start included."""

    def measure(case: Case) -> float:
        import datasetrt as drt

        items = _items(case)
        source = drt.MapSource("burned", range(items), burn)
        config = drt.WriterConfig(workers=count, progress=False)
        seconds: list[float] = []

        def write(folder: Path) -> None:
            begin = time.perf_counter()
            report = drt.write_cache(source, folder, config=config)
            seconds.append(time.perf_counter() - begin)
            if report.sample_count != items:
                raise WrongResultError(f"{report.sample_count} samples instead of {items}")

        timed(case, write)
        return items / seconds[0]

    return measure


def bare_processes(case: Case) -> float:
    """Items a second of the same function in two forked processes, which import, send and write nothing."""
    items = _items(case)
    context = multiprocessing.get_context("fork")
    parts = [range(first, items, 2) for first in range(2)]
    processes = [context.Process(target=_burn_all, args=(part,)) for part in parts]
    begin = time.perf_counter()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - begin
    if any(process.exitcode for process in processes):
        raise WrongResultError("a process failed")
    return items / seconds


def _items(case: Case) -> int:
    # Twenty seconds of work, beside which half a second for the start of processes is little.
    return 1_000 if case.quick else 20_000


def _burn_all(numbers: range) -> None:
    for number in numbers:
        burn(number)


def _write_row(size: str, workload: str, bound: float) -> Row:
    return Row(
        f"write-{workload}",
        f"write {size}, durable (synced)",
        "samples/s",
        {"ours": write_ours, "dataset-rt": write_rival, "floor file": write_floor},
        [Target("ours", "dataset-rt", bound)],
        workload,
        limit="floor file",
        note="dataset-rt does not sync: its bytes may still be in memory when it is done.",
    )


ROWS = [
    _write_row("1 KiB", "1k", 3),
    _write_row("64 KiB", "64k", 1.6),
    _write_row("2 MiB", "2m", 2),
    Row(
        "workers",
        "`MapSource`, CPU-bound preprocessing, 2 workers",
        "items/s",
        {"ours": workers(2), "1 worker": workers(1), "2 bare processes": bare_processes},
        [Target("ours", "1 worker", 1.8)],
        "1k",
        limit="2 bare processes",
        note="Needs two idle cores. Includes the start of the processes.",
    ),
]
