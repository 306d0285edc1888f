"""``fit_args``: Keras trains on the batches of the plan, in their order, on whatever backend it has.

This file is run twice: with TensorFlow, and where there is Keras with JAX and no TensorFlow.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import keras
import numpy as np
import pytest

import datasetrt as drt
import datasetrt_tf as drtf
from tests.adapters.tf.conftest import CODEC

BACKEND = keras.config.backend()
BATCH = 30
SEED = 5


def _model() -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    # A rate that makes later weights depend on the order of all batches before.
    model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
    return model


def _decode(sample: drt.CachedSample) -> dict[str, Any]:
    record = CODEC.loads(bytearray(sample.data))
    return {"x": record["x"] / 100, "y": np.float32(record["y"] / 100)}


def _args(records: drt.CachedDataset, **options: Any) -> Any:
    given: dict[str, Any] = {"decode": _decode, "seed": SEED, "inputs": "x", "targets": "y", **options}
    return drtf.fit_args(records, BATCH, **given)


def _by_hand(model: Any, records: drt.CachedDataset, epochs: int, **options: Any) -> None:
    """The same training, batch by batch from the core's loader."""
    loader = records.loader(batch_size=BATCH, sampler=drt.Shuffle(SEED), transform=_decode, **options)
    for _ in range(epochs):
        for batch in loader:
            model.train_on_batch(np.stack([r["x"] for r in batch]), np.stack([r["y"] for r in batch]))


def _weights(model: Any) -> list[np.ndarray]:
    # Torch wants to be asked twice; what Keras itself offers for this warns with JAX.
    values = [variable.value for variable in model.weights]
    return [np.asarray(value.detach() if BACKEND == "torch" else value) for value in values]


def _agree(first: Any, second: Any) -> None:
    for ours, theirs in zip(_weights(first), _weights(second), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("tail", ["short", "drop"])
def test_fit_trains_on_the_batches_of_the_core_in_order(records: drt.CachedDataset, tail: Any) -> None:
    model, by_hand, other = _model(), _model(), _model()
    args = _args(records, epochs=3, tail=tail)
    assert (args["steps_per_epoch"], args["epochs"]) == (3 if tail == "drop" else 4, 3)
    history = model.fit(**args, verbose=0)
    assert len(history.history["loss"]) == 3
    _by_hand(by_hand, records, 3, drop_last=tail == "drop")
    _agree(model, by_hand)
    # The comparison would notice one epoch's order in place of another's.
    _by_hand(other, records[::-1], 3, drop_last=tail == "drop")
    with pytest.raises(AssertionError):
        _agree(model, other)


def test_the_step_table(records: drt.CachedDataset) -> None:
    """The mean of what each epoch trained on, told by a loss that only looks at the targets."""
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss=lambda y, p: keras.ops.mean(y) + 0 * keras.ops.mean(p))
    history = model.fit(**_args(records, epochs=4, tail="drop"), verbose=0)
    orders = [drt.Shuffle(SEED).indices(records, epoch=epoch)[:90] for epoch in range(4)]
    want = [float(order.mean()) / 100 for order in orders]
    np.testing.assert_allclose(history.history["loss"], want, rtol=1e-5)


def test_a_run_continues_with_initial_epoch(records: drt.CachedDataset) -> None:
    straight, resumed = _model(), _model()
    straight.fit(**_args(records, epochs=4), verbose=0)
    resumed.fit(**_args(records, epochs=2), verbose=0)
    resumed.fit(**_args(records, epochs=4, initial_epoch=2), verbose=0)
    for ours, theirs in zip(_weights(resumed), _weights(straight), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_padding_has_no_weight(records: drt.CachedDataset) -> None:
    args = _args(records, epochs=1, tail="pad")
    *_, last = _taken(args, 4)
    inputs, targets, weights = last
    assert np.shape(inputs) == (30, 8)
    assert np.shape(targets) == (30,)
    assert np.asarray(weights).tolist() == [1.0] * 10 + [0.0] * 20
    assert len(_model().fit(**args, verbose=0).history["loss"]) == 1


def _taken(args: Any, steps: int) -> list[Any]:
    batches = iter(args["x"])
    return [next(batches) for _ in range(steps)]


def test_several_inputs_are_a_dict_and_targets_may_be_none(records: drt.CachedDataset) -> None:
    (batch,) = _taken(_args(records, epochs=1, inputs=["x", "y"], targets=None), 1)
    (inputs,) = batch
    assert sorted(inputs) == ["x", "y"]


def test_validation_beside_it(records: drt.CachedDataset) -> None:
    """With TensorFlow a pipeline of one epoch, which Keras reads again; else a stream and its steps."""
    held_out: dict[str, Any]
    if BACKEND == "tensorflow":
        pairs = drtf.dataset(records.head(40), BATCH, decode=_decode, shuffle=False, as_tuple=("x", "y"))
        held_out = {"validation_data": pairs}
    else:
        args = _args(records.head(40), epochs=1, shuffle=False)
        held_out = {"validation_data": args["x"], "validation_steps": args["steps_per_epoch"]}
    history = _model().fit(**_args(records, epochs=3), **held_out, verbose=0)
    assert np.isfinite(history.history["val_loss"]).all()
    assert len(history.history["val_loss"]) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs = 0"),
        ({"epochs": 2, "initial_epoch": 2}, "initial_epoch = 2 leaves no epoch of 2"),
        ({"epochs": 2, "initial_epoch": -1}, "initial_epoch = -1"),
        ({"epochs": 1, "inputs": "z"}, "inputs names 'z', which is no column; there are 'x', 'y'"),
        ({"epochs": 1, "targets": ["z"]}, "targets names 'z'"),
        ({"epochs": 1, "inputs": None}, "inputs = None is a NoneType; give the name"),
        ({"epochs": 1, "inputs": []}, r"inputs = \[\] names no column"),
        ({"epochs": 1, "targets": 3}, "targets = 3 is an int; give the name"),
        ({"epochs": 1, "decode": lambda s: (1, 2)}, "let decode return a dict"),
        ({"epochs": 1, "decode": drt.codecs.Record}, "is the class of a codec"),
        ({"epochs": 1, "decode": 3}, "neither a codec nor a function"),
    ],
)
def test_arguments_are_refused(records: drt.CachedDataset, options: Any, message: str) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        _args(records, **options)


def test_text_and_objects_are_refused_by_name(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.CodecError, match="column 'name': text, where a tensor of numbers is wanted"):
        _args(records, epochs=1, columns=["x", "name"], targets="name")
    with pytest.raises(drt.CodecError, match="column 'y' of sample 0: an object of type dict"):
        _args(records, epochs=1, decode=lambda sample: {"x": 1, "y": {}})
    for name in ("num_epochs", "start", "shard"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            _args(records, epochs=1, **{name: 1})


def test_what_decode_raises_stops_the_training(records: drt.CachedDataset) -> None:
    def decode(sample: drt.CachedSample) -> dict[str, Any]:
        if sample.sample_id == 17:
            raise StopIteration
        return _decode(sample)

    with pytest.raises(Exception, match="StopIteration was raised while transforming sample 17"):
        _model().fit(**_args(records, epochs=2, decode=decode), verbose=0)


def test_the_stream_is_what_the_backend_likes(records: drt.CachedDataset) -> None:
    stream = _args(records, epochs=1)["x"]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        assert isinstance(stream, tf.data.Dataset)
    else:
        assert importlib.util.find_spec("tensorflow") is None
        assert isinstance(next(stream)[0], np.ndarray)
        with pytest.raises(drt.CodecError, match="column 'name': text"):
            _args(records, epochs=1, columns=["name", "y"], inputs="name")
