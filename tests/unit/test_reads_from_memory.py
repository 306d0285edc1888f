"""Single samples whose bytes the system has in memory, and those whose bytes it has not."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import datasetrt as drt

COUNT = 500
#: What follows the records of a shard (docs/format/v1.md).
TRAILER_BYTES = 64


class Records:
    name = "records"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        return (drt.CacheInput(bytes([n % 256]) * (n + 1), {"n": n, "text": str(n)}) for n in range(COUNT))


@pytest.fixture(params=["none", "lz4", "zstd", "zstd-dictionary"])
def shard(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The one shard of a cache whose folder is two above."""
    config = drt.WriterConfig(progress=False, compression=request.param)
    return Path(drt.write_cache(Records(), tmp_path, config=config).path) / "shards" / "000000.bin"


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
            # Waits for the interpreter then, and often has it where it is let go.
            time.sleep(0)

    other = threading.Thread(target=count, daemon=True)
    interval = sys.getswitchinterval()
    # The shard is open from here on.
    assert ds[0].data == b"\0"
    sys.setswitchinterval(1000)
    try:
        other.start()
        before = turns
        for _ in range(20):
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
        # The last record loses its last byte.
        os.ftruncate(file, os.fstat(file).st_size - TRAILER_BYTES - 1)
    for n in reversed(range(COUNT)):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        if cut and n == COUNT - 1:
            with pytest.raises(drt.CorruptionError) as raised:
                ds[n]
            assert (raised.value.kind, raised.value.sample_id) == ("unexpected-end", n)
        else:
            assert (ds[n].data, ds[n].metadata) == expected[n]
    os.close(file)
