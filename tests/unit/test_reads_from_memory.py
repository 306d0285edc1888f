"""Single samples whose bytes the system has in memory, and those whose bytes it has not."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import datasetrt as drt

COUNT = 500


class Records:
    name = "records"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        return (drt.CacheInput(bytes([n % 256]) * (n + 1), {"n": n, "text": str(n)}) for n in range(COUNT))


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """The one shard of a cache whose folder is two above."""
    path = drt.write_cache(Records(), tmp_path, config=drt.WriterConfig(progress=False)).path
    return Path(path) / "shards" / "000000.bin"


def knows_what_is_in_memory(path: Path) -> bool:
    """Whether the file system of a file can read without waiting."""
    if not hasattr(os, "RWF_NOWAIT"):
        return False
    file = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT) == 1
    except OSError:
        return False
    finally:
        os.close(file)


def test_samples_in_memory_are_read_without_letting_the_interpreter_go(shard: Path) -> None:
    ds = drt.open_dataset(shard.parent.parent)
    turns, done = 0, False

    def count() -> None:
        nonlocal turns
        while not done:
            turns += 1
            # Waits for the interpreter, and has it as soon as it is let go.
            os.sched_yield()

    other = threading.Thread(target=count, daemon=True)
    interval = sys.getswitchinterval()
    # The shard is open from here on.
    assert ds[0].data == b"\0"
    sys.setswitchinterval(1000)
    try:
        other.start()
        before = turns
        lengths = [len(ds[n].data) for n in range(COUNT)]
        during = turns - before
        done = True
    finally:
        sys.setswitchinterval(interval)
    other.join()
    assert lengths == list(range(1, COUNT + 1))
    assert during == 0 or not knows_what_is_in_memory(shard), during


@pytest.mark.parametrize("cut", [False, True])
def test_samples_that_are_not_in_memory_are_the_same(shard: Path, cut: bool) -> None:
    ds = drt.open_dataset(shard.parent.parent)
    expected = [(bytes([n % 256]) * (n + 1), {"n": n, "text": str(n)}) for n in range(COUNT)]
    assert [(ds[n].data, ds[n].metadata) for n in range(COUNT)] == expected
    file = os.open(shard, os.O_RDWR)
    if cut:
        os.ftruncate(file, os.fstat(file).st_size - 100)
    for n in reversed(range(COUNT)):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        if cut and n == COUNT - 1:
            with pytest.raises(drt.CorruptionError) as raised:
                ds[n]
            assert (raised.value.kind, raised.value.sample_id) == ("unexpected-end", n)
        else:
            assert (ds[n].data, ds[n].metadata) == expected[n]
    os.close(file)
