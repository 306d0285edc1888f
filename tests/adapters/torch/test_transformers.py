"""Hugging Face's Trainer brings its own sampler: a TorchDataset is all it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.records import RECORD


class Recorder(torch.nn.Module):
    """A model that notes which samples it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen += labels.tolist()
        return {"loss": (self.layer(x / 50).squeeze() - labels / 50).square().mean()}


def example(sample: drt.CachedSample) -> dict[str, Any]:
    fields = RECORD.loads(bytearray(sample.data))
    return {"x": fields["x"], "labels": int(fields["id"])}


def run(folder: Path, data: Any, resume: Path | None = None, **options: Any) -> tuple[Recorder, Trainer]:
    torch.manual_seed(0)
    model = Recorder()
    given: dict[str, Any] = {"save_strategy": "no", **options}
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
        seed=3,
        remove_unused_columns=False,
        **given,
    )
    trainer = Trainer(model, arguments, train_dataset=data, data_collator=drtt.collate)
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    return model, trainer


@pytest.mark.filterwarnings("ignore")  # of transformers, about itself
@pytest.mark.parametrize("workers", [0, 2])
def test_trainer_reads_every_sample_once_an_epoch(
    records: drt.CachedDataset, tmp_path: Path, workers: int
) -> None:
    data = drtt.TorchDataset(records, decode=example)
    model, trainer = run(tmp_path, data, dataloader_num_workers=workers)
    sampler = trainer.get_train_dataloader().batch_sampler.sampler  # type: ignore[union-attr]
    assert not isinstance(sampler, drtt.EpochSampler), "the order is Trainer's"
    assert sorted(model.seen[:50]) == sorted(model.seen[50:]) == list(range(50))
    assert model.seen[:50] != model.seen[50:]
    again, _ = run(tmp_path, data, dataloader_num_workers=0)
    assert again.seen == model.seen, "workers change nothing"
    assert torch.equal(again.layer.weight, model.layer.weight)


class OwnOrder(Trainer):
    """To own the order, give a loader of ours; Accelerate shards it."""

    def get_train_dataloader(self) -> Any:
        loader = drtt.make_dataloader(self.train_dataset, 8, seed=7, sharding="none")  # type: ignore[arg-type]
        return self.accelerator.prepare(loader)


@pytest.mark.filterwarnings("ignore")
def test_trainer_with_our_order(
    records: drt.CachedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(run.__globals__, "Trainer", OwnOrder)
    model, _ = run(tmp_path, drtt.TorchDataset(records, decode=example))
    shuffle = drt.Shuffle(seed=7)
    assert model.seen == [row for epoch in (0, 1) for row in shuffle.indices(records, epoch=epoch).tolist()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trainer", [Trainer, OwnOrder])
@pytest.mark.parametrize("step", [3, 7, 10])
def test_trainer_resumes(
    records: drt.CachedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: type, step: int
) -> None:
    """Trainer skips what its checkpoint has seen by running through the sampler, whoever made that."""
    monkeypatch.setitem(run.__globals__, "Trainer", trainer)
    data = drtt.TorchDataset(records, decode=example)
    straight, _ = run(tmp_path, data, save_strategy="steps", save_steps=step)
    resumed, _ = run(tmp_path / "resumed", data, resume=tmp_path / f"checkpoint-{step}")
    # Seven steps an epoch, the last one of two samples.
    taken = step // 7 * 50 + step % 7 * 8
    assert resumed.seen == straight.seen[taken:]
    assert torch.equal(resumed.layer.weight, straight.layer.weight)
