"""What a process pays beside reading: other threads' time, opening, memory, imports."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from . import stores
from .case import Case, WrongResultError, busy_thread
from .rows import Row, Target


def kept(case: Case, epoch: Callable[[], object]) -> float:
    """The share of its speed that a busy Python thread keeps while epochs run beside it."""
    window = 0.5 if case.quick else 2.0
    before = spun(window, None)
    beside = spun(window, epoch)
    after = spun(window, None)
    return beside / ((before + after) / 2)


def spun(window: float, epoch: Callable[[], object] | None) -> float:
    """Turns a second of a counting thread, while the main thread sleeps or runs epochs."""
    begin = time.perf_counter()
    with busy_thread() as turns:
        if epoch is None:
            time.sleep(window)
        else:
            while time.perf_counter() - begin < window:
                epoch()
    return turns() / (time.perf_counter() - begin)


def thread_ours(case: Case) -> float:
    """Batches of 64 KiB payloads, which are read and copied, and not looked at."""
    import datasetrt as drt

    loader = stores.ours(case).loader(batch_size=256, sampler=drt.Shuffle(seed=1))
    return kept(case, lambda: sum(map(len, loader)))


def thread_rival(case: Case) -> float:
    """Samples of dataset-rt, not looked at."""
    dataset = stores.rival(case, shuffle=True)
    return kept(case, lambda: sum(1 for _ in dataset))


def open_ours(case: Case) -> float:
    """Milliseconds from a path to the first sample; imports are done."""
    begin = time.perf_counter()
    dataset = stores.ours(case)
    assert len(next(iter(dataset)).data) == case.workload.size
    return (time.perf_counter() - begin) * 1e3


def open_rival(case: Case) -> float:
    """The same of dataset-rt, its imports done."""
    import dataset_rt  # noqa: F401

    begin = time.perf_counter()
    dataset = stores.rival(case, shuffle=False)
    assert len(next(iter(dataset)).data) == case.workload.size
    return (time.perf_counter() - begin) * 1e3


def open_limit(case: Case) -> float:
    """Milliseconds to read index and metadata, half of them in each of two threads, and look at nothing."""
    folder, piece = case.folder("ours") / "samples", 256 << 10
    begin = time.perf_counter()
    files = [os.open(folder / name, os.O_RDONLY) for name in ("index.bin", "metadata.arrow")]
    places = [(file, at) for file in files for at in range(0, os.fstat(file).st_size, piece)]

    def read(half: int) -> None:
        room = [memoryview(bytearray(piece))]
        for file, at in places[half::2]:
            os.preadv(file, room, at)

    beside = threading.Thread(target=read, args=(1,))
    beside.start()
    read(0)
    beside.join()
    return (time.perf_counter() - begin) * 1e3


def private_megabytes() -> float:
    """Memory of this process that no other shares and that is on no disk."""
    gc.collect()
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) / 1000
    raise WrongResultError("the kernel does not say how much memory is private")


def memory_ours(case: Case) -> float:
    """An open dataset and a shuffled loader in the middle of its epoch."""
    import numpy  # noqa: F401

    import datasetrt as drt

    before = private_megabytes()
    dataset = stores.ours(case)
    batches = iter(dataset.loader(batch_size=256, sampler=drt.Shuffle(seed=1)))
    for _ in range(3 if case.quick else 30):
        next(batches)
    return private_megabytes() - before


def memory_few(case: Case) -> float:
    """The same with a thousandth of the samples."""
    return memory_ours(case.other("tiny-few"))


def imported(module: str) -> Callable[[Case], float]:
    """Milliseconds to import a module into a bare interpreter."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    code += "; import sys; print('polars' in sys.modules)"

    def measure(_: Case) -> float:
        seconds = []
        for _attempt in range(4):
            result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
            took, polars = result.stdout.split()
            if module == "datasetrt" and polars != "False":
                raise WrongResultError("import datasetrt imported polars")
            seconds.append(float(took))
        # The first one finds cold files.
        return statistics.median(seconds[1:]) * 1e3

    return measure


ROWS = [
    Row(
        "thread",
        "second busy Python thread beside an epoch of 64 KiB batches: the share of its speed it keeps",
        "share",
        {"ours": thread_ours, "dataset-rt": thread_rival},
        [Target("ours", None, 0.9)],
        "64k",
        ("ours", "dataset-rt"),
        note="Needs two idle cores: beside other programs, the thread loses time to them.",
    ),
    Row(
        "open-1m",
        "open 1,000,000 samples to the first sample, index and metadata verified",
        "ms",
        {"ours": open_ours, "dataset-rt": open_rival, "its files read, 2 threads": open_limit},
        [Target("ours", "dataset-rt", 1.0, at_least=False), Target("ours", None, 10, at_least=False)],
        "64b",
        ("ours", "dataset-rt"),
        "its files read, 2 threads",
        note="dataset-rt verifies nothing when it opens.",
    ),
    Row(
        "memory-10m",
        "private memory of an open 10,000,000-sample dataset with a shuffled loader, beyond the imports",
        "MB",
        {"ours": memory_ours, "ours, 10,000 samples": memory_few},
        [Target("ours", None, 20, at_least=False)],
        "tiny",
        ("ours",),
        also=(("ours", "tiny-few"), ("sums", "tiny-few")),
        note="`Private_Dirty` of `/proc/self/smaps_rollup`: pages of mapped files, which the kernel drops as "
        "it likes, are not counted.",
    ),
    Row(
        "import",
        "`import datasetrt`",
        "ms",
        {"ours": imported("datasetrt"), "numpy": imported("numpy"), "dataset-rt": imported("dataset_rt")},
        [Target("ours", "numpy", 3, at_least=False)],
        "1k",
        note="Fails if polars is imported with it.",
    ),
]
