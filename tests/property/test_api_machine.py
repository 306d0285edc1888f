"""Random walks through the public API beside a model in plain Python lists.

Whatever is done to a dataset (cut, filtered, reordered, reweighted, pickled, read, loaded with interruptions,
damaged, rebuilt), it delivers what the model says or raises the typed error that belongs to it.
``DATASETRT_WALKS=N`` walks N times (`nox -s fuzz`).
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import datasetrt as drt
from tests.rows import Row, RowSource

T = TypeVar("T")
WALKS = int(os.environ.get("DATASETRT_WALKS", "25"))
# Every walk writes caches; on a disk it would mostly wait for syncs.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# What damage may lead to: in `format` and `version` of the manifest it looks like another format.
DAMAGED = (drt.CorruptionError, drt.FormatError)


@dataclass(frozen=True)
class Line:
    """A row of a view: which sample, how heavy, and the note that a user added."""

    sample: int
    weight: float = 1.0
    note: str | None = None


@dataclass
class Seen:
    """A dataset and what it should deliver."""

    dataset: drt.CachedDataset
    lines: list[Line]
    noted: bool = False


def rows(count: int, seed: int) -> list[Row]:
    draw = random.Random(seed)
    return [
        (
            draw.randbytes(draw.choice([0, 1, 30, 200])) + bytes(draw.choice([0, 90])),
            {"label": draw.choice([0, 1, 2, None]), "text": draw.choice(["é", "", None]), "number": number},
        )
        for number in range(count)
    ]


picks = st.integers(0, 2**16)
places = st.integers(-40, 40)
weights = st.floats(min_value=0.001, max_value=1000.0)
samplers = st.one_of(
    st.just(drt.Sequential()),
    st.builds(drt.Shuffle, seed=st.integers(0, 2**64 - 1)),
    st.builds(drt.BlockShuffle, seed=st.integers(0, 9), block_samples=st.integers(1, 9)),
    st.builds(drt.Weighted, seed=st.integers(0, 9)),
)


def next_step(iterators: list[Iterator[drt.SampleBatch]]) -> list[drt.SampleBatch]:
    """A batch of each rank that has one left."""
    return [batch for iterator in iterators if (batch := next(iterator, None)) is not None]


class Walk(RuleBasedStateMachine):
    """One cache, some views of it, at most one damaged byte."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="walk", dir=MEMORY))
        self.damaged: tuple[Path, int, int] | None = None
        self.builds = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(
        count=st.integers(1, 30),
        seed=picks,
        compression=st.sampled_from(["none", "lz4", "zstd", "zstd-dictionary"]),
        shard_bytes=st.sampled_from([300, 1000, 100_000]),
    )
    def write(self, count: int, seed: int, compression: Any, shard_bytes: int) -> None:
        self.config = drt.WriterConfig(
            compression=compression, max_shard_bytes=shard_bytes, progress=False, threads=1
        )
        self.rows = rows(count, seed)
        self.open(drt.cache(self.source(), self.root, config=self.config))

    def source(self) -> RowSource:
        schema = {"label": int, "text": str, "number": int}
        return RowSource("s", self.rows, fingerprint=f"build {self.builds}", schema=schema)

    def open(self, dataset: drt.CachedDataset) -> None:
        self.views = [Seen(dataset, [Line(sample) for sample in range(len(self.rows))])]

    # What the model says

    def stored(self, line: Line) -> dict[str, Any]:
        return dict(self.rows[line.sample][1])

    def delivered(self, seen: Seen, line: Line) -> tuple[bytes, dict[str, Any], int]:
        metadata = self.stored(line) | ({"note": line.note} if seen.noted else {})
        return self.rows[line.sample][0], metadata, line.sample

    def view(self, pick: int) -> Seen:
        return self.views[pick % len(self.views)]

    def keep(self, seen: Seen) -> None:
        assert len(seen.dataset) == len(seen.lines)
        self.views = [*self.views[-7:], seen]

    def attempt(self, work: Callable[[], T]) -> T | None:
        """The result of ``work``; nothing where the damaged byte is told instead."""
        try:
            return work()
        except DAMAGED as error:
            told = str(error)
        assert self.damaged is not None, told
        assert "\n" not in told
        assert str(self.root) in told
        return None

    # Views

    @rule(
        pick=picks,
        start=st.none() | places,
        stop=st.none() | places,
        step=st.sampled_from([None, 1, 2, -1, -3]),
    )
    def cut(self, pick: int, start: int | None, stop: int | None, step: int | None) -> None:
        seen, part = self.view(pick), slice(start, stop, step)
        dataset = seen.dataset[part]
        self.keep(Seen(dataset, seen.lines[part], seen.noted))

    @rule(pick=picks, label=st.integers(0, 3))
    def filter(self, pick: int, label: int) -> None:
        seen = self.view(pick)
        lines = [line for line in seen.lines if self.stored(line)["label"] == label]
        self.edited(seen, lines, lambda: seen.dataset.filter(label=label))

    @rule(pick=picks, order=st.lists(picks, max_size=40))
    def reorder(self, pick: int, order: list[int]) -> None:
        seen = self.view(pick)
        chosen = [place % len(seen.lines) for place in order] if seen.lines else []
        lines = [seen.lines[place] for place in chosen]
        self.edited(seen, lines, lambda: seen.dataset.with_metadata(seen.dataset.metadata[chosen]))

    @rule(pick=picks, notes=st.lists(st.none() | st.text(max_size=3), min_size=1, max_size=5))
    def note(self, pick: int, notes: list[str | None]) -> None:
        seen = self.view(pick)
        lines = [replace(line, note=notes[at % len(notes)]) for at, line in enumerate(seen.lines)]

        def work() -> drt.CachedDataset:
            column = pl.Series("note", [line.note for line in lines], dtype=pl.String)
            return seen.dataset.with_metadata(seen.dataset.metadata.with_columns(column))

        self.edited(Seen(seen.dataset, seen.lines, noted=True), lines, work)

    def edited(self, seen: Seen, lines: list[Line], work: Callable[[], drt.CachedDataset]) -> None:
        """A view without a row is refused; any other is kept."""
        if lines:
            dataset = self.attempt(work)
            if dataset is not None:
                self.keep(Seen(dataset, lines, seen.noted))
            return
        with pytest.raises((drt.InvalidInputError, *DAMAGED)) as caught:
            work()
        assert self.damaged or caught.value.kind == "empty"

    @rule(pick=picks, given=st.lists(weights, min_size=1, max_size=4))
    def reweight(self, pick: int, given: list[float]) -> None:
        seen = self.view(pick)
        lines = [replace(line, weight=given[at % len(given)]) for at, line in enumerate(seen.lines)]
        if lines:
            dataset = seen.dataset.with_weights([line.weight for line in lines])
            self.keep(Seen(dataset, lines, seen.noted))
        with pytest.raises(drt.InvalidInputError):
            seen.dataset.with_weights([1.0] * (len(lines) + 1))

    @rule(pick=picks, change=st.sampled_from(["label", "number", "sample_id"]))
    def change_what_is_stored(self, pick: int, change: str) -> None:
        seen = self.view(pick)
        if not seen.lines:
            return
        frame = self.attempt(lambda: seen.dataset.metadata)
        if frame is not None:
            column = pl.col(change).fill_null(0) + 1000
            with pytest.raises((drt.InvalidInputError, *DAMAGED)):
                seen.dataset.with_metadata(frame.with_columns(column))

    @rule(pick=picks)
    def pickled(self, pick: int) -> None:
        seen = self.view(pick)
        copy = pickle.loads(pickle.dumps(seen.dataset))
        found = self.attempt(lambda: copy.fingerprint)
        if found is not None:
            assert found == seen.dataset.fingerprint
            self.keep(Seen(copy, seen.lines, seen.noted))

    # Reading

    @rule(pick=picks)
    def read_all(self, pick: int) -> None:
        seen = self.view(pick)
        found = self.attempt(lambda: [(s.data, s.metadata, s.sample_id) for s in seen.dataset])
        assert found in (None, [self.delivered(seen, line) for line in seen.lines])

    @rule(pick=picks, place=places)
    def read_one(self, pick: int, place: int) -> None:
        seen = self.view(pick)
        if not -len(seen.lines) <= place < len(seen.lines):
            with pytest.raises(drt.SampleIndexError):
                seen.dataset[place]
            return

        def work() -> tuple[bytes, dict[str, Any], int]:
            sample = seen.dataset[place]
            return sample.data, sample.metadata, sample.sample_id

        found = self.attempt(work)
        assert found in (None, self.delivered(seen, seen.lines[place]))

    @rule(pick=picks, wanted=st.lists(places, max_size=20))
    def take(self, pick: int, wanted: list[int]) -> None:
        seen = self.view(pick)
        if not all(-len(seen.lines) <= place < len(seen.lines) for place in wanted):
            with pytest.raises(drt.SampleIndexError):
                seen.dataset.take(wanted)
            return
        batch = self.attempt(lambda: seen.dataset.take(wanted))
        if batch is not None:
            self.compare(seen, batch, [place % len(seen.lines) for place in wanted])

    def compare(self, seen: Seen, batch: drt.SampleBatch, places: list[int]) -> None:
        expected = [self.delivered(seen, seen.lines[place]) for place in places]
        assert [bytes(payload) for payload in batch.payloads] == [data for data, _, _ in expected]
        assert batch.indices.tolist() == places
        assert batch.sample_ids.tolist() == [sample for _, _, sample in expected]
        # Metadata is read when it is asked for.
        table = self.attempt(lambda: batch.metadata.to_polars().to_dicts() if len(batch) else [])
        assert table in (None, [metadata for _, metadata, _ in expected])

    @rule(pick=picks)
    def look_at_the_table(self, pick: int) -> None:
        seen = self.view(pick)
        frame = self.attempt(lambda: seen.dataset.metadata)
        if frame is None:
            return
        assert frame["sample_id"].to_list() == [line.sample for line in seen.lines]
        assert frame["weight"].to_list() == [line.weight for line in seen.lines]
        assert frame.select("label", "text", "number").to_dicts() == [self.stored(x) for x in seen.lines]
        assert not seen.noted or frame["note"].to_list() == [line.note for line in seen.lines]

    @rule(
        pick=picks,
        sampler=samplers,
        legs=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(0, 4)), max_size=4),
        epoch=st.integers(0, 2),
    )
    def load(self, pick: int, sampler: drt.Sampler, legs: list[tuple[int, int, int]], epoch: int) -> None:
        """An epoch in legs of (world size, batch size, steps), each begun where the one before ended."""
        seen = self.view(pick)
        if not seen.lines:
            # An empty slice is loaded in no batch.
            assert list(seen.dataset.loader(batch_size=1, sampler=sampler, threads=1)) == []
            return
        order = sampler.indices(seen.dataset, epoch=epoch).tolist()
        state: Any = {**seen.dataset.loader(batch_size=1, sampler=sampler).state_dict(), "epoch": epoch}
        done: list[int] = []
        for world, batch, steps in [*legs, (1, 5, 100)]:
            ranks = [drt.Shard(rank, world, "keep") for rank in range(world)]
            loaders = [
                seen.dataset.loader(batch_size=batch, sampler=sampler, shard=shard, threads=1)
                for shard in ranks
            ]
            for loader in loaders:
                loader.load_state_dict(json.loads(json.dumps(state)))
            iterators = [iter(loader) for loader in loaders]
            for _ in range(steps):
                step = self.attempt(partial(next_step, iterators))
                if step is None:
                    return
                for found in step:
                    self.compare(seen, found, found.indices.tolist())
                    done += found.indices.tolist()
                if len(done) == len(order):
                    break
            state = loaders[0].state_dict()
            if state["epoch"] != epoch:
                break
        assert done == order
        if not isinstance(sampler, drt.Weighted):
            assert sorted(done) == list(range(len(seen.lines)))

    # Damage and rebuilding

    @precondition(lambda self: self.damaged is None)
    @rule(pick=picks, place=st.integers(0, 2**20), bit=st.integers(0, 7))
    def damage(self, pick: int, place: int, bit: int) -> None:
        files = sorted(path for path in (self.root / "s").rglob("*") if path.is_file())
        path = files[pick % len(files)]
        data = bytearray(path.read_bytes())
        place %= len(data)
        self.damaged = (path, place, data[place])
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([data[place] ^ 1 << bit]))
        try:
            report = drt.open_dataset(self.root / "s").verify()
        except DAMAGED as error:
            told = {error.path}
        else:
            told = {problem.path for problem in report.problems}
        assert told == {str(path)}

    @precondition(lambda self: self.damaged is not None)
    @rule()
    def mend(self) -> None:
        assert self.damaged is not None
        path, place, byte = self.damaged
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([byte]))
        self.damaged = None
        assert drt.open_dataset(self.root / "s").verify().ok

    @rule(count=st.integers(1, 30), seed=picks)
    def rebuild(self, count: int, seed: int) -> None:
        """Old views keep their bytes or say that the cache is another one."""
        old, before = self.views, self.rows
        self.builds += 1
        self.rows = rows(count, seed)
        rebuilt = drt.cache(self.source(), self.root, config=self.config, on_stale="rebuild")
        was_damaged = self.damaged is not None
        self.damaged = None
        now, self.rows = self.rows, before
        for seen in old:
            kind = None
            found = None
            try:
                found = [(s.data, s.metadata, s.sample_id) for s in seen.dataset]
            except drt.StaleCacheError as error:
                kind = error.kind
            except DAMAGED:
                kind = "damaged"
            if found is None:
                assert kind in ({"changed", "damaged"} if was_damaged else {"changed"})
            else:
                assert found == [self.delivered(seen, line) for line in seen.lines]
        self.rows = now
        self.open(rebuilt)
        assert rebuilt.verify().ok

    @invariant()
    def lengths(self) -> None:
        for seen in getattr(self, "views", []):
            assert len(seen.dataset) == len(seen.lines)


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=WALKS,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_the_model_sees_a_difference() -> None:
    """The comparison itself: another order is no match."""
    walk = Walk()
    walk.write(8, 3, "lz4", 300)
    seen = walk.views[0]
    wrong = Seen(seen.dataset, seen.lines[::-1])
    walk.views = [wrong]
    with pytest.raises(AssertionError):
        walk.read_all(0)
    with pytest.raises(AssertionError):
        walk.compare(wrong, seen.dataset.take(np.arange(3)), [0, 1, 2])
    walk.teardown()
