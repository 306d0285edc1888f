"""Pipelines of TensorFlow keep what every adapter promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import datasetrt as drt
import datasetrt_tf as drtf
from tests.adapters.conformance import CHECKS, CODEC, Check, numbered_dataset


class TensorFlowRun:
    """An iterator of an endless pipeline; what was taken from it is counted here, as users do."""

    def __init__(self, dataset: drt.CachedDataset, batch_size: int, run: dict[str, Any], decode: Any) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.run = run
        self.taken = 0
        self.batches = iter(drtf.dataset(dataset, batch_size, decode=decode, num_epochs=None, **run))

    def __next__(self) -> list[int]:
        batch = next(self.batches)
        self.taken += 1
        rows = batch["row"].numpy()
        return rows[batch["mask"].numpy()].tolist() if "mask" in batch else rows.tolist()

    def state(self) -> Any:
        return drtf.cursor(self.dataset, self.batch_size, global_step=self.taken, **self.run)

    def close(self) -> None:
        del self.batches


class TensorFlowDriver:
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
    ) -> TensorFlowRun:
        shard = drt.Shard(rank, world_size, uneven="pad")
        run = {"sampler": sampler, "shard": shard, "start": 0 if state is None else state}
        return TensorFlowRun(dataset, global_batch // world_size, run, decode)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Check, tmp_path: Path) -> None:
    check(TensorFlowDriver(), numbered_dataset(tmp_path))
