"""NativeLoader: the core's batches as tensors, exactly resumable, with equal steps on all ranks."""

from __future__ import annotations

import functools
import gc
import itertools
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.records import (
    RECORD,
    decode,
    decode_failing,
    decode_stopping,
    ids_of,
    joined,
    slices,
)
from tests.rows import RowSource

SHUFFLE = drt.Shuffle(seed=7)


def order(ds: drt.CachedDataset, epoch: int = 0, sampler: drt.Sampler = SHUFFLE) -> list[int]:
    return sampler.indices(ds, epoch=epoch).tolist()


@pytest.mark.parametrize("how", [RECORD, decode])
def test_batches_are_slices_of_the_core_order(records: drt.CachedDataset, how: Any) -> None:
    loader = drtt.NativeLoader(records, 8, decode=how, seed=7, tail="short")
    for epoch in range(3):
        assert ids_of(loader) == slices(order(records, epoch), 8)
    assert len(loader) == 7
    assert loader.epoch == 3
    assert (loader.dataset, loader.batch_size, loader.order) == (records, 8, SHUFFLE)


def test_weights_and_samplers(records: drt.CachedDataset) -> None:
    weights = [9.0 if number % 2 else 1.0 for number in range(50)]
    weighted = drt.Weighted(7).indices(records.with_weights(weights)).tolist()
    assert ids_of(drtt.NativeLoader(records, 10, decode=RECORD, seed=7, weights=weights)) == slices(
        weighted, 10
    )
    blocks = drt.BlockShuffle(7, block_samples=4)
    loader = drtt.NativeLoader(records, 10, decode=RECORD, sampler=blocks)
    assert ids_of(loader) == slices(order(records, 0, blocks), 10)


@pytest.mark.parametrize("how", [RECORD, decode, None])
def test_a_run_resumes_at_every_step(records: drt.CachedDataset, how: Any) -> None:
    def make(tail: Any) -> drtt.NativeLoader:
        return drtt.NativeLoader(records, 8, decode=how, seed=7, tail=tail, columns=["score"])

    for tail in ("drop", "pad", "short"):
        drt.testing.assert_resumes(functools.partial(make, tail))


def test_three_resumes_in_a_row(records: drt.CachedDataset) -> None:
    def make() -> drtt.NativeLoader:
        return drtt.NativeLoader(records, 8, decode=RECORD, seed=7, tail="short")

    straight = make()
    expected = [ids for _ in range(3) for ids in ids_of(straight)]
    seen: list[list[int]] = []
    state: Any = None
    for steps in (3, 4, 9, 5):  # within an epoch, at its end, over an epoch's end
        loader = make()
        if state is not None:
            loader.load_state_dict(json.loads(state))
        while steps:
            for batch in itertools.islice(loader, steps):
                seen.append(batch["id"].tolist())
                steps -= 1
                state = json.dumps(loader.state_dict())
    assert seen == expected


def test_the_state_is_that_of_the_core_and_of_the_sampler(records: drt.CachedDataset) -> None:
    native = drtt.NativeLoader(records, 8, decode=RECORD, seed=7, tail="short")
    head = ids_of(itertools.islice(native, 3))
    core = records.loader(batch_size=8, sampler=SHUFFLE)
    core.load_state_dict(native.state_dict())
    sampler = drtt.EpochSampler(records, seed=7)
    sampler.load_state_dict(native.state_dict())
    rest = [batch.indices.tolist() for batch in core]
    assert head + rest == slices(order(records), 8)
    assert list(sampler) == joined(rest)


def test_a_wrong_state_is_refused_before_anything_changes(records: drt.CachedDataset) -> None:
    loader = drtt.NativeLoader(records, 8, decode=RECORD, seed=7)
    next(iter(loader))
    good = loader.state_dict()
    for wrong in ({**good, "position": 99}, {}, drtt.NativeLoader(records, 8, seed=8).state_dict()):
        with pytest.raises(drt.StateError):
            loader.load_state_dict(wrong)
        assert loader.state_dict() == good


def test_set_epoch_is_found_where_lightning_looks(records: drt.CachedDataset) -> None:
    loader = drtt.NativeLoader(records, 8, decode=RECORD, seed=7, tail="short")
    loader.sampler.set_epoch(4)
    assert ids_of(loader) == slices(order(records, 4), 8)
    loader.load_state_dict({**loader.state_dict(), "epoch": 2, "position": 24})
    loader.sampler.set_epoch(2)
    assert ids_of(loader) == slices(order(records, 2), 8)[3:]


def test_iterators_that_nobody_pulls_do_not_count(records: drt.CachedDataset) -> None:
    loader = drtt.NativeLoader(records, 8, decode=RECORD, seed=7, tail="short")
    surplus = [iter(loader) for _ in range(3)]  # as Lightning makes them, to see whether it can
    assert ids_of(loader) == slices(order(records), 8)
    assert ids_of(surplus[0]) == slices(order(records, 1), 8)
    surplus[1].close()
    assert list(surplus[1]) == []


# Memory


def test_record_columns_are_taken_without_a_copy(
    records: drt.CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, np.ndarray]] = []
    loads_batch = drt.codecs.Record.loads_batch

    def spied(self: drt.codecs.Record, batch: Any) -> Any:
        made.append(loads_batch(self, batch))
        return made[-1]

    monkeypatch.setattr(drt.codecs.Record, "loads_batch", spied)
    (batch,) = itertools.islice(drtt.NativeLoader(records, 10, decode=RECORD), 1)
    for name, array in made[0].items():
        assert batch[name].data_ptr() == array.ctypes.data
        assert batch[name].data_ptr() % 64 == 0


def test_payloads_of_one_size_are_taken_without_a_copy(records: drt.CachedDataset) -> None:
    (batch,) = itertools.islice(drtt.NativeLoader(records, 10, shuffle=False), 1)
    assert batch["data"].shape == (10, RECORD.size)
    assert batch["data"].data_ptr() % 64 == 0
    assert bytes(batch["data"].numpy()) == b"".join(records[row].data for row in range(10))


@pytest.mark.parametrize("how", [RECORD, decode, None])
def test_batches_are_writable_and_never_share_memory(records: drt.CachedDataset, how: Any) -> None:
    loader = drtt.NativeLoader(
        records, 10, decode=how, columns=["score", "even"], include_index="row", shuffle=False
    )
    batches = list(loader)
    places = [tensor.untyped_storage() for batch in batches for tensor in batch.values()]
    spans = sorted((place.data_ptr(), place.data_ptr() + place.nbytes()) for place in places)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    for batch in batches:
        for tensor in batch.values():
            tensor.zero_()
    again = next(iter(drtt.NativeLoader(records, 10, decode=how, include_index="row", shuffle=False)))
    assert again["row"].tolist() == list(range(10))


class Careless:
    """A codec whose columns are read-only, in the other byte order, strided, and the same twice."""

    name = "careless"

    def dumps(self, obj: int, /) -> bytes:
        return obj.to_bytes(8, "big")

    def loads(self, buffer: Any, /) -> int:
        return int.from_bytes(buffer, "big")

    def loads_batch(self, batch: Any, /) -> dict[str, np.ndarray]:
        rows = batch.as_array(">i8", ())
        halves = batch.as_array("u1", (8,))
        constant = np.zeros(len(batch))
        constant.flags.writeable = False
        twin = rows.astype("i8")
        columns = {"n": rows, "again": rows, "low": halves[:, 7], "back": halves[:, ::-1], "zero": constant}
        return columns | {"twin": twin, "other": twin}


def test_careless_codecs_give_proper_tensors(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    codec = Careless()
    rows = [(codec.dumps(number), {}) for number in range(6)]
    ds = drt.cache(RowSource("c", rows, codec=codec), tmp_path, config=quiet)
    (batch,) = drtt.NativeLoader(ds, 6, decode=codec, shuffle=False)
    assert batch["n"].tolist() == batch["again"].tolist() == batch["low"].tolist() == list(range(6))
    assert batch["back"][:, 0].tolist() == list(range(6))
    batch["zero"] += 1
    batch["n"] += 100
    batch["low"] += 50
    batch["twin"] += 100
    assert batch["other"].tolist() == list(range(6))
    assert batch["again"].tolist() == list(range(6))
    assert batch["back"][:, 0].tolist() == list(range(6))


def test_columns_without_values(records: drt.CachedDataset) -> None:
    def nothing(sample: drt.CachedSample) -> dict[str, Any]:
        return {"none": np.frombuffer(b"", np.float32).reshape(0, 4), "n": np.uint16(sample.sample_id)}

    batch = next(iter(drtt.NativeLoader(records, 6, decode=nothing, columns=["even"], shuffle=False)))
    assert batch["none"].shape == (6, 0, 4)
    assert batch["n"].tolist() == list(range(6))
    assert batch["even"].tolist() == [True, False] * 3


# The tail


def test_tails(records: drt.CachedDataset) -> None:
    def batches(tail: Any, **options: Any) -> list[dict[str, torch.Tensor]]:
        return list(drtt.NativeLoader(records, 8, decode=RECORD, seed=7, tail=tail, **options))

    expected = slices(order(records), 8)
    assert ids_of(batches("drop")) == expected[:-1]
    assert ids_of(batches("short")) == expected
    assert "mask" not in batches("short")[0]
    padded = batches("pad", columns=["score"], mask_key="real")
    assert {tuple(batch["x"].shape) for batch in padded} == {(8, 3)}
    assert {tuple(batch["score"].shape) for batch in padded} == {(8,)}
    assert [batch["id"][batch["real"]].tolist() for batch in padded] == expected
    assert sum(int(batch["real"].sum()) for batch in padded) == 50
    assert padded[-1]["id"].tolist() == expected[-1] + expected[0][:6], "padding is the start of the epoch"
    assert padded[-1]["real"].dtype == torch.bool


def test_a_random_order_drops_its_tail_and_a_sequential_one_keeps_it(records: drt.CachedDataset) -> None:
    assert len(drtt.NativeLoader(records, 8)) == 6
    assert len(drtt.NativeLoader(records, 8, shuffle=False)) == 7


def test_padding_goes_into_lists_and_nested_parts(records: drt.CachedDataset) -> None:
    def nested(sample: drt.CachedSample) -> dict[str, Any]:
        return {"a": {"split": sample.metadata["split"], "two": (sample.sample_id, [1.0, "x"])}}

    last = list(drtt.NativeLoader(records, 8, decode=nested, shuffle=False, tail="pad"))[-1]
    assert last["a"]["split"] == ["train", "train", "val", *["train"] * 4, "val"]
    assert last["a"]["two"][0].tolist() == [48, 49, 0, 1, 2, 3, 4, 5]
    assert last["a"]["two"][1][1] == ["x"] * 8
    assert last["mask"].tolist() == [True, True] + [False] * 6


@pytest.mark.parametrize("tail", ["drop", "pad", "short"])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_have_equal_steps_and_give_each_sample_once(
    records: drt.CachedDataset, tail: Any, world: int
) -> None:
    loaders = [
        drtt.NativeLoader(records, 4, decode=RECORD, seed=7, tail=tail, sharding=drtt.ShardSpec(rank, world))
        for rank in range(world)
    ]
    found = [list(loader) for loader in loaders]
    assert len({len(batches) for batches in found}) == 1 == len({len(loader) for loader in loaders})
    for step in zip(*found, strict=True):
        assert len({len(batch["id"]) for batch in step}) == 1, "ranks differ in their number of samples"
    masks = [
        batch.get("mask", torch.ones(len(batch["id"]), dtype=torch.bool)) for part in found for batch in part
    ]
    real = [batch["id"] for part in found for batch in part]
    rows = sorted(row for ids, mask in zip(real, masks, strict=True) for row in ids[mask].tolist())
    left_out = 50 % (4 * world) if tail == "drop" else 0
    assert len(rows) == len(set(rows)) == 50 - left_out
    assert all(loader.state_dict()["epoch"] == 1 for loader in loaders)


def test_an_epoch_without_a_batch_is_refused(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="50 samples do not fill one of 64 on 1 ranks"):
        drtt.NativeLoader(records, 64)
    assert len(list(drtt.NativeLoader(records, 64, tail="pad"))) == 1


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["split"]}, "column 'split' cannot be a tensor: it holds strings"),
        ({"columns": ["rank"]}, "column 'rank' .* missing values"),
        ({"columns": ["nothing"]}, "no column 'nothing'"),
        ({"tail": "wrap"}, "'drop' or 'pad' or 'short'"),
        ({"sharding": drtt.ShardSpec(0, 2, "keep")}, "choose tail="),
        ({"batch_size": 0}, "at least 1"),
        ({"batch_size": None}, "at least 1"),
        ({"pin_memory": "yes"}, "True or False"),
        ({"prefetch_batches": -1}, "prefetch_batches"),
        ({"sampler": SHUFFLE, "shuffle": False}, "says it all"),
        ({"decode": drt.codecs.Npy()}, "npy"),
    ],
)
def test_bad_arguments_are_refused(records: drt.CachedDataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises((drt.InvalidInputError, drt.CodecError), match=message):
        drtt.NativeLoader(records, **{"batch_size": 8, **options})


def test_objects_where_a_tensor_is_wanted_name_the_column(records: drt.CachedDataset) -> None:
    def strange(sample: drt.CachedSample) -> dict[str, Any]:
        return {"shape": np.array([None, "x"], object)}

    with pytest.raises(drt.InvalidInputError, match="column 'shape' cannot be a tensor"):
        next(iter(drtt.NativeLoader(records, 8, decode=strange)))
    with pytest.raises(drt.InvalidInputError, match="mask_key = 'mask' needs a dict"):
        next(iter(drtt.NativeLoader(records, 8, decode=lambda sample: 1, tail="pad")))
    with pytest.raises(drt.InvalidInputError, match="choose another mask_key"):
        next(iter(drtt.NativeLoader(records, 8, decode=RECORD, tail="pad", mask_key="id")))


def test_errors_of_decode_name_the_sample_and_the_batch_is_tried_again(records: drt.CachedDataset) -> None:
    broken = True

    def sometimes(sample: drt.CachedSample) -> dict[str, Any]:
        return (decode_failing if broken else decode)(sample)

    loader = drtt.NativeLoader(records, 8, decode=sometimes, shuffle=False)
    batches = iter(loader)
    assert ids_of(itertools.islice(batches, 2)) == slices(list(range(16)), 8)
    with pytest.raises(KeyError) as failed:
        next(batches)
    assert any(note.startswith("while decoding sample 17 of cache") for note in failed.value.__notes__)
    assert loader.state_dict()["position"] == 16
    broken = False
    assert ids_of(batches) == slices(list(range(50)), 8)[2:]


def test_stop_iteration_does_not_end_an_epoch(records: drt.CachedDataset) -> None:
    with pytest.raises(RuntimeError, match="StopIteration was raised while decoding sample 17"):
        list(drtt.NativeLoader(records, 8, decode=decode_stopping))


# Ends


def test_it_ends_its_threads(records: drt.CachedDataset) -> None:
    def native_threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    next(iter(drtt.NativeLoader(records, 8, decode=RECORD)))  # PyTorch's own threads may start here
    gc.collect()
    before, python_before = native_threads(), threading.active_count()
    for number in range(20):
        with drtt.NativeLoader(records, 8, decode=RECORD, seed=number, threads=2) as loader:
            next(iter(loader))
    assert threading.active_count() == python_before
    assert native_threads() <= before + 1


def test_it_pickles_with_its_place(records: drt.CachedDataset) -> None:
    loader = drtt.NativeLoader(records, 8, decode=RECORD, seed=7, tail="short")
    head = ids_of(itertools.islice(loader, 2))
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    assert head + ids_of(copy) == slices(order(records), 8)


def test_figures(records: drt.CachedDataset) -> None:
    loader = drtt.NativeLoader(records, 10, decode=RECORD)
    list(loader)
    assert loader.stats()["samples"] == 50
    assert "epoch 1" in repr(loader)


# Options


def test_pinning_without_an_accelerator_warns_once_and_works(records: drt.CachedDataset) -> None:
    assert not torch.accelerator.is_available(), "this test is for machines without one"
    with pytest.warns(UserWarning, match="pin_memory=True has no effect"):
        loader = drtt.NativeLoader(records, 10, decode=RECORD, pin_memory=True)
    assert len(list(loader)) == 5


def test_pinning_reaches_every_tensor(records: drt.CachedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    # Page-locked memory needs a device; that it is asked for, and nothing else touched, can be seen without.
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: asked.append(tensor) or tensor)

    def nested(sample: drt.CachedSample) -> dict[str, Any]:
        return {"a": 1, "b": {"c": (1.0, "text")}}

    loader = drtt.NativeLoader(records, 50, decode=nested, columns=["label"], tail="pad", pin_memory=True)
    (batch,) = loader
    assert len(asked) == 4  # a, b.c[0], label, mask
    assert batch["b"]["c"][1] == ["text"] * 50


def test_tensordict(records: drt.CachedDataset) -> None:
    from tensordict import TensorDict

    loader = drtt.NativeLoader(records, 8, decode=RECORD, shuffle=False, tail="pad", as_tensordict=True)
    batches = list(loader)
    assert all(isinstance(batch, TensorDict) and batch.batch_size == (8,) for batch in batches)
    assert batches[-1]["mask"].tolist() == [True, True] + [False] * 6
    assert batches[0][2:4]["id"].tolist() == [2, 3]
    with pytest.raises(drt.InvalidInputError, match="column 'split' is a list, which a TensorDict"):
        next(
            iter(
                drtt.NativeLoader(
                    records, 8, decode=lambda sample: {"split": sample.metadata["split"]}, as_tensordict=True
                )
            )
        )


def test_damaged_samples_can_be_substituted(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    rows = [(bytes([number]) * 1000, {}) for number in range(20)]
    path = Path(drt.write_cache(RowSource("c", rows), tmp_path, config=quiet).path)
    (shard,) = (path / "shards").iterdir()
    content = bytearray(shard.read_bytes())
    at = content.find(bytes([7]) * 1000)
    content[at] ^= 1
    shard.write_bytes(content)
    with pytest.raises(drt.CorruptionError):
        list(drtt.NativeLoader(path, 5, shuffle=False))
    found = torch.cat(
        [batch["data"] for batch in drtt.NativeLoader(path, 5, shuffle=False, on_corrupt="substitute")]
    )
    assert found.shape == (20, 1000)
    assert 7 not in found[:, 0].tolist()
