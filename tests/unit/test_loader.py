"""Epochs, state, transforms and errors of the loader."""

from __future__ import annotations

import copy
import gc
import json
import logging
import multiprocessing
import pickle
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt.figures import NOTHING, of_loop
from datasetrt.loop import LoaderIterator
from datasetrt.transform import _place_in
from tests.rows import RowSource, rows_of

SHUFFLE = drt.Shuffle(seed=5)


def ids(batch: drt.SampleBatch) -> list[int]:
    return list(map(int, batch.sample_ids))


def epoch_of(loader: drt.Loader[drt.SampleBatch]) -> list[int]:
    return [each for batch in loader for each in ids(batch)]


def order(ds: drt.CachedDataset, epoch: int) -> list[int]:
    return list(map(int, SHUFFLE.indices(ds, epoch=epoch)))


@pytest.fixture
def loader(tiny: drt.CachedDataset) -> drt.Loader[drt.SampleBatch]:
    return tiny.loader(batch_size=8, sampler=SHUFFLE)


# Epochs


def test_each_loop_is_the_next_epoch(tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]) -> None:
    for epoch in range(3):
        assert loader.epoch == epoch
        assert epoch_of(loader) == order(tiny, epoch)


def test_a_loop_that_is_left_counts_as_its_epoch(
    tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]
) -> None:
    for _ in loader:
        break
    assert epoch_of(loader) == order(tiny, 1)


def test_batches_say_what_they_hold(tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]) -> None:
    loader.set_epoch(2)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [8] * 12 + [4]
    assert [batch.epoch for batch in batches] == [2] * 13
    assert np.concatenate([batch.positions for batch in batches]).tolist() == list(range(100))
    assert not any(batch.padding.any() for batch in batches)


def test_an_epoch_begins_with_the_first_batch_that_is_asked_for(
    tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]
) -> None:
    state, before = loader.state_dict(), readers()
    surplus = [iter(loader) for _ in range(3)]
    assert (loader.state_dict(), loader.epoch, loader.last) == (state, 0, None)
    assert readers() == before, "nothing is read for it"
    assert epoch_of(loader) == order(tiny, 0)
    loader.set_epoch(7)
    assert next(surplus[1]).epoch == 7
    assert next(surplus[0]).epoch == 8
    loader.load_state_dict({**state, "position": 96})
    assert [ids(batch) for batch in surplus[2]] == [order(tiny, 0)[96:]]
    assert loader.epoch == 1


def test_an_iterator_that_is_closed_before_its_first_batch_begins_nothing(
    loader: drt.Loader[drt.SampleBatch],
) -> None:
    state = loader.state_dict()
    iterator = iter(loader)
    iterator.close()
    assert next(iterator, None) is None
    with iter(loader) as other:
        assert other.last is None
    assert list(other) == []
    assert loader.state_dict() == state


def test_the_default_order_is_that_of_the_table(tiny: drt.CachedDataset) -> None:
    assert epoch_of(tiny.loader(batch_size=30)) == list(range(100))
    assert len(tiny.loader()) == 1, "256 samples a batch"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch_size": 8}, 13),
        ({"batch_size": 8, "drop_last": True}, 12),
        ({"batch_size": 100}, 1),
        ({"batch_size": 1000}, 1),
        ({"batch_size": 1000, "drop_last": True}, 0),
        ({"batch_size": None}, 100),
        ({"batch_size": 8, "shard": drt.Shard(0, 3, "pad")}, 5),
        ({"batch_size": 8, "shard": drt.Shard(2, 3, "drop")}, 5),
        ({"batch_size": 33, "shard": drt.Shard(0, 3, "drop")}, 1),
        ({"batch_size": 33, "shard": drt.Shard(0, 3, "keep")}, 2),
        ({"batch_size": 33, "shard": drt.Shard(2, 3, "keep")}, 1),
        ({"batch_size": 8, "sampler": drt.Weighted(seed=1, num_samples=17)}, 3),
    ],
    ids=str,
)
def test_the_length_is_the_batches_of_a_whole_epoch(
    options: dict[str, Any], expected: int, tiny: drt.CachedDataset
) -> None:
    made: drt.Loader[Any] = tiny.loader(**options)
    assert len(made) == expected
    assert len(list(made)) == expected
    state = made.state_dict()
    if expected > 1:
        made.load_state_dict({**state, "position": 5})
        assert len(made) == expected, "not what is left"


# set_epoch


def test_set_epoch_is_respected(tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]) -> None:
    for epoch in (0, 1, 0, 5, 5):
        loader.set_epoch(epoch)
        assert loader.epoch == epoch
        assert epoch_of(loader) == order(tiny, epoch)


def test_set_epoch_keeps_a_restored_position(
    tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]
) -> None:
    loader.load_state_dict({**loader.state_dict(), "epoch": 3, "position": 40})
    loader.set_epoch(3)
    assert epoch_of(loader) == order(tiny, 3)[40:]
    loader.load_state_dict({**loader.state_dict(), "epoch": 3, "position": 40})
    loader.set_epoch(4)
    assert epoch_of(loader) == order(tiny, 4)


def test_set_epoch_repeats_a_loop_that_was_left(
    tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]
) -> None:
    for _ in loader:
        break
    loader.set_epoch(0)
    assert loader.state_dict()["position"] == 0
    assert epoch_of(loader) == order(tiny, 0)


def test_set_epoch_after_a_loop_that_was_left_is_the_state_too(loader: drt.Loader[drt.SampleBatch]) -> None:
    for _ in loader:
        break
    loader.set_epoch(1)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)


def test_set_epoch_does_not_disturb_a_loop_that_runs(loader: drt.Loader[drt.SampleBatch]) -> None:
    for number, _ in enumerate(loader, start=1):
        loader.set_epoch(0)
        expected = (0, number * 8) if number < 13 else (0, 0)
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == expected
    assert loader.epoch == 0, "the loop is to be repeated"


@pytest.mark.parametrize("epoch", [-1, 2**63, True, 1.0, "1", None], ids=repr)
def test_set_epoch_takes_epochs(epoch: Any, loader: drt.Loader[drt.SampleBatch]) -> None:
    before = loader.state_dict()
    with pytest.raises(drt.InvalidInputError, match="epoch = "):
        loader.set_epoch(epoch)
    assert loader.state_dict() == before


# State


def test_a_state_counts_what_was_handed_out(loader: drt.Loader[drt.SampleBatch]) -> None:
    seen = []
    for batch in loader:
        seen.append(len(batch))
        if len(seen) == 13:
            break
        assert loader.state_dict()["position"] == sum(seen)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0), (
        "as soon as the last is out"
    )


def test_a_state_is_small_json(loader: drt.Loader[drt.SampleBatch]) -> None:
    next(iter(loader))
    state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state
    assert len(json.dumps(state)) < 300
    assert set(state) == {"version", "fingerprint", "sampler", "epoch", "position"}


@pytest.mark.parametrize(
    "sampler",
    [
        drt.Sequential(),
        SHUFFLE,
        drt.BlockShuffle(2**64 - 1, block_samples=7, window_blocks=3),
        drt.Weighted(1, num_samples=37),
        drt.Weighted(1, num_samples=50, replacement=False),
    ],
    ids=lambda sampler: type(sampler).__name__ + str(getattr(sampler, "replacement", "")),
)
@pytest.mark.parametrize("batch_size", [7, None])
def test_every_loader_resumes_at_every_step(
    sampler: drt.Sampler, batch_size: int | None, tiny: drt.CachedDataset
) -> None:
    part = tiny if batch_size else tiny.head(60)
    options: dict[str, Any] = {"batch_size": batch_size, "sampler": sampler}
    drt.testing.assert_resumes(lambda: part.loader(**options))


def test_the_proof_of_resuming_can_fail(tiny: drt.CachedDataset) -> None:
    class Forgets:
        """Restores one batch too far."""

        def __init__(self) -> None:
            self.inner = tiny.loader(batch_size=10, sampler=SHUFFLE)

        def __iter__(self) -> Iterator[Any]:
            return iter(self.inner)

        def state_dict(self) -> Any:
            return self.inner.state_dict()

        def load_state_dict(self, state: Any) -> None:
            self.inner.load_state_dict({**state, "position": min(state["position"] + 10, 90)})

    with pytest.raises(AssertionError, match="restored after step 0"):
        drt.testing.assert_resumes(Forgets)


def test_a_state_moves_between_batch_sizes_and_other_options(tiny: drt.CachedDataset) -> None:
    first = tiny.loader(batch_size=8, sampler=SHUFFLE)
    seen = []
    for batch in first:
        seen += ids(batch)
        if len(seen) == 24:
            break
    for options in (
        {"batch_size": 5},
        {"batch_size": 50, "threads": 1, "prefetch_batches": 0},
        {"batch_size": None},
    ):
        given: Any = options
        second: drt.Loader[Any] = tiny.loader(sampler=SHUFFLE, **given)
        second.load_state_dict(first.state_dict())
        rest = [
            each
            for step in second
            for each in ([step.sample_id] if options["batch_size"] is None else ids(step))
        ]
        assert seen + rest == order(tiny, 0)


def test_the_loop_that_began_last_owns_the_state(loader: drt.Loader[drt.SampleBatch]) -> None:
    old = iter(loader)
    next(old)
    new = iter(loader)
    next(old)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (0, 16)
    next(new)
    next(old)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 8)


def test_an_iterator_from_before_a_restore_no_longer_counts(loader: drt.Loader[drt.SampleBatch]) -> None:
    old = iter(loader)
    next(old)
    loader.load_state_dict({**loader.state_dict(), "position": 40})
    next(old)
    assert loader.state_dict()["position"] == 40


def bad_states(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "no dict": [state],
        "none": None,
        "empty": {},
        "version": {**state, "version": 2},
        "version as text": {**state, "version": "1"},
        "version as bool": {**state, "version": True},
        "version as float": {**state, "version": 1.0},
        "missing": {key: value for key, value in state.items() if key != "epoch"},
        "unknown": {**state, "extra": 1},
        "fingerprint": {**state, "fingerprint": "other"},
        "fingerprint type": {**state, "fingerprint": 3},
        "fingerprint array": {**state, "fingerprint": np.array(["a", "b"])},
        "sampler": {**state, "sampler": {"kind": "sequential"}},
        "sampler seed": {**state, "sampler": {"kind": "shuffle", "seed": 6}},
        "sampler seed type": {**state, "sampler": {"kind": "shuffle", "seed": 5.0}},
        "sampler extra": {**state, "sampler": {"kind": "shuffle", "seed": 5, "more": 1}},
        "sampler type": {**state, "sampler": "shuffle"},
        "epoch negative": {**state, "epoch": -1},
        "epoch large": {**state, "epoch": 2**63 + 1},
        "epoch bool": {**state, "epoch": True},
        "epoch float": {**state, "epoch": 1.0},
        "position negative": {**state, "position": -1},
        "position end": {**state, "position": 100},
        "position bool": {**state, "position": False},
        "position text": {**state, "position": "8"},
    }


def test_other_states_are_refused_and_change_nothing(loader: drt.Loader[drt.SampleBatch]) -> None:
    iterator = iter(loader)
    next(iterator)
    before = loader.state_dict()
    for what, state in bad_states({**before}).items():
        with pytest.raises(drt.StateError) as refused:
            loader.load_state_dict(state)
        assert "\n" not in str(refused.value), what
        assert refused.value.kind in {"bad-state", "state-mismatch"}
        assert loader.state_dict() == before, what
    next(iterator)
    assert loader.state_dict()["position"] == 16, "the running loop still counts"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("version", ["version 2", "version 1", "release"]),
        ("missing", ["lacks epoch"]),
        ("unknown", ["'extra'"]),
        ("fingerprint", ["'other'", "rows, weights and added columns"]),
        ("sampler", ["sequential", "shuffle", "kind differs"]),
        ("sampler seed", ["seed differs", "6", "5"]),
        ("position end", ["position", "100", "0 to 99"]),
    ],
)
def test_a_refusal_names_the_difference(
    what: str, words: list[str], loader: drt.Loader[drt.SampleBatch]
) -> None:
    with pytest.raises(drt.StateError) as refused:
        loader.load_state_dict(bad_states({**loader.state_dict()})[what])
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("field", ["seed", "num_samples", "replacement"])
def test_a_state_of_a_sampler_is_complete(field: str, tiny: drt.CachedDataset) -> None:
    loader = tiny.loader(sampler=drt.Weighted(seed=1))
    state = loader.state_dict()
    less = {key: value for key, value in state["sampler"].items() if key != field}
    with pytest.raises(drt.StateError, match=f"{field} differs"):
        loader.load_state_dict({**state, "sampler": less})


def test_the_last_epoch_has_a_state_after_it(tiny: drt.CachedDataset) -> None:
    loader = tiny.loader(batch_size=50, sampler=SHUFFLE)
    loader.set_epoch(2**63 - 1)
    assert epoch_of(loader) == order(tiny, 2**63 - 1)
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["epoch"], state["position"]) == (2**63, 0)
    restored = tiny.loader(batch_size=50, sampler=SHUFFLE)
    restored.load_state_dict(state)
    for over in (loader, restored):
        with pytest.raises(drt.InvalidInputError, match="last one"):
            next(iter(over))
        assert over.state_dict() == state
        over.set_epoch(0)
        assert epoch_of(over) == order(tiny, 0)


def test_a_loader_of_no_rows_takes_its_own_state(tiny: drt.CachedDataset) -> None:
    loader = tiny[5:5].loader(batch_size=2)
    loader.load_state_dict(loader.state_dict())
    assert list(loader) == []
    with pytest.raises(drt.StateError, match="position is 1"):
        loader.load_state_dict({**loader.state_dict(), "position": 1})


def test_weights_belong_to_the_state(tiny: drt.CachedDataset) -> None:
    sampler = drt.Weighted(seed=1)
    state = tiny.loader(sampler=sampler).state_dict()
    with pytest.raises(drt.StateError, match="fingerprint"):
        tiny.with_weights([2.0] * 100).loader(sampler=sampler).load_state_dict(state)


# Ranks


@pytest.mark.parametrize("uneven", ["pad", "drop", "keep", "fill"])
def test_ranks_share_the_order_and_agree_on_the_state(uneven: Any, tiny: drt.CachedDataset) -> None:
    loaders = [
        tiny.loader(batch_size=8, sampler=SHUFFLE, shard=drt.Shard(rank, 3, uneven)) for rank in range(3)
    ]
    iterators = [iter(loader) for loader in loaders]
    seen: list[int] = []
    for _ in range(5):
        for iterator in iterators:
            batch = next(iterator)
            seen += batch.sample_ids[~batch.padding].tolist()
        first, second, third = (loader.state_dict() for loader in loaders)
        assert first == second == third
    assert loaders[0].epoch == 1, "five steps of 24 are an epoch"
    assert seen == order(tiny, 0)[: 99 if uneven == "drop" else 100]
    assert [next(iterator, None) for iterator in iterators] == [None] * 3


def test_a_rank_without_a_last_batch_stays_in_step(tiny: drt.CachedDataset) -> None:
    loaders = [
        tiny.loader(batch_size=33, sampler=SHUFFLE, shard=drt.Shard(rank, 3, "keep")) for rank in range(3)
    ]
    iterators = [iter(loader) for loader in loaders]
    for iterator in iterators:
        next(iterator)
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1] == states[2]
    assert (states[0]["epoch"], states[0]["position"]) == (0, 99)
    assert [len(next(iterator, [])) for iterator in iterators] == [1, 0, 0]
    assert {loader.epoch for loader in loaders} == {1}


def test_sequential_ranks_have_to_say_what_is_uneven(tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="uneven='pad', 'fill', 'drop' or 'keep'"):
        tiny.loader(shard=drt.Shard(0, 2))
    tiny.loader(shard=drt.Shard(0, 2, "keep"))
    tiny.loader(shard=drt.Shard(0, 1))
    tiny.loader(sampler=SHUFFLE, shard=drt.Shard(0, 2))


# Transform and collate


def test_what_a_loop_gets(tiny: drt.CachedDataset) -> None:
    def label(sample: drt.CachedSample) -> Any:
        return sample.metadata["label"]

    labels = [number % 10 for number in range(100)]
    plain: list[Any] = list(tiny.loader(batch_size=60))
    assert [type(batch) for batch in plain] == [drt.SampleBatch] * 2
    assert list(tiny.loader(batch_size=60, transform=label)) == [labels[:60], labels[60:]]
    assert list(tiny.loader(batch_size=60, transform=label, collate=sum)) == [
        sum(labels[:60]),
        sum(labels[60:]),
    ]
    assert list(tiny.loader(batch_size=60, collate=len)) == [60, 40]
    assert [sample.sample_id for sample in tiny.loader(batch_size=None)] == list(range(100))
    assert list(tiny.loader(batch_size=None, transform=label)) == labels


def test_seeds_depend_on_seed_epoch_and_position_alone(tiny: drt.CachedDataset) -> None:
    def drawn(sample: drt.CachedSample, seed: int) -> tuple[int, int]:
        return sample.sample_id, seed

    def run(sampler: drt.Sampler, **options: Any) -> list[tuple[int, int]]:
        made: drt.Loader[Any] = tiny.loader(transform=drawn, seeded=True, sampler=sampler, **options)
        steps = [step for _ in range(2) for step in made]
        return steps if made.batch_size is None else [each for step in steps for each in step]

    whole = run(SHUFFLE, batch_size=8)
    assert run(SHUFFLE, batch_size=33) == whole
    assert run(SHUFFLE, batch_size=None) == whole
    seeds = [seed for _, seed in whole]
    assert len(set(seeds)) == 200, "each epoch has its own"
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert not set(seeds) & {seed for _, seed in run(drt.Shuffle(seed=6), batch_size=8)}
    ranks: list[Any] = [
        [tiny.loader(batch_size=4, transform=drawn, seeded=True, sampler=SHUFFLE, shard=drt.Shard(rank, 2))]
        for rank in range(2)
    ]
    steps = zip(*(iter(loader) for (loader,) in ranks), strict=True)
    assert [each for step in steps for part in step for each in part][:100] == whole[:100]


@pytest.mark.parametrize("batch_size", [10, None])
def test_a_transform_that_raises_is_the_same_object_and_names_the_sample(
    batch_size: Any, tiny: drt.CachedDataset
) -> None:
    boom = ZeroDivisionError("boom")

    def fail(sample: drt.CachedSample) -> int:
        if sample.sample_id == 37:
            raise boom
        return sample.sample_id

    made = tiny.loader(batch_size=batch_size, sampler=SHUFFLE, transform=fail)
    with pytest.raises(ZeroDivisionError) as caught:
        list(made)
    assert caught.value is boom
    position = order(tiny, 0).index(37)
    (note,) = boom.__notes__
    assert note == (
        f"while transforming sample 37 of cache {tiny.caches[0].cache_id}, at position {position} of epoch 0"
    )


@pytest.mark.parametrize("batch_size", [10, None])
def test_stop_iteration_does_not_end_the_epoch(batch_size: Any, tiny: drt.CachedDataset) -> None:
    def stop(sample: drt.CachedSample) -> int:
        if sample.sample_id == 37:
            raise StopIteration
        return 0

    with pytest.raises(RuntimeError, match="StopIteration was raised while transforming sample 37") as caught:
        list(tiny.loader(batch_size=batch_size, transform=stop))
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_collate_that_raises_names_the_batch(tiny: drt.CachedDataset) -> None:
    def fail(samples: list[drt.CachedSample]) -> int:
        if samples[0].sample_id == 20:
            raise KeyError("x")
        return 0

    def stop(samples: list[drt.CachedSample]) -> int:
        raise StopIteration

    with pytest.raises(KeyError) as caught:
        list(tiny.loader(batch_size=10, collate=fail))
    (note,) = caught.value.__notes__
    assert "collating the batch of 10 samples at position 20 of epoch 0" in note
    assert "sample 20" in note
    with pytest.raises(RuntimeError, match="StopIteration was raised while collating"):
        list(tiny.loader(batch_size=10, collate=stop))


@pytest.mark.parametrize("batch_size", [10, None])
def test_after_an_error_the_same_step_is_tried_again(batch_size: Any, tiny: drt.CachedDataset) -> None:
    failures = iter([True, True, False])

    def sometimes(sample: drt.CachedSample) -> int:
        if sample.sample_id == 25 and next(failures, False):
            raise KeyboardInterrupt
        return sample.sample_id

    made = tiny.loader(batch_size=batch_size, transform=sometimes)
    iterator = iter(made)
    steps: list[Any] = []
    interrupted = []
    while len(steps) < len(made):
        try:
            steps.append(next(iterator))
        except KeyboardInterrupt:
            interrupted.append(made.state_dict()["position"])
    flat = steps if batch_size is None else [each for step in steps for each in step]
    assert flat == list(range(100))
    assert interrupted == [20, 20] if batch_size else [25, 25]


# Codecs


@pytest.fixture
def packed(tmp_path: Path, quiet: drt.WriterConfig) -> drt.CachedDataset:
    codec = drt.codecs.Json()
    rows: Any = [(codec.dumps({"n": number}), {}) for number in range(10)]
    return drt.cache(RowSource("json", rows, codec=codec), tmp_path, config=quiet)


class PlainJson:
    """A codec that decodes one payload at a time."""

    name = "json"

    def dumps(self, obj: Any) -> bytes:
        return json.dumps(obj).encode()

    def loads(self, buffer: Any) -> Any:
        return json.loads(bytes(buffer))


def test_a_codec_decodes_each_payload(packed: drt.CachedDataset) -> None:
    codec = PlainJson()
    assert list(packed.loader(batch_size=6, transform=codec)) == [
        [{"n": number} for number in range(6)],
        [{"n": number} for number in range(6, 10)],
    ]
    assert list(packed.loader(batch_size=6, transform=codec, collate=len)) == [6, 4]
    assert list(packed.loader(batch_size=None, transform=codec)) == [{"n": number} for number in range(10)]


def test_a_codec_of_batches_decodes_them_whole(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    codec = drt.codecs.Record({"x": ("float32", (3,)), "y": ("int64", ())})
    records: list[dict[str, Any]] = [
        {"x": np.full(3, number, np.float32), "y": np.int64(number)} for number in range(10)
    ]
    rows: Any = [(codec.dumps(record), {}) for record in records]
    ds = drt.cache(RowSource("r", rows, codec=codec), tmp_path, config=quiet)
    columns, last = ds.loader(batch_size=6, transform=codec)
    assert columns["x"].shape == (6, 3)
    assert last["y"].tolist() == [6, 7, 8, 9]
    assert [record["y"] for record in ds.loader(batch_size=None, transform=codec)] == list(range(10))
    one_by_one = list(
        ds.loader(batch_size=6, transform=codec, collate=lambda each: [record["y"] for record in each])
    )
    assert one_by_one == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]


@pytest.mark.parametrize("batch_size", [4, None])
def test_decoded_arrays_are_writable(batch_size: Any, tmp_path: Path, quiet: drt.WriterConfig) -> None:
    codec = drt.codecs.Npy()
    rows: Any = [(codec.dumps(np.arange(4)), {}) for _ in range(8)]
    ds = drt.cache(RowSource("n", rows, codec=codec), tmp_path, config=quiet)
    for step in ds.loader(
        batch_size=batch_size, transform=codec, collate=None if batch_size is None else list
    ):
        arrays: list[Any] = [step] if batch_size is None else step
        for array in arrays:
            array += 1


def test_another_codec_is_refused_with_both_names(packed: drt.CachedDataset) -> None:
    with pytest.raises(drt.CodecError, match=r"'json'.*'npy'"):
        packed.loader(transform=drt.codecs.Npy())


@pytest.mark.parametrize("batch_size", [4, None])
def test_a_payload_that_does_not_decode_names_the_sample(batch_size: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.CodecError) as caught:
        list(tiny.loader(batch_size=batch_size, transform=drt.codecs.Json(), collate=None))
    assert "epoch 0" in "".join(caught.value.__notes__)


# Arguments


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size = 0"),
        ({"batch_size": 2**63}, "batch_size = 9223372036854775808"),
        ({"batch_size": True}, "batch_size = True"),
        ({"batch_size": 8.0}, "batch_size = 8.0"),
        ({"threads": 0}, "threads = 0"),
        ({"prefetch_batches": -1}, "prefetch_batches = -1"),
        ({"prefetch_bytes": 0}, "prefetch_bytes = 0"),
        ({"drop_last": 1}, "drop_last = 1"),
        ({"on_corrupt": "skip"}, "'raise' or 'substitute'"),
        ({"sampler": 3}, "sampler = 3"),
        ({"sampler": drt.Shuffle}, "sampler = "),
        ({"shard": (0, 2)}, "give a Shard"),
        ({"transform": 3}, "neither a function of a sample nor a codec"),
        ({"transform": json}, "<module 'json'"),
        ({"collate": 3}, "collate = 3"),
        ({"seeded": 1, "transform": len}, "seeded = 1"),
        ({"seeded": True}, "seeded=True needs a transform"),
        ({"seeded": True, "transform": PlainJson()}, "codec 'json' takes none"),
        ({"batch_size": None, "collate": len}, "collate needs a batch_size"),
        ({"batch_size": None, "drop_last": True}, "drop_last=True needs a batch_size"),
        ({"sampler": drt.Weighted(1, num_samples=101, replacement=False)}, "101"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_arguments_are_checked_when_the_loader_is_made(
    options: dict[str, Any], words: str, tiny: drt.CachedDataset
) -> None:
    with pytest.raises(drt.InvalidInputError) as refused:
        tiny.loader(**options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_numpy_integers_are_numbers(tiny: drt.CachedDataset) -> None:
    number: Any = np.int64(8)
    made = tiny.loader(batch_size=number, threads=number, sampler=drt.Shuffle(number))
    assert made.state_dict()["sampler"] == {"kind": "shuffle", "seed": 8}
    assert json.dumps(made.state_dict())


def test_a_loader_tells_what_it_is(tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]) -> None:
    assert loader.dataset is tiny
    assert (loader.sampler, loader.batch_size, loader.shard) == (SHUFFLE, 8, drt.Shard())
    next(iter(loader))
    assert repr(loader) == "Loader(Shuffle(seed=5), batch_size=8, epoch 0, position 8)"


@pytest.mark.parametrize(("name", "most"), [("batch_size", 2**24), ("threads", 1024)])
def test_what_the_engine_cannot_do_is_refused_when_the_loader_is_made(
    name: str, most: int, tiny: drt.CachedDataset
) -> None:
    largest: dict[str, Any] = {name: most}
    tiny.loader(**largest)
    too_large: dict[str, Any] = {name: most + 1}
    with pytest.raises(drt.InvalidInputError, match=f"from 1 to {most}"):
        tiny.loader(**too_large)


# Ends


def test_closing_ends_the_loop_and_keeps_the_state(
    tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]
) -> None:
    iterator = iter(loader)
    next(iterator)
    loader.close()
    loader.close()
    assert list(iterator) == []
    assert loader.state_dict()["position"] == 8
    with loader as same:
        assert same is loader
        with iter(loader) as second:
            assert next(second).epoch == 1
        assert list(second) == []
    assert loader.state_dict()["position"] == 8


def test_an_exhausted_iterator_stays_so(loader: drt.Loader[drt.SampleBatch]) -> None:
    iterator = iter(loader)
    assert len(list(iterator)) == 13
    assert list(iterator) == []
    assert loader.epoch == 1, "asking again is no other epoch"


def test_a_dropped_iterator_is_collected(loader: drt.Loader[drt.SampleBatch]) -> None:
    iterator = iter(loader)
    next(iterator)
    del iterator
    gc.collect()
    assert not any(isinstance(each, LoaderIterator) for each in gc.get_objects())


def test_figures_outlive_the_loop(loader: drt.Loader[drt.SampleBatch]) -> None:
    assert loader.stats()["samples"] == 0
    next(iter(loader))
    first = loader.stats()
    assert first["samples"] >= 8
    list(loader)
    figures = loader.stats()
    assert figures["samples"] == 100
    assert figures.keys() == drt.LoaderStats.__annotations__.keys()
    assert isinstance(figures["input_bound"], bool)
    assert (
        drt.open_dataset(loader.dataset.caches[0].path).loader().stats()["advice"] == "nothing was read yet"
    )


@pytest.mark.parametrize(
    ("waited", "readers_waited", "bound"),
    [(6.0, 1.0, True), (5.0, 4.9, True), (4.9, 0.0, False), (6.0, 6.0, False), (50.0, 60.0, False)],
)
def test_only_a_wait_that_matters_is_input_bound(
    tiny: drt.CachedDataset,
    monkeypatch: pytest.MonkeyPatch,
    waited: float,
    readers_waited: float,
    bound: bool,
) -> None:
    loader = tiny.loader(batch_size=8)
    list(loader)
    loop = loader._newest
    assert loop is not None
    assert loop._lasted is not None  # from its end on, time that passes is not the loop's
    loop._lasted = 100.0
    figures = {
        **NOTHING,
        "samples": 1,
        "consumer_wait_seconds": waited,
        "reader_wait_seconds": readers_waited,
    }
    monkeypatch.setattr(loop, "stream", SimpleNamespace(stats=lambda: figures, close=lambda: None))
    assert loader.stats()["input_bound"] is bound
    begins = (
        f"input-bound: the loop waited {waited:.0f}% of its time" if bound else "not input-bound: the loop"
    )
    assert loader.stats()["advice"].startswith(begins)


@pytest.mark.parametrize(
    ("most", "cure"),
    [
        ("read_seconds", "reading files: give more threads or a faster disk"),
        ("verify_seconds", "comparing checksums: give more threads"),
        ("decompress_seconds", "write the cache with compression='lz4' or 'none'"),
        ("gather_seconds", "store fewer columns"),
    ],
)
def test_the_advice_is_about_what_takes_most(most: str, cure: str) -> None:
    stream: Any = {**NOTHING, "samples": 1, "consumer_wait_seconds": 5.0, most: 2.0}
    assert cure in of_loop(stream, 1.0, 10.0)["advice"]
    assert of_loop(stream, 1.0, 10.0)["consumer_seconds"] == 4.0
    stream["consumer_wait_seconds"] = 0.1
    assert "transform and collate took 90% of the loop's time" in of_loop(stream, 9.0, 10.0)["advice"]


def test_the_time_of_readers_is_divided(tmp_path: Path) -> None:
    config = drt.WriterConfig(progress=False, compression="zstd")
    rows = [(bytes([n % 251]) * 20_000 + random.Random(n).randbytes(2000), {"n": n}) for n in range(200)]
    ds = drt.cache(RowSource("s", rows), tmp_path, config=config)
    loader = ds.loader(batch_size=10, threads=1)
    for batch in loader:
        assert len(batch.metadata["n"]) == 10
    figures = loader.stats()
    for part in ("read", "verify", "decompress", "gather", "hand_over"):
        assert figures[f"{part}_seconds"] > 0, part  # type: ignore[literal-required]
    one_by_one = ds.loader(batch_size=None)
    assert len(list(one_by_one)) == 200
    assert one_by_one.stats()["hand_over_seconds"] > 0


@pytest.mark.parametrize("batch_size", [7, 100, None])
def test_bytes_are_those_of_payloads(batch_size: int | None, tiny: drt.CachedDataset) -> None:
    payloads = sum(len(sample.data) for sample in tiny)
    loader: drt.Loader[Any] = tiny.loader(batch_size=batch_size)
    for _ in range(2):
        list(loader)
        assert loader.stats()["bytes"] == payloads


def test_time_in_the_transform_is_counted(tiny: drt.CachedDataset) -> None:
    import time

    made = tiny.loader(batch_size=10, transform=lambda sample: time.sleep(0.001))
    list(made)
    assert 0.1 <= made.stats()["transform_seconds"] < 5


# Pickling


def label_of(sample: drt.CachedSample) -> Any:
    return sample.metadata["label"]


@pytest.mark.parametrize(
    "copied", [lambda made: pickle.loads(pickle.dumps(made)), copy.copy], ids=["pickle", "copy"]
)
def test_a_loader_travels_with_its_place(copied: Callable[[Any], Any], tiny: drt.CachedDataset) -> None:
    whole = list(tiny.loader(batch_size=8, sampler=SHUFFLE, transform=label_of, collate=sum))
    made = tiny.loader(batch_size=8, sampler=SHUFFLE, transform=label_of, collate=sum)
    first = next(iter(made))
    again = copied(made)
    assert again.state_dict() == made.state_dict()
    # As after load_state_dict: the copy's first loop finishes the epoch that the original was in.
    assert [first, *again] == whole
    assert (again.epoch, made.epoch) == (1, 0)


def test_a_lambda_does_not_pickle(tiny: drt.CachedDataset) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(tiny.loader(transform=lambda sample: 1))


# Corrupt samples


def test_substitutes_are_logged_with_their_samples(
    tmp_path: Path, quiet: drt.WriterConfig, caplog: pytest.LogCaptureFixture
) -> None:
    rows = rows_of(100)
    folder = drt.write_cache(RowSource("s", rows), tmp_path, config=quiet).path
    shard = folder / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    data[data.find(rows[50][0]) + 3] ^= 1
    shard.write_bytes(data)
    ds = drt.open_dataset(folder)
    with pytest.raises(drt.CorruptionError):
        list(ds.loader(batch_size=8))
    for batch_size in (8, None):
        caplog.clear()
        options: Any = {"batch_size": batch_size, "on_corrupt": "substitute"}
        made: drt.Loader[Any] = ds.loader(**options)
        with caplog.at_level(logging.WARNING, logger="datasetrt"):
            steps = list(made)
        found = (
            [each.sample_id for each in steps]
            if batch_size is None
            else [one for each in steps for one in ids(each)]
        )
        assert (len(found), found.count(50)) == (100, 0)
        (record,) = caplog.records
        assert f"sample 50 of cache {ds.caches[0].cache_id} cannot be read" in record.getMessage()
        assert "position 50 of epoch 0" in record.getMessage()


def test_damaged_substitutes_are_neither_logged_nor_told(
    tmp_path: Path, quiet: drt.WriterConfig, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[tuple[bytes, dict[str, Any]]] = [(b"payload %02d" % number, {}) for number in range(40)]
    folder = drt.write_cache(RowSource("s", rows), tmp_path, config=quiet).path
    shard = folder / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    for row in range(30):
        data[data.find(rows[row][0]) + 3] ^= 1
    shard.write_bytes(data)
    with caplog.at_level(logging.WARNING, logger="datasetrt"):
        (batch,) = drt.open_dataset(folder).loader(batch_size=40, on_corrupt="substitute")
    told = [record.args for record in caplog.records]
    assert [(args[3], args[0], args[2]) for args in told if isinstance(args, tuple)] == [
        (at, at, batch.indices[at]) for at in range(30)
    ]
    assert batch.substituted.tolist() == [True] * 30 + [False] * 10
    assert min(ids(batch)) >= 30
    for row in range(30, 40):
        data[data.find(rows[row][0]) + 3] ^= 1
    shard.write_bytes(data)
    for start in (0, 17):
        loader = drt.open_dataset(folder)[start:].loader(batch_size=1, on_corrupt="substitute")
        with pytest.raises(drt.CorruptionError) as raised:
            next(iter(loader))
        assert raised.value.sample_id == start


@pytest.mark.parametrize("at", [3, -3], ids=["header", "trailer"])
def test_a_damaged_shard_has_no_substitutes(at: int, tmp_path: Path, quiet: drt.WriterConfig) -> None:
    folder = drt.write_cache(RowSource("s", rows_of(100)), tmp_path, config=quiet).path
    shard = folder / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    data[at] ^= 1
    shard.write_bytes(data)
    loader = drt.open_dataset(folder).loader(batch_size=8, on_corrupt="substitute")
    with pytest.raises(drt.CorruptionError) as refused:
        next(iter(loader))
    assert refused.value.kind == "shard-mismatch"


# Processes and threads


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_an_iterator_goes_on_in_a_forked_child(
    tiny: drt.CachedDataset, loader: drt.Loader[drt.SampleBatch]
) -> None:
    iterator = iter(loader)
    first = ids(next(iterator))
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send([ids(batch) for batch in iterator]))
    child.start()
    assert ours.poll(30)
    rest = ours.recv()
    child.join(30)
    assert child.exitcode == 0
    assert [first, *rest] == [ids(batch) for batch in _again(loader)]
    assert [ids(batch) for batch in iterator] == rest, "the parent's own goes on too"


def _again(loader: drt.Loader[drt.SampleBatch]) -> drt.Loader[drt.SampleBatch]:
    return loader.dataset.loader(batch_size=loader.batch_size or 1, sampler=loader.sampler)


def readers() -> int:
    """Native reading threads of this process."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            found += (task / "comm").read_text().startswith("drt-read")
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended just now.
    return found


def wait_for_readers(wanted: Callable[[int], bool]) -> bool:
    """Whether it comes true: a thread names itself after it began, and its entry outlives it by a moment."""
    deadline = time.monotonic() + 10
    while not wanted(readers()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_native_threads_end_with_their_iterator(tiny: drt.CachedDataset) -> None:
    made = tiny.loader(batch_size=1, threads=2, sampler=SHUFFLE)
    # Those of a test before may be ending, or belong to an iterator that a caught exception keeps.
    gc.collect()
    assert wait_for_readers(lambda found: found == 0), "none before the first batch"
    iterator = iter(made)
    # The first batch alone may need none.
    next(iterator), next(iterator)
    assert wait_for_readers(lambda found: found > 0)
    del iterator
    assert wait_for_readers(lambda found: found == 0)
    iterator = iter(made)
    next(iterator), next(iterator)
    made.close()
    assert wait_for_readers(lambda found: found == 0)
    list(made)
    assert wait_for_readers(lambda found: found == 0)


# One caller at a time


@pytest.mark.parametrize("batch_size", [10, None], ids=["batches", "samples"])
def test_an_iterator_is_not_advanced_by_its_own_transform(batch_size: Any, tiny: drt.CachedDataset) -> None:
    refusals: list[drt.DatasetRTError] = []

    def greedy(sample: drt.CachedSample) -> int:
        if sample.sample_id % 7 == 3:
            before = loader.state_dict()
            with pytest.raises(drt.DatasetRTError, match="its own transform") as refused:
                next(iterator)
            refusals.append(refused.value)
            assert loader.state_dict() == before
        return sample.sample_id

    loader: drt.Loader[Any] = tiny.loader(batch_size=batch_size, transform=greedy)
    iterator = iter(loader)
    found = np.hstack(list(iterator)).tolist()
    assert found == list(range(100)), "nothing is lost or repeated"
    assert len(refusals) == 14
    assert {error.kind for error in refusals} == {"closed"}
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)


def test_what_is_refused_in_a_transform_is_tried_again(tiny: drt.CachedDataset) -> None:
    """The refusal ends the outer call too, where the transform lets it through; the batch stays."""
    greedy = True

    def transform(sample: drt.CachedSample) -> int:
        if greedy and sample.sample_id == 5:
            next(iterator)
        return sample.sample_id

    iterator = iter(tiny.loader(batch_size=10, transform=transform))
    with pytest.raises(drt.DatasetRTError, match="being advanced"):
        next(iterator)
    greedy = False
    assert next(iterator) == list(range(10))


def slow(sample: drt.CachedSample) -> drt.CachedSample:
    time.sleep(0.0005)
    return sample


@pytest.mark.parametrize("options", [{}, {"transform": slow}], ids=["as it is", "transform"])
@pytest.mark.parametrize("batch_size", [3, None], ids=["batches", "samples"])
def test_threads_that_share_an_iterator_lose_nothing(
    batch_size: Any, options: dict[str, Any], tiny: drt.CachedDataset
) -> None:
    loader: drt.Loader[Any] = tiny.loader(batch_size=batch_size, **options)
    iterator = iter(loader)
    found: list[int] = []
    others: list[BaseException] = []

    def take() -> None:
        while True:
            try:
                got = next(iterator)
            except StopIteration:
                return
            except drt.DatasetRTError as error:
                if error.kind != "closed":
                    others.append(error)
                time.sleep(0.0002)
                continue
            found.extend(sample.sample_id for sample in ([got] if batch_size is None else got))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not others
    assert sorted(found) == list(range(100))
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)


@pytest.mark.parametrize("batch_size", [10, None], ids=["batches", "samples"])
def test_a_transform_may_close_its_loop(batch_size: Any, tiny: drt.CachedDataset) -> None:
    def transform(sample: drt.CachedSample) -> int:
        if sample.sample_id == 5:
            iterator.close()
        return sample.sample_id

    loader: drt.Loader[Any] = tiny.loader(batch_size=batch_size, transform=transform)
    iterator = iter(loader)
    found = np.hstack(list(iterator)).tolist()
    assert found == list(range(10 if batch_size else 6)), "what was being handed out arrives"
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (0, len(found))


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"]
)
def test_an_iterator_is_not_copied(
    copied: Callable[[Any], Any], loader: drt.Loader[drt.SampleBatch], capsys: pytest.CaptureFixture[str]
) -> None:
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(TypeError, match="state_dict"):
        copied(iterator)
    gc.collect()
    assert len(list(iterator)) == 12, "the loop goes on"
    LoaderIterator.__new__(LoaderIterator).__del__()
    assert capsys.readouterr().err == ""


# Ctrl-C


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 8, "transform": "raise"}, "sample 5 of cache"),
        ({"batch_size": None, "transform": "raise"}, "sample 5 of cache"),
        ({"batch_size": 8, "collate": "raise"}, "collating the batch of 8 samples at position 0"),
    ],
    ids=["batches", "samples", "collate"],
)
def test_an_interrupt_names_the_sample_too(
    options: dict[str, Any], words: str, tiny: drt.CachedDataset
) -> None:
    interrupt = KeyboardInterrupt()

    def stop(given: Any) -> Any:
        if isinstance(given, list) or given.sample_id == 5:
            raise interrupt
        return given

    made: dict[str, Any] = {key: stop if value == "raise" else value for key, value in options.items()}
    with pytest.raises(KeyboardInterrupt) as raised:
        list(tiny.loader(**made))
    assert raised.value is interrupt
    assert words in raised.value.__notes__[0]


def test_an_interrupt_after_the_last_sample_names_that(tiny: drt.CachedDataset) -> None:
    assert "sample 1 of cache" in _place_in(next(iter(tiny.loader(batch_size=2))), 2)


@pytest.mark.parametrize(
    "name", ["Json", "Msgpack", "Npy", "Pickle", "PickleOOB", "Dill", "Record", "Validated"]
)
@pytest.mark.parametrize("argument", ["transform", "collate"])
@pytest.mark.parametrize("batch_size", [4, None])
def test_the_class_of_a_codec_is_no_codec(
    name: str, argument: str, batch_size: Any, tiny: drt.CachedDataset
) -> None:
    if argument == "collate" and batch_size is None:
        batch_size = 8
    with pytest.raises(drt.InvalidInputError, match=f"{argument} = .*{name}.* class of a codec; give"):
        tiny.loader(batch_size=batch_size, **{argument: getattr(drt.codecs, name)})


@pytest.mark.parametrize("argument", ["transform", "collate"])
@pytest.mark.parametrize("value", [3, "json", [], drt.Sequential()], ids=repr)
def test_what_cannot_be_called_is_refused_with_the_cure(
    argument: str, value: Any, tiny: drt.CachedDataset
) -> None:
    with pytest.raises(drt.InvalidInputError, match=f"{argument} = .*; give"):
        tiny.loader(**{argument: value})


def test_a_state_without_a_version_is_no_state(tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.StateError, match="has no version; give the dict of state_dict"):
        tiny.loader().load_state_dict({})  # type: ignore[typeddict-item]


CLOSED_MEANWHILE = """
import sys, threading
import datasetrt as drt

sys.setswitchinterval(1e-5)
ds = drt.testing.tiny_dataset(400)
for _ in range(400):
    samples = iter(ds.loader(batch_size=1))
    thread = threading.Thread(target=lambda: list(samples))
    thread.start()
    while True:
        try:
            samples.close()
            break
        except drt.DatasetRTError as error:
            assert error.kind == "closed", error
    thread.join()
print("all ended")
"""


def test_closing_an_iterator_that_another_thread_advances_never_blocks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLOSED_MEANWHILE], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.stderr) == ("all ended\n", "")


def test_a_sample_may_be_read_while_the_error_of_another_is_made(tmp_path: Path) -> None:
    """Making an exception runs Python, and with it handlers of signals and finalizers, which may read."""
    ds = drt.testing.tiny_dataset()
    read: list[bytes] = []

    def trace(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "_build" and not read:
            read.append(ds[3].data)

    damaged = drt.open_dataset(damaged_copy(ds, tmp_path))
    sys.setprofile(trace)
    try:
        with pytest.raises(drt.CorruptionError):
            damaged[0]
    finally:
        sys.setprofile(None)
    assert read == [b"sample 3"]


def damaged_copy(ds: drt.CachedDataset, folder: Path) -> Path:
    """The one cache of a dataset, with a flipped byte in the payload of its first sample."""
    path = shutil.copytree(ds.caches[0].path, folder / "copy")
    shard = path / "shards" / "000000.bin"
    shard.chmod(0o644)
    found = shard.read_bytes()
    at = found.index(b"sample 0")
    shard.write_bytes(found[:at] + b"X" + found[at + 1 :])
    return path
