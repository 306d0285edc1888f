"""Memory that the system refuses: an error of the library, and never the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

NO_MEMORY = """
import resource, sys
import numpy, polars, pyarrow
import datasetrt as drt

class Source:
    name = "s"
    def __iter__(self):
        return (drt.CacheInput(payload, {}) for payload in payloads)

def limited(extra):
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, resource.RLIM_INFINITY))

def unlimited():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


WITHOUT_MEMORY = {
    **{
        f"write {method}": f"""
        payloads = [numpy.random.default_rng(0).bytes(60 << 20)] * 3
        config = drt.WriterConfig(progress=False, compression={method!r}, threads=1)
        for extra in (8, 40, 100, 150, 200, 250):
            limited(extra << 20)
            try:
                drt.write_cache(Source(), sys.argv[1] + str(extra), config=config)
            except (drt.StorageError, MemoryError) as error:
                assert "memory" in str(error).lower() or isinstance(error, MemoryError), error
                refused = True
            unlimited()
        assert refused
        """
        for method in ("none", "lz4", "zstd", "zstd-dictionary")
    },
    "arrow": """
        payloads = [bytes(length << 20) for length in (40, 41, 42)]
        config = drt.WriterConfig(progress=False)
        ds = drt.open_dataset(drt.write_cache(Source(), sys.argv[1], config=config).path)
        batch = ds.take([0, 1, 2])
        limited(60 << 20)
        try:
            pyarrow.record_batch(batch)
        except drt.StorageError as error:
            assert "not enough memory" in str(error)
        else:
            raise AssertionError
        """,
    **{
        f"samples {method}": f"""
        payloads = [bytes(300 << 20), b"small"]
        config = drt.WriterConfig(progress=False, compression={method!r})
        ds = drt.open_dataset(drt.write_cache(Source(), sys.argv[1], config=config).path)
        samples = ds.loader(batch_size=None, threads=1, prefetch_batches=0)
        kept = ds.take([0])
        for read in (lambda: ds[0], lambda: next(iter(ds)), lambda: next(iter(samples)), lambda: kept[0]):
            limited(100 << 20)
            try:
                read()
            except drt.StorageError as error:
                assert "not enough memory" in str(error), error
            else:
                raise AssertionError
            unlimited()
        assert ds[1].data == b"small"
        """
        for method in ("none", "lz4")
    },
    # A thread needs memory for its stack; those that have ended leave a few. What was begun is not lost.
    "threads": """
        payloads = [bytes([number]) for number in range(200)]
        ds = drt.open_dataset(drt.write_cache(Source(), sys.argv[1]).path)
        loader = ds.loader(batch_size=1, threads=64, prefetch_batches=64)
        batches = iter(loader)
        limited(1 << 20)
        rows, refused = [], 0
        for _ in range(4):
            try:
                rows += next(batches).indices.tolist()
            except drt.StorageError as error:
                assert "cannot start thread" in str(error), error
                refused += 1
        # The first batch may need no thread.
        assert refused >= 3
        assert loader.state_dict()["position"] == len(rows)
        unlimited()
        assert rows + [row for batch in batches for row in batch.indices.tolist()] == list(range(200))
        """,
}


def run(code: str, tmp_path: Path, **environment: str) -> None:
    """Run code in a process of its own, which gets a root for caches and has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "r")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


# What was given back is taken again first: each list then asks the system.
ROWS = """
import ctypes, errno, gc, pathlib, pickle
import numpy as np

COUNT = 100_000

class Rows:
    name = "rows"
    def __iter__(self):
        return (drt.CacheInput(b"payload", {"n": n, "text": str(n)}) for n in range(COUNT))

class Few:
    name = "few"
    def __iter__(self):
        return (drt.CacheInput(b"%d" % n * (n % 300), {"n": n, "text": "x" * (n % 500)}) for n in range(3000))

class Stopped:
    name, fingerprint = "stopped", "1"
    def __iter__(self):
        for n in range(700):
            yield drt.CacheInput(n.to_bytes(2) * 1000, {"n": n})
        raise EOFError

def resume():
    # What is durable stays durable, whatever happened to the write before.
    global durable
    found = len(list(pathlib.Path(sys.argv[1]).glob(".stopped.journal/*.segment")))
    assert found >= durable, (found, durable)
    durable = found
    try:
        config = drt.WriterConfig(progress=False, max_shard_bytes=400_000)
        drt.write_cache(Stopped(), sys.argv[1], config=config)
    except EOFError:
        pass

durable = 0

def write(compression):
    global written
    written += 1
    config = drt.WriterConfig(progress=False, compression=compression, threads=2)
    drt.write_cache(Few(), sys.argv[1] + str(written), config=config)

written = 0
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def fill():
    limited(0)
    taken, size = [], 8 << 20
    while size >= 8 << 10:
        found = libc.malloc(size)
        if found:
            taken.append(found)
        else:
            size //= 2
    unlimited()
    return taken

def read_by_arrow(stream):
    # As Polars, but for the end of the process where its own memory is refused.
    try:
        return polars.Series([pyarrow.RecordBatchReader.from_stream(stream).read_all().num_rows])
    except pyarrow.ArrowException as error:
        raise polars.exceptions.ComputeError(str(error)) from None

def metadata_of(view):
    polars.DataFrame, kept = read_by_arrow, polars.DataFrame
    try:
        return view.metadata
    finally:
        polars.DataFrame = kept

ds = drt.open_dataset(drt.write_cache(Rows(), sys.argv[1]).path)
some = np.random.default_rng(0).permutation(len(ds))
weights = np.linspace(1, 2, len(ds))
weighted = ds.with_weights(weights)[::-1]
table = ds.metadata.sample(fraction=1, shuffle=True, seed=0).with_columns(added=polars.col("n") + 1)
edited, picked = ds.with_metadata(table), ds[::-1]
arrow = table.to_arrow()
pickled = pickle.dumps(weighted), pickle.dumps(edited)
batch = ds.take(some)
batch.metadata
plan = ds.loader(batch_size=COUNT).plan()
once, draws = drt.Weighted(0, replacement=False), drt.Weighted(0)
if "long" in WHAT:
    # Metadata of 40 MB, which stay in their file.
    class Long:
        name = "long"
        def __iter__(self):
            return (drt.CacheInput(b"", {"n": n, "f": n / 7, "text": f"{n} " * 20_000}) for n in range(400))

    path = drt.write_cache(Long(), sys.argv[1]).path
    long = drt.open_dataset(path)
    order = np.random.default_rng(0).permutation(400)

packed = drt.write_cache(Few(), sys.argv[1], config=drt.WriterConfig(compression="zstd-dictionary"))
"""

# Each of them makes lists or columns with an entry a row; most of them several.
OF_MANY_ROWS = [
    "ds[::-1]",
    "weighted[::2]",
    "edited[::-1]",
    "ds.with_weights(weights)",
    "ds.with_metadata(arrow)",
    "pyarrow.RecordBatchReader.from_stream(picked._view.table()[0]).read_all()",
    "metadata_of(ds[::-1])",
    "pickle.dumps(picked)",
    "pickle.dumps(weighted)",
    "pickle.dumps(edited)",
    "pickle.loads(pickled[0])",
    "pickle.loads(pickled[1])",
    "ds.take(some)",
    "ds.take(some).metadata",
    "edited.take(some).metadata",
    "batch.metadata",
    "batch.indices, batch.positions, batch.padding, batch.substituted",
    "batch.info.indices",
    "batch.offsets, batch.lengths",
    "batch.sample_ids",
    "batch.cache_ids",
    "batch.payloads",
    "batch.split([3, 4])",
    "list(batch)",
    "batch[::2]",
    "pyarrow.record_batch(batch)",
    "next(iter(ds.loader(batch_size=COUNT, threads=1, prefetch_batches=0)))",
    "plan.positions(0), plan.padding(0)",
    "once.indices(weighted)",
    "draws.indices(weighted)",
    "drt.Shuffle(0).indices(ds)",
    "drt.Sequential().indices(ds)",
    "ds.verify()",
    "long.take(order).metadata",
    "drt.open_dataset(path)  # long",
    "drt.verify_cache(packed.path)",
    "resume()",
    "write('none')",
    "write('lz4')",
    "write('zstd')",
    "write('zstd-dictionary')",
]


@pytest.mark.parametrize("what", OF_MANY_ROWS)
def test_memory_that_is_refused_for_many_rows_is_an_error(what: str, tmp_path: Path) -> None:
    code = f"""
{NO_MEMORY}
WHAT = {what!r}
{ROWS}
refused = done = 0
expected = drt.StorageError, MemoryError, pyarrow.ArrowException
{what}
# What the largest part of the work needs lies in between.
least, factor = (16 << 10 if WHAT == "resume()" else 256 << 10), (1.25 if "long" in WHAT else 1.18)
for level in range(30):
    gc.collect()
    taken = fill()
    limited(int(least * factor**level))
    try:
        {what}
        done += 1
    except expected as error:
        if isinstance(error, drt.StorageError):
            thread = "cannot start thread" in str(error)
            assert error.errno == (errno.EAGAIN if thread else errno.ENOMEM), error
        else:
            assert isinstance(error, MemoryError) or "memory" in str(error), error
        refused += 1
    unlimited()
    for memory in taken:
        libc.free(memory)
assert refused, done
{what}
"""
    # Threads have no memory of their own then.
    run(code, tmp_path, MALLOC_MMAP_THRESHOLD_="32768", MALLOC_ARENA_MAX="1")


@pytest.mark.parametrize("what", WITHOUT_MEMORY)
def test_memory_that_is_refused_is_an_error(what: str, tmp_path: Path) -> None:
    run(NO_MEMORY + textwrap.dedent(WITHOUT_MEMORY[what]), tmp_path)
