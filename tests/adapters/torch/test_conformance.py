"""What every way of feeding a framework promises, for NativeLoader and for a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import datasetrt_torch as drtt
from tests.adapters.conformance import CHECKS, Check, Job, numbered_dataset, parted


class NativeRun:
    """Epoch after epoch of a NativeLoader."""

    def __init__(self, loader: drtt.NativeLoader) -> None:
        self.loader = loader
        self.batches = iter(loader)
        self.padded: list[int] = []

    def __next__(self) -> list[int]:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        assert isinstance(batch["row"], torch.Tensor)
        assert self.loader.last is not None
        mask = batch["mask"].tolist() if "mask" in batch else [True] * len(batch["row"])
        assert mask == (~self.loader.last.padding).tolist()
        rows, self.padded = parted(batch["row"].tolist(), mask)
        return rows

    def padding(self) -> list[int]:
        return self.padded

    def state(self) -> Any:
        return self.loader.state_dict()

    def close(self) -> None:
        self.loader.close()


class NativeDriver:
    def __init__(self, tail: Any) -> None:
        self.tail = tail
        self.uneven = "fill" if tail == "pad" else "pad"

    def make(self, job: Job) -> NativeRun:
        loader = drtt.NativeLoader(
            job.dataset,
            job.batch_size,
            decode=job.decode,
            seeded=job.seeded,
            sampler=job.sampler,
            tail=self.tail,
            sharding=drtt.ShardSpec(job.rank, job.world_size),
        )
        if job.state is not None:
            loader.load_state_dict(job.state)
        return NativeRun(loader)


class DataLoaderRun:
    """Epoch after epoch of a DataLoader; a rank with one step less than others yields nothing in theirs."""

    def __init__(self, loader: Any, global_batch: int, length: int) -> None:
        self.loader = loader
        self.global_batch = global_batch
        self.length = length
        self.batches: Iterator[Any] | None = None
        self.left = 0
        self.padded: list[int] = []

    def __next__(self) -> list[int]:
        if self.left == 0:
            self.left = -(-(self.length - self.state()["position"]) // self.global_batch)
            self.batches = iter(self.loader)
        self.left -= 1
        assert self.batches is not None
        batch = next(self.batches, None)
        if batch is None:
            self.padded = []
            return []
        rows, self.padded = parted(batch["row"].tolist(), batch["real"].tolist())
        return rows

    def padding(self) -> list[int]:
        return self.padded

    def state(self) -> Any:
        return self.loader.sampler.state_dict()

    def close(self) -> None:
        self.batches = None


class DataLoaderDriver:
    def __init__(self, output: Any, stateful: bool, uneven: Any) -> None:
        self.output = output
        self.stateful = stateful
        self.uneven = uneven

    def make(self, job: Job) -> DataLoaderRun:
        loader = drtt.make_dataloader(
            drtt.TorchDataset(
                job.dataset, decode=job.decode, seeded=job.seeded, output=self.output, mask_key="real"
            ),
            job.batch_size,
            sampler=job.sampler,
            sharding=drtt.ShardSpec(job.rank, job.world_size),
            uneven=self.uneven,
            stateful=self.stateful,
        )
        if job.state is not None:
            loader.sampler.load_state_dict(job.state)  # type: ignore[attr-defined]
        return DataLoaderRun(loader, job.global_batch, len(job.sampler.indices(job.dataset)))


DRIVERS = {
    "native, short": NativeDriver("short"),
    "native, pad": NativeDriver("pad"),
    "dataloader": DataLoaderDriver("samples", stateful=False, uneven="keep"),
    "dataloader, pad": DataLoaderDriver("samples", stateful=False, uneven="pad"),
    "stateful dataloader of columns": DataLoaderDriver("columns", stateful=True, uneven="fill"),
}


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check: Check, driver: Any, tmp_path: Path) -> None:
    check(driver, numbered_dataset(tmp_path))


class Lossy(NativeRun):
    """Skips every third batch."""

    def __init__(self, loader: drtt.NativeLoader) -> None:
        super().__init__(loader)
        self.taken = 0

    def __next__(self) -> list[int]:
        self.taken += 1
        if self.taken % 3 == 0:
            super().__next__()
        return super().__next__()


def test_a_lossy_driver_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.adapters.torch.test_conformance.NativeRun", Lossy)
    monkeypatch.setitem(NativeDriver.make.__globals__, "NativeRun", Lossy)
    with pytest.raises(AssertionError, match="came, not"):
        CHECKS[0](NativeDriver("short"), numbered_dataset(tmp_path))
