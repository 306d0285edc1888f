"""Whatever is wrong with a cache, each problem that ``verify`` reports is one line and says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import datasetrt as drt
from tests.rows import RowSource, rows_of


def flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def cut(path: Path, bytes_: int) -> None:
    path.write_bytes(path.read_bytes()[:-bytes_])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "record": lambda cache: flipped(cache / "shards/000000.bin", 200),
    "header": lambda cache: flipped(cache / "shards/000000.bin", 3),
    "trailer": lambda cache: flipped(cache / "shards/000000.bin", -3),
    "cut": lambda cache: cut(cache / "shards/000000.bin", 300),
    "gone": lambda cache: (cache / "shards/000000.bin").unlink(),
    "folder": lambda cache: ((cache / "shards/000000.bin").unlink(), (cache / "shards/000000.bin").mkdir()),
    "index": lambda cache: flipped(cache / "index.bin", -3),
    "index cut": lambda cache: cut(cache / "index.bin", 1),
    "metadata": lambda cache: flipped(cache / "metadata.arrow", 100),
    "manifest": lambda cache: flipped(cache / "manifest.json", 100),
}


@pytest.mark.parametrize("compression", ["none", "zstd", "zstd-dictionary"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_problem_has_a_cure(damage: str, compression: str, tmp_path: Path) -> None:
    config = drt.WriterConfig(compression=compression, progress=False)  # type: ignore[arg-type]
    ds = drt.cache(RowSource("train", rows_of(20)), tmp_path, config=config)
    DAMAGES[damage](tmp_path / "train")
    report = ds.verify()
    assert not report.ok
    for problem in report.problems:
        assert "\n" not in problem.message
        rebuilt = "on_stale='rebuild'" in problem.message
        assert rebuilt or "remove the cache's folder and write it again" in problem.message, problem
    # What the messages advise helps.
    if damage == "folder":
        (tmp_path / "train" / "shards" / "000000.bin").rmdir()
    if not all("on_stale='rebuild'" in problem.message for problem in report.problems):
        shutil.rmtree(tmp_path / "train")
    again = drt.cache(RowSource("train", rows_of(20)), tmp_path, config=config, on_stale="rebuild")
    assert again.verify().ok
    assert again[7].data == rows_of(20)[7][0]
