"""Bad input: refused before anything is read where that can be, else an error with sample and column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import datasetrt as drt
import datasetrt_tf as drtf
from tests.adapters.tf.conftest import CODEC
from tests.whole_numbers import assert_taken_or_refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size = 0"),
        ({"batch_size": None}, "batch_size = None"),
        ({"batch_size": "10"}, "batch_size = '10'"),
        ({"num_epochs": 0}, "num_epochs = 0"),
        ({"start": -1}, "start = -1"),
        ({"tail": "keep"}, "tail = 'keep' is not known; use 'short' or 'drop' or 'pad'"),
        ({"batch_size": 101, "tail": "drop"}, "an epoch of 100 samples has no batch of 101"),
        ({"shard": (0, 2)}, "shard = .* is a tuple; give a datasetrt.Shard"),
        ({"shard": drt.Shard(0, 2), "shuffle": False}, "does not say what to do when the ranks"),
        ({"shuffle": 1}, "shuffle = 1 is an int"),
        ({"seed": -1}, "seed = -1"),
        ({"sampler": drt.Shuffle(1), "seed": 2}, "says it all; leave out shuffle, seed and weights"),
        ({"sampler": "shuffle"}, "sampler = 'shuffle' is a str"),
        ({"weights": True, "shuffle": False}, "weights are for random draws"),
        ({"columns": "x"}, "columns = 'x' is a str; give a list of names"),
        ({"columns": ["z"]}, "there is no column 'z'; there are 'x', 'y', 'third', 'name', 'sample_id'"),
        ({"columns": ["x", "x"]}, "names a column twice"),
        ({"columns": [1]}, "columns has 1, an int"),
        ({"columns": []}, "there is no column"),
        ({"ragged": ["z"]}, "ragged names 'z', which decode does not return"),
        ({"decode": 3}, "decode = 3 is neither a codec nor a function"),
        ({"decode": [CODEC]}, "is neither a codec nor a function"),
        ({"decode": drt.codecs.Record}, "Record'> is the class of a codec; give an instance"),
        ({"decode": drt.codecs.Json}, "Json'> is the class of a codec; give an instance"),
        ({"seeded": True}, "takes none"),
        ({"columns": 3}, "columns = 3 is an int; give a list of names"),
        ({"mask_key": 3}, "mask_key = 3 is an int; give the name"),
        ({"mask_key": None}, "mask_key = None is a NoneType; give the name"),
        ({"substituted_key": 0}, "substituted_key = 0 is an int; give the name"),
        ({"fill": 3}, "fill = 3 is an int; give a dict"),
        ({"fill": {"z": 1}}, r"fill names \['z'\], which are no metadata columns"),
        ({"fill": {"third": 1}}, r"fill names \['third'\], which are no metadata columns"),
        ({"num_parallel_calls": 0}, "num_parallel_calls = 0 is out of range"),
        ({"num_parallel_calls": "2"}, "num_parallel_calls = '2' is a str"),
        ({"prefetch": -5}, "prefetch = -5 is out of range"),
        ({"prefetch": 1.5}, "prefetch = 1.5 is a float"),
        ({"mask_key": "x", "tail": "pad"}, "mask_key = 'x' is the name of a column"),
        ({"signature": []}, "signature is a list"),
        ({"signature": {"z": None}}, "signature names 'z', which is no column"),
        ({"signature": {"x": 3}}, r"signature\['x'\] is an int; give a tf.TensorSpec"),
        ({"signature": {"x": tf.TensorSpec((), tf.float32)}}, r"signature\['x'\] has the shape \(\)"),
        ({"signature": {"x": tf.TensorSpec((5, 8), tf.float32)}}, "has batches of 5 samples"),
        (
            {"signature": {"x": tf.TensorSpec((None, 8), tf.string)}},
            "column 'x' has numbers of dtype float32",
        ),
        ({"as_tuple": ("x", "z")}, "targets names 'z', which is no column; there are 'x', 'y'"),
        ({"as_tuple": (["q"], "y")}, "inputs names 'q'"),
        ({"as_tuple": 3}, "as_tuple = 3: give two"),
        ({"as_tuple": ("x",)}, r"as_tuple = \('x',\): give two"),
        ({"as_tuple": "xy"}, "as_tuple = 'xy': give two"),
        ({"as_tuple": (3, "y")}, "inputs = 3 is an int; give the name"),
        ({"as_tuple": ("x", 3)}, "targets = 3 is an int; give the name"),
        ({"as_tuple": ([], "y")}, r"inputs = \[\] names no column"),
    ],
)
def test_arguments_are_refused_before_anything_is_read(
    records: drt.CachedDataset, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        drtf.dataset(records, **{"batch_size": 10, "decode": CODEC, **options})


def test_an_argument_that_is_not_known_is_no_secret(records: drt.CachedDataset) -> None:
    with pytest.raises(TypeError, match=r"dataset\(\) got an unexpected keyword argument 'shufle'"):
        drtf.dataset(records, 10, shufle=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"raw\(\) got an unexpected keyword argument 'decode'"):
        drtf.raw(records, 10, decode=CODEC)  # type: ignore[call-arg]


def test_a_tuple_has_no_place_for_more_columns(records: drt.CachedDataset) -> None:
    def pair(sample: drt.CachedSample) -> tuple[int, int]:
        return sample.sample_id, 0

    for options in ({"tail": "pad"}, {"shard": drt.Shard(0, 2)}, {"columns": ["third"]}):
        with pytest.raises(drt.InvalidInputError, match="decode that returns a dict"):
            drtf.dataset(records, 10, decode=pair, **options)  # type: ignore[arg-type]
    with pytest.raises(drt.InvalidInputError, match="let decode return a dict"):
        drtf.dataset(records, 10, decode=pair, as_tuple=("0", "1"))


def test_ragged_and_one_shape_are_not_both_to_be_had(records: drt.CachedDataset) -> None:
    def tokens(sample: drt.CachedSample) -> dict[str, Any]:
        return {"tokens": [1] * sample.sample_id}

    with pytest.raises(drt.InvalidInputError, match="ragged rows have any"):
        drtf.dataset(records, 10, decode=tokens, ragged=["tokens"], tail="pad")
    signature = {"tokens": tf.RaggedTensorSpec((None, None), tf.int64)}
    with pytest.raises(drt.InvalidInputError, match="ragged rows have any"):
        drtf.dataset(records, 10, decode=tokens, signature=signature, tail="pad")


def test_another_codec_is_refused_with_both_names(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.CodecError, match=r"record.*cannot be decoded with 'npy'"):
        drtf.dataset(records, 10, decode=drt.codecs.Npy())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": "0" * 64}, "belongs to a dataset with fingerprint '000"),
        ({"sampler": {"kind": "shuffle", "seed": 8}}, r"seed.* differs"),
        ({"position": 100}, "position is 100, outside of 0 to 99"),
        ({"position": "3"}, "position is '3', a str"),
        ({"extra": 1}, "has the unknown 'extra'"),
        ({"version": 2}, "has version 2"),
    ],
)
def test_a_wrong_state_is_refused(records: drt.CachedDataset, change: dict[str, Any], message: str) -> None:
    state = {**drtf.cursor(records, 10, seed=7, global_step=3), **change}
    with pytest.raises(drt.StateError, match=message):
        drtf.dataset(records, 10, decode=CODEC, seed=7, start=state)
    with pytest.raises(drt.StateError, match=message):
        drtf.cursor(records, 10, seed=7, global_step=1, start=state)


# While batches are read


def _failure(records: drt.CachedDataset, decode: Any, **options: Any) -> str:
    with pytest.raises(tf.errors.OpError) as caught:
        list(drtf.dataset(records, 10, decode=decode, **options))
    return str(caught.value)


@pytest.mark.parametrize("calls", [None, 4])
def test_what_decode_raises_names_the_sample(records: drt.CachedDataset, calls: int | None) -> None:
    def decode(sample: drt.CachedSample) -> dict[str, Any]:
        if sample.sample_id == 17:
            raise KeyError("the pixels are gone")
        return {"y": 0}

    text = _failure(records, decode, num_parallel_calls=calls)
    assert "KeyError: 'the pixels are gone'" in text
    assert "while transforming sample 17 of cache" in text


@pytest.mark.parametrize("calls", [None, 4])
def test_stop_iteration_does_not_end_the_epoch(records: drt.CachedDataset, calls: int | None) -> None:
    def decode(sample: drt.CachedSample) -> dict[str, Any]:
        if sample.sample_id == 17:
            raise StopIteration
        return {"y": 0}

    text = _failure(records, decode, num_parallel_calls=calls)
    assert "StopIteration was raised while transforming sample 17" in text


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ("text", "column 'y' of sample 17: dtype <U4, where int64 is wanted"),
        (None, "column 'y' of sample 17: None, where a tensor is wanted"),
        (object(), "column 'y' of sample 17: an object of type object"),
        ([1, 2], "column 'y' of sample 17: shape (2,), but () is expected"),
        (1.5, "column 'y' of sample 17: dtype float64, where int64 is wanted"),
    ],
)
def test_a_value_that_is_no_tensor_names_column_and_sample(
    records: drt.CachedDataset, odd: Any, message: str
) -> None:
    text = _failure(records, lambda sample: {"y": odd if sample.sample_id == 17 else 3})
    assert message in text


def test_other_columns_and_other_forms_are_named(records: drt.CachedDataset) -> None:
    text = _failure(records, lambda sample: {"y" if sample.sample_id == 17 else "z": 1, "w": 1})
    assert "column 'z' of sample 17: decode does not return it; it returns ['y', 'w']" in text
    text = _failure(records, lambda sample: (1,) if sample.sample_id == 17 else {"z": 1})
    assert "column 'z' of sample 17: decode returns a tuple, and a mapping for the first row" in text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "column 'o' of sample 0: an object of type object, where a tensor is wanted"),
        ({"nested": 1}, "column 'o' of sample 0: an object of type dict"),
        (None, "column 'o' of sample 0: None"),
        (np.datetime64("2020-01-01"), "column 'o' of sample 0: dtype datetime64"),
        (np.longdouble(1), "column 'o': dtype (float128|longdouble), which TensorFlow does not have"),
    ],
)
def test_the_first_row_shows_what_no_tensor_can_be(
    records: drt.CachedDataset, value: Any, message: str
) -> None:
    with pytest.raises(drt.CodecError, match=message):
        drtf.dataset(records, 10, decode=lambda sample: {"o": value})


def test_a_codec_that_gives_no_rows_is_named(records: drt.CachedDataset) -> None:
    class Odd:
        name = CODEC.name

        def dumps(self, obj: Any) -> bytes:
            raise AssertionError("nothing is written here")

        def loads(self, buffer: Any) -> Any:
            raise AssertionError("batches are decoded at once")

        def loads_batch(self, batch: Any) -> Any:
            return {"n": np.zeros(3), "m": 1}

    with pytest.raises(drt.CodecError, match="column 'm': decode gives an int for a batch"):
        drtf.dataset(records, 10, decode=Odd())


class NamedInItsInstances:
    """A codec whose class has no name, so that the class itself is only something to call."""

    def __init__(self, name: Any = "mine") -> None:
        self.name = name

    def dumps(self, obj: Any, /) -> bytes:
        return b""

    def loads(self, buffer: Any, /) -> Any:
        return 0


@pytest.mark.parametrize("kind", [drt.codecs.Json, NamedInItsInstances])
def test_the_class_of_a_codec_is_refused_where_no_codec_is_known(kind: type) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    for make in (drtf.dataset, lambda ds, batch, **how: drtf.distributed(strategy, ds, batch, **how)):
        with pytest.raises(drt.InvalidInputError, match=rf"decode = <.*{kind.__name__}'> is the class"):
            make(drt.testing.tiny_dataset(), 4, decode=kind)


@pytest.mark.parametrize("start", [None, [], "x", 3.5, b"", {}, {"epoch": 1}, {1: 2}, True])
def test_what_is_no_state_is_refused(records: drt.CachedDataset, start: Any) -> None:
    with pytest.raises(
        (drt.StateError, drt.InvalidInputError), match=r"the state has (no )?version|start = "
    ):
        drtf.dataset(records, 10, decode=CODEC, start=start)


def test_text_that_is_no_utf8_names_the_column(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.CodecError, match=r"column 'name'.*text that is no UTF-8 \(surrogates"):
        drtf.dataset(records, 10, decode=lambda sample: {"name": "\ud800"})


class Whole:
    """A codec that gives whatever it is told for a batch."""

    name = CODEC.name

    def __init__(self, give: Callable[[int], Any]) -> None:
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
        (lambda rows: {"x": np.zeros(1)}, "column 'x': decode gives shape .* for a batch of 10 samples"),
        (lambda rows: {"x": np.float32(1)}, "column 'x': decode gives a float32 for a batch"),
        (lambda rows: {"x": [object()] * rows}, "column 'x'.* an object of type object"),
        (lambda rows: {"x": {"y": np.zeros(rows)}}, "column 'x': decode gives a dict for a batch"),
        (lambda rows: {"x": np.ma.masked_array(np.zeros(rows), [1] * rows)}, "column 'x'.* a masked array"),
        (lambda rows: {"x": [[1], [1, 2]] * rows if rows > 1 else [[1]]}, "column 'x'.* is no array"),
        (lambda rows: None, "decode gives a NoneType for a batch"),
    ],
)
def test_what_is_no_array_of_rows_names_the_column(
    records: drt.CachedDataset, give: Callable[[int], Any], message: str
) -> None:
    with pytest.raises((drt.CodecError, tf.errors.OpError), match=message):
        list(drtf.dataset(records, 10, decode=Whole(give)))


def test_what_a_codec_keeps_read_only_is_no_trouble(records: drt.CachedDataset) -> None:
    def frozen(rows: int) -> dict[str, Any]:
        made = np.ones((rows, 2), np.float32)
        made.flags.writeable = False
        return {"a": made, "b": made, "c": np.broadcast_to(np.float32(1), (rows,))}

    for batch in drtf.dataset(records, 10, decode=Whole(frozen)):
        assert [float(tf.reduce_sum(batch[name])) for name in "abc"] == [20, 20, 10]


USES: dict[str, tuple[Callable[[drt.CachedDataset, Any], object], str]] = {
    "batch_size": (lambda ds, v: drtf.dataset(ds, v), "2"),
    "seed": (lambda ds, v: drtf.dataset(ds, 2, seed=v), "0 2 2**62 2**63"),
    "num_epochs": (lambda ds, v: drtf.dataset(ds, 2, num_epochs=v), "2 None"),
    "start": (lambda ds, v: drtf.dataset(ds, 2, start=v, num_epochs=None), "0 2 2**62"),
    "num_parallel_calls": (lambda ds, v: drtf.dataset(ds, 2, num_parallel_calls=v), "-1 2 None"),
    "prefetch": (lambda ds, v: drtf.dataset(ds, 2, prefetch=v), "-1 0 2 None"),
    "batch_size of raw": (lambda ds, v: drtf.raw(ds, v), "2"),
    "global_step": (lambda ds, v: drtf.cursor(ds, 2, global_step=v), "0 2 2**62"),
}


@pytest.mark.parametrize("use", USES)
def test_a_whole_number_is_taken_or_refused(use: str) -> None:
    ds = drt.testing.tiny_dataset()
    function, taken = USES[use]
    assert_taken_or_refused(lambda number: function(ds, number), taken)
