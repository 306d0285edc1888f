"""One pipeline for each worker of a strategy, each with the parts of its own replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

import datasetrt as drt
from datasetrt.wording import a_type

from ._frameworks import tensorflow
from ._options import BatchOptions, Start, assembled
from ._order import Source, invalid
from ._pipeline import AUTOTUNE, Names, pipeline
from ._plan import whole

if TYPE_CHECKING:
    import tensorflow as tf


def distributed(
    strategy: tf.distribute.Strategy,
    source: Source,
    global_batch_size: int,
    *,
    uneven: Literal["pad", "drop"] | None = None,
    num_epochs: int | None = 1,
    start: Start = 0,
    signature: Any = None,
    as_tuple: tuple[Names, Names] | None = None,
    num_parallel_calls: int | None = AUTOTUNE,
    prefetch: int = AUTOTUNE,
    **options: Unpack[BatchOptions],
) -> tf.distribute.DistributedDataset:
    """Batches for the replicas of a strategy; TensorFlow neither shards nor rebatches them.

    A global batch is the slice of the order that one process would read, and replica ``r`` takes its
    ``r``-th part, so that a run can be continued with another number of replicas. All replicas get equally
    many batches. TensorFlow does not save iterators of such a dataset: save :func:`cursor`, and give it as
    ``start``.

    Args:
        strategy: ``tf.distribute.MirroredStrategy()`` or another one whose workers run this program.
        source: A dataset, or the path of a cache.
        global_batch_size: Samples that all replicas take together; a multiple of their number.
        uneven: What becomes of a last global batch that the replicas cannot share evenly: ``"pad"`` repeats
            samples, which the mask tells; ``"drop"`` leaves out the few that are too many. The default is
            ``"pad"``; it must be given with ``shuffle=False``.
        num_epochs, start, signature, as_tuple, num_parallel_calls, prefetch: As for :func:`dataset`.
        options: All others of :func:`dataset`, but ``shard``.

    Raises:
        InvalidInputError: An argument breaks a rule, or the replicas cannot share a global batch evenly.
        StateError: ``start`` does not belong here.
        CodecError: A column is no tensor; names it.
        InstallationError: TensorFlow is missing, broken or too old; has the line that installs it.

    Example:
        >>> import datasetrt as drt, datasetrt_tf as drtf, tensorflow as tf
        >>> strategy = tf.distribute.MirroredStrategy(["CPU:0"])
        >>> data = drtf.distributed(strategy, drt.testing.tiny_dataset(), 5, columns=["label"])
        >>> len(list(data))
        2
    """
    tf = tensorflow("distributed")
    if not isinstance(strategy, tf.distribute.Strategy):
        raise invalid(f"strategy = {strategy!r} is {a_type(strategy)}; give a tf.distribute.Strategy")
    replicas = strategy.num_replicas_in_sync
    if uneven not in (None, "pad", "drop"):
        raise invalid(f"uneven = {uneven!r} is not for replicas, which step together; use 'pad' or 'drop'")
    global_batch_size = whole("global_batch_size", global_batch_size, 1)
    if global_batch_size % replicas:
        raise invalid(
            f"global_batch_size = {global_batch_size} is no multiple of the {replicas} replicas; "
            f"use {max(1, global_batch_size // replicas) * replicas}"
        )
    # Opened once, and refused here rather than in the strategy's call.
    opened = source if isinstance(source, drt.CachedDataset) else drt.open_dataset(source)

    def of_worker(context: Any) -> Any:
        here = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * here
        view, assembly = assembled(
            opened,
            global_batch_size // replicas,
            user="distributed",
            shards=tuple(drt.Shard(rank, replicas, uneven) for rank in range(first, first + here)),
            start=start,
            num_epochs=num_epochs,
            options=options,
        )
        return pipeline(tf, view, assembly, signature, as_tuple, num_parallel_calls, prefetch)

    return strategy.distribute_datasets_from_function(of_worker)
