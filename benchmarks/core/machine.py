"""What this machine does without any library: the floor's own figures, and a description."""

from __future__ import annotations

import os
import platform
import statistics
import timeit
from collections import deque
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import stores
from .case import Case
from .data import payload

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "2 MiB": 2 << 20}
_PACKAGES = ("datasetrt", "dataset-rt", "lmdb", "numpy", "polars", "xxhash")


def described(path: Path) -> dict[str, object]:
    """The machine and the versions of everything that is measured."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    status = os.statvfs(path)
    return {
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "free_disk_gib": round(status.f_bavail * status.f_frsize / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1m": round(os.getloadavg()[0], 2),
        **{name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def floors(case: Case) -> dict[str, float]:
    """Nanoseconds a block of every size, by name."""
    import xxhash

    native, path = case.floor, stores.raw(case).path
    memory = b"".join(payload(i, 2 << 20) for i in range(32))
    found: dict[str, float] = {}
    for name, size in SIZES.items():
        count = (16 << 20 if case.quick else 256 << 20) // size
        blocks = [memoryview(memory)[at : at + size] for at in range(0, len(memory), size)]
        found |= {
            f"memcpy {name}": native.memcpy_ns(memory, size, count),
            f"mapping {name}": native.mapping_ns(path, size, count),
            f"pread {name}": native.pread_ns(path, size, count),
            f"XXH3 {name}": _each_ns(xxhash.xxh3_64_intdigest, blocks),
            f"bytes + dict {name}": native.objects_ns(size, min(count, 100_000)),
        }
    return found


def _each_ns(hash_of: Callable[[memoryview], int], blocks: list[memoryview]) -> float:
    """Nanoseconds a block, one after the other; a call from Python, some 50 ns, is included."""
    return min(timeit.repeat(lambda: deque(map(hash_of, blocks), 0), number=1, repeat=3)) / len(blocks) * 1e9


def table(figures: list[dict[str, float]]) -> list[str]:
    """Medians in Markdown: a line an operation, a column a size."""
    lines = [
        "| one core of this machine, ns (GB/s) | " + " | ".join(SIZES) + " |",
        "| --- |" + " ---: |" * len(SIZES),
    ]
    for what in ("memcpy", "mapping", "pread", "XXH3", "bytes + dict"):
        cells = []
        for name, size in SIZES.items():
            each = statistics.median(one[f"{what} {name}"] for one in figures)
            cells.append(f"{each:,.0f}" + ("" if what == "bytes + dict" else f" ({size / each:.1f})"))
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return lines
