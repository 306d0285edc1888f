"""Full, foreign and read-only folders, and any umask: a typed error, or a whole cache.

Mounts and other users need root: as an ordinary user the full file system is a limit on the size of a file,
and the user that may not write is this one.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import datasetrt as drt
from tests.endurance.kill import CONFIG, ended, files, forked, source, state, write

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

NOBODY = 65534
IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    root = tmp_path_factory.mktemp("whole")
    write(root, 1)
    return {"v1": files(root / "s")}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 600 kB, where this process may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    if not IS_ROOT or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        yield None
        return
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def as_nobody(run: Callable[[], object]) -> None:
    """Run something as a user who owns nothing here; what it raises fails the test."""

    def drop_and_run() -> None:
        if IS_ROOT:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        run()

    assert ended(forked(drop_and_run)) == 0


def refused(kind: str, run: Callable[[], object]) -> None:
    with pytest.raises(drt.StorageError) as caught:
        run()
    assert (caught.value.kind, "\n" in str(caught.value)) == (kind, False)
    assert caught.value.errno is not None


def test_a_full_file_system_keeps_what_is_durable(
    small: Path | None, known: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    if small is None:
        pytest.skip("this process may not mount a file system; the next test limits the size of files")
    refused("no-space", lambda: drt.write_cache(source(1), small, config=CONFIG))
    assert state(small, known) == "none"
    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    report = drt.write_cache(source(1), small, config=CONFIG)
    assert (report.resumed_at or 0) > 0
    assert state(small, known) == "v1"
    assert [each.name for each in small.iterdir()] == ["s"]


def test_a_full_file_system_keeps_the_cache_that_was_to_be_replaced(small: Path | None) -> None:
    if small is None:
        pytest.skip("this process may not mount a file system; the next test limits the size of files")
    few = source(2)
    few.rows = few.rows[:80]
    drt.write_cache(few, small, config=CONFIG)
    before = files(small / "s")
    refused("no-space", lambda: write(small, 1))
    assert drt.open_dataset(small / "s").verify().ok
    assert files(small / "s") == before


def test_a_limit_on_the_size_of_files(known: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        refused("io", lambda: drt.write_cache(source(1), tmp_path, config=CONFIG))

    assert ended(forked(limited)) == 0
    assert state(tmp_path, known) == "none"
    write(tmp_path, 1)
    assert state(tmp_path, known) == "v1"
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def opened_up(folder: Path) -> None:
    """Let everybody pass through the folders of pytest, which are private."""
    for each in (folder, *folder.parents):
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o055)


@pytest.fixture
def readable(tmp_path: Path) -> Path:
    """A folder with a cache, that others may read; restored afterwards to what pytest made."""
    opened_up(tmp_path)
    root = tmp_path / "root"
    write(root, 1)
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return root


def test_a_folder_of_another_user_or_without_write_permission(readable: Path) -> None:
    before = files(readable)

    def tries() -> None:
        ds = drt.open_dataset(readable / "s")
        assert sum(len(batch) for batch in ds.loader(batch_size=7, sampler=drt.Shuffle(seed=1))) == len(ds)
        assert ds.verify().ok
        assert len(drt.cache(source(1), readable, config=CONFIG)) == len(ds)
        other = source(1)
        other.name = "other"
        refused("permission-denied", lambda: drt.write_cache(other, readable, config=CONFIG))
        refused("permission-denied", lambda: write(readable, 2))

    as_nobody(tries)
    assert files(readable) == before
    assert [each.name for each in readable.iterdir()] == ["s"]
    for path in (readable, *readable.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_have_the_modes_that_the_umask_leaves(umask: int, tmp_path: Path) -> None:
    root = tmp_path / "made" / "root"

    def writes() -> None:
        os.umask(umask)
        write(root, 1)
        write(root, 2)

    assert ended(forked(writes)) == 0
    for path in (root.parent, root, *root.rglob("*")):
        expected = (0o777 if path.is_dir() else 0o666) & ~umask
        assert path.stat().st_mode & 0o7777 == expected, path
    assert drt.open_dataset(root / "s").verify().ok
