"""Train a PyTorch network on scikit-learn's digits, interrupt it, and continue to the same last bit.

    python examples/torch_digits.py [ROOT]

The first run packs the 1,797 images into ROOT/digits-records (ROOT is ./cache unless given); later runs reuse
that cache. What is claimed is checked: the program ends with an error where it does not hold.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

import datasetrt as drt
import datasetrt_torch as drtt

EPOCHS = 15

# Fields of fixed shape, so that a whole batch becomes tensors in a few calls and without a copy.
CODEC = drt.codecs.Record({"image": ("float32", (1, 8, 8)), "digit": ("int64", ())})


class DigitSource:
    """The digits of scikit-learn; every fifth one is held out."""

    name = "digits-records"
    fingerprint = "scikit-learn digits, float32 in [0, 1] of shape (1, 8, 8), every fifth held out; version 1"
    codec = CODEC

    def __iter__(self) -> Iterator[drt.CacheInput]:
        from sklearn.datasets import load_digits  # only needed where there is no cache yet

        digits = load_digits()
        for number, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
            record = {"image": (image / 16).astype(np.float32)[None], "digit": int(digit)}
            yield drt.CacheInput(CODEC.dumps(record), {"split": "train" if number % 5 else "held out"})


class Run:
    """A network, its optimizer and its loader: all that a checkpoint has to keep."""

    def __init__(self, view: drt.CachedDataset) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.loader = drtt.NativeLoader(view, batch_size=32, decode=CODEC, seed=7, tail="short")

    def step(self, batch: dict[str, Tensor]) -> float:
        """One step of training; returns the loss."""
        loss = nn.functional.cross_entropy(self.model(batch["image"]), batch["digit"])
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()

    def train(self, steps: int) -> list[float]:
        """So many steps, over as many epochs as they take; returns their losses."""
        losses: list[float] = []
        while len(losses) < steps:
            for batch in self.loader:  # each loop is the next epoch, or finishes an interrupted one
                losses.append(self.step(batch))
                if len(losses) == steps:
                    break
        return losses

    def save(self, file: Path) -> None:
        """Write a checkpoint: the loader's state is a small dict beside the weights."""
        checkpoint = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
        }
        torch.save(checkpoint, file)

    def load(self, file: Path) -> None:
        """Continue from a checkpoint."""
        checkpoint = torch.load(file, weights_only=True)
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.loader.load_state_dict(checkpoint["loader"])


@torch.no_grad()
def accuracy(model: nn.Module, view: drt.CachedDataset) -> float:
    """Share of the digits that the model names correctly."""
    loader = drtt.NativeLoader(view, batch_size=256, decode=CODEC, shuffle=False)
    hits = [model(batch["image"]).argmax(dim=1) == batch["digit"] for batch in loader]
    return float(torch.cat(hits).float().mean())


def main(root: Path) -> None:
    """Run everything on the cache in ``root``."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # for a network this small, threads take longer to start than to finish
    dataset = drt.cache(DigitSource(), root)
    training = dataset.filter(pl.col("split") == "train")
    held_out = dataset.filter(pl.col("split") == "held out")

    straight = Run(training)
    steps = EPOCHS * len(straight.loader)
    losses = straight.train(steps)
    print(f"trained on {len(training)} digits for {EPOCHS} epochs: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    share = accuracy(straight.model, held_out)
    print(f"accuracy on {len(held_out)} held-out digits: {share:.3f}")
    check(share > 0.95, "the held-out accuracy is above 95 %")

    file = Path(root) / "digits.checkpoint.pt"
    interrupted = Run(training)
    stop = steps // 2 + len(interrupted.loader) // 2  # in the middle of an epoch
    head = interrupted.train(stop)
    interrupted.save(file)
    state = interrupted.loader.state_dict()
    print(f"interrupted at step {stop} of {steps}: epoch {state['epoch']}, position {state['position']}")
    del interrupted

    resumed = Run(training)
    resumed.load(file)
    tail = resumed.train(steps - stop)
    check(head + tail == losses, "the losses of the interrupted run are the same to the last bit")
    learned = zip(resumed.model.parameters(), straight.model.parameters(), strict=True)
    check(all(torch.equal(ours, theirs) for ours, theirs in learned), "so are the weights")


def check(holds: bool, claim: str) -> None:
    """Say that a claim holds, or end the program."""
    if not holds:
        raise SystemExit(f"does not hold: {claim}")
    print(f"checked: {claim}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("cache"))
