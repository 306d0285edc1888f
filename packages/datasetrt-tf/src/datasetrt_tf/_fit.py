"""What ``model.fit`` of Keras takes, on any backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np

from ._batches import Assembly, Reader
from ._frameworks import keras, tensorflow
from ._options import BatchOptions, assembled
from ._order import Source, invalid
from ._pipeline import Names, check_pair, paired, pipeline
from ._plan import whole


class FitArgs(TypedDict):
    """Arguments of ``model.fit``.

    Example:
        >>> import datasetrt as drt, datasetrt_tf as drtf
        >>> ds = drt.testing.tiny_dataset()
        >>> args: drtf.FitArgs = drtf.fit_args(ds, 4, epochs=2, inputs="label", targets=None)
        >>> args["steps_per_epoch"]
        3
    """

    x: Any
    epochs: int
    initial_epoch: int
    steps_per_epoch: int
    shuffle: bool


def fit_args(
    source: Source,
    batch_size: int,
    *,
    epochs: int,
    inputs: Names,
    targets: Names | None,
    initial_epoch: int = 0,
    **options: Unpack[BatchOptions],
) -> FitArgs:
    """Arguments for ``model.fit``: the batches of all epochs in one flat stream, and where epochs end.

    On the TensorFlow backend the stream is a pipeline of :func:`dataset`; on others, where TensorFlow need
    not be installed, a generator of NumPy batches. Either way a batch depends on its step alone, so that
    Keras's reading ahead cannot move samples between epochs. A run stopped after whole epochs continues
    with ``initial_epoch``.

    Args:
        source: A dataset, or the path of a cache.
        batch_size: Samples in a batch.
        epochs: Number of the last epoch, as for ``fit``.
        inputs: Column that the model takes; or several, which are given as a dict.
        targets: Column or columns that the loss takes; None gives inputs alone.
        initial_epoch: Epoch to begin with, as for ``fit``; default 0.
        options: Those of :func:`dataset` that say what a batch holds and in which order. With
            ``tail="pad"``, the mask becomes the weights of the samples.

    Raises:
        InvalidInputError: An argument breaks a rule, or there is no such column.
        CodecError: A column is no tensor; or it is text or ragged, among the targets or on another backend
            than TensorFlow; names it.
        InstallationError: Keras, or TensorFlow where it is the backend, is missing, broken or too old.

    Example:
        >>> import datasetrt as drt, datasetrt_tf as drtf, keras
        >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile(loss="mse")
        >>> numbers = lambda sample: {"x": [float(sample.sample_id)], "y": [2.0 * sample.sample_id]}
        >>> args = drtf.fit_args(
        ...     drt.testing.tiny_dataset(), 4, decode=numbers, epochs=2, inputs="x", targets="y"
        ... )
        >>> len(model.fit(**args, verbose=0).history["loss"])
        2
    """
    backend = keras("fit_args").config.backend()
    epochs, initial_epoch = whole("epochs", epochs, 1), whole("initial_epoch", initial_epoch, 0)
    if initial_epoch >= epochs:
        raise invalid(f"initial_epoch = {initial_epoch} leaves no epoch of {epochs}; train to a later one")
    opened, assembly = assembled(source, batch_size, num_epochs=epochs, options=options, user="fit_args")
    check_pair(assembly, inputs, targets)
    # Only TensorFlow has tensors of text and of ragged rows, and no loss takes text.
    _check_numbers(assembly, targets)
    if backend != "tensorflow":
        _check_numbers(assembly, inputs)
    assembly = replace(assembly, plan=assembly.plan.from_epoch(initial_epoch))
    stream: Any
    if backend == "tensorflow":
        tf = tensorflow("fit_args")
        stream = pipeline(tf, opened, assembly, as_tuple=(inputs, targets))
    else:
        stream = _generator(Reader(opened, assembly), assembly, inputs, targets)
    return {
        "x": stream,
        "epochs": epochs,
        "initial_epoch": initial_epoch,
        "steps_per_epoch": assembly.plan.steps_per_epoch,
        "shuffle": False,  # Keras warns that it cannot shuffle a stream
    }


def _generator(
    reader: Reader, assembly: Assembly, inputs: Names, targets: Names | None
) -> Iterator[tuple[Any, ...]]:
    for batch in reader.run():
        weights = None if assembly.mask is None else np.asarray(batch[assembly.mask], np.float32)
        yield paired(batch, inputs, targets, weights)


def _check_numbers(assembly: Assembly, names: Names | None) -> None:
    for name in [names] if isinstance(names, str) else names or ():
        column = assembly.layout.column(name)
        if column is not None and (column.is_text or column.ragged):
            kind = "text" if column.is_text else "ragged rows"
            raise column.bad(f"{kind}, where a tensor of numbers is wanted; convert it in decode")
