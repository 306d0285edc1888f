"""Accelerate: ambiguous sharding is refused, and with sharding='none' every sample comes once."""

from __future__ import annotations

import warnings
from typing import Any

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.ranks import run_ranks
from tests.adapters.torch.records import RECORD, decode, joined

SHUFFLE = drt.Shuffle(seed=7)


def train(rank: int, world: int, folder: str) -> dict[str, Any]:
    from accelerate import Accelerator

    warnings.simplefilter("ignore")
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == world
    ds = drt.open_dataset(folder)
    data = drtt.TorchDataset(ds, decode=decode)
    found: dict[str, Any] = {}
    for make in (lambda: drtt.make_dataloader(data, 5), lambda: drtt.NativeLoader(ds, 5)):
        try:
            make()
        except drt.InvalidInputError as error:
            found.setdefault("refused", []).append(str(error))
    for stateful in (False, True):
        loader = accelerator.prepare(
            drtt.make_dataloader(data, 5, seed=7, sharding="none", stateful=stateful)
        )
        epochs = []
        for epoch in (0, 1, 4):
            loader.set_epoch(epoch)  # has to arrive at our sampler, through Accelerate's batch sampler
            loader.iteration = epoch
            epochs.append([batch["id"].tolist() for batch in loader])
        found[f"prepared, stateful {stateful}"] = epochs
    # The other way out: shard it ourselves, and do not prepare it.
    own = drtt.NativeLoader(ds, 5, decode=RECORD, seed=7, sharding=drtt.ShardSpec.from_distributed())
    found["own"] = [[batch["id"].tolist() for batch in own]]
    accelerator.end_training()
    return found


def test_two_processes(records: drt.CachedDataset) -> None:
    ranks = run_ranks(train, 2, str(records.caches[0].path))
    for rank in ranks:
        assert len(rank["refused"]) == 2
        assert all("sharding='none'" in text and "ShardSpec" in text for text in rank["refused"])
    for name in ("prepared, stateful False", "prepared, stateful True", "own"):
        for number, epoch in zip(range(3), (0, 1, 4), strict=True):
            if number >= len(ranks[0][name]):
                break
            rows = SHUFFLE.indices(records, epoch=epoch).tolist()
            # Whole batches are dealt in turn, so that ranks side by side give slices of the order.
            steps = zip(*(rank[name][number] for rank in ranks), strict=True)
            assert joined(joined(step) for step in steps) == rows, f"{name}, epoch {epoch}"
