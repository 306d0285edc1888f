"""Lightning keeps our samplers and loaders: every sample once, epochs that advance, states in checkpoints."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.ranks import run_ranks
from tests.adapters.torch.records import RECORD, decode, joined

SHUFFLE = drt.Shuffle(seed=7)


class Recorder(lightning.LightningModule):
    """A model that notes which samples it was given, epoch by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: dict[int, list[int]] = {}
        self.validated: list[int] = []

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        self.seen.setdefault(self.current_epoch, []).extend(batch["id"].tolist())
        loss: torch.Tensor = self.layer(batch["id"][:, None].float() / 50).square().mean()
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
        if not self.trainer.sanity_checking:
            self.validated += batch["id"][batch.get("mask", slice(None))].tolist()

    def predict_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        return batch["id"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Data(lightning.LightningDataModule):
    """Loaders are made here, when the process group is there."""

    def __init__(self, folder: str, kind: str) -> None:
        super().__init__()
        self.ds = drt.open_dataset(folder)
        self.kind = kind

    def train_dataloader(self) -> Any:
        if self.kind == "native":
            return drtt.NativeLoader(self.ds, 5, decode=RECORD, seed=7)
        data = drtt.TorchDataset(self.ds, decode=decode)
        return drtt.make_dataloader(data, 5, seed=7, stateful=self.kind == "stateful")

    def val_dataloader(self) -> Any:
        if self.kind == "native":
            return drtt.NativeLoader(self.ds[:13], 5, decode=RECORD, shuffle=False)
        data = drtt.TorchDataset(self.ds[:13], decode=decode)
        return drtt.make_dataloader(data, 5, shuffle=False, uneven="keep", stateful=False)

    def predict_dataloader(self) -> Any:
        return drtt.make_dataloader(drtt.TorchDataset(self.ds, decode=decode), 5, shuffle=False, uneven="pad")


def trainer(folder: Path | str, **options: Any) -> lightning.Trainer:
    return lightning.Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "max_epochs": 3,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": str(folder),
            **options,
        }
    )


KINDS = {
    "native": ("NativeLoader", "NativeLoader"),
    "stateful": ("StatefulDataLoader", "EpochSampler"),
    "plain": ("DataLoader", "EpochSampler"),
}


def work(rank: int, world: int, folder: str, scratch: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # First, because only the first one of them finds no process group.
        found: dict[str, Any] = {"too early": fit_too_early(world, folder, scratch)}
        return found | {kind: fit(world, folder, scratch, kind) for kind in KINDS}


def fit_too_early(world: int, folder: str, scratch: str) -> str:
    """As with ``ddp_spawn``: the loader is made before Lightning has started the process group."""
    announced = os.environ.pop("WORLD_SIZE")
    loader = Data(folder, "native").train_dataloader()
    os.environ["WORLD_SIZE"] = announced
    try:
        trainer(scratch, devices=world, strategy="ddp").fit(Recorder(), loader)
    except drt.InvalidInputError as error:
        return str(error)
    return "not refused"


def fit(world: int, folder: str, scratch: str, kind: str) -> dict[str, Any]:
    model, data = Recorder(), Data(folder, kind)
    runs = trainer(scratch, devices=world, strategy="ddp", max_epochs=2)
    runs.fit(model, datamodule=data)
    loader: Any = runs.train_dataloader
    predicted: Any = runs.predict(model, datamodule=data)
    return {
        "seen": model.seen,
        "validated": model.validated,
        "types": (type(loader).__name__, type(loader.sampler).__name__),
        "predicted": torch.cat(predicted).tolist(),
    }


def test_two_processes_train_on_every_sample_once(records: drt.CachedDataset, tmp_path: Path) -> None:
    ranks = run_ranks(work, 2, str(records.caches[0].path), str(tmp_path))
    for rank in ranks:
        assert "made for rank 0 of 1" in rank["too early"]
        assert "train_dataloader()" in rank["too early"]
    for kind, types in KINDS.items():
        found = [rank[kind] for rank in ranks]
        assert [rank["types"] for rank in found] == [types, types], "Lightning has replaced something"
        for epoch in range(2):
            rows = SHUFFLE.indices(records, epoch=epoch)
            # Ten samples a step: the first five of them are rank 0's.
            for rank in range(2):
                expected = rows.reshape(5, 2, 5)[:, rank].ravel().tolist()
                assert found[rank]["seen"][epoch] == expected, f"{kind}, epoch {epoch}, rank {rank}"
        assert sorted(joined(rank["validated"] for rank in found)) == sorted(2 * list(range(13))), kind
        assert sorted(joined(rank["predicted"] for rank in found)) == list(range(50)), kind


@pytest.mark.filterwarnings("ignore")  # of Lightning, about itself
@pytest.mark.parametrize("kind", ["native", "stateful"])
def test_a_checkpoint_in_the_middle_of_an_epoch_continues_there(
    records: drt.CachedDataset, tmp_path: Path, kind: str
) -> None:
    folder = str(records.caches[0].path)
    options: dict[str, Any] = {"limit_val_batches": 0, "num_sanity_val_steps": 0}
    straight = Recorder()
    # The fourth step of the second epoch.
    saving = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=14, save_top_k=-1)
    trainer(tmp_path, callbacks=[saving], enable_checkpointing=True, **options).fit(
        straight, datamodule=Data(folder, kind)
    )
    resumed = Recorder()
    trainer(tmp_path, **options).fit(
        resumed, datamodule=Data(folder, kind), ckpt_path=tmp_path / "step=14.ckpt", weights_only=False
    )
    assert joined(resumed.seen.values()) == joined(straight.seen.values())[70:]
    assert torch.equal(resumed.layer.weight, straight.layer.weight)


@pytest.mark.filterwarnings("ignore")  # of Lightning, about itself
@pytest.mark.parametrize("kind", ["native", "stateful", "plain"])
def test_trial_modes_work(records: drt.CachedDataset, tmp_path: Path, kind: str) -> None:
    folder = str(records.caches[0].path)
    modes: list[dict[str, Any]] = [{"fast_dev_run": True}, {"limit_train_batches": 2}]
    if kind != "native":
        modes.append({"overfit_batches": 2})
    for mode in modes:
        model = Recorder()
        trainer(tmp_path, **{"max_epochs": 1, **mode}).fit(model, datamodule=Data(folder, kind))
        assert len(model.seen[0]) == (5 if "fast_dev_run" in mode else 10)
