"""What every way of feeding a framework promises, for NativeLoader and for a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.conformance import CHECKS, CODEC, Check, Decode, numbered_dataset


class NativeRun:
    """Epoch after epoch of a NativeLoader."""

    def __init__(self, loader: drtt.NativeLoader) -> None:
        self.loader = loader
        self.batches = iter(loader)

    def __next__(self) -> list[int]:
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        assert isinstance(batch["row"], torch.Tensor)
        rows: list[int] = batch["row"][batch.get("mask", slice(None))].tolist()
        return rows

    def state(self) -> Any:
        return self.loader.state_dict()

    def close(self) -> None:
        self.loader.close()


class NativeDriver:
    def __init__(self, tail: Any) -> None:
        self.tail = tail

    def make(
        self,
        dataset: drt.CachedDataset,
        *,
        global_batch: int,
        sampler: drt.Sampler,
        rank: int = 0,
        world_size: int = 1,
        decode: Decode = CODEC,
        state: Any = None,
    ) -> NativeRun:
        loader = drtt.NativeLoader(
            dataset,
            global_batch // world_size,
            decode=decode,
            sampler=sampler,
            tail=self.tail,
            sharding=drtt.ShardSpec(rank, world_size),
        )
        if state is not None:
            loader.load_state_dict(state)
        return NativeRun(loader)


class DataLoaderRun:
    """Epoch after epoch of a DataLoader; a rank with one step less than others yields nothing in theirs."""

    def __init__(self, loader: Any, global_batch: int, length: int) -> None:
        self.loader = loader
        self.global_batch = global_batch
        self.length = length
        self.batches: Iterator[Any] | None = None
        self.left = 0

    def __next__(self) -> list[int]:
        if self.left == 0:
            self.left = -(-(self.length - self.state()["position"]) // self.global_batch)
            self.batches = iter(self.loader)
        self.left -= 1
        assert self.batches is not None
        batch = next(self.batches, None)
        return [] if batch is None else batch["row"].tolist()

    def state(self) -> Any:
        return self.loader.sampler.state_dict()

    def close(self) -> None:
        self.batches = None


class DataLoaderDriver:
    def __init__(self, output: Any, stateful: bool) -> None:
        self.output = output
        self.stateful = stateful

    def make(
        self,
        dataset: drt.CachedDataset,
        *,
        global_batch: int,
        sampler: drt.Sampler,
        rank: int = 0,
        world_size: int = 1,
        decode: Decode = CODEC,
        state: Any = None,
    ) -> DataLoaderRun:
        loader = drtt.make_dataloader(
            drtt.TorchDataset(dataset, decode=decode, output=self.output),
            global_batch // world_size,
            sampler=sampler,
            sharding=drtt.ShardSpec(rank, world_size),
            uneven="keep",  # nothing in a DataLoader's batch could say which rows are padding
            stateful=self.stateful,
        )
        if state is not None:
            loader.sampler.load_state_dict(state)  # type: ignore[attr-defined]
        return DataLoaderRun(loader, global_batch, len(sampler.indices(dataset)))


DRIVERS = {
    "native, short": NativeDriver("short"),
    "native, pad": NativeDriver("pad"),
    "dataloader": DataLoaderDriver("samples", stateful=False),
    "stateful dataloader of columns": DataLoaderDriver("columns", stateful=True),
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
