"""What stays of a pipeline that was dropped, and what a pipeline that outlives its dataset does."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import datasetrt as drt
import datasetrt_tf as drtf
from datasetrt_tf import _handles as handles
from tests.adapters.tf.conftest import CODEC


def test_the_open_dataset_goes_with_the_pipeline(records_folder: Path) -> None:
    gc.collect()
    before = handles.live()
    ds = drt.open_dataset(records_folder)
    alive = weakref.ref(ds)
    data = drtf.dataset(ds, 10, decode=CODEC).map(lambda batch: batch["y"])
    del ds
    gc.collect()
    assert alive() is not None
    batches = iter(data)
    next(batches)
    del data
    gc.collect()
    assert alive() is not None, "an iterator still reads it"
    del batches
    gc.collect()
    assert alive() is None
    assert handles.live() == before


def test_two_hundred_pipelines_leave_no_open_dataset(records_folder: Path) -> None:
    gc.collect()
    before = handles.live()
    for seed in range(200):
        next(iter(drtf.dataset(drt.open_dataset(records_folder), 10, decode=CODEC, seed=seed)))
    gc.collect()
    assert handles.live() == before


def test_a_graph_that_outlives_its_pipeline_opens_the_dataset_again(records: drt.CachedDataset) -> None:
    total = _captured(records)
    for _ in range(2):
        assert int(total()) == sum(range(100))


def _captured(records: drt.CachedDataset) -> Any:
    """A function of a graph that reads a pipeline whose Python object is gone."""
    data = [drtf.dataset(records, 10, decode=CODEC, seed=1)]

    @tf.function
    def total() -> Any:
        found = tf.constant(0, tf.int64)
        for batch in data[0]:
            found += tf.reduce_sum(batch["y"])
        return found

    total()  # traced while it is there
    data.clear()
    gc.collect()
    return total


def test_opened_again_it_must_be_the_same_cache(records: drt.CachedDataset, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    shutil.copytree(records.caches[0].path, folder)
    total = _captured(drt.open_dataset(folder))
    shutil.rmtree(folder)
    with pytest.raises(tf.errors.OpError, match="CacheNotFoundError"):
        total()


def test_few_datasets_that_were_opened_again_are_kept(records: drt.CachedDataset) -> None:
    totals = [_captured(records) for _ in range(6)]
    assert len(handles._reopened) == 0, "a few late reads do not keep a dataset open"
    for _ in range(8):  # of ten batches
        assert [int(total()) for total in totals] == [sum(range(100))] * 6
    assert len(handles._reopened) == 4


def test_recipes_of_one_dataset_are_shared(records: drt.CachedDataset) -> None:
    numbers = [handles.register(records, lambda ds: ds) for _ in range(2)]  # type: ignore[arg-type,return-value]
    first, second = (handles._handles[number].recipe for number in numbers)
    assert first is second
    for number in numbers:
        handles._release(number)


LEFT_EARLY = """
import sys
import datasetrt as drt, datasetrt_tf as drtf
ds = drt.open_dataset(sys.argv[1])

def decode(sample):
    if sys.argv[2] == "slow":
        # Long enough, and with so many ahead, that the process ends while calls wait for their turn.
        for _ in range(20_000):
            pass
    return {"y": sample.sample_id}

batches = iter(drtf.dataset(ds, 4, decode=decode, num_epochs=None, num_parallel_calls=8, prefetch=1_000))
for _ in range(3):
    next(batches)
print("left early")
"""


@pytest.mark.parametrize("decode", ["quick", "slow"])
def test_a_process_that_ends_in_the_middle_says_nothing(decode: str, records_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_EARLY, str(records_folder), decode],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # What TensorFlow says when it is imported is its own.
    said = [line for line in done.stderr.splitlines() if not line.startswith(("WARNING:", "I0000", "W0000"))]
    assert (done.returncode, done.stdout, said) == (0, "left early\n", [])
