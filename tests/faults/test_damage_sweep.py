"""Golden caches damaged byte by byte and read through the public API: what is delivered is what was written.

The engine's own sweep (``crates/datasetrt-core/tests/damage``) tries every bit; this one makes sure that
nothing gets lost on the way to Python. It takes a fixed sample of the bytes; with ``DATASETRT_DAMAGE=full``
every one (`nox -s damage`).
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import datasetrt as drt

GOLDEN = Path(__file__).parents[2] / "testdata" / "caches" / "format-1"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/manifest.json"))
FULL = os.environ.get("DATASETRT_DAMAGE") == "full"
# Primes, so that all offsets in records and all bits come up.
EVERY_FLIP, EVERY_CUT = (1, 1) if FULL else (499, 997)

# The classes that damage may have; what it is in detail, the engine's sweep compares.
CLASSES = (drt.CorruptionError, drt.FormatError)


def samples_of(dataset: drt.CachedDataset) -> list[Any]:
    # As text: NaN is not equal to itself.
    return [(s.data, repr(s.metadata), s.sample_id) for s in dataset]


def one_by_one(dataset: drt.CachedDataset) -> list[Any]:
    found = [dataset[row] for row in range(len(dataset))]
    return [(s.data, repr(s.metadata), s.sample_id) for s in found]


def taken(dataset: drt.CachedDataset) -> list[Any]:
    batch = dataset.take(range(len(dataset)))
    return [bytes(payload) for payload in batch.payloads], [repr(v.tolist()) for v in batch.metadata.values()]


def loaded(dataset: drt.CachedDataset) -> list[Any]:
    with dataset.loader(batch_size=7, sampler=drt.Shuffle(seed=1), threads=1) as loader:
        return [
            (bytes(data), int(row)) for b in loader for data, row in zip(b.payloads, b.indices, strict=True)
        ]


def table(dataset: drt.CachedDataset) -> list[Any]:
    return [repr(row) for row in dataset.metadata.rows()]


WAYS: list[Callable[[drt.CachedDataset], Any]] = [samples_of, one_by_one, taken, loaded, table]


def told(error: drt.DatasetRTError, folder: Path) -> str:
    """The kind of an error, which is one line and names its place."""
    assert isinstance(error, CLASSES), error
    assert "\n" not in str(error)
    assert str(folder) in str(error)
    return error.kind


def look(folder: Path, expected: list[Any]) -> str:
    """What was told of a damaged cache; an assertion fails if nothing was, or if other bytes came out."""
    try:
        dataset = drt.open_dataset(folder)
    except drt.DatasetRTError as error:
        refusal = error
    else:
        return look_at(dataset, folder, expected)
    assert refusal.kind in kinds_unopened(folder)
    return told(refusal, folder)


def kinds_unopened(folder: Path) -> set[str]:
    try:
        return {problem.kind for problem in drt.verify_cache(folder).problems}
    except drt.DatasetRTError as refusal:
        return {told(refusal, folder)}


def look_at(dataset: drt.CachedDataset, folder: Path, expected: list[Any]) -> str:
    report = dataset.verify()
    assert not report.ok
    assert drt.verify_cache(folder) == report
    assert all(str(folder) in (problem.path or "") for problem in report.problems)
    kinds = set()
    for way, whole in zip(WAYS, expected, strict=True):
        try:
            found = way(drt.open_dataset(folder))
        except drt.DatasetRTError as error:
            kinds.add(told(error, folder))
        else:
            assert found == whole, way.__name__
    # Reading names no kind that `verify` does not know of.
    assert kinds <= {problem.kind for problem in report.problems}
    return report.problems[0].kind


def files_of(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.fixture(params=CASES)
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[Any]]:
    """A golden cache to be damaged, and what every way of reading it gives."""
    folder = tmp_path / request.param
    shutil.copytree(GOLDEN / request.param, folder)
    return folder, [way(drt.open_dataset(folder)) for way in WAYS]


def test_a_flipped_bit_is_told(copy: tuple[Path, list[Any]]) -> None:
    folder, expected = copy
    kinds: Counter[str] = Counter()
    number = 0
    for path in files_of(folder):
        original = path.read_bytes()
        for at, byte in enumerate(original):
            number += 1
            if number % EVERY_FLIP:
                continue
            with path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([byte ^ 1 << number % 8]))
            kinds[look(folder, expected)] += 1
            path.write_bytes(original)
    assert kinds
    print(folder.name, dict(kinds))
    assert drt.open_dataset(folder).verify().ok


def test_a_cut_file_is_told(copy: tuple[Path, list[Any]]) -> None:
    folder, expected = copy
    kinds: Counter[str] = Counter()
    number = 0
    for path in files_of(folder):
        original = path.read_bytes()
        for length in range(len(original)):
            number += 1
            if number % EVERY_CUT and length:
                continue
            path.write_bytes(original[:length])
            kinds[look(folder, expected)] += 1
        path.write_bytes(original)
    print(folder.name, dict(kinds))
    assert set(kinds) == {"file-size", "manifest-checksum"}
    assert drt.open_dataset(folder).verify().ok
