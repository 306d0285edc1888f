"""Memory that the system refuses: an error of the library, and never the end of the process."""

from __future__ import annotations

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


@pytest.mark.parametrize("what", WITHOUT_MEMORY)
def test_memory_that_is_refused_is_an_error(what: str, tmp_path: Path) -> None:
    code = NO_MEMORY + textwrap.dedent(WITHOUT_MEMORY[what])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
