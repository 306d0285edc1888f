"""Runs that are saved and continued, on other numbers of ranks too, deliver exactly what one run delivers.

What a run should deliver is written down here once more, in plain Python: see :func:`planned`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

import datasetrt as drt
from tests.rows import RowSource, rows_of

_CACHE: list[drt.CachedDataset] = []


def rows(count: int) -> drt.CachedDataset:
    """A dataset of so many rows; all are views of one cache."""
    if not _CACHE:
        source = RowSource("s", rows_of(80))
        _CACHE.append(drt.cache(source, tempfile.mkdtemp(), config=drt.WriterConfig(progress=False)))
    return _CACHE[0].head(count)


class Ranks(NamedTuple):
    """Some ranks that share the data, and the size of their batches."""

    world: int
    batch: int

    @property
    def step(self) -> int:
        """Samples of a step of all ranks."""
        return self.world * self.batch


class Mode(NamedTuple):
    uneven: Any
    drop_last: bool

    def delivers(self, length: int, start: int, ranks: Ranks) -> int:
        """Where an epoch of this length ends, begun at ``start``: what comes later is left out."""
        rest = (length - start) % ranks.step
        if self.drop_last:
            return length - rest
        return length - rest % ranks.world if self.uneven == "drop" else length


def planned(length: int, start: int, ranks: Ranks, mode: Mode) -> list[list[list[int]]]:
    """The plan of an epoch, the obvious way: positions by step and rank, padding included.

    Global batches are cut off the front. Each is dealt to the ranks in contiguous parts that are equal, or in
    a last one for "keep" differ by one; for "pad" the last ranks go on at the first positions of the epoch.
    """
    left = list(range(start, mode.delivers(length, start, ranks)))
    steps = []
    while left:
        taken, left = left[: ranks.step], left[ranks.step :]
        if mode.uneven == "pad" and len(taken) % ranks.world:
            lacking = ranks.world - len(taken) % ranks.world
            taken += [position % length for position in range(lacking)]
        each, more = divmod(len(taken), ranks.world)
        sizes = [each + (rank < more) for rank in range(ranks.world)]
        steps.append([[taken.pop(0) for _ in range(size)] for size in sizes])
    return steps


class Run:
    """The loaders of all ranks, advanced together as in a training run."""

    def __init__(self, ds: drt.CachedDataset, sampler: drt.Sampler, ranks: Ranks, mode: Mode) -> None:
        self.loaders = [
            ds.loader(
                batch_size=ranks.batch,
                sampler=sampler,
                drop_last=mode.drop_last,
                shard=drt.Shard(rank, ranks.world, mode.uneven),
                threads=1,
            )
            for rank in range(ranks.world)
        ]

    def restore(self, state: Any) -> None:
        for loader in self.loaders:
            loader.load_state_dict(json.loads(json.dumps(state)))

    def steps(self) -> Iterator[list[drt.SampleBatch]]:
        """One epoch; ranks that have no batch left are left out of the step."""
        iterators = [iter(loader) for loader in self.loaders]
        while step := [batch for iterator in iterators if (batch := next(iterator, None)) is not None]:
            yield step

    def state(self) -> Any:
        states = [loader.state_dict() for loader in self.loaders]
        assert all(state == states[0] for state in states), "states agree on all ranks"
        return states[0]


def real_rows(step: list[drt.SampleBatch]) -> list[int]:
    """Rows of a step without padding, in the order of the ranks."""
    return [row for batch in step for row in batch.indices[~batch.padding].tolist()]


lengths = st.integers(1, 80)
ranks_of = st.builds(Ranks, world=st.integers(1, 5), batch=st.integers(1, 9))
modes = st.builds(Mode, uneven=st.sampled_from(["pad", "drop", "keep"]), drop_last=st.booleans())
samplers = st.one_of(
    st.just(drt.Sequential()),
    st.builds(drt.Shuffle, seed=st.integers(0, 2**64 - 1)),
    st.builds(
        drt.BlockShuffle,
        seed=st.integers(0, 2**64 - 1),
        block_samples=st.integers(1, 20),
        window_blocks=st.integers(1, 5),
    ),
    st.builds(drt.Weighted, seed=st.integers(0, 2**64 - 1), num_samples=st.none() | st.integers(1, 80)),
)


@settings(deadline=None)
@given(length=lengths, ranks=ranks_of, mode=modes, sampler=samplers, epoch=st.integers(0, 3), data=st.data())
def test_batches_are_those_of_the_plan(
    length: int, ranks: Ranks, mode: Mode, sampler: drt.Sampler, epoch: int, data: st.DataObject
) -> None:
    ds = rows(length)
    order = sampler.indices(ds, epoch=epoch).tolist()
    start = data.draw(st.integers(0, len(order) - 1), label="start")
    run = Run(ds, sampler, ranks, mode)
    run.restore({**run.state(), "epoch": epoch, "position": start})
    expected = planned(len(order), start, ranks, mode)
    for number, step in enumerate(run.steps()):
        want = [part for part in expected[number] if part]
        assert [batch.positions.tolist() for batch in step] == want
        assert [batch.indices.tolist() for batch in step] == [
            [order[place] for place in part] for part in want
        ]
        assert all(batch.epoch == epoch for batch in step)
    assert run.state() == {**run.state(), "epoch": epoch + 1, "position": 0}
    if start == 0:
        lengths_of_ranks = [sum(1 for step in expected if step[rank]) for rank in range(ranks.world)]
        assert [len(loader) for loader in run.loaders] == lengths_of_ranks


@settings(deadline=None)
@given(
    length=lengths,
    mode=modes,
    sampler=samplers,
    phases=st.lists(st.tuples(ranks_of, st.integers(0, 12)), min_size=1, max_size=4),
    last=ranks_of,
)
def test_a_run_continues_on_other_ranks_with_nothing_lost_or_repeated(
    length: int, mode: Mode, sampler: drt.Sampler, phases: list[tuple[Ranks, int]], last: Ranks
) -> None:
    ds = rows(length)
    order = sampler.indices(ds, epoch=0).tolist()
    delivered: list[int] = []
    state: Any = None
    end = 0
    for ranks, steps in [*phases, (last, 1000)]:
        run = Run(ds, sampler, ranks, mode)
        start = 0
        if state is not None:
            run.restore(state)
            start = state["position"]
        end = mode.delivers(len(order), start, ranks)
        for step in run.steps():
            delivered += real_rows(step)
            if run.state()["epoch"] == 1:
                break
            assert run.state()["position"] == len(delivered)
            steps -= 1
            if steps <= 0:
                break
        state = run.state()
        if state["epoch"] == 1 or start == end:
            break
    assert delivered == order[: len(delivered)]
    assert len(delivered) == end


@settings(deadline=None)
@given(
    length=lengths,
    ranks=ranks_of,
    mode=modes,
    sampler=samplers,
    cuts=st.lists(st.integers(0, 30), min_size=1, max_size=5),
)
def test_cuts_on_the_same_ranks_change_no_batch_over_epochs(
    length: int, ranks: Ranks, mode: Mode, sampler: drt.Sampler, cuts: list[int]
) -> None:
    ds = rows(length)
    straight = Run(ds, sampler, ranks, mode)
    expected = [batches_of(step) for _ in range(3) for step in straight.steps()]
    found: list[Any] = []
    state = Run(ds, sampler, ranks, mode).state()
    for cut in [*cuts, len(expected)]:
        run = Run(ds, sampler, ranks, mode)
        run.restore(state)
        found += first_steps(run, min(cut, len(expected) - len(found)))
        state = run.state()
    assert found == expected


def batches_of(step: list[drt.SampleBatch]) -> list[Any]:
    return [(batch.epoch, batch.positions.tolist(), batch.indices.tolist()) for batch in step]


def first_steps(run: Run, count: int) -> list[Any]:
    """The first steps of a run, over as many epochs as they take."""
    found: list[Any] = []
    while len(found) < count:
        for step in run.steps():
            found.append(batches_of(step))
            if len(found) == count:
                break
    return found
