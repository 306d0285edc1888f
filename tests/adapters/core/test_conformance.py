"""The core loader keeps what every adapter promises; and each check fails where a promise is broken."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import datasetrt as drt
from tests.adapters import conformance
from tests.adapters.conformance import CHECKS, Check, Job, numbered_dataset, parted


class CoreRun:
    """Epoch after epoch of a loader."""

    def __init__(self, loader: drt.Loader[Any]) -> None:
        self.loader = loader
        self.batches = iter(loader)
        self.padded: list[int] = []

    def __next__(self) -> list[int]:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        rows, self.padded = _rows(batch, self.batches.last)
        return rows

    def padding(self) -> list[int]:
        return self.padded

    def state(self) -> Any:
        return self.loader.state_dict()

    def close(self) -> None:
        self.loader.close()


def _rows(
    batch: dict[str, Any] | list[dict[str, Any]], info: drt.BatchInfo | None
) -> tuple[list[int], list[int]]:
    assert info is not None
    rows = [record["row"] for record in batch] if isinstance(batch, list) else batch["row"]
    return parted(rows, ~info.padding)


class CoreDriver:
    """The loader itself."""

    def __init__(self, uneven: Any = "pad") -> None:
        self.uneven = uneven

    def make(self, job: Job) -> CoreRun:
        options: Any = {"transform": job.decode, "seeded": job.seeded}
        loader = job.dataset.loader(
            batch_size=job.batch_size,
            sampler=job.sampler,
            shard=drt.Shard(job.rank, job.world_size, self.uneven),
            **options,
        )
        if job.state is not None:
            loader.load_state_dict(job.state)
        return CoreRun(loader)


@pytest.mark.parametrize("uneven", ["pad", "fill"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Check, uneven: str, tmp_path: Path) -> None:
    check(CoreDriver(uneven), numbered_dataset(tmp_path))


# Each check fails where its promise is broken


class Spoiled(CoreDriver):
    """A driver whose arguments and runs are spoiled."""

    def __init__(
        self,
        spoil: Callable[[Job], Job] = lambda job: job,
        run: Callable[[CoreRun], Any] = lambda run: run,
    ) -> None:
        super().__init__()
        self.spoil = spoil
        self.run = run

    def make(self, job: Job) -> Any:
        return self.run(super().make(self.spoil(job)))


class SameEpoch(CoreRun):
    """Begins the first epoch again and again."""

    def __init__(self, run: CoreRun) -> None:
        super().__init__(run.loader)

    def __next__(self) -> list[int]:
        batch = next(self.batches, None)
        if batch is None:
            self.loader.set_epoch(0)
            self.batches = iter(self.loader)
            batch = next(self.batches)
        return _rows(batch, self.loader.last)[0]


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


class KeepsQuiet(CoreRun):
    """Says of no row that it is padding."""

    def padding(self) -> list[int]:
        return []


def _every_rank_takes_all(job: Job) -> Job:
    return replace(job, rank=0, world_size=1)


def _weights_are_ignored(job: Job) -> Job:
    return (
        replace(job, sampler=drt.Shuffle(job.sampler.seed)) if isinstance(job.sampler, drt.Weighted) else job
    )


def _late_rows_are_lost(job: Job) -> Job:
    """What a sampler does whose sums of weights no longer grow."""
    return replace(job, dataset=job.dataset[: conformance.HEAD])


def _state_is_ignored(job: Job) -> Job:
    return replace(job, state=None)


def _state_is_moved(job: Job) -> Job:
    if job.state is None or job.world_size == 4:
        return job
    return replace(job, state={**job.state, "position": max(0, job.state["position"] - 1)})


def _seeds_begin_anew(job: Job) -> Job:
    """Seeds that count what was drawn since the run began, as a generator of random numbers would."""
    drawn = itertools.count()
    if not job.seeded:
        return job
    return replace(
        job,
        decode=lambda sample, _: job.decode(
            sample, int(job.sampler.transform_seeds(job.dataset, [next(drawn) % len(job.dataset)])[0])
        ),
    )


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
    (conformance.weights_count_beyond_two_to_the_24_rows, Spoiled(_late_rows_are_lost)),
    (conformance.padding_is_the_start_of_the_epoch, Spoiled(run=lambda run: KeepsQuiet(run.loader))),
    (conformance.seeds_are_those_of_the_core_loader, Spoiled(_seeds_begin_anew)),
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
