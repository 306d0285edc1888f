"""What every adapter promises: kept by `batches`, `device_batches`, and grain over `GrainBatchSource`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
import pytest

import datasetrt_jax as drtj
from tests.adapters.conformance import CHECKS, Check, Job, Run, numbered_dataset, parted


class BatchRun:
    """Rows of an iterator of this package."""

    def __init__(self, it: Any) -> None:
        self.it = it
        self.padded: list[int] = []

    def __next__(self) -> list[int]:
        batch = next(self.it)
        rows, self.padded = parted(np.asarray(batch["row"]), np.asarray(batch["mask"]))
        return rows

    def padding(self) -> list[int]:
        return self.padded

    def state(self) -> Any:
        return self.it.get_state()

    def close(self) -> None:
        self.it.close()


class Batches:
    """NumPy batches."""

    uneven = "fill"

    def make(self, job: Job) -> Run:
        it = drtj.batches(
            job.dataset,
            global_batch=job.global_batch,
            sampler=job.sampler,
            decode=job.decode,
            seeded=job.seeded,
            tail="pad",
            process_index=job.rank,
            process_count=job.world_size,
        )
        if job.state is not None:
            it.set_state(job.state)
        return BatchRun(self.finished(it, job.world_size))

    def finished(self, it: drtj.BatchIterator, world_size: int) -> Any:
        return it


class DeviceBatches(Batches):
    """Global arrays, of which a rank holds its part: one of several processes is played by some rows."""

    def finished(self, it: drtj.BatchIterator, world_size: int) -> Any:
        if world_size > 1:
            return it  # one process cannot hold a part of a global array; see test_processes.py
        return drtj.device_batches(it, jax.sharding.SingleDeviceSharding(jax.devices()[0]))


class GrainRun:
    """Rows of grain's own iterator."""

    def __init__(self, source: drtj.GrainBatchSource) -> None:
        self.source = source
        options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=2)
        self.it = iter(grain.MapDataset.source(source).to_iter_dataset(options))
        self.padded: list[int] = []

    def __next__(self) -> list[int]:
        batch = next(self.it)
        rows, self.padded = parted(batch["row"], batch["mask"])
        return rows

    def padding(self) -> list[int]:
        return self.padded

    def state(self) -> Any:
        return self.source.state_at(json.loads(json.dumps(self.it.get_state()))["next_index"])

    def close(self) -> None:
        self.it.close()


class Grain:
    """grain over whole batches."""

    uneven = "fill"

    def make(self, job: Job) -> Run:
        source = drtj.GrainBatchSource(
            job.dataset,
            global_batch=job.global_batch,
            num_epochs=100,
            start=job.state,
            sampler=job.sampler,
            decode=job.decode,
            seeded=job.seeded,
            tail="pad",
            process_index=job.rank,
            process_count=job.world_size,
        )
        return GrainRun(source)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("driver", [Batches(), DeviceBatches(), Grain()], ids=lambda it: type(it).__name__)
def test_conformance(driver: Any, check: Check, tmp_path: Path) -> None:
    check(driver, numbered_dataset(tmp_path))
