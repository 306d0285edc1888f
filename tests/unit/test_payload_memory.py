"""Payload memory that outlives its batch: what holds a view of it keeps it, unchanged, for itself.

`nox -s sanitize` runs these once more with every access to memory checked.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import datasetrt as drt
from tests.rows import RowSource

SAMPLES = 48
BATCH = 4
#: One that the allocator takes back, and one that goes to the next batches of the same loop.
SIZES = {"small": 1_000, "pooled": 50_000}

Views = Callable[[drt.SampleBatch], list[Any]]


def payload(number: int, size: int) -> bytes:
    return number.to_bytes(8, "little") * (size // 8)


@pytest.fixture(scope="module", params=SIZES.values(), ids=SIZES.keys())
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> drt.CachedDataset:
    root = tmp_path_factory.mktemp("caches")
    rows = [(payload(number, request.param), {"n": number}) for number in range(SAMPLES)]
    drt.write_cache(RowSource("s", rows), root, config=drt.WriterConfig(progress=False))
    return drt.open_dataset(root / "s")


def batches(ds: drt.CachedDataset) -> Iterator[drt.SampleBatch]:
    # Few batches ahead: memory that comes back is soon another batch's.
    return iter(ds.loader(batch_size=BATCH, sampler=drt.Shuffle(seed=5), prefetch_batches=1, threads=2))


def expected(batch: drt.SampleBatch) -> list[bytes]:
    size = int(batch.lengths[0])
    return [payload(int(row), size) for row in batch.indices]


def arrow(batch: drt.SampleBatch) -> list[Any]:
    # Not the scalars of the column: pyarrow copies what they are made of.
    _, _, values = pa.record_batch(batch).column("data").buffers()
    size = int(batch.lengths[0])
    return [values.slice(at * size, size) for at in range(len(batch))]


def parts(batch: drt.SampleBatch) -> list[Any]:
    """Both halves of each payload, in two columns."""
    half = int(batch.lengths[0]) // 2
    left, right = (
        np.frombuffer(part, np.uint8).reshape(len(batch), half) for part in batch.split([half, half])
    )
    return list(zip(left, right, strict=True))


VIEWS: dict[str, Views] = {
    "payloads": lambda batch: batch.payloads,
    "buffer": lambda batch: np.split(np.frombuffer(batch.buffer, np.uint8), len(batch)),
    "array": lambda batch: list(batch.as_array("u1", (int(batch.lengths[0]),))),
    "cast": lambda batch: [view.cast("Q") for view in batch.payloads],
    "view of a view": lambda batch: [memoryview(np.asarray(view))[0:] for view in batch.payloads],
    "split": parts,
    "arrow": arrow,
}


def read(view: Any) -> bytes:
    return b"".join(map(bytes, view)) if isinstance(view, tuple) else bytes(view)


@pytest.mark.parametrize("views", VIEWS.values(), ids=VIEWS.keys())
def test_views_outlive_batch_and_loop(views: Views, dataset: drt.CachedDataset) -> None:
    kept = [(views(batch), expected(batch)) for batch in batches(dataset)]
    gc.collect()
    for batch in batches(dataset):
        batch.buffer[:] = b"\xff" * len(batch.buffer)
    assert len(kept) == SAMPLES // BATCH
    for found, wanted in kept:
        assert [read(view) for view in found] == wanted


def test_what_is_written_stays_with_its_batch(dataset: drt.CachedDataset) -> None:
    kept = []
    for number, batch in enumerate(batches(dataset)):
        view = batch.buffer
        view[:] = bytes([number]) * len(view)
        kept.append(view)
    assert [set(bytes(view)) for view in kept] == [{number} for number in range(len(kept))]


def test_a_view_that_is_released_ends_nobody_elses(dataset: drt.CachedDataset) -> None:
    batch = next(batches(dataset))
    wanted, whole, views = expected(batch), batch.buffer, batch.payloads
    del batch
    whole.release()
    views[0].release()
    with pytest.raises(ValueError, match="released"):
        bytes(views[0])
    list(batches(dataset))
    assert [bytes(view) for view in views[1:]] == wanted[1:]


def test_a_view_that_is_resurrected_is_whole(dataset: drt.CachedDataset) -> None:
    """The collector ends a cycle that holds a batch, and a finalizer of it brings the views back."""
    saved: list[tuple[list[memoryview], list[bytes]]] = []

    class Holder:
        def __init__(self, batch: drt.SampleBatch) -> None:
            self.batch, self.me = batch, self

        def __del__(self) -> None:
            saved.append((self.batch.payloads, expected(self.batch)))

    for batch in batches(dataset):
        Holder(batch)
    del batch
    gc.collect()
    list(batches(dataset))
    assert len(saved) == SAMPLES // BATCH
    for views, wanted in saved:
        assert [bytes(view) for view in views] == wanted


def test_threads_drop_and_keep_each_others_views(dataset: drt.CachedDataset) -> None:
    """One loop for all of them: memory that one lets go is read into while others look at theirs."""
    loop, lock = batches(dataset), threading.Lock()
    wrong: list[str] = []
    done: list[int] = []

    def work() -> None:
        held: list[tuple[list[memoryview], list[bytes]]] = []
        while True:
            with lock:
                batch = next(loop, None)
            if batch is None:
                break
            held.append((batch.payloads, expected(batch)))
            del batch
            done.append(BATCH)
            views, wanted = held.pop(0) if len(held) > 2 else held[-1]
            if [bytes(view) for view in views] != wanted:
                wrong.append(f"{wanted[0][:8]!r}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, sum(done)) == ([], SAMPLES)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_has_views_of_its_own(dataset: drt.CachedDataset) -> None:
    batch = dataset.take(range(BATCH))
    views, wanted = batch.payloads, expected(batch)
    child = os.fork()
    if not child:
        try:
            same = [bytes(view) for view in views] == wanted
            views[0][:] = bytes(len(views[0]))
            os._exit(
                7 if same and not any(views[0]) and len(list(batches(dataset))) == SAMPLES // BATCH else 8
            )
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert [bytes(view) for view in views] == wanted


def test_a_buffer_ends_where_its_last_payload_ends(dataset: drt.CachedDataset) -> None:
    for batch in batches(dataset):
        assert len(bytes(batch.buffer)) == batch.offsets[-1] + batch.lengths[-1]
