"""Pipelines of ``tf.data``: a range of steps, and one stateless function that reads the batch of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import numpy as np

import datasetrt as drt
from datasetrt.wording import a_type

from . import _handles as handles
from . import _specs as specs
from ._batches import Assembly, Reader
from ._columns import Array, Column
from ._exit import keep_iterators
from ._frameworks import tensorflow
from ._options import WHOLE, BatchOptions, OrderOptions, Start, assembled, check_known
from ._order import Source, invalid
from ._plan import whole

if TYPE_CHECKING:
    import tensorflow as tf

    from ._options import Tail

Names: TypeAlias = "str | Sequence[str]"

#: More batches than that are not read at the same time, or kept ready.
_MOST_AHEAD = 2**20

#: ``tf.data.AUTOTUNE``, which is not there before TensorFlow is imported.
AUTOTUNE = -1


def dataset(
    source: Source,
    batch_size: int,
    *,
    num_epochs: int | None = 1,
    start: Start = 0,
    shard: drt.Shard = WHOLE,
    signature: Mapping[str, tf.TypeSpec] | None = None,
    as_tuple: tuple[Names, Names] | None = None,
    num_parallel_calls: int | None = AUTOTUNE,
    prefetch: int = AUTOTUNE,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Batches as a ``tf.data.Dataset``, epoch after epoch, in the order of the core's samplers.

    The batch of a step depends on the step alone. So the number of batches is known, batches are read in
    parallel without changing their order, and ``tf.train.Checkpoint`` saves an iterator in about a kilobyte
    and restores it exactly, read-ahead batches included. Do not ``shuffle`` or ``repeat`` the result: the
    order is part of it, and every epoch has its own. One sample is read and decoded when it is made.

    Args:
        source: A dataset, or the path of a cache.
        batch_size: Samples in a batch of this rank.
        num_epochs: Epochs of the whole run, those before ``start`` included; None is endless.
        start: Where to begin: the state of a loader of any framework, or a number of steps.
        shard: Which part of each global batch this process takes.
        signature: Column name to the spec of a whole batch, for what the first row does not show:
            ``tf.TensorSpec((None, None), tf.float32)``. Numbers are converted to its dtype if no value is
            lost but digits of a float.
        as_tuple: Names of the inputs and of the targets, for Keras: elements are ``(inputs, targets)``, with
            the mask as sample weights where there is one. One name gives a tensor, several give a dict.
        num_parallel_calls: Batches read at the same time; None reads one after the other.
        prefetch: Batches kept ready; 0 for none.
        shuffle: True, the default, is :class:`datasetrt.Shuffle`, False :class:`datasetrt.Sequential`.
        seed: Of the order; default 0.
        weights: Draw by weight, :class:`datasetrt.Weighted`: True for the dataset's weight column, or what
            ``with_weights`` takes.
        sampler: Any sampler, instead of the three before.
        decode: A codec, or a function of a :class:`datasetrt.CachedSample` that returns a dict of values, a
            tuple of values, or a value. None takes the dataset's transform; without either, the metadata
            columns are what is read.
        seeded: Call ``decode(sample, seed)``, with a seed that depends on the sampler's seed, the epoch and
            the position alone.
        columns: Names of the columns to hand out: decoded ones, then metadata, ``sample_id``, ``cache_id``.
            By default all that are decoded; those of the metadata if there is no decode.
        ragged: Decoded columns whose rows differ in their first length; they become ``tf.RaggedTensor``.
        fill: Metadata column to the value that stands for a missing one.
        tail: What becomes of a last batch that is not full: ``"short"``, the default; ``"drop"``; or
            ``"pad"``, which fills it up with samples from the start of the epoch. The latter two give static
            shapes.
        mask_key: Name of the bool column that is False for repeats. It is there with ``tail="pad"``, and
            where ``shard`` pads ranks; default ``"mask"``.
        substituted_key: Name of a bool column that is True where a sample stands in for a damaged one; None,
            the default, leaves it out.
        on_corrupt: ``"raise"``, the default, or ``"substitute"``, as for the core's loader.

    Returns:
        A dataset of dicts of tensors, shaped ``(batch, *shape)``; or of what decode returns, where that is a
        tuple or a single value. Text columns are ``tf.string``. Sharding by TensorFlow is turned off.

    Raises:
        InvalidInputError: An argument breaks a rule.
        StateError: ``start`` is malformed or belongs to other rows, weights or another sampler.
        CodecError: The payloads were packed by another codec; or a column is no tensor: names it.
        InstallationError: TensorFlow is missing, broken or too old; has the line that installs it.

    While batches are read, an error comes as TensorFlow's own (``tf.errors.OpError``), with the type, the
    message and the sample of the original in its message.

    Example:
        >>> import datasetrt as drt, datasetrt_tf as drtf
        >>> data = drtf.dataset(drt.testing.tiny_dataset(), 4, seed=7, columns=["label"])
        >>> len(data), data.element_spec["label"].dtype
        (3, tf.int64)
        >>> [len(batch["label"]) for batch in data]
        [4, 4, 2]
    """
    tf = tensorflow("dataset")
    if as_tuple is not None and not (isinstance(as_tuple, tuple | list) and len(as_tuple) == 2):
        raise invalid(f"as_tuple = {as_tuple!r}: give two, the names of the inputs and of the targets")
    opened, assembly = assembled(
        source,
        batch_size,
        user="dataset",
        shards=(shard,),
        start=start,
        num_epochs=num_epochs,
        options=options,
    )
    return pipeline(tf, opened, assembly, signature, as_tuple, num_parallel_calls, prefetch)


def raw(
    source: Source,
    batch_size: int,
    *,
    payload_key: str = "payload",
    columns: Sequence[str] | None = None,
    fill: Mapping[str, Any] | None = None,
    tail: Tail = "short",
    mask_key: str = "mask",
    substituted_key: str | None = None,
    on_corrupt: Literal["raise", "substitute"] = "raise",
    num_epochs: int | None = 1,
    start: Start = 0,
    shard: drt.Shard = WHOLE,
    num_parallel_calls: int | None = AUTOTUNE,
    prefetch: int = AUTOTUNE,
    **order: Unpack[OrderOptions],
) -> tf.data.Dataset:
    """Payload bytes as ``tf.string``, every byte kept, to decode in the graph; with the metadata beside them.

    Elements are dicts of a tensor of payloads, shape ``(batch,)``, and the metadata columns. Follow it by a
    ``map`` with ``tf.io.decode_jpeg``, ``tf.io.parse_example`` or ``tf.io.decode_raw``.

    Args:
        source: A dataset, or the path of a cache.
        batch_size: Samples in a batch of this rank.
        payload_key: Name of the payloads in an element.
        columns: Metadata columns to hand out; by default all.
        fill: Metadata column to the value that stands for a missing one.
        tail, mask_key, substituted_key, on_corrupt, num_epochs, start, shard: As for :func:`dataset`.
        num_parallel_calls, prefetch: As for :func:`dataset`.
        shuffle, seed, weights, sampler: As for :func:`dataset`.

    Raises:
        InvalidInputError: An argument breaks a rule.
        StateError: ``start`` does not belong here.
        CodecError: A metadata column has missing values and no ``fill``; names it.
        InstallationError: TensorFlow is missing, broken or too old; has the line that installs it.

    Example:
        >>> import datasetrt as drt, datasetrt_tf as drtf
        >>> batch = next(iter(drtf.raw(drt.testing.tiny_dataset(), 2, shuffle=False)))
        >>> batch["payload"].numpy().tolist(), batch["label"].numpy().tolist()
        ([b'sample 0', b'sample 1'], [0, 1])
    """
    tf = tensorflow("raw")
    check_known("raw", order, OrderOptions)
    options: BatchOptions = {
        **order,
        "decode": None,
        "seeded": False,
        "columns": columns,
        "ragged": (),
        "fill": fill,
        "tail": tail,
        "mask_key": mask_key,
        "substituted_key": substituted_key,
        "on_corrupt": on_corrupt,
    }
    opened, assembly = assembled(
        source,
        batch_size,
        user="raw",
        shards=(shard,),
        start=start,
        num_epochs=num_epochs,
        payload=payload_key,
        options=options,
    )
    return pipeline(tf, opened, assembly, None, None, num_parallel_calls, prefetch)


def pipeline(
    tf: Any,
    source: drt.CachedDataset,
    assembly: Assembly,
    signature: Mapping[str, tf.TypeSpec] | None = None,
    as_tuple: tuple[Names, Names | None] | None = None,
    num_parallel_calls: int | None = AUTOTUNE,
    prefetch: int = AUTOTUNE,
) -> tf.data.Dataset:
    """The ``tf.data.Dataset`` of an assembly."""
    num_parallel_calls = _ahead("num_parallel_calls", num_parallel_calls, 1)
    kept_ready = _ahead("prefetch", prefetch, 0)
    assembly = replace(assembly, layout=specs.declared(tf, assembly.layout, signature, assembly.static_rows))
    columns = assembly.columns
    if assembly.plan.cut.fills and any(column.ragged for column in columns):
        raise invalid(
            "tail='pad' makes batches of one shape, and ragged rows have any; use 'short' or 'drop'"
        )
    specs.check_supported(tf, columns)
    shaped = _shaper(tf, assembly, as_tuple)
    number = handles.register(source, partial(Reader, assembly=assembly))
    fetch = _Fetch(number, columns)
    dtypes = specs.flat_dtypes(tf, columns)

    def batch_of(step: Any) -> Any:
        return shaped(tf.numpy_function(fetch, [step], dtypes, stateful=False))

    keep_iterators()
    steps = _steps(tf, assembly.plan.total)
    handles.release_with(steps, number)
    # Without parallel calls there is only one order, and TensorFlow warns of being told which.
    parallel = {} if num_parallel_calls is None else {"deterministic": True}
    data = steps.map(batch_of, num_parallel_calls=num_parallel_calls, **parallel)
    return (data.prefetch(kept_ready) if kept_ready else data).with_options(_options(tf))


def _ahead(what: str, value: object, low: int) -> int | None:
    """A number of batches as an int; None is none, and AUTOTUNE leaves it to TensorFlow."""
    if value is None:
        return None
    if isinstance(value, int | np.integer) and value == AUTOTUNE:
        return AUTOTUNE
    number = whole(what, value, low)
    # TensorFlow makes room for as many.
    if number > _MOST_AHEAD:
        raise invalid(f"{what} = {number} is out of range; give at most {_MOST_AHEAD}")
    return number


class _Fetch:
    """What the graph calls: holds a number and names, because TensorFlow never lets go of it."""

    def __init__(self, number: int, columns: tuple[Column, ...]) -> None:
        self._number = number
        self._columns = columns

    def __call__(self, step: np.int64) -> list[Array]:
        return specs.flat(self._columns, handles.read(self._number, int(step)))


def _steps(tf: Any, total: int | None) -> Any:
    return tf.data.Dataset.counter() if total is None else tf.data.Dataset.range(total)


def _options(tf: Any) -> Any:
    options = tf.data.Options()
    options.deterministic = True
    # The number of a step is all that there is to save: without this, read-ahead batches are saved whole.
    options.experimental_symbolic_checkpoint = True
    # Ranks have their parts already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _shaper(tf: Any, assembly: Assembly, as_tuple: tuple[Names, Names | None] | None) -> Any:
    """From the function's flat outputs to the element that users see."""
    rows = assembly.static_rows
    columns, form = assembly.columns, assembly.layout.form
    if as_tuple is None:

        def element(outputs: list[Any]) -> Any:
            named = specs.tensors(tf, columns, outputs, rows)
            return named if form == "mapping" else unnamed(form, list(named.values()))

        return element
    inputs, targets = as_tuple
    check_pair(assembly, inputs, targets)

    def pair(outputs: list[Any]) -> Any:
        named = specs.tensors(tf, columns, outputs, rows)
        weights = None if assembly.mask is None else tf.cast(named[assembly.mask], tf.float32)
        return paired(named, inputs, targets, weights)

    return pair


def unnamed(form: str, parts: list[Any]) -> Any:
    """The parts of a tuple as a tuple, a single one as it is."""
    return tuple(parts) if form == "tuple" else parts[0]


def paired(named: Mapping[str, Any], inputs: Names, targets: Names | None, weights: Any) -> tuple[Any, ...]:
    """``(inputs, targets)`` as Keras takes them, and the weights of the samples where there are some."""

    def picked(names: Names) -> Any:
        return named[names] if isinstance(names, str) else {name: named[name] for name in names}

    given = (picked(inputs),) if targets is None else (picked(inputs), picked(targets))
    if weights is None:
        return given
    return (*given, weights) if targets is not None else (*given, None, weights)


def check_pair(assembly: Assembly, inputs: Names, targets: Names | None) -> None:
    """Refuse inputs and targets that are no columns.

    Raises:
        InvalidInputError: Names the column.
    """
    if assembly.layout.form != "mapping":
        raise invalid("inputs and targets are names of columns; let decode return a dict")
    for what, names in (("inputs", inputs), ("targets", () if targets is None else targets)):
        if not isinstance(names, Sequence):
            raise invalid(f"{what} = {names!r} is {a_type(names)}; give the name of a column or a list")
        if what == "inputs" and not names:
            raise invalid(f"inputs = {names!r} names no column; give at least one")
        for name in [names] if isinstance(names, str) else names:
            if assembly.layout.column(name) is None:
                known = ", ".join(repr(column.name) for column in assembly.layout.columns)
                raise invalid(f"{what} names {name!r}, which is no column; there are {known}")
