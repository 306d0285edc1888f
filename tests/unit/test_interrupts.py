"""Ctrl-C in the middle of long work of the native module: answered there, and nothing is left half done.

Native calls are chained in C, by ``map`` into ``list.extend``: were the signal answered only after the call,
its result would be in the list.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt import loop
from tests.rows import wait_for_files

#: Seconds until the signal comes, by which time the call is at its work: all of them take far longer.
SOON = 0.2


@contextmanager
def interrupting(wait: Callable[[], Any]) -> Iterator[None]:
    """Sends Ctrl-C to this process once ``wait`` returns."""

    def send() -> None:
        wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def soon() -> None:
    time.sleep(SOON)


def test_a_huge_take_is_interrupted(tiny: drt.CachedDataset) -> None:
    rows = np.zeros(1 << 23, np.int64)
    taken: list[Any] = []
    with pytest.raises(KeyboardInterrupt), interrupting(soon):
        taken.extend(map(tiny._view.take, [rows]))
    assert not taken
    assert len(tiny.take([0, 1])) == 2


@pytest.mark.parametrize(
    "sampler", [drt.Weighted(seed=1, num_samples=1 << 28), drt.Weighted(seed=1, num_samples=1 << 40)]
)
def test_indices_of_a_huge_epoch_are_interrupted(sampler: drt.Sampler, tiny: drt.CachedDataset) -> None:
    order = tiny._order(sampler)
    found: list[Any] = []
    with pytest.raises(KeyboardInterrupt), interrupting(soon):
        found.extend(starmap(order.indices, [(0, 0, 1 << 28)]))
    assert not found
    assert sampler.indices(tiny, stop=3).tolist() == sampler.indices(tiny, stop=5)[:3].tolist()


class Noise:
    """Payloads that take long to compress, all of them in the queue before the first is done."""

    name = "noise"
    fingerprint = "v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        random = np.random.default_rng(7)
        for number in range(40):
            yield drt.CacheInput(random.bytes(400_000), {"number": number})


def test_a_write_is_interrupted_while_the_rest_is_compressed(tmp_path: Path) -> None:
    config = drt.WriterConfig(
        compression="zstd", compression_level=19, threads=1, max_shard_bytes=1_000_000, progress=False
    )
    source = Noise()
    with (
        pytest.raises(KeyboardInterrupt),
        # A description of the write, and what says that a shard is durable.
        interrupting(lambda: wait_for_files(tmp_path / ".noise.journal", 2)),
    ):
        drt.write_cache(source, tmp_path, config=config)
    assert not (tmp_path / "noise").exists()
    report = drt.write_cache(source, tmp_path, config=config)
    assert report.resumed_at is not None
    whole = drt.write_cache(source, tmp_path / "other", config=config)
    assert drt.open_dataset(report.path).fingerprint == drt.open_dataset(whole.path).fingerprint
    assert [p.name for p in tmp_path.glob(".noise*")] == []


@pytest.fixture
def nobody_watches_the_collector() -> Iterator[None]:
    """Hypothesis times each collection; an interrupt in there reaches nobody, and pytest reports it."""
    others = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(others)


@pytest.mark.usefixtures("nobody_watches_the_collector")
@pytest.mark.parametrize("batch_size", [1, None])
def test_interrupts_at_any_place_leave_the_iterator_usable_and_the_state_right(
    batch_size: int | None,
) -> None:
    ds = drt.testing.tiny_dataset(3000)
    order = drt.Shuffle(seed=1)
    wanted = order.indices(ds).tolist()
    loader = ds.loader(batch_size=batch_size, sampler=order, prefetch_batches=0)
    iterator = iter(loader)
    done = threading.Event()
    interrupts = 0

    def interrupt() -> None:
        while not done.wait(0.0005):
            os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    try:
        while True:
            try:
                next(iterator)
                position = loader.state_dict()["position"] or len(wanted)
                assert iterator.last is not None
                assert iterator.last.indices.tolist() == [wanted[position - 1]]
            except StopIteration:
                break
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        while other.is_alive():
            try:
                done.set()
                other.join()
            except KeyboardInterrupt:
                interrupts += 1
    assert interrupts > 0
    assert loader.epoch == 1


def _sample_ids(made: Any) -> list[int]:
    return [made.sample_id] if isinstance(made, drt.CachedSample) else [sample.sample_id for sample in made]


_MODES: dict[str, dict[str, Any]] = {
    "batches": {"batch_size": 2},
    "samples": {"batch_size": None},
    "transformed batches": {"batch_size": 2, "transform": lambda sample: sample},
    "transformed samples": {"batch_size": None, "transform": lambda sample: sample},
}


@pytest.mark.parametrize("mode", _MODES)
def test_an_interrupt_at_each_call_loses_no_sample_and_repeats_none(mode: str) -> None:
    """Where Python would handle a signal in the code of a loop: when a call begins, and after one into C."""
    ds = drt.testing.tiny_dataset(7)

    def interrupted_at(event_number: int) -> bool:
        loader: Any = ds.loader(**_MODES[mode], threads=1, sampler=drt.Shuffle(seed=3))
        expected = [
            n for made in ds.loader(**_MODES[mode], sampler=drt.Shuffle(seed=3)) for n in _sample_ids(made)
        ]
        got: list[int] = []
        seen = 0

        def hook(frame: Any, event: str, _: object) -> None:
            nonlocal seen
            if event in ("call", "c_call", "c_return") and frame.f_code.co_filename == loop.__file__:
                seen += 1
                if seen == event_number:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        iterator = iter(loader)
        was_interrupted = False
        sys.setprofile(hook)
        try:
            for made in iterator:
                got += _sample_ids(made)
        except KeyboardInterrupt:
            was_interrupted = True
        finally:
            sys.setprofile(None)
        state = loader.state_dict()
        rest = [n for made in iterator for n in _sample_ids(made)]
        assert got + rest == expected, (event_number, got, rest)
        if got and len(got) < len(expected):
            other: Any = ds.loader(**_MODES[mode], sampler=drt.Shuffle(seed=3))
            other.load_state_dict(state)
            assert got + [n for made in other for n in _sample_ids(made)] == expected, event_number
        return was_interrupted

    events = 1
    while interrupted_at(events):
        events += 1
    assert events > 20


def test_a_next_in_the_middle_of_another_loses_no_sample() -> None:
    iterator = iter(drt.testing.tiny_dataset(10).loader(batch_size=None))
    got: list[int] = []

    def hook(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "_advance":
            sys.setprofile(None)
            got.append(next(iterator).sample_id)

    sys.setprofile(hook)
    try:
        for sample in iterator:
            got.append(sample.sample_id)
    finally:
        sys.setprofile(None)
    assert sorted(got) == list(range(10))
