"""The operations: what is made ready, what is timed, and how fast its work grows."""

from __future__ import annotations

import importlib
import pickle
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasetrt as drt

from .data import Shape, write

#: Exponent of the work on an axis, where it is not 0: twice the columns are twice the work to load a table.
Work = dict[str, float]
#: What is made ready gives what is timed; that gives something that is kept while memory is measured.
Ready = Callable[[Shape, Path], Callable[[], Any]]


@dataclass(frozen=True)
class Operation:
    """One operation.

    Args:
        name: In results and plots.
        ready: Prepares, and gives what is timed.
        work: How the least work of it grows.
        of: What a figure is divided by.
        repeats: Calls that are timed; the fastest counts. 1 where only the first is of interest.
    """

    name: str
    ready: Ready
    work: Work
    of: Callable[[Shape, Path], float] = lambda _shape, _root: 1.0
    repeats: int = 1


def opened(shape: Shape, root: Path) -> drt.CachedDataset[drt.CachedSample]:
    """The dataset of a shape."""
    return drt.open_dataset(root / shape.name)


def _write(shape: Shape, root: Path) -> Callable[[], Any]:
    folder = root / "written"
    shutil.rmtree(folder, ignore_errors=True)
    return lambda: write(shape, folder)


def _open(shape: Shape, root: Path) -> Callable[[], Any]:
    return lambda: opened(shape, root)


def _first(shape: Shape, root: Path) -> Callable[[], Any]:
    def run() -> Any:
        dataset = opened(shape, root)
        return dataset, dataset[0]

    return run


def _metadata(shape: Shape, root: Path) -> Callable[[], Any]:
    dataset = opened(shape, root)
    return lambda: dataset.metadata


def _filter(shape: Shape, root: Path) -> Callable[[], Any]:
    import polars as pl

    dataset = opened(shape, root)
    _ = dataset.metadata
    return lambda: dataset.filter(pl.col("label") == 7)


def _with_metadata(shape: Shape, root: Path) -> Callable[[], Any]:
    dataset = opened(shape, root)
    frame = dataset.metadata.reverse()
    return lambda: dataset.with_metadata(frame)


def _with_weights(shape: Shape, root: Path) -> Callable[[], Any]:
    import numpy as np

    dataset = opened(shape, root)
    weights = np.linspace(1.0, 2.0, shape.samples)
    return lambda: dataset.with_weights(weights)


def _rows(shape: Shape, count: int) -> list[int]:
    chosen = random.Random(1)
    return [chosen.randrange(shape.samples) for _ in range(count)]


def _sample(shape: Shape, root: Path) -> Callable[[], Any]:
    dataset, rows = opened(shape, root), _rows(shape, shape.batch)
    return lambda: [len(dataset[row].data) for row in rows]


def _sample_metadata(shape: Shape, root: Path) -> Callable[[], Any]:
    dataset = opened(shape, root)
    samples = [dataset[row] for row in _rows(shape, min(shape.batch, 16))]
    # A sample keeps its dict: each call has one of its own.
    rest = iter(samples)
    return lambda: next(rest).metadata


def _take(shape: Shape, root: Path) -> Callable[[], Any]:
    dataset, rows = opened(shape, root), _rows(shape, shape.batch)
    return lambda: dataset.take(rows)


def _loader(shape: Shape, root: Path) -> drt.Loader[Any]:
    return opened(shape, root).loader(batch_size=shape.batch, sampler=drt.Shuffle(seed=1))


def _first_batch(shape: Shape, root: Path) -> Callable[[], Any]:
    dataset = opened(shape, root)

    def run() -> Any:
        batches = iter(dataset.loader(batch_size=shape.batch, sampler=drt.Shuffle(seed=1)))
        return batches, next(batches)

    return run


def _seek(shape: Shape, root: Path) -> Callable[[], Any]:
    loader = _loader(shape, root)
    state = {**loader.state_dict(), "position": shape.samples // 2, "epoch": 3}

    def run() -> Any:
        loader.load_state_dict(state)
        batches = iter(loader)
        return batches, next(batches)

    return run


def _batches(shape: Shape, root: Path) -> Callable[[], Any]:
    loader, wanted = _loader(shape, root), _epoch_part(shape, root)
    next(iter(loader))

    def run() -> Any:
        samples = 0
        for batch in loader:
            samples += len(batch)
            if samples >= wanted:
                break
        return loader

    return run


def _epoch_part(shape: Shape, _root: Path) -> float:
    """Samples of whole batches, at most about a million."""
    limit = min(shape.samples, 1_000_000)
    return min(-(-limit // shape.batch) * shape.batch, shape.samples)


def _pickle(shape: Shape, root: Path) -> Callable[[], Any]:
    dataset = opened(shape, root)
    return lambda: pickle.dumps(dataset)


def _verify(shape: Shape, root: Path) -> Callable[[], Any]:
    dataset = opened(shape, root)

    def run() -> Any:
        report = dataset.verify()
        if not report.ok:
            raise RuntimeError(f"{shape.name} is damaged: {report.problems[0]}")
        return report

    return run


def _stored(shape: Shape, root: Path) -> float:
    return sum(path.stat().st_size for path in (root / shape.name).rglob("*") if path.is_file())


def _batch(shape: Shape, _root: Path) -> float:
    return shape.batch


def _per_sample_by_payload(shape: Shape, _root: Path) -> float:
    """Payloads of different sizes are written in different numbers."""
    return shape.samples if shape.payload != Shape.payload else 1.0


TABLE: Work = {"samples": 1, "columns": 1}
BYTES: Work = {"payload": 1}
OPERATIONS = (
    Operation("write", _write, {**TABLE, **BYTES, "shards": 1}, of=_per_sample_by_payload),
    Operation("open", _open, {**TABLE, "shards": 1}),
    Operation("open to first sample", _first, {**TABLE, **BYTES, "shards": 1}),
    Operation("ds.metadata", _metadata, TABLE),
    Operation("filter", _filter, TABLE),
    Operation("with_metadata", _with_metadata, TABLE),
    Operation("with_weights", _with_weights, {"samples": 1}),
    Operation("ds[i]", _sample, BYTES, of=_batch, repeats=5),
    Operation("ds[i].metadata", _sample_metadata, {"columns": 1}, repeats=4),
    Operation("take", _take, BYTES, of=_batch, repeats=5),
    Operation("first shuffled batch", _first_batch, BYTES, of=_batch),
    Operation("seek to next batch", _seek, BYTES, of=_batch, repeats=3),
    Operation("batches, a sample", _batches, BYTES, of=_epoch_part, repeats=3),
    Operation("pickle.dumps(ds)", _pickle, {}, repeats=5),
    Operation("verify, a byte", _verify, {}, of=_stored),
)
BY_NAME = {operation.name: operation for operation in OPERATIONS}


def measured(operation: Operation, shape: Shape, root: Path) -> dict[str, float]:
    """Seconds, the fastest call; and kilobytes that became private between before and after, results held."""
    # Imported before anything is looked at: the import is not the operation's.
    for module in ("numpy", "numpy.ma", "polars"):
        importlib.import_module(module)
    with _cleared(root / "written"):
        run = operation.ready(shape, root)
        before, seconds = private_kilobytes(), []
        kept = None
        for _ in range(min(operation.repeats, shape.samples)):
            # The result of one call is gone before the next.
            del kept
            begin = time.perf_counter()
            kept = run()
            seconds.append(time.perf_counter() - begin)
        private = private_kilobytes() - before
        del kept
        return {"seconds": min(seconds) / operation.of(shape, root), "private_kb": private}


@contextmanager
def _cleared(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def private_kilobytes() -> int:
    """Memory of this process that no other shares and that is on no disk."""
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel does not say how much memory is private")
