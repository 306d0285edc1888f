"""Batches of NumPy arrays: shapes, memory, dtypes, decoding, state and refusals."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import datasetrt as drt
import datasetrt_jax as drtj

Make = Callable[..., drt.CachedDataset]


# Order, epochs and shapes


def test_batches_follow_the_sampler_across_epochs(ds: drt.CachedDataset, codec: Any) -> None:
    it = drtj.batches(ds, global_batch=16, decode=codec, seed=4)
    for epoch in range(3):
        order = drt.Shuffle(seed=4).indices(ds, epoch=epoch)
        for step in range(it.steps_per_epoch):
            assert next(it)["y"].tolist() == order[16 * step : 16 * step + 16].tolist()
            assert (it.epoch, it.step) == (epoch, step)


@pytest.mark.parametrize(("tail", "steps"), [("drop", 3), ("pad", 4)])
def test_the_tail_is_dropped_or_padded(ds: drt.CachedDataset, codec: Any, tail: Any, steps: int) -> None:
    it = drtj.batches(ds, global_batch=16, decode=codec, shuffle=False, tail=tail, num_epochs=2)
    assert it.steps_per_epoch == steps
    found = list(it)
    assert len(found) == 2 * steps
    assert {batch["x"].shape for batch in found} == {(16, 3)}
    if tail == "pad":
        last = found[-1]
        assert last["mask"].tolist() == [True] * 2 + [False] * 14
        assert last["y"].tolist() == [48, 49, *range(14)], "padding is the start of the epoch"
    else:
        assert "mask" not in found[0]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_processes_read_contiguous_parts_of_the_same_batches(
    ds: drt.CachedDataset, codec: Any, count: int
) -> None:
    def every(index: int, count: int) -> list[dict[str, Any]]:
        return list(
            drtj.batches(
                ds,
                global_batch=24,
                decode=codec,
                tail="pad",
                num_epochs=2,
                process_index=index,
                process_count=count,
            )
        )

    parts = [every(index, count) for index in range(count)]
    for step, whole in enumerate(every(0, 1)):
        for name, column in whole.items():
            np.testing.assert_array_equal(np.concatenate([part[step][name] for part in parts]), column)


def test_jax_compiles_once_for_padded_epochs(ds: drt.CachedDataset, codec: Any) -> None:
    traces = []

    def total_of(batch: Any) -> Any:
        traces.append(1)
        return jnp.where(batch["mask"], batch["y"], 0).sum()

    total = jax.jit(total_of)
    sums = [int(total(b)) for b in drtj.batches(ds, global_batch=16, decode=codec, tail="pad", num_epochs=2)]
    assert sum(sums) == 2 * sum(range(50))
    assert len(traces) == 1


def test_the_spec_is_known_before_the_first_batch(ds: drt.CachedDataset, codec: Any) -> None:
    it = drtj.batches(
        ds, global_batch=16, decode=codec, tail="pad", process_index=1, process_count=2, columns=["n"]
    )
    spec = it.element_spec
    assert spec["x"] == drtj.ShapeDtype((8, 3), np.dtype("float32"))
    batch = next(it)
    assert {name: (c.shape, c.dtype) for name, c in batch.items()} == {
        name: (s.shape, s.dtype) for name, s in spec.items()
    }
    lowered = jax.jit(lambda batch: batch["x"].sum()).lower(spec)
    assert lowered.compile()(batch) == batch["x"].sum()


# Memory


def test_memory_is_aligned_writable_and_never_used_again(
    make: Make, ds: drt.CachedDataset, codec: Any
) -> None:
    it = drtj.batches(
        ds, global_batch=16, decode=codec, tail="pad", columns=["n"], num_epochs=2, dtype_policy="keep"
    )
    kept = list(it)
    columns = [column for batch in kept for column in batch.values()]
    assert all(column.ctypes.data % 64 == 0 and column.flags.carray for column in columns)
    spans = sorted((column.ctypes.data, column.nbytes) for column in columns)
    assert all(start + size <= later for (start, size), (later, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("dtype", ["float16", "uint8", "bool", "int64", "float64", "complex64"])
def test_arrays_of_any_decoder_are_aligned(make: Make, dtype: str) -> None:
    ds = make([np.ones(5, dtype)] * 7, drt.codecs.Npy())
    for decode in (drt.codecs.Npy(), lambda sample: drt.codecs.Npy().loads(sample.data)):
        for batch in drtj.batches(ds, global_batch=3, decode=decode, tail="pad", num_epochs=1):
            assert batch["data"].ctypes.data % 64 == 0
            assert batch["data"].flags.carray


# Decoding


def test_payloads_of_one_size_come_as_bytes(make: Make) -> None:
    class Plain:
        name = "plain"

        def dumps(self, value: bytes) -> bytes:
            return value

    ds = make([bytes([n] * 5) for n in range(6)], Plain())
    batch = next(drtj.batches(ds, global_batch=2, shuffle=False))
    assert batch["data"].tolist() == [[0] * 5, [1] * 5]
    uneven = make([b"a", b"bb"], Plain())
    with pytest.raises(
        drtj.StaticShapeError, match=r"sample 1 of cache .* has 2 bytes, but sample 0 .* has 1"
    ):
        next(drtj.batches(uneven, global_batch=2, shuffle=False))


def test_decode_may_be_a_codec_a_function_or_give_one_array(make: Make) -> None:
    records = [{"a": np.full(2, n), "b": float(n)} for n in range(4)]
    pickled = make(records, drt.codecs.Pickle(allow="numpy"))
    for decode in (
        drt.codecs.Pickle(allow="numpy"),
        lambda sample: drt.codecs.Pickle(allow="numpy").loads(sample.data),
    ):
        batch = next(drtj.batches(pickled, global_batch=2, shuffle=False, decode=decode))
        assert batch["a"].tolist() == [[0, 0], [1, 1]]
        assert batch["b"].dtype == np.float32
    numbers = drtj.batches(pickled, global_batch=2, shuffle=False, decode=lambda sample: sample.sample_id)
    assert next(numbers)["data"].tolist() == [0, 1]


def test_another_codec_is_refused_at_once(ds: drt.CachedDataset) -> None:
    with pytest.raises(drt.CodecError, match="written with codec 'record"):
        drtj.batches(ds, global_batch=2, decode=drt.codecs.Npy())


def test_arrays_of_different_lengths_are_filled_up(make: Make) -> None:
    ds = make([np.arange(n, dtype=np.int32) for n in range(1, 5)], drt.codecs.Npy())
    padded = drtj.batches(
        ds, global_batch=4, shuffle=False, decode=drt.codecs.Npy(), pad_to={"data": (4,)}, num_epochs=1
    )
    assert next(padded)["data"].tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 2, 0], [0, 1, 2, 3]]
    small = drtj.batches(ds, global_batch=4, shuffle=False, decode=drt.codecs.Npy(), pad_to={"data": (3,)})
    with pytest.raises(drtj.StaticShapeError, match=r"'data' of sample 3 .*\(4,\), which does not fit"):
        next(small)
    without = drtj.batches(ds, global_batch=4, shuffle=False, decode=lambda s: drt.codecs.Npy().loads(s.data))
    with pytest.raises(drtj.StaticShapeError, match=r"'data' of sample 1 .*pad_to"):
        next(without)


def test_shapes_that_change_between_batches_are_refused(make: Make) -> None:
    ds = make([np.zeros(2 if n < 4 else 3, np.int32) for n in range(8)], drt.codecs.Npy())
    it = drtj.batches(ds, global_batch=4, shuffle=False, decode=drt.codecs.Npy())
    next(it)
    with pytest.raises(drtj.StaticShapeError, match="at position 4 of epoch 0"):
        next(it)


def test_keys_that_change_between_samples_are_refused(ds: drt.CachedDataset) -> None:
    it = drtj.batches(ds, global_batch=4, shuffle=False, decode=lambda s: {"ab"[s.sample_id % 2]: 1})
    with pytest.raises(drtj.StaticShapeError, match=r"returned \['b'\] for sample 1"):
        next(it)


def test_columns_of_metadata(make: Make) -> None:
    metadata = [{"label": n, "ok": n % 2 == 0, "name": f"n{n}", "score": n / 2} for n in range(4)]
    ds = make([np.int32(n) for n in range(4)], drt.codecs.Npy(), metadata)
    it = drtj.batches(
        ds,
        global_batch=4,
        shuffle=False,
        decode=drt.codecs.Npy(),
        columns=["label", "ok", "score"],
        host_columns=["name"],
    )
    batch = next(it)
    assert batch["label"].dtype == np.int32
    assert batch["score"].dtype == np.float32
    assert batch["ok"].tolist() == [True, False, True, False]
    assert batch["name"].tolist() == ["n0", "n1", "n2", "n3"]
    with pytest.raises(drt.InvalidInputError, match=r"'name' is text.*host_columns"):
        drtj.batches(ds, global_batch=4, columns=["name"])
    with pytest.raises(drt.InvalidInputError, match=r"no column 'nmae'.*label, name, ok, score"):
        drtj.batches(ds, global_batch=4, columns=["nmae"])
    with pytest.raises(drt.InvalidInputError, match=r"no column 'nmae'"):
        next(drtj.batches(ds, global_batch=4, decode=drt.codecs.Npy(), host_columns=["nmae"]))


def test_a_column_of_a_type_that_is_not_delivered_is_refused_with_the_cure(make: Make) -> None:
    import polars as pl

    ds = make([np.int32(n) for n in range(4)], drt.codecs.Npy(), [{"label": n} for n in range(4)])
    dated = ds.with_metadata(ds.metadata.with_columns(day=pl.lit(date(2024, 2, 29))))
    with pytest.raises(drt.InvalidInputError, match=r"'day' .* type Date, .*; cast it to numbers"):
        drtj.batches(dated, global_batch=4, columns=["day"])
    with pytest.raises(drt.InvalidInputError, match=r"no column 'weight'; it has label$"):
        drtj.batches(dated, global_batch=4, columns=["weight"])


def test_host_columns_are_padded_too(make: Make) -> None:
    metadata = [{"name": f"n{n}", "maybe": n if n else None} for n in range(3)]
    ds = make([np.int32(n) for n in range(3)], drt.codecs.Npy(), metadata)
    it = drtj.batches(
        ds,
        global_batch=4,
        shuffle=False,
        decode=drt.codecs.Npy(),
        host_columns=["name", "maybe"],
        tail="pad",
        num_epochs=2,
    )
    for batch in it:
        assert batch["name"].tolist() == ["n0", "n1", "n2", "n0"]
        assert batch["maybe"].tolist() == [None, 1, 2, None]
    assert it.element_spec.keys() == {"data", "mask"}


@pytest.mark.parametrize("row", [0, 17, 49])
def test_a_damaged_sample_is_an_error_or_replaced(
    damaged: Callable[[int], drt.CachedDataset], codec: Any, row: int, caplog: pytest.LogCaptureFixture
) -> None:
    fresh = damaged(row)
    arguments: dict[str, Any] = {"global_batch": 16, "decode": codec, "shuffle": False, "tail": "pad"}
    with pytest.raises(drt.CorruptionError, match=f"sample {row}"):
        list(drtj.batches(fresh, num_epochs=1, **arguments))
    arguments |= {"on_corrupt": "substitute", "columns": ["n"], "substituted_key": "stand_in"}
    it = drtj.batches(fresh, num_epochs=1, **arguments)
    assert it.element_spec["x"].shape == (16, 3)
    assert it.element_spec["stand_in"].dtype == bool
    read = list(it)
    found, stand_in = (
        np.concatenate([batch[name][batch["mask"]] for batch in read]) for name in ("y", "stand_in")
    )
    assert np.flatnonzero(found != np.arange(50)).tolist() == [row]
    assert np.flatnonzero(stand_in).tolist() == [row]
    with pytest.raises(drt.InvalidInputError, match="another substituted_key"):
        next(drtj.batches(fresh, **{**arguments, "substituted_key": "y"}))
    assert f"sample {row} of cache" in caplog.text


def test_missing_values_are_refused(make: Make) -> None:
    ds = make([0, 1, 2], drt.codecs.Json(), [{"a": 1}, {"a": None}, {"a": 3}])
    it = drtj.batches(ds, global_batch=3, shuffle=False, decode=drt.codecs.Json(), columns=["a"])
    with pytest.raises(drt.InvalidInputError, match="'a' has no value in sample 1"):
        next(it)
    host = drtj.batches(ds, global_batch=3, shuffle=False, decode=drt.codecs.Json(), host_columns=["a"])
    assert next(host)["a"].tolist() == [1, None, 3]


@pytest.mark.parametrize("value", ["text", None, np.datetime64("2026-01-01"), np.longdouble(1), object()])
def test_what_jax_does_not_take_is_refused_by_name(ds: drt.CachedDataset, value: Any) -> None:
    it = drtj.batches(ds, global_batch=2, decode=lambda s: {"odd": value})
    with pytest.raises(drt.InvalidInputError, match=r"column 'odd' is .* host_columns"):
        next(it)
    kept = next(drtj.batches(ds, global_batch=2, decode=lambda s: {"odd": value}, host_columns=["odd"]))
    assert kept["odd"].tolist() == [value] * 2


def test_names_that_clash_are_refused(ds: drt.CachedDataset, codec: Any) -> None:
    twice = drtj.batches(ds, global_batch=2, decode=lambda s: {"n": 1}, columns=["n"])
    with pytest.raises(drt.InvalidInputError, match="'n' comes from decode and from the metadata"):
        next(twice)
    masked = drtj.batches(ds, global_batch=2, decode=codec, tail="pad", mask_key="x")
    with pytest.raises(drt.InvalidInputError, match="mask_key = 'x'"):
        next(masked)


def test_an_error_of_decode_leaves_the_batch_in_place(ds: drt.CachedDataset, codec: Any) -> None:
    broken = [True]

    def decode(sample: drt.CachedSample) -> Any:
        if sample.sample_id == 17 and broken:
            raise KeyError("pixels")
        return codec.loads(bytearray(sample.data))

    it = drtj.batches(ds, global_batch=16, decode=decode, shuffle=False)
    next(it)
    state = it.get_state()
    with pytest.raises(KeyError) as caught:
        next(it)
    assert caught.value.__notes__ == [f"while decoding sample 17 of cache {ds[0].cache_id}"]
    assert it.get_state() == state
    broken.clear()
    assert next(it)["y"].tolist() == list(range(16, 32))


def test_stop_iteration_in_a_batch_codec_is_an_error(ds: drt.CachedDataset, codec: Any) -> None:
    class Codec:
        name = codec.name
        dumps = codec.dumps
        loads = codec.loads

        def loads_batch(self, batch: Any) -> Any:
            raise StopIteration

    with pytest.raises(RuntimeError, match="a batch of 16 samples, the first being sample 0"):
        next(drtj.batches(ds, global_batch=16, decode=Codec(), shuffle=False))


# Dtypes

LIMITS = [
    (np.int64, -(2**31), 2**31 - 1, 2**31),
    (np.int64, 0, 1, -(2**31) - 1),
    (np.uint64, 0, 2**32 - 1, 2**32),
    (np.float64, -3.4e38, np.inf, 3.5e38),
    (np.float64, np.nan, -np.inf, -1e300),
    (np.complex128, 1 + 1j, complex(0, np.inf), complex(0, 1e300)),
]


@pytest.mark.parametrize(("dtype", "low", "high", "beyond"), LIMITS)
def test_64_bits_are_halved_where_they_fit(make: Make, dtype: Any, low: Any, high: Any, beyond: Any) -> None:
    codec = drt.codecs.Npy()
    fits = make([np.array([low, high], dtype)] * 2, codec)
    column = next(drtj.batches(fits, global_batch=2, decode=codec))["data"]
    assert column.dtype == jnp.asarray(np.zeros(1, dtype)).dtype
    np.testing.assert_array_equal(column[0], np.array([low, high], dtype).astype(column.dtype))
    kept = next(drtj.batches(fits, global_batch=2, decode=codec, dtype_policy="keep"))["data"]
    assert kept.dtype == dtype

    large = make([np.array([low, high], dtype), np.array([low, beyond], dtype)], codec)
    it = drtj.batches(large, global_batch=2, decode=codec, shuffle=False)
    with pytest.raises(drtj.NarrowingError, match=r"column 'data' has .* in sample 1 of cache") as caught:
        next(it)
    assert isinstance(caught.value, OverflowError)


def test_dtypes_of_jax_and_foreign_byte_orders(ds: drt.CachedDataset) -> None:
    def decode(sample: drt.CachedSample) -> Any:
        return {"b": np.ones(3, ml_dtypes.bfloat16), "big": np.arange(3, dtype=">i4")}

    batch = next(drtj.batches(ds, global_batch=2, decode=decode))
    assert batch["b"].dtype == jnp.bfloat16
    assert batch["big"].dtype.isnative
    assert batch["big"].tolist() == [[0, 1, 2]] * 2


# Weights, samplers and refusals


def test_weights_are_those_of_the_weighted_sampler(ds: drt.CachedDataset, codec: Any) -> None:
    weights = np.where(np.arange(50) < 5, 100.0, 1.0)
    it = drtj.batches(ds, global_batch=25, decode=codec, weights=weights, seed=3, num_epochs=1)
    drawn = [row for batch in it for row in batch["y"].tolist()]
    assert drawn == drt.Weighted(seed=3).indices(ds.with_weights(weights)).tolist()
    column = ds.with_weights(weights)
    again = drtj.batches(column, global_batch=25, decode=codec, weights="weight", seed=3, num_epochs=1)
    assert [row for batch in again for row in batch["y"].tolist()] == drawn


def test_a_folder_is_a_source(ds: drt.CachedDataset, codec: Any) -> None:
    it = drtj.batches(ds.caches[0].path, global_batch=2, decode=codec, shuffle=False)
    assert next(it)["y"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"global_batch": 0}, "global_batch = 0 is out of range; give a whole number from 1"),
        ({"global_batch": True}, "global_batch = True"),
        ({"global_batch": 51}, "an epoch of 50 samples has no global batch of 51"),
        ({"num_epochs": 0}, "num_epochs = 0"),
        ({"tail": "short"}, "tail = 'short' is not known; use 'drop' or 'pad'"),
        ({"dtype_policy": "x64"}, "use 'jax' or 'keep'"),
        ({"decode": "npy"}, "decode = 'npy' is neither a codec nor a function"),
        ({"columns": "n"}, "columns = 'n': give a list of names"),
        ({"process_index": 1}, "give both, or neither"),
        ({"process_index": 2, "process_count": 2}, "give one of 0 to 1"),
        ({"sampler": drt.Shuffle(1), "seed": 1}, "sampler= says everything"),
        ({"weights": "weight", "shuffle": False}, "give one of the two"),
        ({"prefetch": -1}, "prefetch"),
        ({"on_corrupt": "skip"}, "on_corrupt"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_at_once(
    ds: drt.CachedDataset, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        drtj.batches(ds, **{"global_batch": 8, **arguments})


def test_processes_that_cannot_share_a_batch_are_refused(ds: drt.CachedDataset) -> None:
    with pytest.raises(drtj.ShardingError, match=r"global_batch = 10 .* 4 processes; .* such as 12"):
        drtj.batches(ds, global_batch=10, process_index=0, process_count=4)


def test_jax_is_asked_for_the_processes_at_the_first_step(
    ds: drt.CachedDataset, codec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def process_count() -> int:
        asked.append(1)
        return 2

    monkeypatch.setattr(jax, "process_count", process_count)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    it = drtj.batches(ds, global_batch=8, decode=codec, shuffle=False)
    assert it.steps_per_epoch == 6
    assert not asked
    assert next(it)["y"].tolist() == [4, 5, 6, 7]
    odd = drtj.batches(ds, global_batch=7, decode=codec)
    with pytest.raises(drtj.ShardingError):
        next(odd)
    monkeypatch.delitem(sys.modules, "jax")
    alone = drtj.batches(ds, global_batch=8, decode=codec, shuffle=False)
    assert len(next(alone)["y"]) == 8


# State


def test_a_state_is_json_and_may_be_set_at_any_time(ds: drt.CachedDataset, codec: Any) -> None:
    it = drtj.batches(ds, global_batch=16, decode=codec, tail="pad", num_epochs=2)
    states, batches = [json.dumps(it.get_state())], []
    for batch in it:
        batches.append(batch["y"].tolist())
        states.append(json.dumps(it.get_state()))
    for step in (3, 0, 8, 5, 1):
        it.set_state(json.loads(states[step]))
        assert [batch["y"].tolist() for batch in it] == batches[step:]


def test_a_refused_state_changes_nothing(ds: drt.CachedDataset, codec: Any) -> None:
    it = drtj.batches(ds, global_batch=16, decode=codec, shuffle=False)
    next(it)
    with pytest.raises(drt.StateError):
        it.set_state({**it.get_state(), "position": -1})
    assert next(it)["y"].tolist() == list(range(16, 32))


def test_a_state_of_a_smaller_batch_in_the_last_samples(ds: drt.CachedDataset, codec: Any) -> None:
    small = drtj.batches(ds, global_batch=5, decode=codec, shuffle=False)
    for _ in range(9):
        next(small)
    dropped = drtj.batches(ds, global_batch=16, decode=codec, shuffle=False)
    dropped.set_state(small.get_state())
    assert next(dropped)["y"].tolist() == list(range(16))
    padded = drtj.batches(ds, global_batch=16, decode=codec, shuffle=False, tail="pad")
    padded.set_state(small.get_state())
    assert next(padded)["y"][:5].tolist() == [45, 46, 47, 48, 49]


def test_a_closed_iterator_says_so(ds: drt.CachedDataset, codec: Any) -> None:
    with drtj.batches(ds, global_batch=16, decode=codec) as it:
        next(it)
    it.close()
    with pytest.raises(ValueError, match="closed"):
        next(it)


def test_a_seed_needs_a_function_that_takes_it(ds: drt.CachedDataset, codec: Any) -> None:
    for make in (drtj.batches, lambda ds, **given: drtj.GrainBatchSource(ds, num_epochs=1, **given)):
        for decode in (None, codec):
            with pytest.raises(drt.InvalidInputError, match="seeded=True needs a decode"):
                make(ds, global_batch=4, decode=decode, seeded=True)
        with pytest.raises(drt.InvalidInputError, match="seeded = 1 is an int"):
            make(ds, global_batch=4, decode=lambda sample: 1, seeded=1)
