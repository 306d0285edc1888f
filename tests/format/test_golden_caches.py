"""Golden caches: this release reads them, writes them again byte for byte, and a second reader agrees."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import datasetrt as drt
from tests.format.reference_reader import BrokenError, read_cache

FOLDER = Path(__file__).parents[2] / "testdata" / "caches" / "format-1"


def _builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_builder", FOLDER / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILDER = _builder()
CASES = sorted(BUILDER.CASES)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    def equal(a: Any, b: Any) -> bool:
        return (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)) or (
            type(a) is type(b) and a == b
        )

    return found.keys() == expected.keys() and all(equal(found[key], expected[key]) for key in expected)


def test_every_case_has_a_folder() -> None:
    assert sorted(p.name for p in FOLDER.iterdir() if p.is_dir() and p.name != "__pycache__") == CASES


# What each case holds, frozen beside it: neither the builder nor the files can move unnoticed.
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())


def described(folder: Path, payloads: list[bytes], metadata: list[dict[str, Any]]) -> dict[str, Any]:
    """A cache as ``expected.json`` tells it; metadata as Python text, which knows NaN."""
    return {
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files(folder).items()},
        "payloads": [hashlib.sha256(payload).hexdigest() for payload in payloads],
        "metadata": [repr(row) for row in metadata],
    }


def test_what_is_expected_covers_every_case() -> None:
    assert sorted(EXPECTED) == CASES


@pytest.mark.parametrize("case", CASES)
def test_files_and_both_readers_are_as_expected(case: str) -> None:
    second = read_cache(FOLDER / case)
    assert described(FOLDER / case, second.payloads, second.metadata) == EXPECTED[case]
    samples = list(drt.open_dataset(FOLDER / case))
    payloads, metadata = [s.data for s in samples], [s.metadata for s in samples]
    assert described(FOLDER / case, payloads, metadata) == EXPECTED[case]
    rows, _ = BUILDER.CASES[case]
    assert described(FOLDER / case, [d for d, _ in rows], [m for _, m in rows]) == EXPECTED[case]


@pytest.mark.parametrize("case", CASES)
def test_this_release_reads_it(case: str) -> None:
    rows, _ = BUILDER.CASES[case]
    dataset = drt.open_dataset(FOLDER / case)
    assert dataset.verify().ok
    for sample, (data, metadata) in zip(dataset, rows, strict=True):
        assert sample.data == data
        assert same(sample.metadata, metadata), sample


@pytest.mark.parametrize("case", CASES)
def test_the_second_reader_agrees(case: str) -> None:
    rows, _ = BUILDER.CASES[case]
    cache = read_cache(FOLDER / case)
    assert cache.payloads == [data for data, _ in rows]
    assert all(same(found, metadata) for found, (_, metadata) in zip(cache.metadata, rows, strict=True))
    assert drt.open_dataset(FOLDER / case).caches[0].cache_id == cache.manifest["cache_id"]


@pytest.mark.parametrize("case", CASES)
def test_this_release_writes_the_same_bytes(case: str, tmp_path: Path) -> None:
    assert files(BUILDER.build(case, tmp_path)) == files(FOLDER / case)


def refused(folder: Path) -> bool:
    try:
        return not drt.open_dataset(folder).verify().ok
    except drt.DatasetRTError:
        return True


@pytest.mark.parametrize("case", ["plain", "zstd"])
def test_both_readers_refuse_every_flipped_byte(case: str, tmp_path: Path) -> None:
    folder = tmp_path / case
    shutil.copytree(FOLDER / case, folder)
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        original = path.read_bytes()
        for at in range(0, len(original), 7):
            path.write_bytes(original[:at] + bytes([original[at] ^ 0x10]) + original[at + 1 :])
            with pytest.raises((BrokenError, ValueError, KeyError)):
                read_cache(folder)
            assert refused(folder), (path.name, at)
        path.write_bytes(original)
    assert drt.open_dataset(folder).verify().ok
