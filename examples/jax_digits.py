"""Train a small network on scikit-learn's digits with JAX, lose the process in mid-epoch, and resume exactly.

    python examples/jax_digits.py [ROOT]

Needs jax, orbax-checkpoint and scikit-learn. The cache is written to ROOT/jax-digits (ROOT is ./cache unless
given), checkpoints to a temporary folder. What is claimed is checked: the program ends with an error where it
does not hold.
"""

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import datasetrt as drt
import datasetrt_jax as drtj

EPOCHS = 30
GLOBAL_BATCH = 64
STOP_AFTER = 317  # steps: in the middle of an epoch

CODEC = drt.codecs.Record({"pixels": ("float32", (8, 8)), "digit": ("int32", ())})

Params = dict[str, jax.Array]


class DigitSource:
    """The digits of scikit-learn; every fifth one is held out."""

    name = "jax-digits"
    fingerprint = "scikit-learn digits, float32 in [0, 1], every fifth held out; version 1"
    codec = CODEC

    def __iter__(self) -> Iterator[drt.CacheInput]:
        from sklearn.datasets import load_digits  # only needed where there is no cache yet

        digits = load_digits()
        for number, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
            payload = CODEC.dumps({"pixels": (image / 16).astype(np.float32), "digit": np.int32(digit)})
            yield drt.CacheInput(payload, {"split": "train" if number % 5 else "validation"})


def layout(*axes: str) -> NamedSharding:
    """Over all devices of all processes: rows cut along ``"data"``, or everything copied to each device."""
    return NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec(*axes))


def initial_params() -> Params:
    """A network of one hidden layer: 64 pixels, 128 units, 10 classes."""
    first, second = jax.random.split(jax.random.key(0))
    params = {
        "w1": jax.random.normal(first, (64, 128)) / 8,
        "b1": jnp.zeros(128),
        "w2": jax.random.normal(second, (128, 10)) / 11,
        "b2": jnp.zeros(10),
    }
    placed: Params = jax.device_put(params, layout())
    return placed


def scores(params: Params, pixels: jax.Array) -> jax.Array:
    """Unnormalised log-probabilities, (n, 10)."""
    hidden = jax.nn.relu(pixels.reshape(-1, 64) @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss_of(params: Params, batch: dict[str, jax.Array]) -> jax.Array:
    """Mean cross-entropy of the samples that are no padding."""
    likelihoods = jax.nn.log_softmax(scores(params, jnp.asarray(batch["pixels"])))
    losses = -jnp.take_along_axis(likelihoods, batch["digit"][:, None], axis=1)[:, 0]
    return jnp.sum(losses * batch["mask"]) / jnp.sum(batch["mask"])


@partial(jax.jit, static_argnames="rate")
def learn(params: Params, batch: dict[str, jax.Array], rate: float = 0.2) -> tuple[Params, jax.Array]:
    """One step of gradient descent; compiled once, because all batches have one shape."""
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    return jax.tree.map(lambda value, gradient: value - rate * gradient, params, gradients), loss


def training_batches(dataset: drt.CachedDataset) -> drtj.DeviceIterator:
    """Shuffled global batches, cut over the devices."""
    batches = drtj.batches(
        dataset.filter(split="train"),
        global_batch=GLOBAL_BATCH,
        decode=CODEC,
        seed=7,
        tail="pad",
        num_epochs=EPOCHS,
    )
    return drtj.device_batches(batches, layout("data"))


def accuracy(params: Params, dataset: drt.CachedDataset) -> float:
    """Share of the held-out digits that the network names correctly."""
    hits = samples = 0
    held_out = dataset.filter(split="validation")
    for batch in drtj.batches(
        held_out, global_batch=64, decode=CODEC, shuffle=False, tail="pad", num_epochs=1
    ):
        right = np.asarray(scores(params, jnp.asarray(batch["pixels"]))).argmax(axis=1) == batch["digit"]
        hits += int(right[batch["mask"]].sum())
        samples += int(batch["mask"].sum())
    assert samples == len(held_out)
    return hits / samples


def train(params: Params, batches: drtj.DeviceIterator, steps: int | None = None) -> tuple[Params, list[Any]]:
    """Take some steps, or all that are left; returns the losses, bit for bit."""
    losses = []
    for batch in batches:
        params, loss = learn(params, batch)
        losses.append(np.asarray(loss))  # waits for the step, while the next batches are transferred
        if len(losses) == steps:
            break
    return params, losses


def train_interrupted(dataset: drt.CachedDataset, folder: Path) -> tuple[Params, list[Any]]:
    """The same training in two halves, which share nothing but a checkpoint."""
    with ocp.CheckpointManager(folder) as manager, training_batches(dataset) as batches:
        params, before = train(initial_params(), batches, STOP_AFTER)
        model, data = ocp.args.StandardSave(params), ocp.args.JsonSave(batches.get_state())
        manager.save(STOP_AFTER, args=ocp.args.Composite(model=model, data=data))
        print(f"stopped in epoch {batches.epoch} after step {batches.step}; state: {batches.get_state()}")

    with ocp.CheckpointManager(folder) as manager, training_batches(dataset) as batches:
        wanted = ocp.args.Composite(
            model=ocp.args.StandardRestore(initial_params()), data=ocp.args.JsonRestore()
        )
        restored = manager.restore(manager.latest_step(), args=wanted)
        batches.set_state(restored["data"])
        params, after = train(restored["model"], batches)
    return params, before + after


def bits(values: Any) -> list[bytes]:
    """Every byte of every array."""
    return [np.asarray(value).tobytes() for value in jax.tree.leaves(values)]


def main(root: Path) -> None:
    """Run everything on the cache in ``root``."""
    dataset = drt.cache(DigitSource(), root)
    with training_batches(dataset) as batches:
        params, losses = train(initial_params(), batches)
    print(
        f"{len(losses)} steps on {jax.device_count()} device(s); loss {losses[0]:.3f}, then {losses[-1]:.4f}"
    )

    share = accuracy(params, dataset)
    print(f"accuracy on the held-out digits: {share:.3f}")
    check(share > 0.95, "the held-out accuracy is above 95 %")

    with tempfile.TemporaryDirectory() as folder:
        params_again, losses_again = train_interrupted(dataset, Path(folder))
    check(bits(losses_again) == bits(losses), "the resumed run has the same losses to the last bit")
    check(bits(params_again) == bits(params), "and ends with the same weights")


def check(holds: bool, claim: str) -> None:
    """Say that a claim holds, or end the program."""
    if not holds:
        raise SystemExit(f"does not hold: {claim}")
    print(f"checked: {claim}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("cache"))
