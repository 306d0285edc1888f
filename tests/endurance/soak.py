"""Does everything again and again, and looks whether memory, descriptors, threads and files grow.

``python -m tests.endurance.soak MINUTES`` writes, rebuilds, opens, filters, iterates with every sampler,
sends datasets to worker processes, interrupts and resumes, drops things half used and damages caches. Each
round checks what it reads. What is judged is growth over the rounds after the first quarter: the median of
slopes (Theil and Sen), which a few odd rounds do not move. Memory is anonymous memory: pages of files come
and go with what other processes need.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import pickle
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

import datasetrt as drt
from tests.rows import RowSource, number_of, rows_of

SAMPLES = 400
#: Growth that is accepted over the whole time, as a fitted line has it: less than one small buffer a minute.
RSS_MIB_PER_HOUR = 8.0
COUNT_PER_HOUR = 1.0
#: Shorter runs are judged too, but with room for what an allocator does at its beginning.
RSS_MIB_AT_LEAST = 4.0

SAMPLERS: list[drt.Sampler] = [
    drt.Sequential(),
    drt.Shuffle(seed=1),
    drt.BlockShuffle(seed=2, block_samples=16, window_blocks=4),
    drt.Weighted(seed=3),
    drt.Weighted(seed=4, num_samples=100, replacement=False),
]


class Figures(NamedTuple):
    """What must not grow."""

    seconds: float
    rss_mib: float
    descriptors: int
    threads: int
    files: int


class StopHereError(Exception):
    """What an interrupted source raises."""


class Interrupted(RowSource):
    """A source that fails at one of its rows."""

    def __init__(self, *args: Any, at: int, **optional: object) -> None:
        super().__init__(*args, **optional)
        self.at = at

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number, sample in enumerate(super().__iter__()):
            if number == self.at:
                raise StopHereError
            yield sample


class Round:
    """One round in a folder of its own."""

    def __init__(self, number: int, root: Path) -> None:
        self.random = random.Random(number)
        self.number = number
        self.root = root
        self.rows = rows_of(SAMPLES)
        self.config = drt.WriterConfig(
            progress=False,
            max_shard_bytes=self.random.choice([2000, 10_000, 1 << 20]),
            compression=self.random.choice(["none", "lz4", "zstd", "zstd-dictionary"]),
        )

    def dataset(self) -> drt.CachedDataset:
        return drt.open_dataset(self.root / "s")

    def write(self) -> None:
        report = drt.write_cache(RowSource("s", self.rows, fingerprint="v1"), self.root, config=self.config)
        assert report.sample_count == SAMPLES

    def refuse(self) -> None:
        for source, kind in (
            (RowSource("s", self.rows, fingerprint="v1"), drt.CacheExistsError),
            (RowSource("e", []), drt.InvalidInputError),
            (RowSource("bad", [(b"", {"a": []})]), drt.InvalidInputError),  # type: ignore[dict-item]
        ):
            try:
                drt.write_cache(source, self.root, config=self.config)
            except kind:
                continue
            raise AssertionError(f"{source.name} was not refused")

    def interrupt_and_resume(self) -> None:
        at = self.random.randrange(SAMPLES)
        try:
            drt.write_cache(
                Interrupted("r", self.rows, at=at, fingerprint="v1"), self.root, config=self.config
            )
        except StopHereError:
            drt.cache(RowSource("r", self.rows, fingerprint="v1"), self.root, config=self.config)
        assert drt.open_dataset(self.root / "r").verify().ok

    def rebuild(self) -> None:
        before = self.dataset()
        batches = iter(before.loader(batch_size=7, sampler=drt.Shuffle(seed=9)))
        next(batches)
        other = RowSource("s", self.rows[::-1], fingerprint=f"round {self.number}")
        after = drt.cache(other, self.root, config=self.config, on_stale="rebuild")
        assert number_of(after[0].data) == SAMPLES - 1
        try:
            for batch in batches:
                expected = batch.indices.tolist()
                assert [number_of(p) for p in batch.payloads] == expected
        except drt.StaleCacheError:
            pass  # The old files are gone and it says so.
        drt.cache(
            RowSource("s", self.rows, fingerprint="v1"), self.root, config=self.config, on_stale="rebuild"
        )

    def iterate(self) -> None:
        ds = self.dataset()
        for sampler in SAMPLERS:
            for batch_size in (None, 16):
                threads = self.random.choice([1, 3])
                loader = ds.loader(batch_size=batch_size, sampler=sampler, threads=threads)
                for _ in range(2):
                    for item in loader:
                        for sample in [item] if batch_size is None else item:
                            assert number_of(sample.data) == sample.sample_id
                            assert sample.metadata["label"] == sample.sample_id % 10

    def filter(self) -> None:
        ds = self.dataset().filter(pl.col("split") == "val").with_weights(pl.col("label") + 1.0)
        assert len(ds) == SAMPLES // 5
        assert len(ds.head(3).metadata) == 3
        assert {number_of(sample.data) % 5 for sample in ds[::-1]} == {0}
        batch = ds.take([1, 0, 1])
        assert [number_of(p) for p in batch.payloads] == [5, 0, 5]
        memory = [batch.buffer, batch.payloads, batch.metadata.to_polars()]
        del batch
        assert len(memory) == 3

    def drop(self) -> None:
        ds = self.dataset()
        for _ in range(5):
            iterator = iter(ds.loader(batch_size=8, sampler=drt.Shuffle(seed=1), threads=3))
            next(iterator)
            del iterator
        samples = iter(ds)
        next(samples)

    def resume(self) -> None:
        ds = self.dataset()
        sampler = self.random.choice(SAMPLERS)
        whole = ds.loader(batch_size=16, sampler=sampler)
        expected = [batch.indices.tolist() for batch in whole]
        begun = ds.loader(batch_size=16, sampler=sampler)
        batches = iter(begun)
        head = [next(batches).indices.tolist() for _ in range(3)]
        state = json.loads(json.dumps(begun.state_dict()))
        resumed = pickle.loads(pickle.dumps(ds)).loader(batch_size=16, sampler=sampler)
        resumed.load_state_dict(state)
        assert head + [batch.indices.tolist() for batch in resumed] == expected

    def damage(self) -> None:
        name = self.random.choice(["manifest.json", "index.bin", "metadata.arrow", "shards/000000.bin"])
        path = self.root / "s" / name
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[self.random.randrange(len(whole))] ^= 1 << self.random.randrange(8)
        cut = whole[: self.random.randrange(len(whole))]
        for content in (bytes(damaged), cut):
            path.write_bytes(content)
            try:
                list(self.dataset().loader(batch_size=50))
            except drt.DatasetRTError:
                continue
            # Not a byte that a loader reads, so one that only a verification sees.
            assert not self.dataset().verify().ok, name
        source = RowSource("s", self.rows, fingerprint="v1")
        drt.cache(source, self.root, config=self.config, on_stale="rebuild")
        assert self.dataset().verify().ok

    def processes(self) -> None:
        method = ("fork", "forkserver", "spawn")[self.number // PROCESSES_EVERY % 3]
        context = multiprocessing.get_context(method)
        ds = self.dataset()
        with context.Pool(1) as pool:
            assert pool.apply(sum_of, (ds,)) == sum(range(SAMPLES))
        pool.join()
        config = drt.WriterConfig(progress=False, workers=2, worker_start_method=method)
        report = drt.write_cache(drt.MapSource("m", range(50), one_row), self.root, config=config)
        assert report.sample_count == 50


PROCESSES_EVERY = 20


def sum_of(ds: drt.CachedDataset) -> int:
    """What a worker process makes of a dataset."""
    return sum(number_of(sample.data) for batch in ds.loader(batch_size=32) for sample in batch)


def one_row(number: int) -> drt.CacheInput:
    """The function of a MapSource."""
    return drt.CacheInput(number.to_bytes(8, "little"), {"i": number})


STEPS: list[Callable[[Round], None]] = [
    Round.refuse,
    Round.interrupt_and_resume,
    Round.rebuild,
    Round.iterate,
    Round.filter,
    Round.drop,
    Round.resume,
    Round.damage,
]


def measure(begin: float, folder: Path) -> Figures:
    """The figures of this process now."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    (anonymous,) = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    return Figures(
        seconds=time.monotonic() - begin,
        rss_mib=int(anonymous) / 1024,
        descriptors=len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        threads=len(os.listdir("/proc/self/task")),  # noqa: PTH208
        files=sum(1 for _ in folder.iterdir()) + sum(1 for _ in Path("/dev/shm").glob("*datasetrt*")),
    )


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median slope of all pairs, each unit of x; of at most 400 points, evenly chosen."""
    chosen = points[:: max(1, len(points) // 400)]
    return statistics.median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(chosen, 2))


def judged(figures: Sequence[Figures]) -> list[str]:
    """What grew, one line each."""
    settled = figures[len(figures) // 4 :]
    hours = (settled[-1].seconds - settled[0].seconds) / 3600
    failures = []
    for name in ("rss_mib", "descriptors", "threads", "files"):
        # By rounds, which do the same work each; how long one takes depends on what else the machine does.
        grown = slope(list(enumerate(getattr(each, name) for each in settled))) * (len(settled) - 1)
        least = RSS_MIB_AT_LEAST if name == "rss_mib" else 0.5
        most = max(least, (RSS_MIB_PER_HOUR if name == "rss_mib" else COUNT_PER_HOUR) * hours)
        values = [getattr(each, name) for each in settled]
        print(
            f"{name}: first {values[0]:.2f}, median {statistics.median(values):.2f}, last {values[-1]:.2f}, "
            f"fitted growth {grown:+.3f} in {hours * 60:.1f} min ({grown / hours:+.3f}/h), most {most:.2f}"
        )
        if grown > most:
            failures.append(f"{name} grew by {grown:.2f} in {hours * 60:.1f} min; at most {most:.2f}")
    return failures


def soak(minutes: float, root: Path) -> list[str]:
    """Run rounds for so long; what grew."""
    begin = time.monotonic()
    figures: list[Figures] = []
    done: Counter[str] = Counter()
    number = 0
    while time.monotonic() - begin < minutes * 60 or len(figures) < 20:
        with tempfile.TemporaryDirectory(dir=root) as folder:
            current = Round(number, Path(folder))
            current.write()
            for step in STEPS:
                step(current)
                done[step.__name__] += 1
            if number % PROCESSES_EVERY == 0:
                current.processes()
                done["processes"] += 1
            assert not [each.name for each in Path(folder).iterdir() if each.name.startswith(".")]
            del current
        figures.append(measure(begin, root))
        number += 1
        if number % 50 == 0:
            print(f"round {number}: {figures[-1]}", flush=True)
    print(f"{number} rounds; {dict(done)}")
    return judged(figures)


def main() -> None:
    """Read the arguments, run, and end with 1 if something grew."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("minutes", type=float, nargs="?", default=60.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as root:
        failures = soak(arguments.minutes, Path(root))
    for line in failures:
        print(line, file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
