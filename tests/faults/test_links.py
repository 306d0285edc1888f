"""Symbolic links and other people's files at the names that a writer uses: never followed.

The writer removes what it made, and nothing else, wherever a link leads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import datasetrt as drt
from tests.rows import RowSource, rows_of

CONFIG = drt.WriterConfig(progress=False, max_shard_bytes=4000, queue_bytes=1)
SAMPLES = 400


def source(name: str = "x", fingerprint: str = "v1", samples: int = SAMPLES) -> RowSource:
    return RowSource(name, rows_of(samples), fingerprint=fingerprint)


def everything(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder; of a link, where it leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = b"-> " + os.fsencode(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A cache elsewhere, which no write may change."""
    drt.write_cache(source("real"), tmp_path / "big", config=CONFIG)
    return tmp_path / "big" / "real"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


class InterruptedWriteError(Exception):
    pass


def interrupt(root: Path) -> Path:
    """An unfinished write of `x` with durable shards; its staged folder."""

    class Failing(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            yield from super().__iter__()
            raise InterruptedWriteError

    with pytest.raises(InterruptedWriteError):
        drt.write_cache(Failing("x", rows_of(SAMPLES), fingerprint="v1"), root, config=CONFIG)
    assert len(list((root / ".x.partial" / "shards").iterdir())) > 2
    return root / ".x.partial"


def refused(root: Path, named: str) -> None:
    """A write of `x` is refused in one line that names the culprit, and changes nothing."""
    before = everything(root)
    for write in (
        lambda: drt.write_cache(source(), root, config=CONFIG),
        lambda: drt.cache(source(fingerprint="v2"), root, on_stale="rebuild", config=CONFIG),
    ):
        with pytest.raises(drt.CacheExistsError) as caught:
            write()
        assert caught.value.kind == "name-occupied"
        assert named in str(caught.value)
        assert "\n" not in str(caught.value)
        assert everything(root) == before


def test_a_rebuild_replaces_a_link_and_leaves_what_it_leads_to(root: Path, precious: Path) -> None:
    before = everything(precious)
    (root / "x").symlink_to(precious)
    ds = drt.cache(source(fingerprint="v2"), root, on_stale="rebuild", config=CONFIG)
    assert ds.caches[0].fingerprint == "v2"
    assert everything(precious) == before
    assert [path.name for path in root.iterdir()] == ["x"]
    assert not (root / "x").is_symlink()


def test_a_rebuild_replaces_a_linked_folder_of_shards(root: Path, precious: Path) -> None:
    before = everything(precious)
    drt.write_cache(source(), root, config=CONFIG)
    for shard in (root / "x" / "shards").iterdir():
        shard.unlink()
    (root / "x" / "shards").rmdir()
    (root / "x" / "shards").symlink_to(precious / "shards")
    ds = drt.cache(source(fingerprint="v2"), root, on_stale="rebuild", config=CONFIG)
    assert ds.verify().ok
    assert everything(precious) == before
    assert [path.name for path in root.iterdir()] == ["x"]
    assert (root / "x" / "shards").is_dir()
    assert not (root / "x" / "shards").is_symlink()


@pytest.mark.parametrize("name", [".x.partial", ".x.journal", ".x.replaced", ".x.lock"])
def test_a_link_at_a_hidden_name_is_refused(root: Path, precious: Path, name: str) -> None:
    before = everything(precious)
    (root / name).symlink_to(precious)
    refused(root, name)
    (root / name).unlink()
    (root / name).symlink_to("nowhere")
    refused(root, name)
    assert everything(precious) == before


@pytest.mark.parametrize("name", ["", "shards", "shards/000000.bin"])
def test_a_link_in_an_unfinished_write_is_refused(root: Path, precious: Path, name: str) -> None:
    before = everything(precious)
    partial = interrupt(root)
    (partial / name).rename(root / "moved")
    (partial / name).symlink_to(precious / name)
    refused(root, f".x.partial/{name}".rstrip("/"))
    assert everything(precious) == before


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("at", [0, 100, -100, -1])
def test_a_damaged_shard_of_an_unfinished_write_is_written_again(root: Path, tmp_path: Path, at: int) -> None:
    drt.write_cache(source(), tmp_path / "whole", config=CONFIG)
    flip(interrupt(root) / "shards" / "000001.bin", at)
    report = drt.write_cache(source(), root, config=CONFIG)
    assert 0 < (report.resumed_at or 0) < SAMPLES
    assert drt.open_dataset(root / "x").verify().ok
    assert everything(root) == everything(tmp_path / "whole")


@pytest.mark.parametrize(
    "name",
    [
        ".x.lock",
        ".x.partial",
        ".x.partial/manifest.json",
        ".x.partial/shards/000000.bin",
        ".x.journal/000000.segment",
        ".x.replaced/manifest.json",
        ".x.replaced/thesis.tex",
    ],
)
def test_what_somebody_else_put_at_a_hidden_name_stays(root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(b"mine")
    refused(root, name)
    assert not (root / "x").exists()


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo], ids=["file", "fifo"])
@pytest.mark.parametrize("linked", [False, True], ids=["itself", "link"])
def test_what_is_no_folder_occupies_the_name(root: Path, make: Callable[[Path], None], linked: bool) -> None:
    other = root / ("other" if linked else "x")
    make(other)
    if linked:
        (root / "x").symlink_to(other)
    with pytest.raises(drt.CacheExistsError) as caught:
        drt.write_cache(source(), root, config=CONFIG)
    assert (caught.value.kind, caught.value.path) == ("name-occupied", str(root / "x"))
    assert other.exists()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "fifo"])
def test_a_lock_that_is_no_file_is_refused(root: Path, make: Callable[[Path], None]) -> None:
    make(root / ".x.lock")
    refused(root, ".x.lock")
    assert (root / ".x.lock").exists()


FOREIGN = {
    "manifest.json": b'{"name": "my web app"}',
    "metadata.arrow": b"ARROW1\0\0 of another program",
    "index.bin": b"an index of another program",
    "shards/000000.bin": b"a shard of another program",
}


@pytest.mark.parametrize(
    "names", [*([name] for name in FOREIGN), list(FOREIGN)], ids=lambda names: "+".join(names)
)
def test_a_folder_that_only_has_the_names_of_a_cache_is_not_replaced(names: list[str], root: Path) -> None:
    for name in names:
        path = root / "x" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FOREIGN[name])
    before = everything(root)
    with pytest.raises(drt.CacheExistsError) as refused:
        drt.cache(source(), root, config=CONFIG, on_stale="rebuild")
    assert refused.value.kind == "name-occupied"
    assert everything(root / "x") == everything_in(before, "x")


def everything_in(found: dict[str, bytes], folder: str) -> dict[str, bytes]:
    prefix = f"{folder}/"
    return {name.removeprefix(prefix): data for name, data in found.items() if name.startswith(prefix)}
