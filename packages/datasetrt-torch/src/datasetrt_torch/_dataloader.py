"""A DataLoader with everything that belongs together already put together."""

from __future__ import annotations

from typing import Any, Literal

from torch.utils.data import DataLoader

import datasetrt as drt
from datasetrt.wording import a_type

from ._checks import count, invalid, workers
from ._collate import collate
from ._dataset import TorchDataset
from ._order import Weights
from ._sampler import EpochSampler
from ._shards import Sharding, Uneven
from ._workers import refuse_unpicklable, start_method

_READ_AHEAD = (
    "a DataLoader with workers takes more from the sampler than it has delivered, so that this state would "
    "skip samples; save sampler.state_at(batches=n) for n delivered batches, or install torchdata and "
    "save the state of the StatefulDataLoader"
)


def make_dataloader(
    dataset: TorchDataset[Any],
    batch_size: int,
    *,
    sampler: drt.Sampler | None = None,
    shuffle: bool = True,
    seed: int = 0,
    weights: Weights | None = None,
    sharding: Sharding = "auto",
    uneven: Uneven | None = None,
    drop_last: bool = False,
    num_workers: int = 0,
    stateful: bool | Literal["auto"] = "auto",
    **options: Any,
) -> DataLoader[Any]:
    """A DataLoader that reads a dataset in the order of an `EpochSampler`, which is its ``sampler``.

    It is PyTorch's own class, or torchdata's ``StatefulDataLoader``, whose ``state_dict`` counts what was
    delivered also with workers. Workers stay alive between epochs, and still see each epoch's order, because
    that is decided here. Batches are made by `collate`. Where the dataset was made with ``seeded=True`` or
    ``mask_key=``, the sampler's indices carry seeds and padding to it, into workers too.

    Args:
        dataset: What is read.
        batch_size: Samples in a batch of this rank.
        sampler, shuffle, seed, weights, sharding, uneven: As for `EpochSampler`.
        drop_last: Leave out the last global batch if it is not full.
        num_workers: Worker processes; 0 reads in this one.
        stateful: ``"auto"`` takes torchdata's class where torchdata is installed; True insists on it.
        options: Other arguments of the DataLoader: ``pin_memory``, ``multiprocessing_context``…

    Raises:
        InvalidInputError: An argument breaks a rule; who gets which data is ambiguous; or something cannot be
            sent to workers that are started with spawn or forkserver, and is named.
        InstallationError: ``stateful=True`` without torchdata, or a torchdata that is broken or too old.

    Example:
        >>> import datasetrt as drt, datasetrt_torch as drtt
        >>> dataset = drtt.TorchDataset(drt.testing.tiny_dataset(), output="columns", columns=["label"])
        >>> loader = drtt.make_dataloader(dataset, batch_size=4, shuffle=False)
        >>> [batch["label"].tolist() for batch in loader]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    """
    if not isinstance(dataset, TorchDataset):
        raise invalid(
            f"dataset is {a_type(dataset)}; give a TorchDataset, and choose rows with filter() or a "
            "slice of its CachedDataset"
        )
    batch_size = count("batch_size", batch_size)
    num_workers = workers("num_workers", num_workers)
    if "batch_sampler" in options:
        raise invalid(
            "batch_sampler contradicts batch_size and the order; use torch.utils.data.DataLoader itself"
        )
    kind = _kind(stateful)
    options.setdefault("collate_fn", collate)
    if num_workers > 0:
        options.setdefault("persistent_workers", True)
        _refuse_unpicklable(dataset, options)
    order = EpochSampler(
        dataset,
        sampler=sampler,
        shuffle=shuffle,
        seed=seed,
        weights=weights,
        sharding=sharding,
        uneven=uneven,
        batch_size=batch_size,
        drop_last=drop_last,
    )
    if num_workers > 0 and kind is DataLoader:
        order._read_ahead = _READ_AHEAD
    return kind(
        dataset,
        batch_size=batch_size,
        sampler=order,
        drop_last=drop_last,
        num_workers=num_workers,
        **options,
    )


def _kind(stateful: bool | Literal["auto"]) -> type[DataLoader[Any]]:
    if stateful not in (True, False, "auto"):
        raise invalid(f"stateful = {stateful!r} is not known; use True, False or 'auto'")
    if stateful is False:
        return DataLoader
    try:
        module = drt.installation.import_package(
            "torchdata.stateful_dataloader",
            user=f"make_dataloader(stateful={stateful!r})",
            at_least="0.11",
            distributions=("torchdata",),
        )
    except drt.InstallationError as error:
        # A torchdata that is there and fails is told: without it, the state would be another one.
        if stateful == "auto" and error.kind == "missing-package":
            return DataLoader
        raise
    found: type[DataLoader[Any]] = module.StatefulDataLoader
    return found


def _refuse_unpicklable(dataset: TorchDataset[Any], options: dict[str, Any]) -> None:
    """Say in this process, by name, what a worker could not be sent."""
    method = start_method(options.get("multiprocessing_context"))
    if method == "fork":
        return
    parts = {"decode": dataset.decode, "dataset": dataset}
    parts |= {name: options.get(name) for name in ("collate_fn", "worker_init_fn")}
    refuse_unpicklable(parts, method)
