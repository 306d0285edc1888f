"""Where a pipeline is, as the state of a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import datasetrt as drt

from ._options import WHOLE, OrderOptions, Start, check_known, cut_of
from ._order import Source
from ._plan import plan_of, whole

if TYPE_CHECKING:
    from ._options import Tail


def cursor(
    source: Source,
    batch_size: int,
    *,
    global_step: int,
    start: Start = 0,
    tail: Tail = "short",
    shard: drt.Shard = WHOLE,
    **order: Unpack[OrderOptions],
) -> drt.LoaderState:
    """The state of a run after some steps, to save as JSON beside a model.

    It is the state of the core's loader: :func:`dataset` continues from it as ``start``, and so do the
    loaders of datasetrt and of its other adapters. Needs no TensorFlow.

    Args:
        source: A dataset, or the path of a cache.
        batch_size: As given to :func:`dataset`; for :func:`distributed`, that of one replica.
        global_step: Batches that every rank was given since ``start``.
        start: As given to :func:`dataset`.
        tail: As given to :func:`dataset`.
        shard: As given to :func:`dataset`; for :func:`distributed`, that of any replica.
        shuffle, seed, weights, sampler: As for :func:`dataset`.

    Raises:
        InvalidInputError: An argument breaks a rule.
        StateError: ``start`` does not belong here.

    Example:
        >>> import datasetrt as drt, datasetrt_tf as drtf
        >>> ds = drt.testing.tiny_dataset()
        >>> state = drtf.cursor(ds, 4, seed=7, global_step=4)  # three batches are an epoch
        >>> state["epoch"], state["position"]
        (1, 4)
        >>> rest = drtf.dataset(ds, 4, seed=7, columns=["label"], num_epochs=2, start=state)
        >>> len(rest)
        2
    """
    check_known("cursor", order, OrderOptions)
    opened, cut = cut_of(source, batch_size, (shard,), tail, order)
    place = plan_of(opened, cut, start, None).place_after(whole("global_step", global_step, 0))
    state = opened.loader(sampler=cut.sampler).state_dict()
    return {**state, "epoch": place.epoch, "position": place.position}
