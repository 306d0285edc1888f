"""Pipelines of TensorFlow keep what every adapter promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
import datasetrt_tf as drtf
from tests.adapters.conformance import CHECKS, Check, Job, numbered_dataset, parted


class TensorFlowRun:
    """An iterator of an endless pipeline; what was taken from it is counted here, as users do."""

    def __init__(self, job: Job, run: dict[str, Any]) -> None:
        self.job = job
        self.run = run
        self.taken = 0
        self.padded: list[int] = []
        decoding: Any = {"decode": job.decode, "seeded": job.seeded}
        self.batches = iter(drtf.dataset(job.dataset, job.batch_size, num_epochs=None, **run, **decoding))

    def __next__(self) -> list[int]:
        batch = next(self.batches)
        self.taken += 1
        mask = batch["mask"].numpy() if "mask" in batch else np.ones(len(batch["row"]), bool)
        rows, self.padded = parted(batch["row"].numpy(), mask)
        return rows

    def padding(self) -> list[int]:
        return self.padded

    def state(self) -> Any:
        return drtf.cursor(self.job.dataset, self.job.batch_size, global_step=self.taken, **self.run)

    def close(self) -> None:
        del self.batches


class TensorFlowDriver:
    def __init__(self, tail: Any) -> None:
        self.tail = tail
        self.uneven = "fill" if tail == "pad" else "pad"

    def make(self, job: Job) -> TensorFlowRun:
        shard = drt.Shard(job.rank, job.world_size, uneven="pad")
        start = 0 if job.state is None else job.state
        return TensorFlowRun(job, {"sampler": job.sampler, "shard": shard, "start": start, "tail": self.tail})


@pytest.mark.parametrize("tail", ["short", "pad"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Check, tail: str, tmp_path: Path) -> None:
    check(TensorFlowDriver(tail), numbered_dataset(tmp_path))
