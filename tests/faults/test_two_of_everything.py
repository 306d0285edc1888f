"""Several writers of one cache, and readers of a cache that is written or rebuilt meanwhile."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import datasetrt as drt
from tests.endurance.kill import ended, forked
from tests.rows import RowSource, rows_of

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

CONFIG = drt.WriterConfig(progress=False, max_shard_bytes=2000)


def version(number: int) -> RowSource:
    """A source whose payloads, metadata and length tell its version."""
    rows = [(bytes([number]) * 50, {"version": number}) for _ in range(100 + number)]
    return RowSource("s", rows, fingerprint=f"v{number}")


def versions_in(ds: drt.CachedDataset) -> set[int]:
    """The versions that payloads, metadata and length of a dataset tell; one, if nothing is mixed."""
    batches = list(ds.loader(batch_size=7, prefetch_batches=0))
    found = {payload[0] for batch in batches for payload in batch.payloads}
    found |= {number for batch in batches for number in batch.metadata["version"].tolist()}
    return found | {len(ds) - 100}


def in_threads(count: int, run: Callable[[], object]) -> list[object]:
    """Run something in several threads that begin together; results and exceptions."""
    barrier = threading.Barrier(count)
    results: list[object] = []

    def work() -> None:
        barrier.wait(60)
        try:
            results.append(run())
        except drt.DatasetRTError as error:
            results.append(error)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == count
    return results


@pytest.mark.parametrize("count", [2, 5])
def test_of_several_threads_that_write_one_publishes(count: int, tmp_path: Path) -> None:
    results = in_threads(count, lambda: drt.write_cache(version(1), tmp_path, config=CONFIG))
    reports = [each for each in results if isinstance(each, drt.CacheReport)]
    refused = [each for each in results if isinstance(each, drt.CacheExistsError)]
    assert (len(reports), len(refused)) == (1, count - 1), results
    assert {each.kind for each in refused} <= {"being-written", "already-exists"}
    assert versions_in(drt.open_dataset(tmp_path / "s")) == {1}
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("count", [2, 5])
def test_of_several_threads_that_want_a_cache_one_writes_it(count: int, tmp_path: Path) -> None:
    results: list[Any] = in_threads(count, lambda: drt.cache(version(1), tmp_path, config=CONFIG))
    assert sorted(each.reports[0].reused for each in results) == [False] + [True] * (count - 1)
    assert all(versions_in(each) == {1} for each in results)
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("count", [2, 5])
def test_several_processes_that_want_a_cache(count: int, tmp_path: Path) -> None:
    def work() -> None:
        assert versions_in(drt.cache(version(1), tmp_path, config=CONFIG)) == {1}

    for pid in [forked(work) for _ in range(count)]:
        assert ended(pid) == 0
    assert versions_in(drt.open_dataset(tmp_path / "s")) == {1}
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_several_processes_that_rebuild_the_same(tmp_path: Path) -> None:
    drt.write_cache(version(1), tmp_path, config=CONFIG)

    def work() -> None:
        found = versions_in(drt.cache(version(2), tmp_path, config=CONFIG, on_stale="rebuild"))
        assert found == {2}

    for pid in [forked(work) for _ in range(5)]:
        assert ended(pid) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_a_reader_of_a_cache_that_is_being_written_sees_all_or_nothing(tmp_path: Path) -> None:
    begun = threading.Event()

    class Slow(RowSource):
        def __iter__(self) -> Any:
            for sample in super().__iter__():
                begun.wait(60)
                yield sample

    source = Slow("s", version(1).rows)
    writer = threading.Thread(target=drt.write_cache, args=(source, tmp_path), kwargs={"config": CONFIG})
    writer.start()
    missing = 0
    while True:
        try:
            ds = drt.open_dataset(tmp_path / "s")
        except drt.CacheNotFoundError:
            missing += 1
            begun.set()
            continue
        assert versions_in(ds) == {1}
        break
    writer.join(60)
    assert missing > 0


def test_a_rebuild_is_no_damage_to_its_readers(tmp_path: Path) -> None:
    """Each open gives one version whole; what was opened goes on with its bytes, or says that it changed."""
    memory = Path("/dev/shm")  # Where syncs cost nothing, more rebuilds come in between.
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        root = Path(folder)
        drt.write_cache(version(1), root, config=CONFIG)
        done = threading.Event()

        def rebuild() -> None:
            try:
                for number in range(150):
                    drt.cache(version(2 - number % 2), root, config=CONFIG, on_stale="rebuild")
            finally:
                done.set()

        rebuilder = threading.Thread(target=rebuild)
        rebuilder.start()
        whole = 0
        kinds = set()
        try:
            while not done.is_set():
                ds = drt.open_dataset(root / "s", config=drt.ReaderConfig(max_open_shards=1))
                try:
                    assert len(versions_in(ds)) == 1
                    whole += 1
                except drt.StaleCacheError as error:
                    kinds.add(error.kind)
        finally:
            rebuilder.join(120)
        assert whole > 0
        assert kinds <= {"changed"}


def test_an_open_reader_keeps_what_it_has_opened(tmp_path: Path) -> None:
    rows = rows_of(50)
    folder = drt.write_cache(
        RowSource("s", rows, fingerprint="a"), tmp_path, config=drt.WriterConfig(progress=False)
    ).path
    ds = drt.open_dataset(folder)
    assert ds[0].data == rows[0][0]
    drt.cache(RowSource("s", rows[::-1], fingerprint="b"), tmp_path, config=CONFIG, on_stale="rebuild")
    assert [sample.data for sample in ds] == [data for data, _ in rows]
    assert ds.metadata["label"].to_list() == [row["label"] for _, row in rows]
