"""Bad input, for every way into the package: a refusal of one line that names the culprit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import datasetrt as drt
import datasetrt_jax as drtj
from tests.whole_numbers import assert_taken_or_refused

DEVICE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


def batches(ds: drt.CachedDataset, **arguments: Any) -> Any:
    return drtj.batches(ds, **{"global_batch": 8, "shuffle": False, **arguments})


def steps(ds: drt.CachedDataset, **arguments: Any) -> Any:
    arguments = {"global_batch": 8, "num_epochs": 1, "shuffle": False, **arguments}
    return drtj.GrainBatchSource(ds, **arguments)


#: The first batch of each way.
WAYS: dict[str, Callable[..., Any]] = {
    "batches": lambda ds, **arguments: next(batches(ds, **arguments)),
    "device_batches": lambda ds, **arguments: next(drtj.device_batches(batches(ds, **arguments), DEVICE)),
    "grain": lambda ds, **arguments: steps(ds, **arguments)[0],
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request: pytest.FixtureRequest) -> Any:
    return request.param


class NamedInItsInstances:
    """A codec whose class has no name, so that the class itself is only something to call."""

    def __init__(self, name: Any = "mine") -> None:
        self.name = name

    def dumps(self, obj: Any, /) -> bytes:
        return b""

    def loads(self, buffer: Any, /) -> Any:
        return 0


@pytest.mark.parametrize("kind", [drt.codecs.Json, drt.codecs.Record, NamedInItsInstances])
def test_the_class_of_a_codec_is_refused(ds: drt.CachedDataset, kind: type) -> None:
    for data in (ds, drt.testing.tiny_dataset()):
        for make in (batches, steps, drtj.GrainSource):
            with pytest.raises(drt.InvalidInputError, match=rf"{kind.__name__}'> is the class of a codec"):
                make(data, decode=kind)


@pytest.mark.parametrize("how", [3, "npy", [1], {}])
def test_what_cannot_be_called_is_refused(ds: drt.CachedDataset, how: Any) -> None:
    for make in (batches, steps, drtj.GrainSource):
        with pytest.raises(drt.InvalidInputError, match="neither a codec nor a function"):
            make(ds, decode=how)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": 3}, "columns = 3: give a list of names"),
        ({"columns": None}, "columns = None: give a list of names"),
        ({"host_columns": "n"}, "host_columns = 'n': give a list of names"),
        ({"mask_key": 3}, "mask_key = 3 is an int; give the name"),
        ({"shuffle": None}, "shuffle = None is a NoneType; give True or False"),
        ({"shuffle": 0}, "shuffle = 0 is an int; give True or False"),
        ({"pad_to": 3}, "pad_to = 3: give a dict"),
        ({"pad_to": {"x": 3}}, r"pad_to\['x'\] = 3: give the shape"),
        ({"pad_to": {"x": ("a",)}}, r"pad_to\['x'\] = \('a',\): give the shape"),
        ({"pad_to": {"x": (-3,)}}, r"pad_to\['x'\] = \(-3,\): give the shape"),
        ({"process_index": "0", "process_count": 2}, "process_index = '0' is a str"),
        ({"process_index": 0, "process_count": 2.0}, "process_count = 2.0 is a float"),
    ],
)
def test_arguments_are_checked(
    ds: drt.CachedDataset, codec: Any, options: dict[str, Any], message: str
) -> None:
    for make in (batches, steps):
        with pytest.raises(drt.InvalidInputError, match=message):
            make(ds, decode=codec, **options)


def test_the_name_of_substitutes_is_a_name(ds: drt.CachedDataset, codec: Any) -> None:
    with pytest.raises(drt.InvalidInputError, match="substituted_key = 3 is an int"):
        batches(ds, decode=codec, substituted_key=3)


def test_a_shape_of_a_column_that_is_not_there_is_refused(
    ds: drt.CachedDataset, codec: Any, way: Any
) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"pad_to names 'z', .* it returns \['x', 'y'\]"):
        way(ds, decode=codec, pad_to={"z": (3,)})


@pytest.mark.parametrize("index", ["3", 1.5, None, True, slice(0, 2)])
def test_an_index_is_a_whole_number(ds: drt.CachedDataset, codec: Any, index: Any) -> None:
    source = steps(ds, decode=codec)
    for ask in (drtj.GrainSource(ds, decode=codec).__getitem__, source.__getitem__, source.state_at):
        with pytest.raises(drt.InvalidInputError, match="give a whole number"):
            ask(index)


# What a codec makes of a whole batch


class Whole:
    """A codec that gives whatever it is told for a batch."""

    def __init__(self, name: str, give: Callable[[int], Any]) -> None:
        self.name = name
        self.give = give

    def dumps(self, obj: Any, /) -> bytes:
        return b""

    def loads(self, buffer: Any, /) -> Any:
        return 0

    def loads_batch(self, batch: Any, /) -> Any:
        return self.give(len(batch))


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda rows: {"x": np.zeros(3)}, "column 'x' has 3 rows for"),
        (lambda rows: {"x": np.float32(1)}, "column 'x' is a float32 for"),
        (lambda rows: {"x": object()}, "column 'x' is an object for"),
        (lambda rows: {"x": {"y": np.zeros(rows)}}, "column 'x' is a dict for"),
        (lambda rows: {"x": ["text"] * rows}, "column 'x' is <U4, which JAX does not take"),
        (
            lambda rows: {"x": [[1], [1, 2]] * rows},
            r"column 'x' is a list that is no array \(.*inhomogeneous",
        ),
        (lambda rows: {"x": np.ma.masked_array(np.zeros(rows), [1] * rows)}, "column 'x' has missing values"),
        (lambda rows: {3: np.zeros(rows)}, "key 3, an int; name columns by str"),
        (lambda rows: None, "column 'data' is a NoneType for"),
    ],
)
def test_what_is_no_array_of_rows_names_the_column(
    ds: drt.CachedDataset, way: Any, give: Callable[[int], Any], message: str
) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        way(ds, decode=Whole(str(ds.codec), give))


def twice(rows: int) -> dict[str, Any]:
    """One array under two names, and a part of it."""
    made = np.zeros((rows, 2), np.float32)
    return {"a": made, "b": made, "c": made[:, 1]}


def frozen(rows: int) -> dict[str, Any]:
    """Memory that nobody may write to."""
    made = np.zeros((rows, 2), np.float32)
    made.flags.writeable = False
    return {"a": made, "b": np.broadcast_to(np.float32(0), (rows,)), "c": jnp.zeros(rows)}


@pytest.mark.parametrize("give", [twice, frozen])
@pytest.mark.parametrize("host", [(), ("a", "b", "c")])
@pytest.mark.parametrize("name", ["batches", "grain"])
def test_columns_are_writable_and_share_no_memory(
    ds: drt.CachedDataset, name: str, give: Callable[[int], Any], host: tuple[str, ...]
) -> None:
    batch = WAYS[name](ds, decode=Whole(str(ds.codec), give), host_columns=host)
    for column in batch.values():
        column += 1
    for key, column in batch.items():
        assert np.unique(column).tolist() == [1], key


def test_lists_of_a_codec_are_columns(ds: drt.CachedDataset, way: Any) -> None:
    codec = Whole(str(ds.codec), lambda rows: {"x": list(range(rows)), "names": ["text"] * rows})
    batch = way(ds, decode=codec, host_columns=["names"])
    assert np.asarray(batch["x"]).tolist() == list(range(8))
    assert batch["names"].tolist() == ["text"] * 8


# What decode makes of a sample


@pytest.mark.parametrize(
    ("give", "message"),
    [
        ({"x": np.ma.masked_array([1, 2], [True, False])}, "column 'x' has missing values"),
        ({"x": [[1], [1, 2]]}, r"column 'x' is a list that is no array"),
        ({"x": object()}, "column 'x' is object, which JAX does not take"),
        ({"x": 2**70}, "column 'x' is object, which JAX does not take"),
        ({3: 1}, "key 3, an int; name columns by str"),
    ],
)
def test_what_is_no_array_names_the_column(ds: drt.CachedDataset, way: Any, give: Any, message: str) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        way(ds, decode=lambda sample: give)


def test_keys_of_any_type_are_told_apart(ds: drt.CachedDataset, way: Any) -> None:
    def mixed(sample: drt.CachedSample) -> dict[Any, int]:
        return {"x": 1, 3: 4} if sample.sample_id % 2 else {"x": 1}

    with pytest.raises(drtj.StaticShapeError, match=r"returned \['x', 3\] for sample 1"):
        way(ds, decode=mixed)


# States


@pytest.mark.parametrize("state", [None, [], "x", 3, {}, {"epoch": 1}, {1: 2}])
def test_what_is_no_state_changes_nothing(ds: drt.CachedDataset, codec: Any, state: Any) -> None:
    for make in (batches, lambda ds, **how: drtj.device_batches(batches(ds, **how), DEVICE)):
        it = make(ds, decode=codec)
        next(it)
        before = it.get_state()
        with pytest.raises(drt.StateError, match="the state"):
            it.set_state(state)
        assert it.get_state() == before
        assert next(it)["y"].tolist() == list(range(8, 16)), "the run goes on"
    if state is not None:  # None is the beginning
        with pytest.raises(drt.StateError, match="the state"):
            steps(ds, decode=codec, start=state)


# Damage


def test_a_damaged_sample_has_no_substitute_where_rows_are_asked_for(
    ds: drt.CachedDataset, codec: Any, damaged: Callable[[int], drt.CachedDataset]
) -> None:
    data = damaged(17)
    samples, whole = drtj.GrainSource(data, decode=codec), steps(data, decode=codec)
    assert samples[16]["y"] == 16
    assert whole[1]["y"].tolist() == list(range(8, 16))
    for ask, index in ((samples.__getitem__, 17), (whole.__getitem__, 2)):
        with pytest.raises(drt.CorruptionError, match="sample 17"):
            ask(index)


def test_a_tuple_from_decode_is_not_made_one_array() -> None:
    ds = drt.testing.tiny_dataset()
    for pair in ((np.zeros(3), np.ones(3)), (np.zeros(3), 1)):
        with pytest.raises(drt.InvalidInputError, match="returned a tuple of 2 for sample 0"):
            next(iter(drtj.batches(ds, global_batch=4, shuffle=False, decode=lambda _, pair=pair: pair)))


USES: dict[str, tuple[Callable[[drt.CachedDataset, Any], object], str]] = {
    "global_batch": (lambda ds, v: drtj.batches(ds, global_batch=v), "2"),
    "seed": (lambda ds, v: drtj.batches(ds, global_batch=2, seed=v), "0 2 2**62 2**63"),
    "num_epochs": (lambda ds, v: next(drtj.batches(ds, global_batch=2, num_epochs=v)), "2 2**62 None"),
    "process_index": (
        lambda ds, v: drtj.batches(ds, global_batch=2, process_index=v, process_count=2),
        "0",
    ),
    "process_count": (
        lambda ds, v: drtj.batches(ds, global_batch=2, process_index=0, process_count=v),
        "2",
    ),
    "prefetch": (lambda ds, v: next(drtj.batches(ds, global_batch=2, prefetch=v)), "0 2 2**62"),
    "threads": (lambda ds, v: drtj.batches(ds, global_batch=2, threads=v), "2 None"),
    "pad_to": (lambda ds, v: drtj.batches(ds, global_batch=2, pad_to={"data": (v,)}), "0 2"),
    "index": (lambda ds, v: drtj.GrainSource(ds)[v], "-1 0 2"),
    "step": (lambda ds, v: drtj.GrainBatchSource(ds, global_batch=2, num_epochs=2)[v], "0 2"),
    "epochs of a source": (
        lambda ds, v: len(drtj.GrainBatchSource(ds, global_batch=2, num_epochs=v)),
        "2",
    ),
    "state_at": (lambda ds, v: drtj.GrainBatchSource(ds, global_batch=2, num_epochs=2).state_at(v), "0 2"),
}


@pytest.mark.parametrize("use", USES)
def test_a_whole_number_is_taken_or_refused(use: str) -> None:
    ds = drt.testing.tiny_dataset()
    function, taken = USES[use]
    assert_taken_or_refused(lambda number: function(ds, number), taken)


def test_weights_true_is_the_weight_column() -> None:
    ds = drt.testing.tiny_dataset().with_weights([1e-9] * 9 + [1.0])
    it = drtj.batches(ds, global_batch=4, weights=True, columns=["label"], seed=3)
    assert next(it)["label"].tolist() == [9] * 4
    expected = drt.Weighted(3).indices(ds, stop=4).tolist()
    assert expected == [9] * 4
    with pytest.raises(drt.InvalidInputError, match="weights are bool"):
        drtj.batches(ds, global_batch=4, weights=False)
    with pytest.raises(drt.InvalidInputError, match="give one of the two"):
        drtj.batches(ds, global_batch=4, weights=True, shuffle=False)


def test_a_closed_iterator_raises_an_error_of_the_library() -> None:
    it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4)
    it.close()
    with pytest.raises(drtj.ClosedError, match="make another one") as refused:
        next(it)
    assert isinstance(refused.value, drt.DatasetRTError)
    assert isinstance(refused.value, ValueError)
    assert refused.value.kind == "closed"
