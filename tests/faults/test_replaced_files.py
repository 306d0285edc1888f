"""Files of a cache that were replaced, cut, lengthened or swapped: a typed error, never other samples."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import datasetrt as drt
from tests.rows import RowSource, rows_of

FILES = ["manifest.json", "index.bin", "metadata.arrow", "shards/000000.bin", "shards/000001.bin"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = drt.WriterConfig(progress=False, max_shard_bytes=4000)
    return Path(drt.write_cache(RowSource("s", rows_of(80)), tmp_path, config=config).path)


def read(folder: Path) -> list[tuple[bytes, dict[str, object], int]]:
    return [(s.data, s.metadata, s.sample_id) for s in drt.open_dataset(folder)]


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_link_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def as_link_to_itself_elsewhere(path: Path) -> None:
    copy = path.with_suffix(".elsewhere")
    shutil.move(path, copy)
    path.symlink_to(copy.name)


def as_socket(path: Path) -> None:
    path.unlink()
    # Bound by a short name: a socket's path has at most 107 bytes.
    here = os.open(path.parent, os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def as_endless_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def as_full_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/full")


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        as_folder,
        as_pipe,
        as_link_loop,
        as_link_to_itself_elsewhere,
        as_socket,
        as_endless_device,
        as_full_device,
        longer,
        shorter,
        empty,
    ],
)
def test_a_replaced_file_is_a_typed_error(folder: Path, file: str, damage: Callable[[Path], None]) -> None:
    damage(folder / file)
    with pytest.raises(drt.DatasetRTError) as caught:
        read(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_another_build_of_the_same_source_is_noticed(
    folder: Path, file: str, tmp_path: Path
) -> None:
    # The same name, sizes and record key, but other payloads: only digests tell them apart.
    rows = [(bytes(reversed(data)), metadata) for data, metadata in rows_of(80)]
    config = drt.WriterConfig(progress=False, max_shard_bytes=4000)
    other = Path(drt.write_cache(RowSource("s", rows), tmp_path / "other", config=config).path)
    same = (folder / file).read_bytes() == (other / file).read_bytes()
    before = read(folder)
    shutil.copy(other / file, folder / file)
    if same:
        assert read(folder) == before
    else:
        with pytest.raises(drt.DatasetRTError):
            read(folder)


def test_swapped_shards_are_noticed(folder: Path) -> None:
    shards = folder / "shards"
    for source, target in (("000000.bin", "x"), ("000001.bin", "000000.bin"), ("x", "000001.bin")):
        (shards / source).rename(shards / target)
    with pytest.raises(drt.CorruptionError):
        read(folder)


def test_swapped_records_of_one_size_are_noticed(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    rows = [(bytes([i]) * 50, {"i": i}) for i in range(10)]
    folder = Path(drt.write_cache(RowSource("s", rows), tmp_path, config=quiet).path)
    shard = folder / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    size = 9 + 50
    first, second = slice(64, 64 + size), slice(64 + 3 * size, 64 + 4 * size)
    data[first], data[second] = data[second], data[first]
    shard.write_bytes(data)
    dataset = drt.open_dataset(folder)
    for sample in (0, 3):
        with pytest.raises(drt.CorruptionError) as caught:
            dataset[sample]
        assert caught.value.kind == "record-checksum"
        assert caught.value.sample_id == sample
    assert [p.sample_id for p in dataset.verify().problems] == [0, 3, None]
    assert len(list(dataset[4:])) == 6


def test_a_folder_that_was_never_finished_or_is_no_cache(tmp_path: Path, folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(drt.FormatError) as caught:
        drt.open_dataset(folder)
    assert caught.value.kind == "unfinished"
    (tmp_path / "file").write_text("x")
    for path, kind in ((tmp_path / "file", "not-a-cache"), (tmp_path, "not-a-cache")):
        with pytest.raises(drt.FormatError) as caught:
            drt.open_dataset(path)
        assert caught.value.kind == kind


def test_verify_and_audit_of_a_rebuilt_cache_say_so_once(tmp_path: Path) -> None:
    old = drt.cache(RowSource("one", rows_of(9), fingerprint="1", codec="pickle"), tmp_path)
    drt.cache(RowSource("one", rows_of(12), fingerprint="2", codec="pickle"), tmp_path, on_stale="rebuild")
    for report in (old.verify(), old.audit()):
        assert [problem.kind for problem in report.problems] == ["changed"]
        assert "rebuilt since the dataset was opened" in report.problems[0].message
        assert not report.ok
