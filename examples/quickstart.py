"""Cache scikit-learn's digits once, train on balanced batches, stop half way through an epoch and resume.

    python examples/quickstart.py [ROOT]

The first run packs the 1,797 images into ROOT/digits (ROOT is ./cache unless given); later runs reuse that
cache. What is claimed is checked: the program ends with an error where it does not hold.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import polars as pl
from pydantic import AfterValidator, InstanceOf, TypeAdapter
from typing_extensions import TypedDict

import datasetrt as drt

EPOCHS = 20


def check_pixels(pixels: np.ndarray) -> np.ndarray:
    """Refuse anything but an 8x8 image of float32."""
    if pixels.shape != (8, 8) or pixels.dtype != np.float32:
        raise ValueError(f"8x8 float32 expected, {pixels.shape} {pixels.dtype} found")
    return pixels


class Digit(TypedDict):
    """One record: the image with values in [0, 1], and the digit it shows."""

    pixels: Annotated[InstanceOf[np.ndarray], AfterValidator(check_pixels)]
    digit: int


# A record is packed with pickle and checked on reading. Reading accepts NumPy arrays and plain values, and
# refuses every other thing that a pickle can name.
CODEC = drt.codecs.Validated(drt.codecs.Pickle(allow="numpy"), TypeAdapter(Digit))


class DigitSource:
    """The digits of scikit-learn; every fifth one is held out for validation."""

    name = "digits"
    fingerprint = "scikit-learn digits, float32 in [0, 1], every fifth held out; version 1"
    codec = CODEC

    def __iter__(self) -> Iterator[drt.CacheInput]:
        from sklearn.datasets import load_digits  # only needed where there is no cache yet

        digits = load_digits()
        for number, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
            record: Digit = {"pixels": (image / 16).astype(np.float32), "digit": int(digit)}
            split = "validation" if number % 5 == 0 else "train"
            yield drt.CacheInput(CODEC.dumps(record), {"label": record["digit"], "split": split})


class Batch(NamedTuple):
    """Flattened images (n, 64) and their labels (n,)."""

    pixels: np.ndarray
    labels: np.ndarray


def stack(digits: list[Digit]) -> Batch:
    """Put decoded records side by side."""
    pixels = np.stack([digit["pixels"].ravel() for digit in digits])
    return Batch(pixels, np.array([digit["digit"] for digit in digits]))


class Softmax:
    """A linear classifier of ten classes: 64 pixels and a constant, one column of weights a class."""

    def __init__(self) -> None:
        self.weights = np.zeros((65, 10), np.float32)

    def probabilities(self, pixels: np.ndarray) -> np.ndarray:
        """Probability of each class, (n, 10)."""
        scores = pixels @ self.weights[:-1] + self.weights[-1]
        likelihoods: np.ndarray = np.exp(scores - scores.max(axis=1, keepdims=True))
        likelihoods /= likelihoods.sum(axis=1, keepdims=True)
        return likelihoods

    def learn(self, batch: Batch, rate: float = 0.5) -> None:
        """One step of gradient descent."""
        error = self.probabilities(batch.pixels)
        error[np.arange(len(batch.labels)), batch.labels] -= 1
        error *= rate / len(batch.labels)
        self.weights[:-1] -= batch.pixels.T @ error
        self.weights[-1] -= error.sum(axis=0)


def open_digits(root: Path) -> drt.CachedDataset:
    """Reuse the cache in ``root``, or write it."""
    start = time.perf_counter()
    dataset = drt.cache(DigitSource(), root)
    seconds = time.perf_counter() - start
    (report,) = dataset.reports
    if report.reused:
        print(f"reused the cache {report.path}: {len(dataset)} samples open in {seconds * 1000:.1f} ms")
    else:
        print(f"packed {report.sample_count} digits into {report.path} in {seconds:.2f} s")
    return dataset


def training_view(dataset: drt.CachedDataset) -> drt.CachedDataset:
    """The training split, made lopsided by dropping three of four eights, and balanced again by weights."""
    kept = (pl.col("split") == "train") & ((pl.col("label") != 8) | (pl.col("sample_id") % 4 == 0))
    return dataset.filter(kept).with_weights(1.0 / pl.len().over("label"))


def training_loader(view: drt.CachedDataset) -> drt.Loader[Batch]:
    """Shuffled batches, drawn by the weight column."""
    return view.loader(batch_size=32, sampler=drt.Weighted(seed=7), transform=CODEC, collate=stack)


def accuracy(model: Softmax, dataset: drt.CachedDataset) -> float:
    """Share of the held-out digits that the model names correctly."""
    view = dataset.filter(pl.col("split") == "validation")
    loader = view.loader(batch_size=256, transform=CODEC, collate=stack)
    hits = [model.probabilities(batch.pixels).argmax(axis=1) == batch.labels for batch in loader]
    return float(np.concatenate(hits).mean())


def train(loader: drt.Loader[Batch], model: Softmax, epochs: int) -> list[Batch]:
    """Train for some epochs; returns the batches in the order they came."""
    seen = []
    for _ in range(epochs):
        for batch in loader:
            model.learn(batch)
            seen.append(batch)
    return seen


def train_interrupted(view: drt.CachedDataset, model: Softmax) -> tuple[list[Batch], Softmax]:
    """The same training, stopped half way through an epoch and continued by a new loader and a new model."""
    loader = training_loader(view)
    seen = train(loader, model, EPOCHS // 2)
    for step, batch in enumerate(loader, start=1):
        model.learn(batch)
        seen.append(batch)
        if step == len(loader) // 2:
            break
    saved = json.dumps(loader.state_dict())  # beside the weights, in a checkpoint
    print(f"stopped after step {step} of {len(loader)} in epoch {EPOCHS // 2}; state: {saved}")

    resumed, continued = training_loader(view), Softmax()
    continued.weights[:] = model.weights
    resumed.load_state_dict(json.loads(saved))
    # The first loop finishes the interrupted epoch.
    return seen + train(resumed, continued, EPOCHS - EPOCHS // 2), continued


def contents(batches: list[Batch]) -> list[bytes]:
    """Every byte of every batch."""
    return [batch.pixels.tobytes() + batch.labels.tobytes() for batch in batches]


def main(root: Path) -> None:
    """Run everything on the caches in ``root``."""
    dataset = open_digits(root)
    print(dataset.metadata)

    view = training_view(dataset)
    print(view.metadata.group_by("label").agg(pl.len().alias("rows"), pl.col("weight").sum()).sort("label"))

    model = Softmax()
    seen = train(training_loader(view), model, EPOCHS)
    rows = float(np.mean(view.metadata["label"].to_numpy() == 8))
    draws = float(np.mean(np.concatenate([batch.labels for batch in seen]) == 8))
    print(f"eights: {rows:.3f} of the rows, {draws:.3f} of the draws")
    check(abs(draws - 0.1) < 0.02, "the weights balance the classes")

    share = accuracy(model, dataset)
    print(f"accuracy on the held-out digits: {share:.3f}")
    check(share > 0.93, "the held-out accuracy is above 93 %")

    seen_again, model_again = train_interrupted(view, Softmax())
    check(contents(seen_again) == contents(seen), "the resumed run delivers the same batches")
    check(
        model_again.weights.tobytes() == model.weights.tobytes(), "its weights are the same to the last bit"
    )


def check(holds: bool, claim: str) -> None:
    """Say that a claim holds, or end the program."""
    if not holds:
        raise SystemExit(f"does not hold: {claim}")
    print(f"checked: {claim}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("cache"))
