"""make_dataloader: one order whatever the workers, epochs that reach them, and exact states."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import pickle
import subprocess
import sys
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.records import (
    RECORD,
    decode,
    decode_failing,
    decode_stopping,
    ids_of,
    joined,
    slices,
)

SHUFFLE = drt.Shuffle(seed=7)
METHODS = ("fork", "spawn", "forkserver")


def order(ds: drt.CachedDataset, epoch: int = 0) -> list[int]:
    return SHUFFLE.indices(ds, epoch=epoch).tolist()


def made(ds: drt.CachedDataset, **options: Any) -> Any:
    data = drtt.TorchDataset(
        ds, decode=options.pop("decode", decode), output=options.pop("output", "samples")
    )
    return drtt.make_dataloader(data, options.pop("batch_size", 8), seed=7, **options)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_persistent_workers_see_every_epoch(records: drt.CachedDataset, method: str, stateful: bool) -> None:
    len(records.metadata)  # Polars' threads have run in this process before it forks
    loader = made(records, num_workers=2, multiprocessing_context=method, stateful=stateful)
    assert loader.persistent_workers
    for epoch in (0, 1):
        assert ids_of(loader) == slices(order(records, epoch), 8)
    loader.sampler.set_epoch(5)
    assert ids_of(loader) == slices(order(records, 5), 8)


@pytest.mark.parametrize("stateful", [False, True])
def test_columns_come_from_workers(records: drt.CachedDataset, stateful: bool) -> None:
    loader = made(records, decode=RECORD, output="columns", num_workers=1, stateful=stateful)
    batches = list(loader)
    assert ids_of(batches) == slices(order(records), 8)
    for batch in batches:
        batch["x"] += 1


def read(data: Any, queue: Any) -> None:
    queue.put([data[[3, 4]], list(drtt.NativeLoader(data.dataset, 25, shuffle=False))[1]["data"].shape[0]])


@pytest.mark.parametrize("method", METHODS)
def test_a_child_reads_what_its_parent_has_read(records: drt.CachedDataset, method: str) -> None:
    data = drtt.TorchDataset(records, decode=decode)
    expected = data[[3, 4]]
    next(iter(drtt.NativeLoader(records, 8)))  # native threads have run
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=read, args=(data, queue))  # type: ignore[attr-defined]
    child.start()
    found = queue.get(timeout=60)
    child.join(10)
    assert (found, child.exitcode) == ([expected, 25], 0)


# What cannot be sent to a worker


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_lambda_is_refused_here_by_name(records: drt.CachedDataset, method: str) -> None:
    with pytest.raises(
        drt.InvalidInputError, match=r"decode = .*<lambda> \(.*test_dataloader.py:\d+\)"
    ) as error:
        made(records, decode=lambda sample: 1, num_workers=1, multiprocessing_context=method)
    assert f"with '{method}'" in str(error.value)
    assert "num_workers=0" in str(error.value)
    for name in ("collate_fn", "worker_init_fn"):
        with pytest.raises(drt.InvalidInputError, match=rf"^{name} = .*<lambda>"):
            made(records, num_workers=1, multiprocessing_context=method, **{name: lambda given: given})


def test_a_lambda_is_fine_where_nothing_is_sent(records: drt.CachedDataset) -> None:
    how = lambda sample: {"id": sample.sample_id}  # noqa: E731
    assert ids_of(made(records, decode=how)) == slices(order(records), 8)
    loader = made(records, decode=how, num_workers=1, multiprocessing_context="fork")
    assert ids_of(loader) == slices(order(records), 8)


def test_a_dataloader_of_ones_own_names_the_culprit_too(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records, decode=lambda sample: 1)
    loader: Any = DataLoader(data, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(drt.InvalidInputError, match=r"decode = .*<lambda>"):
        next(iter(loader))
    assert not multiprocessing.active_children()


def test_asking_does_not_fix_the_start_method(records: drt.CachedDataset) -> None:
    # In an interpreter of its own: here, other tests have started processes.
    code = (
        "import sys, multiprocessing, datasetrt_torch as drtt\n"
        "drtt.make_dataloader(drtt.TorchDataset(sys.argv[1]), 8, num_workers=1)\n"
        "multiprocessing.set_start_method('spawn')"
    )
    subprocess.run([sys.executable, "-c", code, str(records.caches[0].path)], check=True)


# Errors in workers


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_errors_keep_their_type_and_name_the_sample(
    records: drt.CachedDataset, workers: int, stateful: bool
) -> None:
    for how, kind in ((decode_failing, KeyError), (decode_stopping, RuntimeError)):
        with pytest.raises(kind) as failed:
            list(made(records, decode=how, num_workers=workers, stateful=stateful))
        text = str(failed.value) + str(getattr(failed.value, "__notes__", ""))
        assert "decoding sample 17 of cache" in text


# Resuming


def every_state(loader: Any, epochs: int) -> tuple[list[list[int]], list[str]]:
    batches, states = [], []
    for _ in range(epochs):
        for batch in loader:
            batches.append(batch["id"].tolist())
            states.append(json.dumps(loader.state_dict()))
    return batches, states


def rest(loader: Any, steps: int) -> list[list[int]]:
    found: list[list[int]] = []
    while len(found) < steps:
        found += ids_of(itertools.islice(loader, steps - len(found)))
    return found


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stateful_loader_resumes_at_every_step(records: drt.CachedDataset, workers: int) -> None:
    def make() -> Any:
        return made(
            records, batch_size=13, num_workers=workers, multiprocessing_context="fork" if workers else None
        )

    batches, states = every_state(make(), epochs=2)
    assert batches == [ids for epoch in (0, 1) for ids in slices(order(records, epoch), 13)]
    for step, state in enumerate(states, start=1):
        loader = make()
        assert isinstance(loader, StatefulDataLoader)
        loader.load_state_dict(json.loads(state))
        expected = batches[step:] + slices(order(records, 2), 13)
        assert rest(loader, len(expected)) == expected, f"after step {step}"


@pytest.mark.parametrize("workers", [0, 2])
def test_three_resumes_in_a_row_and_at_the_end_of_an_epoch(records: drt.CachedDataset, workers: int) -> None:
    def make(state: Any) -> Any:
        loader = made(
            records, batch_size=5, num_workers=workers, multiprocessing_context="fork" if workers else None
        )
        if state is not None:
            loader.load_state_dict(json.loads(state))
        return loader

    state, seen = None, []
    for steps in (3, 3, 4):  # the last one ends the epoch
        loader = make(state)
        for batch in itertools.islice(loader, steps):
            seen.append(batch["id"].tolist())
            state = json.dumps(loader.state_dict())
    assert seen == slices(order(records), 5)
    whole = make(None)
    list(whole)
    state = json.dumps(whole.state_dict())  # after the loop, not in its last step
    for epoch in (1, 2):
        loader = make(state)
        lengths = [len(list(loader)) for _ in range(2)]
        assert lengths == [10, 10]
        loader = make(state)
        assert ids_of(loader) == slices(order(records, epoch), 5)
        state = json.dumps(loader.state_dict())


def test_a_stateful_run_continues_with_other_ranks(records: drt.CachedDataset) -> None:
    def ranks(world: int) -> list[Any]:
        return [
            made(records, batch_size=12 // world, sharding=drtt.ShardSpec(rank, world), uneven="keep")
            for rank in range(world)
        ]

    states = []
    for loader in ranks(4):
        next(iter(loader))
        states.append(json.dumps(loader.state_dict()))
    for world in (1, 2):
        after = ranks(world)
        for loader in after:
            loader.load_state_dict(json.loads(states[0]))
        found = [ids for loader in after for ids in ids_of(loader)]
        assert sorted(joined(found)) == sorted(order(records)[12:])


def test_a_plain_loader_with_workers_has_state_at(records: drt.CachedDataset) -> None:
    loader = made(records, num_workers=2, stateful=False, multiprocessing_context="fork")
    assert type(loader) is DataLoader
    head = ids_of(itertools.islice(loader, 3))
    with pytest.raises(drt.StateError, match=r"state_at\(batches=n\)"):
        loader.sampler.state_dict()
    state = loader.sampler.state_at(batches=3)
    assert state["position"] == 24
    again = made(records, num_workers=1, stateful=False, multiprocessing_context="fork")
    again.sampler.load_state_dict(state)
    assert head + ids_of(again) == slices(order(records), 8)
    # The same place, for a loader without workers.
    native = drtt.NativeLoader(records, 8, decode=RECORD, seed=7, tail="short")
    native.load_state_dict(state)
    assert head + ids_of(native) == slices(order(records), 8)


def test_drop_last_ends_an_epoch_with_its_last_full_batch(records: drt.CachedDataset) -> None:
    for stateful in (False, True):
        loader = made(records, drop_last=True, stateful=stateful)
        assert len(loader) == 6
        assert ids_of(loader) == slices(order(records), 8)[:6]
        assert loader.sampler.state_dict()["epoch"] == 1
        assert ids_of(loader) == slices(order(records, 1), 8)[:6]


# Which class, which options


def test_torchdata_is_used_where_it_is_there(
    records: drt.CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(made(records)) is StatefulDataLoader
    assert type(made(records, stateful=False)) is DataLoader
    monkeypatch.setitem(sys.modules, "torchdata.stateful_dataloader", None)
    assert type(made(records)) is DataLoader
    with pytest.raises(ImportError, match=r"pip install 'torchdata>=0\.11'"):
        made(records, stateful=True)


def test_options_pass_and_contradictions_do_not(records: drt.CachedDataset) -> None:
    loader = made(records, num_workers=1, persistent_workers=False, timeout=30, collate_fn=list)
    assert (loader.persistent_workers, loader.timeout, loader.collate_fn) == (False, 30, list)
    with pytest.raises(drt.InvalidInputError, match="batch_sampler contradicts"):
        made(records, batch_sampler=[[1]])
    with pytest.raises(drt.InvalidInputError, match="stateful = 'maybe'"):
        made(records, stateful="maybe")
    with pytest.raises(drt.InvalidInputError, match="give a TorchDataset"):
        drtt.make_dataloader(records, 8)  # type: ignore[arg-type]


def test_the_loader_pickles(records: drt.CachedDataset) -> None:
    loader = made(records, stateful=False)
    assert ids_of(pickle.loads(pickle.dumps(loader))) == slices(order(records), 8)
