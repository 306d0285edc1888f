"""Whatever is wrong with a cache, each problem that ``verify`` reports is one line and says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

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
    unopened = drt.verify_cache(tmp_path / "train")
    assert not report.ok
    assert not unopened.ok
    for problem in report.problems + unopened.problems:
        assert "\n" not in problem.message
        rebuilt = "on_stale='rebuild'" in problem.message
        assert rebuilt or "remove the cache's folder and write it again" in problem.message, problem
    # What the messages advise helps.
    if damage == "folder":
        (tmp_path / "train" / "shards" / "000000.bin").rmdir()
    if not all("on_stale='rebuild'" in problem.message for problem in report.problems + unopened.problems):
        shutil.rmtree(tmp_path / "train")
    again = drt.cache(RowSource("train", rows_of(20)), tmp_path, config=config, on_stale="rebuild")
    assert again.verify().ok
    assert again[7].data == rows_of(20)[7][0]


@pytest.mark.parametrize("damage", [None, *DAMAGES])
def test_a_check_tells_how_far_it_is(damage: str | None, tmp_path: Path) -> None:
    config = drt.WriterConfig(max_shard_bytes=1_000, progress=False)
    ds = drt.cache(RowSource("train", rows_of(200)), tmp_path, config=config)
    if damage is not None:
        DAMAGES[damage](tmp_path / "train")
    for check in (ds.verify, partial(drt.verify_cache, tmp_path / "train")):
        watch = Mock()
        check(on_progress=watch)
        told = [call.args for call in watch.call_args_list]
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert told[-1][0] == told[-1][1] > 0


def test_what_on_progress_raises_ends_the_check(tmp_path: Path) -> None:
    drt.write_cache(RowSource("train", rows_of(20)), tmp_path, config=drt.WriterConfig(progress=False))
    for unopened in (False, True):
        if unopened:
            (tmp_path / "train" / "index.bin").unlink()
        with pytest.raises(ZeroDivisionError):
            drt.verify_cache(tmp_path / "train", on_progress=lambda done, total: 1 // 0)


def places_of(report: drt.VerifyReport) -> list[tuple[str, str]]:
    return [(problem.kind, Path(problem.path or "").name) for problem in report.problems]


def test_damage_in_every_file_is_told(tmp_path: Path) -> None:
    config = drt.WriterConfig(max_shard_bytes=1_000, progress=False)
    folder = drt.write_cache(RowSource("train", rows_of(200)), tmp_path, config=config).path
    shards = sorted((folder / "shards").iterdir())
    assert len(shards) > 3
    flipped(folder / "index.bin", -3)
    cut(folder / "metadata.arrow", 1)
    flipped(shards[1], 100)
    shards[2].unlink()
    report = drt.verify_cache(folder)
    assert places_of(report) == [
        ("index-checksum", "index.bin"),
        ("file-size", "metadata.arrow"),
        ("shard-digest", "000001.bin"),
        ("missing-file", "000002.bin"),
    ]
    assert report.samples == 200
    flipped(folder / "manifest.json", 100)
    report = drt.verify_cache(folder)
    assert places_of(report) == [
        ("manifest-checksum", "manifest.json"),
        ("shard-digest", "000001.bin"),
        ("missing-file", "000002.bin"),
    ]
    assert report.samples is None
    assert str(report).startswith("1 cache with an unknown number of samples: 3 problems\n")


def test_what_is_no_cache_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(drt.CacheNotFoundError):
        drt.verify_cache(tmp_path / "nowhere")
    with pytest.raises(drt.FormatError):
        drt.verify_cache(tmp_path)
    with pytest.raises(drt.InvalidInputError):
        drt.verify_cache(3)  # type: ignore[arg-type]


def test_very_many_problems_are_counted_and_not_listed(tmp_path: Path) -> None:
    rows = [(b"x", {})] * 12_000
    folder = drt.write_cache(RowSource("train", rows), tmp_path, config=drt.WriterConfig(progress=False)).path
    shard = folder / "shards" / "000000.bin"
    content = shard.read_bytes()
    shard.write_bytes(content[:64] + bytes(byte ^ 1 for byte in content[64:-64]) + content[-64:])
    for report in (drt.open_dataset(folder).verify(), drt.verify_cache(folder)):
        assert [problem.sample_id for problem in report.problems[:-1]] == list(range(10_000))
        # Two thousand records and the digest of the shard.
        assert "2001 more problems of" in report.problems[-1].message


@pytest.mark.parametrize("damage", ["manifest", "index", "record"])
def test_a_cache_that_is_rebuilt_while_it_is_checked_is_not_blamed(damage: str, tmp_path: Path) -> None:
    config = drt.WriterConfig(max_shard_bytes=1_000, progress=False)
    folder = drt.write_cache(RowSource("train", rows_of(200)), tmp_path, config=config).path
    DAMAGES[damage](folder)
    rebuilt: list[int] = []

    def rebuild(done: int, total: int) -> None:
        if not rebuilt:
            rebuilt.append(done)
            drt.cache(
                RowSource("train", rows_of(150), fingerprint="b"), tmp_path, config=config, on_stale="rebuild"
            )

    report = drt.verify_cache(folder, on_progress=rebuild)
    assert [problem.kind for problem in report.problems] == ["changed"]
    assert drt.verify_cache(folder).ok


def test_a_folder_that_is_removed_while_it_is_checked_is_told_once(tmp_path: Path) -> None:
    config = drt.WriterConfig(max_shard_bytes=1_000, progress=False)
    folder = drt.write_cache(RowSource("train", rows_of(200)), tmp_path, config=config).path
    report = drt.verify_cache(folder, on_progress=lambda done, total: shutil.rmtree(folder, True))
    assert 0 < len({problem.message for problem in report.problems}) == len(report.problems) < 4
