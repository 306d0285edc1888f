"""Train on scikit-learn's digits with TensorFlow, stop half way through an epoch, and resume bit by bit.

    python examples/tf_digits.py [ROOT]

The digits are packed into ROOT/tf_digits (ROOT is ./cache unless given) the first time. The same training is
run three times: without a stop; stopped and continued from a tf.train.Checkpoint that holds the iterator; and
continued from a cursor, a few numbers of JSON that every framework's loader understands. What is claimed is
checked: the program ends with an error where it does not hold.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tensorflow as tf

import datasetrt as drt
import datasetrt_tf as drtf

EPOCHS = 40
BATCH_SIZE = 32
SEED = 7

# A fixed layout: TensorFlow gets whole batches, and no Python code runs for each sample.
CODEC = drt.codecs.Record({"pixels": ("float32", (64,)), "digit": ("int64", ())})


class DigitSource:
    """The digits of scikit-learn; every fifth one is held out for validation."""

    name = "tf_digits"
    fingerprint = "scikit-learn digits, flat float32 in [0, 1], every fifth held out; version 1"
    codec = CODEC

    def __iter__(self) -> Iterator[drt.CacheInput]:
        from sklearn.datasets import load_digits  # only needed where there is no cache yet

        digits = load_digits()
        for number, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
            record = {"pixels": (image.ravel() / 16).astype(np.float32), "digit": int(digit)}
            split = "validation" if number % 5 == 0 else "train"
            yield drt.CacheInput(CODEC.dumps(record), {"split": split})


class Training:
    """A small network and its optimizer, always with the same initial weights."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.hidden = tf.Variable(random.normal(0, 0.15, (64, 32)).astype(np.float32))
        self.output = tf.Variable(random.normal(0, 0.15, (32, 10)).astype(np.float32))
        self.velocities = [tf.Variable(tf.zeros_like(weights)) for weights in (self.hidden, self.output)]
        self.learn = tf.function(self._learn, reduce_retracing=True)

    def checkpoint(self, batches: Any) -> Any:
        """Weights, velocities and the place of an iterator, to be written or read together."""
        return tf.train.Checkpoint(
            hidden=self.hidden, output=self.output, velocities=self.velocities, batches=batches
        )

    def scores(self, pixels: Any) -> Any:
        """One number for each digit, (n, 10)."""
        return tf.nn.relu(pixels @ self.hidden) @ self.output

    def _learn(self, pixels: Any, digits: Any) -> Any:
        """One step of gradient descent with momentum; returns the loss."""
        weights = [self.hidden, self.output]
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(digits, self.scores(pixels))
            loss = tf.reduce_mean(losses)
        for velocity, gradient in zip(self.velocities, tape.gradient(loss, weights), strict=True):
            velocity.assign(0.9 * velocity - 0.05 * gradient)
        for weight, velocity in zip(weights, self.velocities, strict=True):
            weight.assign_add(velocity)
        return loss

    def run(self, batches: Any, steps: int | None = None) -> list[float]:
        """Learn from so many batches, or from all that are left; returns the losses."""
        losses: list[float] = []
        while steps is None or len(losses) < steps:
            batch = next(batches, None)
            if batch is None:
                break
            losses.append(float(self.learn(batch["pixels"], batch["digit"])))
        return losses

    def accuracy(self, dataset: drt.CachedDataset) -> float:
        """Share of the digits that are named correctly."""
        hits = [
            tf.argmax(self.scores(batch["pixels"]), axis=1) == batch["digit"]
            for batch in drtf.dataset(dataset, 256, decode=CODEC, shuffle=False)
        ]
        return float(tf.reduce_mean(tf.cast(tf.concat(hits, axis=0), tf.float32)))


def pipeline(dataset: drt.CachedDataset, start: Any = 0) -> Any:
    """Shuffled batches of all epochs that are left, in one flat stream."""
    return drtf.dataset(dataset, BATCH_SIZE, decode=CODEC, seed=SEED, num_epochs=EPOCHS, start=start)


def stop_and_restore(dataset: drt.CachedDataset, steps: int, folder: Path) -> list[float]:
    """Stop after some steps, and continue with what a checkpoint of model and iterator brings back."""
    first, batches = Training(), iter(pipeline(dataset))
    losses = first.run(batches, steps)
    saved = first.checkpoint(batches).write(str(folder / "checkpoint"))

    second, batches = Training(), iter(pipeline(dataset))
    second.checkpoint(batches).read(saved).assert_consumed()
    return losses + second.run(batches)


def stop_and_continue(dataset: drt.CachedDataset, steps: int) -> list[float]:
    """Stop after some steps, and continue from the weights and a cursor."""
    first = Training()
    losses = first.run(iter(pipeline(dataset)), steps)
    saved = json.dumps(drtf.cursor(dataset, BATCH_SIZE, seed=SEED, global_step=steps))
    print(f"stopped after step {steps}; cursor: {saved}")

    second = Training()
    for ours, theirs in zip(second.velocities, first.velocities, strict=True):
        ours.assign(theirs)
    second.hidden.assign(first.hidden)
    second.output.assign(first.output)
    return losses + second.run(iter(pipeline(dataset, start=json.loads(saved))))


def main(root: Path) -> None:
    """Run everything on the cache in ``root``."""
    tf.config.experimental.enable_op_determinism()
    digits = drt.cache(DigitSource(), root)
    train = digits.filter(pl.col("split") == "train")
    held_out = digits.filter(pl.col("split") == "validation")

    training = Training()
    straight = training.run(iter(pipeline(train)))
    share = training.accuracy(held_out)
    print(f"{len(straight)} steps, accuracy on the held-out digits: {share:.3f}")
    check(share > 0.95, "the held-out accuracy is above 95 %")

    steps = len(straight) // 2 + 7  # somewhere within an epoch
    with tempfile.TemporaryDirectory() as folder:
        check(
            stop_and_restore(train, steps, Path(folder)) == straight,
            "restored from a checkpoint, the losses are the same to the last bit",
        )
    check(
        stop_and_continue(train, steps) == straight,
        "continued from a cursor, the losses are the same to the last bit",
    )


def check(holds: bool, claim: str) -> None:
    """Say that a claim holds, or end the program."""
    if not holds:
        raise SystemExit(f"does not hold: {claim}")
    print(f"checked: {claim}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("cache"))
