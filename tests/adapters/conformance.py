"""What every way of feeding a framework promises, as checks: run for the core loader and for each adapter.

A test file writes a `Driver`, which makes a `Run` of its framework, and runs every check on it:

    from tests.adapters.conformance import CHECKS, Check

    class Driver:
        uneven = "pad"

        def make(self, job: Job) -> MyRun:
            ...

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check: Check, tmp_path: Path) -> None:
        check(Driver(), numbered_dataset(tmp_path))

``tests/adapters/core/test_conformance.py`` is the shortest driver, and shows that each check can fail.
"""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import polars as pl

import datasetrt as drt

#: Packs every payload: ``row`` is the number of the row in the dataset.
CODEC = drt.codecs.Record({"row": ("int32", ()), "x": ("float32", (3,))})

#: Five whole global batches an epoch, and eleven rows left over: of four ranks two get a whole part of those,
#: one gets some, one gets none.
ROWS = 91
GLOBAL_BATCH = 16
STEPS = 6

#: Each divides the global batch.
WORLDS = (1, 2, 4)

SHUFFLE = drt.Shuffle(seed=11)

#: Rows of a table that single precision can just count, and of what comes behind them: those repeat the
#: dataset's rows from ``FIRST_LATE`` on, the others repeat those before.
HEAD, TAIL = 2**24, 2**16
FIRST_LATE = 45

#: Leaves 30 bits of a seed, which any framework's integers hold.
SEED_SHIFT = 33

#: Loaders that are made and dropped, and the threads, descriptors and shared memory they may leave in all.
MADE_AND_DROPPED = 200
SLACK = 8

#: Seconds that threads may take to end.
PATIENCE = 10.0

Decode: TypeAlias = Any  # a codec, or a function CachedSample -> dict of arrays


@dataclass(frozen=True)
class Job:
    """What a run has to do: begin at epoch 0, or continue from a state.

    Args:
        dataset: Rows packed with ``CODEC``.
        global_batch: Samples in a step of all ranks; ``world_size`` divides it. The last step of an epoch has
            what is left, so that an epoch delivers every row. Ranks that get less of it than others, or
            nothing, are padded; padding is not part of what a run yields.
        sampler: The order.
        rank: Which contiguous part of each global batch this run yields.
        world_size: In how many parts it is cut.
        decode: What unpacks a sample: ``CODEC``, or a function of a `CachedSample` that returns a dict with
            the same keys.
        seeded: Whether that function takes a seed too.
        state: What ``state()`` of another run gave, of any rank, world size and global batch.
    """

    dataset: drt.CachedDataset
    global_batch: int = GLOBAL_BATCH
    sampler: drt.Sampler = SHUFFLE
    rank: int = 0
    world_size: int = 1
    decode: Decode = CODEC
    seeded: bool = False
    state: Any = None

    @property
    def batch_size(self) -> int:
        """Samples in a batch of one rank."""
        return self.global_batch // self.world_size


class Run(Protocol):
    """One process's way through the data: batch after batch, epoch after epoch, without end."""

    def __next__(self) -> list[int]:
        """Take the next batch of this rank; returns its ``row`` values, in order, without padding."""

    def padding(self) -> list[int]:
        """The ``row`` values of that batch that are padding, in order."""

    def state(self) -> Any:
        """The state, as JSON, after what was taken so far."""

    def close(self) -> None:
        """End it, if the framework has a way to; may do nothing."""


class Driver(Protocol):
    """Makes runs of one framework."""

    #: What becomes of a last global batch that is not full, as `Shard` calls it: "pad", "fill" or "keep".
    uneven: str

    def make(self, job: Job) -> Run:
        """Begin a run."""


def parted(rows: Iterable[int], real: Iterable[bool]) -> tuple[list[int], list[int]]:
    """The rows that are real, and those that are padding, which must come last."""
    kept, flags = list(map(int, rows)), list(map(bool, real))
    count = sum(flags)
    assert flags == [True] * count + [False] * (len(kept) - count), f"padding is not at the end: {flags}"
    return kept[:count], kept[count:]


Check: TypeAlias = Callable[[Driver, drt.CachedDataset], None]


def numbered_dataset(root: Path, rows: int = ROWS) -> drt.CachedDataset:
    """A dataset of so many rows, each of which holds its own number."""
    source = drt.MapSource("numbered", range(rows), _numbered, codec=CODEC)
    return drt.cache(source, root, config=drt.WriterConfig(progress=False, workers=1))


def _numbered(row: int) -> drt.CacheInput:
    payload = CODEC.dumps({"row": np.int32(row), "x": np.full(3, row, np.float32)})
    return drt.CacheInput(payload, {"label": row % 10})


# What a run should deliver, from the sampler alone


def planned(
    ds: drt.CachedDataset,
    sampler: drt.Sampler,
    global_batch: int = GLOBAL_BATCH,
    epoch: int = 0,
    position: int = 0,
) -> Iterator[list[int]]:
    """The global batches from a place on: slices of the order, cut off the front, epoch after epoch."""
    for each in itertools.count(epoch):
        order = sampler.indices(ds, epoch=each, start=position).tolist()
        yield from (order[at : at + global_batch] for at in range(0, len(order), global_batch))
        position = 0


class Ranks:
    """The runs of all ranks, which take their steps together."""

    def __init__(
        self,
        driver: Driver,
        ds: drt.CachedDataset,
        sampler: drt.Sampler,
        world_size: int = 1,
        global_batch: int = GLOBAL_BATCH,
        state: Any = None,
        **decoding: Any,
    ) -> None:
        job = Job(ds, global_batch, sampler, world_size=world_size, state=state, **decoding)
        self.runs = [driver.make(replace(job, rank=rank)) for rank in range(world_size)]

    def take(self, steps: int) -> list[list[int]]:
        """The next global batches: what the ranks got, laid side by side."""
        return [[row for run in self.runs for row in next(run)] for _ in range(steps)]

    def state(self) -> Any:
        """The state of all ranks, through JSON as on disk; they must agree."""
        states = [json.dumps(run.state(), sort_keys=True) for run in self.runs]
        assert len(set(states)) == 1, f"the ranks' states differ: {states}"
        return json.loads(states[0])

    def close(self) -> None:
        """End all runs."""
        for run in self.runs:
            run.close()


def _same(found: list[list[int]], expected: list[list[int]], where: str) -> None:
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours == theirs, f"{where}, step {step}: rows {ours} came, not {theirs}"


def _first(plan: Iterator[list[int]], steps: int) -> list[list[int]]:
    return list(itertools.islice(plan, steps))


# The checks


def same_global_order(driver: Driver, ds: drt.CachedDataset) -> None:
    """For any number of ranks, global batches are consecutive slices of the sampler's order."""
    steps = 2 * STEPS + 1
    samplers = (SHUFFLE, drt.Sequential(), drt.BlockShuffle(seed=3, block_samples=8, window_blocks=2))
    for sampler, world in itertools.product(samplers, WORLDS):
        ranks = Ranks(driver, ds, sampler, world)
        found = ranks.take(steps)
        ranks.close()
        _same(found, _first(planned(ds, sampler), steps), f"{sampler} on {world} ranks")


def epochs_differ(driver: Driver, ds: drt.CachedDataset) -> None:
    """Every epoch has each row once, and no two have the same order."""
    run = Ranks(driver, ds, SHUFFLE)
    epochs = [[row for batch in run.take(STEPS) for row in batch] for _ in range(3)]
    run.close()
    for number, rows in enumerate(epochs):
        assert sorted(rows) == list(range(len(ds))), f"epoch {number} is no permutation: {rows}"
    assert len(set(map(tuple, epochs))) == 3, f"epochs repeat their order: {epochs}"


def resumes_at_every_step(driver: Driver, ds: drt.CachedDataset) -> None:
    """A state taken after any step, two epochs long, continues with exactly the rest."""
    steps = 2 * STEPS + 2
    straight = Ranks(driver, ds, SHUFFLE)
    states, batches = [straight.state()], []
    for _ in range(steps):
        batches += straight.take(1)
        states.append(straight.state())
    straight.close()
    _same(batches, _first(planned(ds, SHUFFLE), steps), "not interrupted")
    for step, state in enumerate(states):
        resumed = Ranks(driver, ds, SHUFFLE, state=state)
        assert resumed.state() == state, f"restored from {state}, the state is {resumed.state()}"
        _same(resumed.take(steps - step), batches[step:], f"resumed after step {step} from {state}")
        resumed.close()


def resumes_again_and_again(driver: Driver, ds: drt.CachedDataset) -> None:
    """A run that is interrupted after every second step delivers what one run delivers."""
    found: list[list[int]] = []
    state = None
    for _ in range(STEPS + 1):
        run = Ranks(driver, ds, SHUFFLE, state=state)
        found += run.take(2)
        state = run.state()
        run.close()
    _same(found, _first(planned(ds, SHUFFLE), len(found)), "interrupted every second step")


def resumes_on_another_world_size(driver: Driver, ds: drt.CachedDataset) -> None:
    """A run of some ranks continues on more or fewer, with another batch size too; no row lost."""
    for before, after, batch in ((4, 2, 16), (4, 1, 16), (1, 4, 16), (2, 4, 8), (2, 1, 20)):
        for step in (1, STEPS - 1, STEPS, STEPS + 2):
            saved = Ranks(driver, ds, SHUFFLE, before)
            saved.take(step)
            state = saved.state()
            saved.close()
            resumed = Ranks(driver, ds, SHUFFLE, after, batch, state)
            found = resumed.take(STEPS + 2)
            resumed.close()
            plan = planned(ds, SHUFFLE, batch, step // STEPS, step % STEPS * GLOBAL_BATCH)
            where = f"{before} ranks saved after step {step}, continued on {after} with {batch} a step"
            _same(found, _first(plan, STEPS + 2), where)


def state_is_that_of_the_core_loader(driver: Driver, ds: drt.CachedDataset) -> None:
    """One cursor moves between frameworks: the core loader continues a run of this one, and the reverse."""
    for step in (0, 2, STEPS - 1, STEPS):
        run = Ranks(driver, ds, SHUFFLE)
        run.take(step)
        state = run.state()
        run.close()
        loader = ds.loader(batch_size=GLOBAL_BATCH, sampler=SHUFFLE)
        loader.load_state_dict(state)
        rest = [batch.indices.tolist() for batch in loader]
        plan = _first(planned(ds, SHUFFLE), 2 * STEPS)
        _same(rest, plan[step : step + len(rest)], f"continued by the core loader after step {step}")
        assert len(rest) == STEPS - step % STEPS, f"the core loader had {len(rest)} batches after step {step}"
        assert rest, "the core loader had nothing left"
        back = Ranks(driver, ds, SHUFFLE, state=loader.state_dict())
        _same(back.take(1), _first(planned(ds, SHUFFLE, epoch=step // STEPS + 1), 1), "taken back")
        back.close()


def wrong_state_is_refused(driver: Driver, ds: drt.CachedDataset) -> None:
    """A state of other rows, of another order, or a malformed one is refused when it is given."""
    run = Ranks(driver, ds, SHUFFLE)
    run.take(2)
    state = run.state()
    run.close()
    wrong = {
        "other rows": {**state, "fingerprint": ds.head(40).fingerprint},
        "another order": ds.loader(sampler=drt.Shuffle(seed=12)).state_dict(),
        "beyond the epoch": {**state, "position": ROWS + 1},
        "a position that is no number": {**state, "position": "3"},
        "no position": {key: value for key, value in state.items() if key != "position"},
    }
    for what, refused in wrong.items():
        try:
            Ranks(driver, ds, SHUFFLE, state=refused)
        except drt.StateError:
            continue
        raise AssertionError(f"a state with {what} was accepted: {refused}")


def weights_are_honoured(driver: Driver, ds: drt.CachedDataset) -> None:
    """Draws follow the weight column, in the sampler's own order, on any number of ranks."""
    heavy = np.where(np.arange(len(ds)) % 4 == 0, 9.0, 1.0)
    weighted = ds.with_weights(heavy)
    sampler = drt.Weighted(seed=5, num_samples=40 * GLOBAL_BATCH)
    for world in WORLDS:
        ranks = Ranks(driver, weighted, sampler, world)
        found = ranks.take(41)
        ranks.close()
        _same(found, _first(planned(weighted, sampler), 41), f"{sampler} on {world} ranks")
        drawn = Counter(row % 4 == 0 for batch in found for row in batch)
        share, expected = drawn[True] / drawn.total(), float(heavy[::4].sum() / heavy.sum())
        # 656 draws: five standard deviations are less than 0.09.
        assert abs(share - expected) < 0.09, f"heavy rows make {share:.3f} of the draws, not {expected:.3f}"


def weights_count_beyond_two_to_the_24_rows(driver: Driver, ds: drt.CachedDataset) -> None:
    """As many rows as single precision counts, and more behind them, which get half of the draws.

    PyTorch's multinomial refuses so many, and float32 sums lose what comes late.
    """
    rows = np.concatenate([np.arange(HEAD) % FIRST_LATE, FIRST_LATE + np.arange(TAIL) % (ROWS - FIRST_LATE)])
    sample = pl.Series("sample_id", rows)
    table = pl.select(cache_id=pl.repeat(ds[0].cache_id, len(rows)), sample_id=sample, label=sample % 10)
    many = ds.with_metadata(table).with_weights(np.repeat([1.0, HEAD / TAIL], [HEAD, TAIL]))
    sampler = drt.Weighted(seed=5, num_samples=40 * GLOBAL_BATCH)
    ranks = Ranks(driver, many, sampler, world_size=2)
    found = ranks.take(40)
    ranks.close()
    expected = [rows[batch].tolist() for batch in _first(planned(many, sampler), 40)]
    _same(found, expected, f"{sampler} of {len(many)} rows")
    late = sum(row >= FIRST_LATE for batch in found for row in batch) / (40 * GLOBAL_BATCH)
    # 640 draws: five standard deviations are less than 0.1.
    assert abs(late - 0.5) < 0.1, f"the rows after {HEAD} others make {late:.3f} of the draws, not half"


def padding_is_the_start_of_the_epoch(driver: Driver, ds: drt.CachedDataset) -> None:
    """What fills up the last step comes after the real rows, is marked, and repeats the first positions."""
    rest = ROWS % GLOBAL_BATCH
    for world in WORLDS:
        wanted = {"keep": 0, "pad": -rest % world, "fill": GLOBAL_BATCH - rest}[driver.uneven]
        ranks = Ranks(driver, ds, SHUFFLE, world)
        for epoch in range(2):
            for step in range(STEPS):
                ranks.take(1)
                padding = [row for run in ranks.runs for row in run.padding()]
                expected = SHUFFLE.indices(ds, epoch, stop=wanted if step == STEPS - 1 else 0).tolist()
                where = f"step {step} of epoch {epoch} on {world} ranks"
                assert padding == expected, f"{where}: the padding is {padding}, not {expected}"
        ranks.close()


def seeds_are_those_of_the_core_loader(driver: Driver, ds: drt.CachedDataset) -> None:
    """With ``seeded=True`` decode gets the seed of each position, on any number of ranks, also resumed."""
    steps = STEPS + 2
    for sampler, world in itertools.product((SHUFFLE, drt.Weighted(seed=5), drt.Sequential()), WORLDS):
        expected = [
            (
                sampler.transform_seeds(ds, range(at, min(at + GLOBAL_BATCH, ROWS)), epoch) >> SEED_SHIFT
            ).tolist()
            for epoch in range(2)
            for at in range(0, ROWS, GLOBAL_BATCH)
        ][:steps]
        first = Ranks(driver, ds, sampler, world, decode=_seed_as_row, seeded=True)
        found = first.take(STEPS - 1)
        rest = Ranks(driver, ds, sampler, world, state=first.state(), decode=_seed_as_row, seeded=True)
        first.close()
        found += rest.take(steps - len(found))
        rest.close()
        _same(found, expected, f"seeds of {sampler} on {world} ranks")


def _seed_as_row(_sample: drt.CachedSample, seed: int) -> Any:
    assert type(seed) is int, f"the seed is a {type(seed).__name__}"
    return {"row": np.int32(seed >> SEED_SHIFT), "x": np.zeros(3, np.float32)}


def errors_of_decode_name_the_sample(driver: Driver, ds: drt.CachedDataset) -> None:
    """What decode raises comes out, and says at which sample; StopIteration does not end the epoch."""
    for kind in (KeyError, StopIteration):
        for world in (1, 2):
            text = _text_of_failure(driver, ds, kind, world)
            assert "sample 17" in text, f"{kind.__name__} on {world} ranks names no sample: {text}"
            assert "the pixels are gone" in text or kind is StopIteration, f"the reason is lost: {text}"


def _text_of_failure(driver: Driver, ds: drt.CachedDataset, kind: type[Exception], world: int) -> str:
    def failing(sample: drt.CachedSample) -> Any:
        if sample.sample_id == 17:
            raise kind("the pixels are gone")
        return CODEC.loads(bytearray(sample.data))

    runs = []
    try:
        # Made in here: an adapter may decode a sample for its shapes before the first step.
        for rank in range(world):
            runs.append(driver.make(Job(ds, rank=rank, world_size=world, decode=failing)))
        for run in runs:
            for _ in range(STEPS):
                next(run)
    except Exception as error:  # noqa: BLE001 - frameworks wrap errors in classes of their own
        return _whole_text(error)
    finally:
        for run in runs:
            run.close()
    raise AssertionError(f"{kind.__name__} in decode went unnoticed on {world} ranks")


def _whole_text(error: BaseException) -> str:
    """The message, the notes, and those of the causes."""
    parts = [type(error).__name__, str(error), *getattr(error, "__notes__", ())]
    cause = error.__cause__ or error.__context__
    return "\n".join(parts) + ("\n" + _whole_text(cause) if cause is not None else "")


def nothing_is_leaked(driver: Driver, ds: drt.CachedDataset) -> None:
    """Two hundred loaders, left in the middle of an epoch, closed or just dropped, leave nothing behind."""
    for number in range(5):
        _use(driver, ds, number)  # what a framework starts once is no leak
    before = _held()
    for number in range(MADE_AND_DROPPED):
        _use(driver, ds, number)
    deadline = time.monotonic() + PATIENCE
    while (left := _more(_held(), before)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert not left, f"{MADE_AND_DROPPED} loaders left: {left}"


def _use(driver: Driver, ds: drt.CachedDataset, number: int) -> None:
    run = driver.make(Job(ds, sampler=drt.Shuffle(seed=number)))
    # Every fourth one is dropped before its first step.
    for _ in range(number % 4):
        next(run)
    if number % 2:
        run.close()


def _held() -> dict[str, list[str]]:
    """Names of this process's threads, and what descriptors and shared memory there are."""
    gc.collect()
    shared = Path("/dev/shm")
    return {
        "threads": [_read(task / "comm") for task in Path("/proc/self/task").iterdir()],
        "descriptors": [_target(link) for link in Path("/proc/self/fd").iterdir()],
        "shared memory": [path.name for path in shared.iterdir()] if shared.is_dir() else [],
    }


def _more(now: dict[str, list[str]], before: dict[str, list[str]]) -> dict[str, Counter[str]]:
    return {
        kind: Counter(now[kind]) - Counter(before[kind])
        for kind in now
        if len(now[kind]) > len(before[kind]) + SLACK
    }


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # the thread has ended
        return "ended"


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # the descriptor of the listing itself
        return "closed"


CHECKS: tuple[Check, ...] = (
    same_global_order,
    epochs_differ,
    resumes_at_every_step,
    resumes_again_and_again,
    resumes_on_another_world_size,
    state_is_that_of_the_core_loader,
    wrong_state_is_refused,
    weights_are_honoured,
    weights_count_beyond_two_to_the_24_rows,
    padding_is_the_start_of_the_epoch,
    seeds_are_those_of_the_core_loader,
    errors_of_decode_name_the_sample,
    nothing_is_leaked,
)
