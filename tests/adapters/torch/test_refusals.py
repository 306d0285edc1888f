"""Bad input, for every way into the package: a refusal of one line that names the culprit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.records import RECORD, decode
from tests.whole_numbers import assert_taken_or_refused


class NamedInItsInstances:
    """A codec whose class has no name, so that the class itself is only something to call."""

    def __init__(self, name: Any = "mine") -> None:
        self.name = name

    def dumps(self, obj: Any, /) -> bytes:
        return b""

    def loads(self, buffer: Any, /) -> Any:
        return 0


@pytest.mark.parametrize("kind", [drt.codecs.Json, drt.codecs.Record, NamedInItsInstances])
@pytest.mark.parametrize("tiny_too", [False, True], ids=["codec known", "codec not known"])
def test_the_class_of_a_codec_is_refused(
    records: drt.CachedDataset, tiny: drt.CachedDataset, kind: type, tiny_too: bool
) -> None:
    ds = tiny if tiny_too else records
    for make in (drtt.TorchDataset, lambda *given, **how: drtt.NativeLoader(*given, 8, **how)):
        with pytest.raises(drt.InvalidInputError, match=rf"{kind.__name__}'> is the class of a codec"):
            make(ds, decode=kind)


@pytest.mark.parametrize("how", [3, "npy", [RECORD], {}])
def test_what_cannot_be_called_is_refused(records: drt.CachedDataset, how: Any) -> None:
    for make in (drtt.TorchDataset, lambda *given, **how: drtt.NativeLoader(*given, 8, **how)):
        with pytest.raises(drt.InvalidInputError, match="neither a codec nor a function"):
            make(records, decode=how)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": 3}, "columns = 3 is an int; give a list of names"),
        ({"columns": None}, "columns = None is a NoneType"),
        ({"columns": "label"}, r"give a list of names: \['label'\]"),
        ({"columns": ["label", 3]}, "columns has 3, an int"),
        ({"include_index": 3}, "include_index = 3 is an int; give the name"),
        ({"mask_key": 3}, "mask_key = 3 is an int; give the name"),
        ({"fill": 3}, "fill = 3 is an int; give a dict"),
        ({"fill": ["label"], "columns": ["label"]}, "fill = .* is a list; give a dict"),
    ],
)
def test_names_are_names(records: drt.CachedDataset, options: dict[str, Any], message: str) -> None:
    for make in (drtt.TorchDataset, lambda *given, **how: drtt.NativeLoader(*given, 8, **how)):
        with pytest.raises(drt.InvalidInputError, match=message):
            make(records, decode=decode, **options)


def test_the_name_of_substitutes_is_a_name(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="substituted_key = 3 is an int"):
        drtt.NativeLoader(records, 8, decode=RECORD, substituted_key=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [-1, "2", 1.0, True, None])
def test_a_number_of_workers_is_a_number(records: drt.CachedDataset, workers: Any) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"num_workers = .* is refused; give a whole number"):
        drtt.make_dataloader(drtt.TorchDataset(records, decode=decode), 8, num_workers=workers)


@pytest.mark.parametrize("index", [torch.tensor(2.7), torch.tensor(True)])
def test_an_index_that_is_no_whole_number_is_refused(records: drt.CachedDataset, index: Any) -> None:
    data = drtt.TorchDataset(records, decode=decode)
    assert data[torch.tensor(2)] == data[2]
    with pytest.raises(drt.InvalidInputError, match="give a whole number"):
        data[index]


# What a codec makes of a whole batch


class Whole:
    """A codec that gives whatever it is told for a batch."""

    name = RECORD.name

    def __init__(self, give: Callable[[int], Any]) -> None:
        self.give = give

    def dumps(self, obj: Any, /) -> bytes:
        return b""

    def loads(self, buffer: Any, /) -> Any:
        return 0

    def loads_batch(self, batch: Any, /) -> Any:
        return self.give(len(batch))


def first(ds: drt.CachedDataset, give: Callable[[int], Any]) -> Any:
    """The first batch of both loaders, which must be alike."""
    native = next(iter(drtt.NativeLoader(ds, 8, decode=Whole(give), shuffle=False)))
    data = drtt.TorchDataset(ds, decode=Whole(give), output="columns")
    other = next(iter(drtt.make_dataloader(data, 8, shuffle=False)))
    assert native.keys() == other.keys()
    return native


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda rows: {"x": np.zeros(3)}, r"column 'x' .*shape \(3,\) for a batch of 8 samples; give 8 rows"),
        (lambda rows: {"x": np.float32(1)}, r"column 'x' .*shape \(\) for a batch of 8"),
        (lambda rows: {"x": torch.zeros(9)}, r"column 'x' .*shape \(9,\) for a batch of 8"),
        (lambda rows: np.zeros((3, 2)), r"shape \(3, 2\) for a batch of 8"),
        (lambda rows: torch.zeros(7), r"shape \(7,\) for a batch of 8"),
        (lambda rows: {"x": object()}, "column 'x' cannot be a tensor: it holds strings or other objects"),
        (lambda rows: {"x": ["text"] * rows}, "column 'x' cannot be a tensor: it holds text"),
        (lambda rows: {"x": [[1], [1, 2]]}, r"column 'x' .* a list that is no array \(.*inhomogeneous"),
        (lambda rows: {"x": {"y": np.zeros(rows)}}, "column 'x' cannot be a tensor"),
        (lambda rows: {"x": np.ma.masked_array(np.zeros(rows), [1] * rows)}, "column 'x' .*missing values"),
        (lambda rows: None, "NoneType"),
    ],
)
def test_a_batch_of_other_rows_or_objects_names_the_column(
    records: drt.CachedDataset, give: Callable[[int], Any], message: str
) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        next(iter(drtt.NativeLoader(records, 8, decode=Whole(give))))
    data = drtt.TorchDataset(records, decode=Whole(give), output="columns")
    with pytest.raises(drt.InvalidInputError, match=message):
        next(iter(drtt.make_dataloader(data, 8)))


def twice(rows: int) -> dict[str, Any]:
    """One tensor under two names."""
    made = torch.zeros(rows, 2)
    return {"a": made, "b": made}


def interleaved(rows: int) -> dict[str, Any]:
    """A tensor, a part of it, and an array over the same memory."""
    made = torch.zeros(rows, 2)
    return {"a": made, "b": made[:, 1], "c": made.numpy()}


def expanded(rows: int) -> dict[str, Any]:
    """One number that looks like many."""
    return {"a": torch.zeros(1, 2).expand(rows, 2)}


@pytest.mark.parametrize("give", [twice, interleaved, expanded])
def test_tensors_of_a_codec_share_no_memory(records: drt.CachedDataset, give: Callable[[int], Any]) -> None:
    batch = first(records, give)
    for name, column in batch.items():
        column += 1
        assert column.unique().tolist() == [1], name
    batch["a"][0, 0] = 7
    assert (batch["a"] == 7).sum() == 1


def test_what_is_not_strided_or_has_no_row_values_passes(records: drt.CachedDataset) -> None:
    batch = first(records, lambda rows: {"a": torch.eye(rows).to_sparse(), "b": torch.zeros(rows, 0)})
    assert batch["a"].is_sparse
    assert batch["b"].shape == (8, 0)


def test_masked_arrays_of_samples_are_refused(records: drt.CachedDataset) -> None:
    def masked(sample: drt.CachedSample) -> dict[str, Any]:
        return {"x": np.ma.masked_array([1, 2], [True, False])}

    with pytest.raises(drt.InvalidInputError, match="column 'x' cannot be collated: masked arrays"):
        next(iter(drtt.NativeLoader(records, 8, decode=masked)))
    with pytest.raises(drt.InvalidInputError, match="column 'x' cannot be collated: masked arrays"):
        next(iter(drtt.make_dataloader(drtt.TorchDataset(records, decode=masked), 8)))


# States


@pytest.mark.parametrize("state", [None, [], "x", 3, {}, {"epoch": 1}, {1: 2}])
def test_what_is_no_state_changes_nothing(records: drt.CachedDataset, state: Any) -> None:
    loader = drtt.NativeLoader(records, 8, decode=RECORD, seed=7)
    sampler = drtt.EpochSampler(records, seed=7)
    loops: list[Any] = [iter(loader), iter(sampler)]
    for keeper, loop in zip((loader, sampler), loops, strict=True):
        next(loop)
        before = keeper.state_dict()
        with pytest.raises(drt.StateError, match="the state"):
            keeper.load_state_dict(state)
        assert keeper.state_dict() == before
    order = drt.Shuffle(seed=7).indices(records, epoch=0).tolist()
    assert next(loops[0])["id"].tolist() == order[8:16], "the loop goes on"
    assert next(loops[1]) == order[1]


def test_a_state_of_other_data_stops_a_stateful_loader(records: drt.CachedDataset) -> None:
    def made(ds: drt.CachedDataset) -> Any:
        return drtt.make_dataloader(drtt.TorchDataset(ds, decode=decode), 8, seed=7)

    other = made(records[:40])
    next(iter(other))
    loader = made(records)
    loader.load_state_dict(other.state_dict())
    # torchdata keeps a state unread until the next loop, which refuses it before a batch comes.
    with pytest.raises(drt.StateError, match="fingerprint"):
        next(iter(loader))


# Damage


def test_a_damaged_sample_has_no_substitute_where_rows_are_asked_for(
    records: drt.CachedDataset, damaged: Callable[[drt.CachedDataset, int], Path]
) -> None:
    data = drtt.TorchDataset(drt.open_dataset(damaged(records, 17)), decode=decode)
    assert data[16]["id"] == 16
    with pytest.raises(drt.CorruptionError, match="sample 17"):
        data[17]
    with pytest.raises(drt.CorruptionError, match="sample 17"):
        list(drtt.make_dataloader(data, 8))


def made(ds: drt.CachedDataset, **arguments: Any) -> object:
    return drtt.make_dataloader(drtt.TorchDataset(ds, output="columns"), **{"batch_size": 2, **arguments})


USES: dict[str, tuple[Callable[[drt.CachedDataset, Any], object], str]] = {
    "batch_size": (lambda ds, v: drtt.NativeLoader(ds, v), "2"),
    "seed": (lambda ds, v: drtt.NativeLoader(ds, 2, seed=v), "0 2 2**62 2**63"),
    "prefetch_batches": (lambda ds, v: drtt.NativeLoader(ds, 2, prefetch_batches=v), "0 2 2**62"),
    "prefetch_bytes": (lambda ds, v: drtt.NativeLoader(ds, 2, prefetch_bytes=v), "2 2**62"),
    "threads": (lambda ds, v: drtt.NativeLoader(ds, 2, threads=v), "2 None"),
    "epoch": (lambda ds, v: drtt.NativeLoader(ds, 2).set_epoch(v), "0 2 2**62"),
    "batch_size of a sampler": (lambda ds, v: drtt.EpochSampler(ds, batch_size=v), "2 None"),
    "seed of a sampler": (lambda ds, v: drtt.EpochSampler(ds, seed=v), "0 2 2**62 2**63"),
    "num_samples": (lambda ds, v: drtt.EpochSampler(ds, weights=True, num_samples=v), "2 2**62 None"),
    "epoch of a sampler": (lambda ds, v: drtt.EpochSampler(ds).set_epoch(v), "0 2 2**62"),
    "batches": (lambda ds, v: drtt.EpochSampler(ds, batch_size=2).state_at(batches=v), "0 2"),
    "batch_size of a DataLoader": (lambda ds, v: made(ds, batch_size=v), "2"),
    "num_workers": (lambda ds, v: v == 2**62 or made(ds, num_workers=v), "0 2 2**62"),
    "rank": (lambda ds, v: drtt.ShardSpec(v, 4), "0 2"),
}


@pytest.mark.parametrize("use", USES)
def test_a_whole_number_is_taken_or_refused(use: str) -> None:
    ds = drt.testing.tiny_dataset()
    function, taken = USES[use]
    assert_taken_or_refused(lambda number: function(ds, number), taken)
