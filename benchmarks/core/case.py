"""What a measurement is given: its samples, the stores that hold them, a clock, and the C floor."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from benchmarks import floor

from .data import Workload, workloads

#: What an epoch gave: samples, the sum of their labels, the sum of all words if it touched them.
Found = tuple[int, int | None, int | None]
EPOCHS = 3


class WrongResultError(Exception):
    """A contender delivered something else than what was stored."""


@dataclass(frozen=True)
class Case:
    """One row of the table in one run."""

    data: Path
    quick: bool
    workload: Workload

    @classmethod
    def of(cls, data: Path, quick: bool, workload: str) -> Case:
        """The case of a named workload; data of quick runs lie apart."""
        return cls(data / ("quick" if quick else "full"), quick, workloads(quick)[workload])

    def other(self, workload: str) -> Case:
        """The same run with another workload."""
        return Case(self.data, self.quick, workloads(self.quick)[workload])

    def folder(self, store: str) -> Path:
        """Where a store keeps this workload."""
        return self.data / self.workload.name / store

    @cached_property
    def floor(self) -> ModuleType:
        """The C extension of ``benchmarks/floor``."""
        return floor.load(self.data / "floor")

    def rate(self, epoch: Callable[[], Found], samples: int | None = None, *, warm: bool = True) -> float:
        """Samples a second of the fastest of three epochs after a warm-up; every epoch is checked.

        Args:
            epoch: Runs one epoch.
            samples: How many one gives; None means all of the workload. Then labels and words add up too.
            warm: False runs one epoch only, without a warm-up.
        """
        wanted = self.workload.count if samples is None else samples
        seconds: list[float] = []
        for _ in range(1 + EPOCHS if warm else 1):
            begin = time.perf_counter()
            found = epoch()
            seconds.append(time.perf_counter() - begin)
            self._check(found, wanted, complete=samples is None)
        return wanted / min(seconds[1:] or seconds)

    def _check(self, found: Found, wanted: int, complete: bool) -> None:
        count, labels, words = found
        if count != wanted:
            raise WrongResultError(f"{count} samples instead of {wanted}")
        if complete and labels is not None and labels != self._sums[0]:
            raise WrongResultError(f"labels add up to {labels}, not to {self._sums[0]}")
        if complete and words is not None and words % 2**64 != self._sums[1]:
            raise WrongResultError(f"payload words add up to {words % 2**64}, not to {self._sums[1]}")

    @cached_property
    def _sums(self) -> tuple[int, int]:
        labels, words = self.folder("sums").read_text().split()
        return int(labels), int(words)


@contextmanager
def busy_thread() -> Iterator[Callable[[], int]]:
    """A thread of Python that does nothing but count; gives what tells how far it is."""
    turns, stop = 0, False

    def spin() -> None:
        nonlocal turns
        while not stop:
            turns += 1

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield lambda: turns
    finally:
        stop = True
        thread.join()


def evict(case: Case, folder: Path) -> None:
    """Let the kernel forget the files of a folder, which needs no privilege; checked page by page.

    Raises:
        WrongResultError: Pages stayed in memory, so that nothing cold could be measured.
    """
    for path in files_of(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        held = case.floor.resident(str(path))
        if path.stat().st_size > 1 << 20 and held > 0.02:
            raise WrongResultError(f"{held:.0%} of {path.name} stayed in the page cache")


def files_of(folder: Path) -> list[Path]:
    """All files below a folder that hold anything."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]


def bytes_of(folder: Path) -> int:
    """Sizes of all files below a folder."""
    return sum(path.stat().st_size for path in files_of(folder))
