"""Writers that are killed: no lock outlives them, nothing half is published, and the next one goes on.

The long form, at random moments, is ``nox -s kill``.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import datasetrt as drt
from tests.endurance.kill import CONFIG, SAMPLES, ended, files, forked, killed_round, source, state, write
from tests.rows import RowSource

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


class Suicidal(RowSource):
    """A source that kills its process at one of its samples."""

    at = 0

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number, sample in enumerate(super().__iter__()):
            if number == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            yield sample
        os.kill(os.getpid(), signal.SIGKILL)


class Held(RowSource):
    """A source that says when it began, and waits."""

    def __init__(self, root: Path, seconds: float = 60) -> None:
        super().__init__("s", source(1).rows, fingerprint="v1")
        self.begun, self.seconds = root / "begun", seconds
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[drt.CacheInput]:
        self.begun.touch()
        self.go_on.wait(self.seconds)
        yield from super().__iter__()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    root = tmp_path_factory.mktemp("whole")
    found = {}
    for version in (1, 2):
        write(root, version)
        found[f"v{version}"] = files(root / "s")
    return found


@pytest.mark.parametrize("old", [None, 2], ids=["first", "rebuild"])
def test_a_writer_that_is_killed_at_a_sample(
    old: int | None, known: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    resumed = []
    for at in (0, 1, SAMPLES // 2, SAMPLES):
        root = tmp_path / str(at)
        if old is not None:
            write(root, old)
        dying = Suicidal("s", source(1).rows, fingerprint="v1")
        dying.at = at
        pid = forked(lambda: drt.cache(dying, root, config=CONFIG, on_stale="rebuild"))  # noqa: B023
        assert ended(pid) == -signal.SIGKILL
        assert state(root, known) == ("none" if old is None else f"v{old}")
        report = write(root, 1).reports[0]
        resumed.append(report.resumed_at or 0)
        assert state(root, known) == "v1"
        assert [each.name for each in root.iterdir()] == ["s"]
    assert resumed[-1] > SAMPLES // 2, resumed


def test_a_writer_that_is_killed_at_random_moments(
    known: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    for number, old in enumerate([None, 2]):
        root = tmp_path / str(number)
        figures = killed_round(root, old, 1, known, 0.05, random.Random(number))
        assert sum(figures.values()) > 0


def test_a_killed_holder_leaves_no_lock(known: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    root = tmp_path / "root"
    pid = forked(lambda: drt.write_cache(Held(tmp_path), root, config=CONFIG))
    try:
        wait_for(tmp_path / "begun")
        with pytest.raises(drt.CacheExistsError) as busy:
            drt.write_cache(source(1), root, config=CONFIG)
        assert busy.value.kind == "being-written"
        waiting: list[drt.CachedDataset] = []
        thread = threading.Thread(target=lambda: waiting.append(write(root, 1)))
        thread.start()
    finally:
        os.kill(pid, signal.SIGKILL)
        ended(pid)
    thread.join(60)
    assert [ds.reports[0].reused for ds in waiting] == [False]
    assert state(root, known) == "v1"
    assert [each.name for each in root.iterdir()] == ["s"]


def _stays(root: Path) -> None:
    """Tell of this process, and be there for as long as a test may last."""
    (root / f"{os.getpid()}.child").touch()
    time.sleep(60)


class Forks(RowSource):
    """A source with a child of its own, which outlives it."""

    def __init__(self, root: Path) -> None:
        super().__init__("s", source(1).rows)
        self.root = root

    def __iter__(self) -> Iterator[drt.CacheInput]:
        if os.fork() == 0:
            _stays(self.root)
            os._exit(0)
        time.sleep(60)
        yield from super().__iter__()


@pytest.mark.parametrize("whose", ["a worker", "a child of the source"])
def test_a_forked_child_of_a_killed_holder_has_no_lock(
    whose: str, known: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    workers = drt.WriterConfig(progress=False, workers=2, worker_start_method="fork")
    works = drt.MapSource("s", [tmp_path, tmp_path], _stays)  # type: ignore[arg-type]  # it gives no sample
    given: drt.CacheSource = works if whose == "a worker" else Forks(tmp_path)
    pid = forked(lambda: drt.write_cache(given, root, config=workers))
    children: list[Path] = []
    deadline = time.monotonic() + 60
    try:
        while len(children) < (2 if whose == "a worker" else 1):
            assert time.monotonic() < deadline, "no child came"
            time.sleep(0.01)
            children = list(tmp_path.glob("*.child"))
        with pytest.raises(drt.CacheExistsError, match="is being written by another writer"):
            drt.write_cache(source(1), root, config=CONFIG)
        os.kill(pid, signal.SIGKILL)
        ended(pid)
        drt.write_cache(source(1), root, config=CONFIG)
        for child in children:
            os.kill(int(child.stem), 0)  # It is still there.
    finally:
        for child in children:
            os.kill(int(child.stem), signal.SIGKILL)
    assert state(root, known) == "v1"


def test_a_killed_waiter_disturbs_nobody(known: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    root = tmp_path / "root"
    held = Held(tmp_path)
    holder = threading.Thread(target=drt.write_cache, args=(held, root), kwargs={"config": CONFIG})
    holder.start()
    wait_for(tmp_path / "begun")
    ours, theirs = os.pipe()

    def wait_for_the_other() -> None:
        class Tells(RowSource):
            @property
            def schema(self) -> None:
                os.write(theirs, b"x")

        drt.cache(Tells("s", source(1).rows, fingerprint="v1"), root, config=CONFIG)

    pid = forked(wait_for_the_other)
    assert os.read(ours, 1) == b"x"
    time.sleep(0.05)  # It is between two looks at the lock, or at one; either is fine.
    os.kill(pid, signal.SIGKILL)
    assert ended(pid) == -signal.SIGKILL
    held.go_on.set()
    holder.join(60)
    assert state(root, known) == "v1"
    assert [each.name for each in root.iterdir()] == ["s"]
    os.close(ours)
    os.close(theirs)
