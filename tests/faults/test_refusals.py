"""Input that once ended the process, or was taken for something else, is refused or works."""

from __future__ import annotations

import ctypes
import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import datasetrt as drt
from tests.rows import RowSource, rows_of


@pytest.mark.parametrize(
    "data",
    [
        np.array(["a", None], dtype=object),
        np.zeros(2, dtype=[("x", "i4"), ("o", "O")]),
        (ctypes.py_object * 2)(),
        np.arange(10)[::2],
        "text",
        7,
    ],
)
def test_what_is_no_plain_buffer_is_no_payload(data: Any, tmp_path: Path, quiet: drt.WriterConfig) -> None:
    with pytest.raises(drt.InvalidInputError, match="sample 0: data is"):
        drt.write_cache(RowSource("s", [(data, {})]), tmp_path, config=quiet)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data",
    [
        np.array(5),
        np.float32(1.5),
        (ctypes.c_int * 3)(1, 2, 3),
        np.zeros(3, dtype=[("Offset", "i4"), ("P", "f8")]),
        np.zeros((0, 3)),
    ],
)
def test_every_contiguous_buffer_is_a_payload(data: Any, tmp_path: Path, quiet: drt.WriterConfig) -> None:
    drt.write_cache(RowSource("s", [(data, {})]), tmp_path, config=quiet)
    assert drt.open_dataset(tmp_path / "s")[0].data == memoryview(data).tobytes()


def test_added_columns_of_other_types_stay_in_the_table(tiny: drt.CachedDataset) -> None:
    day = pl.lit(datetime.date(2026, 1, 1))
    dated = tiny.with_metadata(tiny.metadata.with_columns(day=day, parts=pl.lit([1, 2])))
    assert dated[0] == tiny[0]
    assert len(dated.take([0, 5])) == 2
    assert len(list(dated[2:4])) == 2
    assert dated[1:3].metadata["day"].to_list() == [datetime.date(2026, 1, 1)] * 2


def test_tables_that_break_the_rules_of_arrow_are_refused(tiny: drt.CachedDataset) -> None:
    table = tiny.metadata.to_arrow()
    offsets = pa.array(range(len(table) + 1), pa.int32()).buffers()[1]
    bad = pa.StringArray.from_buffers(len(table), offsets, pa.py_buffer(b"\xff" * len(table)))
    with pytest.raises(drt.InvalidInputError, match="'x' is not a valid Arrow array"):
        tiny.with_metadata(table.append_column("x", bad))
    union = pa.UnionArray.from_sparse(
        pa.array([0] * len(table), pa.int8()), [pa.array(range(len(table)))], ["a"]
    )
    with pytest.raises(drt.InvalidInputError, match="column 'x' has type"):
        tiny.with_metadata(table.append_column("x", union))


@pytest.mark.parametrize("count", [2**42, 2**62])
def test_absurd_counts_are_refused(count: int, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="do not fit in memory"):
        drt.Weighted(1, num_samples=count).indices(tiny)
    with pytest.raises(drt.InvalidInputError, match="batch_size"):
        tiny.loader(batch_size=count, sampler=drt.Weighted(1, num_samples=count))


def test_a_rebuilt_cache_is_no_damaged_one(tmp_path: Path) -> None:
    config = drt.WriterConfig(progress=False, max_shard_bytes=2000)
    drt.write_cache(RowSource("s", rows_of(100)), tmp_path, config=config)
    dataset = drt.open_dataset(tmp_path / "s", config=drt.ReaderConfig(max_open_shards=1))
    batches = iter(dataset.loader(batch_size=2, on_corrupt="substitute", prefetch_batches=0))
    next(batches)
    other = RowSource("s", [(bytes(data)[::-1], metadata) for data, metadata in rows_of(100)])
    other.fingerprint = "v2"
    drt.cache(other, tmp_path, config=config, on_stale="rebuild")
    with pytest.raises(drt.StaleCacheError) as caught:
        list(batches)
    assert caught.value.kind == "changed"


def test_a_writer_is_of_no_use_in_a_forked_child(tmp_path: Path) -> None:
    code = f"""
import os, datasetrt as drt
class Forks:
    name = 's'
    def __iter__(self):
        yield drt.CacheInput(b'a', {{}})
        child = os.fork()
        yield drt.CacheInput(b'b', {{}})
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
try:
    drt.write_cache(Forks(), {str(tmp_path)!r}, config=drt.WriterConfig(progress=False))
except drt.DatasetRTError as error:
    os._exit(7 if error.kind == 'closed' else 8)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)
    assert [sample.data for sample in drt.open_dataset(tmp_path / "s")] == [b"a", b"b"]


def test_folders_whose_names_are_no_text(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    with pytest.raises(drt.InvalidInputError, match="surrogate"):
        drt.write_cache(RowSource("s", rows_of(3)), root, config=quiet)


def test_changing_the_metadata_of_a_sample_changes_nothing(tiny: drt.CachedDataset) -> None:
    sample = tiny[3]
    sample.metadata["label"] = 99
    assert sample == tiny[3]
