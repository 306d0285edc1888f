"""Sources for grain, in grain as it is installed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import grain
import numpy as np
import pytest

import datasetrt as drt
import datasetrt_jax as drtj

FEW_AHEAD = grain.ReadOptions(num_threads=2, prefetch_buffer_size=2)


@pytest.fixture
def steps(ds: drt.CachedDataset, codec: Any) -> Callable[..., drtj.GrainBatchSource]:
    """Makes sources of batches."""

    def make(**arguments: Any) -> drtj.GrainBatchSource:
        return drtj.GrainBatchSource(
            ds, **{"global_batch": 16, "num_epochs": 3, "decode": codec, "seed": 2, **arguments}
        )

    return make


# Samples


def test_samples_are_a_random_access_source(ds: drt.CachedDataset, codec: Any) -> None:
    source = drtj.GrainSource(ds, decode=codec)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    assert len(source) == 50
    assert source[7]["y"] == 7
    assert source[7]["x"].flags.writeable
    assert [int(record["y"]) for record in source._getitems([5, 3, 3])] == [5, 3, 3]
    assert isinstance(drtj.GrainSource(ds)[7], drt.CachedSample)
    with pytest.raises(IndexError):
        source[50]


def test_samples_go_through_grain(ds: drt.CachedDataset, codec: Any) -> None:
    pipeline = grain.MapDataset.source(drtj.GrainSource(ds, decode=codec)).shuffle(seed=1).batch(10)
    rows = [row for batch in pipeline.to_iter_dataset() for row in batch["y"].tolist()]
    assert sorted(rows) == list(range(50))


def test_the_data_loader_of_grain_restores_by_repr(ds: drt.CachedDataset, codec: Any) -> None:
    def make(data: drt.CachedDataset) -> Any:
        sampler = grain.samplers.IndexSampler(len(data), shuffle=True, seed=1, num_epochs=1)
        return iter(
            grain.DataLoader(
                data_source=drtj.GrainSource(data, decode=codec), sampler=sampler, worker_count=0
            )
        )

    it = make(ds)
    for _ in range(12):
        next(it)
    state = it.get_state()
    again = make(drt.open_dataset(ds.caches[0].path))
    again.set_state(state)
    assert [int(record["y"]) for record in again] == [int(record["y"]) for record in it]
    with pytest.raises(ValueError, match="fingerprint"):
        make(ds[::-1]).set_state(state)


def test_an_error_of_decode_names_the_sample(ds: drt.CachedDataset) -> None:
    def decode(sample: drt.CachedSample) -> Any:
        raise KeyError("gone")

    with pytest.raises(KeyError) as caught:
        drtj.GrainSource(ds, decode=decode)[17]
    assert caught.value.__notes__ == [f"while decoding sample 17 of cache {ds[0].cache_id}"]

    def stop(sample: drt.CachedSample) -> Any:
        raise StopIteration

    with pytest.raises(RuntimeError, match="sample 17"):
        drtj.GrainSource(ds, decode=stop)[17]


# Batches


@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_elements_are_the_batches_of_steps(steps: Any, ds: drt.CachedDataset, codec: Any, tail: str) -> None:
    source = steps(tail=tail)
    batches = list(
        drtj.batches(ds, global_batch=16, decode=codec, seed=2, tail=tail, num_epochs=3)  # type: ignore[arg-type]
    )
    assert len(source) == len(batches) == 3 * source.steps_per_epoch
    for step in (*range(len(source)), 3, 0):
        found = source[step]
        assert found.keys() == batches[step].keys()
        for name, column in found.items():
            np.testing.assert_array_equal(column, batches[step][name])
            assert column.ctypes.data % 64 == 0
    for outside in (-1, len(source)):
        with pytest.raises(drt.SampleIndexError, match=f"step {outside} is out of range"):
            source[outside]


def test_batches_resume_in_grain_at_every_step(steps: Any) -> None:
    pipeline = grain.MapDataset.source(steps(tail="pad")).to_iter_dataset(FEW_AHEAD)
    it = iter(pipeline)
    states, rows = [it.get_state()], []
    for batch in it:
        rows.append(batch["y"].tolist())
        states.append(it.get_state())
    for step, state in enumerate(states):
        again = iter(pipeline)
        again.set_state(json.loads(json.dumps(state)))
        assert [batch["y"].tolist() for batch in again] == rows[step:]


def test_a_run_moves_between_grain_and_the_loader(steps: Any, ds: drt.CachedDataset, codec: Any) -> None:
    source = steps(tail="pad")
    loader = ds.loader(batch_size=16, sampler=drt.Shuffle(2), transform=codec)
    loader.load_state_dict(source.state_at(5))
    expected = [source[step]["y"][source[step]["mask"]].tolist() for step in range(5, 8)]
    assert [batch["y"].tolist() for batch in loader] == expected
    back = steps(tail="pad", start=loader.state_dict())
    assert len(back) == 4
    np.testing.assert_array_equal(back[0]["y"], source[8]["y"])
    assert back.state_at(4) == source.state_at(12)
    with pytest.raises(drt.StateError, match="seed differs"):
        steps(start=drtj.batches(ds, global_batch=16).get_state())


def test_sources_pickle_and_tell_what_they_are(steps: Any, ds: drt.CachedDataset, codec: Any) -> None:
    for source in (steps(), drtj.GrainSource(ds, decode=codec)):
        blob = pickle.dumps(source)
        assert len(blob) < 4096
        copy = pickle.loads(blob)
        assert repr(copy) == repr(source)
        np.testing.assert_array_equal(copy[2]["y"], source[2]["y"])
    assert repr(steps()) != repr(steps(seed=3))
    # A checkpoint belongs to any number of processes.
    assert repr(steps(process_index=1, process_count=2)) == repr(steps())


def test_an_end_that_is_reached_leaves_nothing(steps: Any) -> None:
    whole = steps()
    assert len(steps(start=whole.state_at(len(whole)))) == 0
    with pytest.raises(
        drt.InvalidInputError, match="step = 10 is out of range; give a whole number from 0 to 9"
    ):
        whole.state_at(10)
