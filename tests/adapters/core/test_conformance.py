"""The core loader keeps what every adapter promises; and each check fails where a promise is broken."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import datasetrt as drt
from tests.adapters import conformance
from tests.adapters.conformance import CHECKS, CODEC, Check, numbered_dataset


class CoreRun:
    """Epoch after epoch of a loader."""

    def __init__(self, loader: drt.Loader[Any]) -> None:
        self.loader = loader
        self.batches = iter(loader)

    def __next__(self) -> list[int]:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        return _rows(batch)

    def state(self) -> Any:
        return self.loader.state_dict()

    def close(self) -> None:
        self.loader.close()


def _rows(batch: drt.SampleBatch | list[dict[str, Any]]) -> list[int]:
    if isinstance(batch, list):  # what a transform made
        return [int(record["row"]) for record in batch]
    rows: list[int] = CODEC.loads_batch(batch)["row"][~batch.padding].tolist()
    return rows


class CoreDriver:
    """The loader itself."""

    def make(
        self,
        dataset: drt.CachedDataset,
        *,
        global_batch: int,
        sampler: drt.Sampler,
        rank: int = 0,
        world_size: int = 1,
        decode: Any = CODEC,
        state: Any = None,
    ) -> CoreRun:
        loader = dataset.loader(
            batch_size=global_batch // world_size,
            sampler=sampler,
            # With the codec as transform, nothing would say which rows are padding.
            transform=None if decode is CODEC else decode,
            shard=drt.Shard(rank, world_size, uneven="pad"),
        )
        if state is not None:
            loader.load_state_dict(state)
        return CoreRun(loader)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Check, tmp_path: Path) -> None:
    check(CoreDriver(), numbered_dataset(tmp_path))


# Each check fails where its promise is broken


class Spoiled(CoreDriver):
    """A driver whose arguments and runs are spoiled."""

    def __init__(
        self,
        arguments: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        run: Callable[[CoreRun], Any] = lambda run: run,
    ) -> None:
        self.arguments = arguments
        self.run = run

    def make(self, dataset: drt.CachedDataset, **arguments: Any) -> Any:
        return self.run(super().make(dataset, **self.arguments(arguments)))


class SameEpoch(CoreRun):
    """Begins the first epoch again and again."""

    def __init__(self, run: CoreRun) -> None:
        super().__init__(run.loader)

    def __next__(self) -> list[int]:
        try:
            return _rows(next(self.batches))
        except StopIteration:
            self.loader.set_epoch(0)
            self.batches = iter(self.loader)
            return _rows(next(self.batches))


class ReadsAhead(CoreRun):
    """Counts a batch that was only read ahead."""

    def __init__(self, run: CoreRun) -> None:
        super().__init__(run.loader)
        self.ahead = super().__next__()

    def __next__(self) -> list[int]:
        given, self.ahead = self.ahead, super().__next__()
        return given


class ForgetsTheEpoch(CoreRun):
    """Has a state of its own, which says nothing of the epoch."""

    def __init__(self, run: CoreRun) -> None:
        super().__init__(run.loader)

    def state(self) -> Any:
        return {**super().state(), "epoch": 0}


class EndsQuietly(CoreRun):
    """Takes StopIteration in decode for the end of the epoch, and other errors for bad luck."""

    def __init__(self, run: CoreRun) -> None:
        super().__init__(run.loader)

    def __next__(self) -> list[int]:
        try:
            return super().__next__()
        except (RuntimeError, KeyError):
            return []


KEPT: list[Any] = []


def _keep_a_thread(run: CoreRun) -> CoreRun:
    gate = threading.Event()
    KEPT.append(gate)
    threading.Thread(target=gate.wait, name="kept", daemon=True).start()
    return run


def _keep_a_descriptor(run: CoreRun) -> CoreRun:
    KEPT.append(os.open(os.devnull, os.O_RDONLY))
    return run


def _release() -> None:
    for kept in KEPT:
        os.close(kept) if isinstance(kept, int) else kept.set()
    KEPT.clear()


def _every_rank_takes_all(arguments: dict[str, Any]) -> dict[str, Any]:
    return {**arguments, "rank": 0, "world_size": 1}


def _weights_are_ignored(arguments: dict[str, Any]) -> dict[str, Any]:
    sampler = arguments["sampler"]
    if isinstance(sampler, drt.Weighted):
        return {**arguments, "sampler": drt.Shuffle(sampler.seed)}
    return arguments


def _state_is_ignored(arguments: dict[str, Any]) -> dict[str, Any]:
    return {**arguments, "state": None}


def _state_is_moved(arguments: dict[str, Any]) -> dict[str, Any]:
    state = arguments.get("state")
    if state is None or arguments["world_size"] == 4:
        return arguments
    return {**arguments, "state": {**state, "position": max(0, state["position"] - 1)}}


FAULTS: list[tuple[Check, Spoiled]] = [
    (conformance.same_global_order, Spoiled(_every_rank_takes_all)),
    (conformance.epochs_differ, Spoiled(run=SameEpoch)),
    (conformance.resumes_at_every_step, Spoiled(run=ReadsAhead)),
    (conformance.resumes_at_every_step, Spoiled(_state_is_ignored)),
    (conformance.resumes_again_and_again, Spoiled(run=ForgetsTheEpoch)),
    (conformance.resumes_on_another_world_size, Spoiled(_state_is_moved)),
    (conformance.state_is_that_of_the_core_loader, Spoiled(run=ReadsAhead)),
    (conformance.wrong_state_is_refused, Spoiled(_state_is_ignored)),
    (conformance.weights_are_honoured, Spoiled(_weights_are_ignored)),
    (conformance.errors_of_decode_name_the_sample, Spoiled(run=EndsQuietly)),
    (conformance.nothing_is_leaked, Spoiled(run=_keep_a_thread)),
    (conformance.nothing_is_leaked, Spoiled(run=_keep_a_descriptor)),
]


@pytest.mark.parametrize(
    ("check", "spoiled"),
    FAULTS,
    ids=[f"{check.__name__}-{number}" for number, (check, _) in enumerate(FAULTS)],
)
def test_a_broken_promise_is_noticed(
    check: Check, spoiled: Spoiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "PATIENCE", 0.2)
    try:
        with pytest.raises(AssertionError):
            check(spoiled, numbered_dataset(tmp_path))
    finally:
        _release()


def test_every_check_has_been_seen_to_fail() -> None:
    assert {check for check, _ in FAULTS} == set(CHECKS)
