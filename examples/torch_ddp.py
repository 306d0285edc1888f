"""Train on two processes with DistributedDataParallel, stop in the middle of an epoch, continue on one.

    python examples/torch_ddp.py [ROOT]

Packs scikit-learn's digits into ROOT/digits-ddp (ROOT is ./cache unless given); later runs reuse that cache.
The processes talk through gloo, so that no GPU is needed. What is claimed is checked: the program ends with
an error where it does not hold.
"""

import itertools
import json
import multiprocessing
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import datasetrt as drt
import datasetrt_torch as drtt

RANKS = 2
GLOBAL_BATCH = 64

CODEC = drt.codecs.Record({"pixels": ("float32", (64,)), "digit": ("int64", ())})


def pack(item: tuple[np.ndarray, int]) -> drt.CacheInput:
    """One digit as a record."""
    pixels, digit = item
    return drt.CacheInput(CODEC.dumps({"pixels": (pixels / 16).astype(np.float32), "digit": digit}), {})


def open_digits(root: Path) -> drt.CachedDataset:
    """Reuse the cache in ``root``, or write it."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    items = list(zip(digits.data, digits.target.tolist(), strict=True))
    source = drt.MapSource("digits-ddp", items, pack, codec=CODEC, fingerprint="digits in [0, 1]; version 1")
    return drt.cache(source, root, config=drt.WriterConfig(progress=False))


def loader_for(dataset: drt.CachedDataset, ranks: int) -> drtt.NativeLoader:
    """This rank's part of each global batch; ``include_index`` tells which rows those are."""
    return drtt.NativeLoader(
        dataset, batch_size=GLOBAL_BATCH // ranks, decode=CODEC, include_index="row", seed=7, tail="short"
    )


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> None:
    """One step of training, in which padded rows count for nothing."""
    real = batch.get("mask", torch.ones(len(batch["digit"]), dtype=torch.bool))
    losses = nn.functional.cross_entropy(model(batch["pixels"]), batch["digit"], reduction="none")
    optimizer.zero_grad()
    (losses * real).mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def work(rank: int, path: Path, port: int, report: Any) -> None:
    """What each process does: train for one epoch, and half of the next."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = loader_for(drt.open_dataset(path), RANKS)  # finds rank and world size in the process group
    rows: list[list[int]] = []
    stop = len(loader) + len(loader) // 2
    while len(rows) < stop:
        for batch in loader:
            step(model, optimizer, batch)
            rows.append(batch["row"][batch["mask"]].tolist())
            if len(rows) == stop:
                break
    weights = [part.tolist() for part in model.parameters()]
    report.put((rank, rows, weights, json.dumps(loader.state_dict())))
    dist.destroy_process_group()


def main(root: Path) -> None:
    """Run both processes, then continue in this one."""
    dataset = open_digits(root)
    path = dataset.caches[0].path
    context = multiprocessing.get_context("spawn")
    report = context.Queue()
    port = _free_port()
    processes = [context.Process(target=work, args=(rank, path, port, report)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    found = sorted(report.get(timeout=300) for _ in processes)
    for process in processes:
        process.join()

    _, rows, weights, states = zip(*found, strict=True)
    check(weights[0] == weights[1], "both ranks have the same weights")
    check(states[0] == states[1], "both ranks have the same state")
    global_batches = [[*first, *second] for first, second in zip(*rows, strict=True)]
    steps_per_epoch = -(-len(dataset) // GLOBAL_BATCH)
    epoch = itertools.chain.from_iterable(global_batches[:steps_per_epoch])
    check(sorted(epoch) == list(range(len(dataset))), "the first epoch had every sample exactly once")

    one = loader_for(dataset, ranks=1)
    one.load_state_dict(json.loads(states[0]))
    print(f"continuing on one process at {states[0]}")
    rest = [batch["row"].tolist() for batch in one]
    straight = loader_for(dataset, ranks=1)
    expected = [batch["row"].tolist() for _ in range(2) for batch in straight]
    check(global_batches + rest == expected, "two ranks and then one see the batches that one alone sees")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def check(holds: bool, claim: str) -> None:
    """Say that a claim holds, or end the program."""
    if not holds:
        raise SystemExit(f"does not hold: {claim}")
    print(f"checked: {claim}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("cache"))
