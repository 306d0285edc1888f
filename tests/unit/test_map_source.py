"""MapSource in worker processes: the same bytes, the same exceptions, no process left behind."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pytest

import datasetrt as drt
from datasetrt.pool import CHUNK_ITEMS, ITEMS_AHEAD, SMALL_CHUNK_BYTES, map_in_workers
from datasetrt.source import map_here
from tests.rows import wait_for_files

Method = Literal["fork", "forkserver", "spawn"]

METHODS: list[Method] = ["fork", "forkserver", "spawn"]

# Most tests fork, because that starts fastest. Python warns of it where threads run, as they do in a writer.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def config(workers: int = 2, method: Method = "fork", **options: Any) -> drt.WriterConfig:
    return drt.WriterConfig(progress=False, workers=workers, worker_start_method=method, **options)


def mapped(
    fn: Callable[[Any], Any], items: Any, workers: int = 2, method: Method = "fork", **options: Any
) -> list[tuple[int, drt.CacheInput]]:
    source = drt.MapSource("m", items, fn)
    if workers == 1:
        return list(map_here(source, 0))
    return list(map_in_workers(source, config(workers, method, **options), 0))


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def assert_no_workers() -> None:
    assert multiprocessing.active_children() == []


# Functions of a module, as workers need them.


def uneven(item: int) -> Any:
    """No sample, one, or several, of different sizes."""
    if item % 3 == 0:
        return None
    sample = drt.CacheInput(item.to_bytes(4, "little") * (item % 50), {"i": item, "odd": item % 2 == 1})
    return sample if item % 3 == 1 else [sample] * (item % 4)


def slow_at_first(item: int) -> drt.CacheInput:
    time.sleep(0.3 if item == 0 else 0)
    return drt.CacheInput(b"x" * 1000, {"i": item})


def very_slow_at_first(item: int) -> drt.CacheInput:
    time.sleep(2.0 if item == 0 else 0)
    return drt.CacheInput(b"", {"i": item})


def interrupts_itself(item: int) -> drt.CacheInput:
    os.kill(os.getpid(), signal.SIGINT)
    return drt.CacheInput(b"", {"i": item})


def nothing(item: int) -> None:
    return None


def many_large(item: int) -> Iterator[drt.CacheInput]:
    for part in range(20):
        yield drt.CacheInput(bytes([item]) * 300_000, {"i": item, "part": part})


def fails_at_30(item: int) -> drt.CacheInput:
    if item >= 30:
        raise KeyError(item)
    return drt.CacheInput(b"", {"i": item})


class AwkwardError(Exception):
    """Cannot be made from its args, as pickle does."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} and {right}")
        self.right = right
        self.lock = threading.Lock()


def awkward(item: int) -> None:
    raise AwkwardError(item, 7)


def local_exception(item: int) -> None:
    class LocalError(Exception):
        pass

    raise LocalError("only here")


def raises_system_exit(item: int) -> None:
    sys.exit(3)


def raises_stop_iteration(item: int) -> None:
    raise StopIteration


def killed_at_30(item: int) -> drt.CacheInput:
    if item == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    return drt.CacheInput(b"", {"i": item})


def leaves_at_30(item: int) -> drt.CacheInput:
    if item == 30:
        os._exit(9)
    return drt.CacheInput(b"", {"i": item})


def sleeps(item: int) -> None:
    time.sleep(600)


def odd_metadata(item: Any) -> drt.CacheInput:
    return drt.CacheInput(b"", {"field": item})


def locked_metadata(item: int) -> drt.CacheInput:
    import threading

    return drt.CacheInput(b"", {"field": threading.Lock()})  # type: ignore[dict-item]


def not_contiguous(item: int) -> drt.CacheInput:
    import numpy as np

    return drt.CacheInput(np.zeros((4, 4))[:, ::2], {"i": item})


def buffers(item: int) -> drt.CacheInput:
    import numpy as np

    kinds: list[Any] = [
        b"ab",
        bytearray(b"ab"),
        memoryview(b"ab"),
        np.zeros((0, 3)),
        np.arange(6).reshape(2, 3),
    ]
    return drt.CacheInput(kinds[item], {"i": item})


# The same samples


@pytest.mark.parametrize("method", METHODS)
def test_the_cache_is_the_same_for_any_number_of_workers(method: Method, tmp_path: Path) -> None:
    caches = []
    for workers in (1, 2, 3) if method == "fork" else (1, 2):
        root = tmp_path / str(workers)
        drt.write_cache(
            drt.MapSource("m", range(400), uneven), root, config=config(workers, method, max_shard_bytes=4096)
        )
        caches.append(files(root / "m"))
    assert all(cache == caches[0] for cache in caches)
    assert len(caches[0]) > 4, "several shards"
    assert_no_workers()


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_samples_come_in_the_order_of_the_items(workers: int) -> None:
    assert mapped(uneven, range(2000), workers) == mapped(uneven, range(2000), 1)


def test_a_slow_item_holds_back_the_others() -> None:
    assert [item for item, _ in mapped(slow_at_first, range(200), 3)] == list(range(200))


def test_payloads_of_all_kinds_come_back_as_bytes() -> None:
    kinds: list[Any] = [sample.data for _, sample in mapped(buffers, range(5), 1)]
    here = [memoryview(data).tobytes() for data in kinds]
    assert [sample.data for _, sample in mapped(buffers, range(5))] == here
    assert all(type(sample.data) is bytes for _, sample in mapped(buffers, range(5)))


def test_fewer_items_than_workers_and_none_at_all() -> None:
    assert [item for item, _ in mapped(uneven, range(2), 4)] == [1]
    assert mapped(uneven, [], 4) == []
    assert mapped(nothing, range(5000), 2) == []
    assert_no_workers()


def test_large_outputs_pass_in_parts() -> None:
    found = mapped(many_large, range(6), 3)
    assert [(item, sample.metadata["part"]) for item, sample in found] == [
        (item, part) for item in range(6) for part in range(20)
    ]
    assert all(sample.data == bytes([item]) * 300_000 for item, sample in found)


# Bounds


def test_items_are_sent_one_by_one_and_only_so_far_ahead() -> None:
    asked: list[int] = []

    class Watched:
        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, index: int) -> int:
            asked.append(index)
            return index

        def __reduce__(self) -> Any:
            raise AssertionError("the sequence itself must not be sent")

    with closing(map_in_workers(drt.MapSource("m", Watched(), very_slow_at_first), config(3), 0)) as results:
        next(results)
    assert 1000 < max(asked) < 3 * (ITEMS_AHEAD + CHUNK_ITEMS)


def test_what_waits_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from datasetrt import pool

    most = 0
    read = pool._Pool._read

    def watched(self: Any, worker: Any) -> None:
        nonlocal most
        read(self, worker)
        most = max(most, self._waiting_bytes)

    monkeypatch.setattr(pool._Pool, "_read", watched)
    limit = 4_000_000
    mapped(many_large, range(9), 3, queue_bytes=limit)
    # One part of each worker may arrive beyond the limit, and a part ends with the sample that fills it.
    assert 0 < most < limit + 3 * 1_400_000


def test_large_items_travel_one_at_a_time() -> None:
    items = [bytes([number]) * (SMALL_CHUNK_BYTES * 20) for number in range(40)]
    found = mapped(first_byte, items, 3)
    assert [sample.metadata["i"] for _, sample in found] == list(range(40))


def first_byte(item: bytes) -> drt.CacheInput:
    return drt.CacheInput(item, {"i": item[0]})


# Exceptions


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_has_its_type_and_says_which_item_and_sample(workers: int, tmp_path: Path) -> None:
    with pytest.raises(KeyError) as caught:
        drt.write_cache(drt.MapSource("m", range(90), fails_at_30), tmp_path, config=config(workers))
    assert caught.value.args == (30,), "the first in the order of the items"
    notes = "\n".join(caught.value.__notes__)
    assert "item 30 of source 'm'" in notes
    assert "sample 30 of source 'm'" in notes
    assert ("in fails_at_30" in notes) == (workers > 1), "a worker's traceback comes along"
    with pytest.raises(drt.CacheNotFoundError):
        drt.open_dataset(tmp_path / "m")
    assert_no_workers()


def test_an_exception_that_does_not_unpickle_keeps_its_class() -> None:
    with pytest.raises(AwkwardError, match="0 and 7") as caught:
        mapped(awkward, range(3))
    # What can be sent comes along.
    assert caught.value.right == 7
    assert not hasattr(caught.value, "lock")


def test_an_exception_that_does_not_pickle_becomes_its_text() -> None:
    with pytest.raises(RuntimeError, match="LocalError: only here") as caught:
        mapped(local_exception, range(3))
    assert "in local_exception" in "\n".join(caught.value.__notes__)


def test_system_exit_of_the_function_is_the_same_in_a_worker() -> None:
    for workers in (1, 2):
        with pytest.raises(SystemExit) as caught:
            mapped(raises_system_exit, range(3), workers)
        assert caught.value.code == 3


def test_stop_iteration_does_not_end_the_data_in_a_worker() -> None:
    with pytest.raises(RuntimeError, match="StopIteration for item 0"):
        mapped(raises_stop_iteration, range(3))


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_metadata_is_refused_in_the_same_words(workers: int, tmp_path: Path) -> None:
    items = [1, 2, 3, [4]]
    with pytest.raises(drt.InvalidInputError, match=r"sample 3: field 'field' got list \[4\]") as caught:
        drt.write_cache(drt.MapSource("m", items, odd_metadata), tmp_path, config=config(workers))
    assert "it was made of item 3 of source 'm'" in caught.value.__notes__


def no_metadata(item: int) -> drt.CacheInput:
    return drt.CacheInput(b"", 5)  # type: ignore[arg-type]


def text_payload(item: int) -> drt.CacheInput:
    return drt.CacheInput("text", {})  # type: ignore[arg-type]


def odd_key(item: int) -> drt.CacheInput:
    return drt.CacheInput(b"", {len: item})  # type: ignore[dict-item]


def twice(item: int) -> drt.CacheInput:
    class Same(str):
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return self is other

    return drt.CacheInput(b"", {Same("a"): 1, Same("a"): 2})


@pytest.mark.parametrize(
    ("fn", "kind", "words"),
    [
        (locked_metadata, "invalid-metadata", "field 'field' got lock"),
        (no_metadata, "invalid-metadata", "metadata is an object of type int; give a dict"),
        (odd_key, "invalid-metadata", "is not a string; name every field"),
        (twice, "invalid-metadata", "field 'a'"),
        (not_contiguous, "invalid-argument", "data is a buffer that is not C-contiguous"),
        (text_payload, "invalid-argument", "data is an object of type str, expected bytes"),
    ],
)
def test_refusals_are_the_same_whatever_the_number_of_workers(
    fn: Any, kind: str, words: str, tmp_path: Path
) -> None:
    found = []
    for workers in (1, 2):
        with pytest.raises(drt.InvalidInputError, match=words) as refused:
            drt.write_cache(drt.MapSource("m", range(3), fn), tmp_path, config=config(workers))
        assert refused.value.kind == kind
        found.append((str(refused.value), refused.value.sample_id))
    if fn not in (twice, locked_metadata):  # told by item from a worker; the address of the lock
        assert found[0] == found[1]
        assert found[0][1] == 0


def test_an_item_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    items: list[Any] = [*range(500), lambda: None]
    with pytest.raises(drt.InvalidInputError, match=r"item 500 of source 'm' cannot be sent .*workers=1"):
        mapped(uneven, items)
    assert_no_workers()


# Workers that die


@pytest.mark.parametrize(
    ("fn", "end"), [(killed_at_30, "killed by SIGKILL"), (leaves_at_30, "ended with exit code 9")]
)
@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_dies_is_an_error_with_the_items(
    fn: Callable[[Any], Any], end: str, method: Method, tmp_path: Path
) -> None:
    with pytest.raises(drt.DatasetRTError) as died:
        drt.write_cache(drt.MapSource("m", range(90), fn), tmp_path, config=config(2, method))
    assert died.value.kind == "worker-died"
    assert end in str(died.value)
    assert "workers=1" in str(died.value)
    # It was ahead of the samples that are stored, so that no sample can be named.
    assert not getattr(died.value, "__notes__", [])
    assert_no_workers()


def test_the_items_of_a_dead_worker_are_those_it_had() -> None:
    source = drt.MapSource("m", range(1), killed_at_0)
    with pytest.raises(drt.DatasetRTError, match="killed by SIGKILL at item 0;"):
        list(map_in_workers(source, config(), 0))


def killed_at_0(item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# No process is left


@pytest.mark.parametrize("method", METHODS)
def test_closing_early_ends_the_workers_at_once(method: Method) -> None:
    results = map_in_workers(drt.MapSource("m", [0, 1, 2, 3], sleeps_after_0), config(2, method), 0)
    assert next(results)[0] == 0
    begin = time.monotonic()
    results.close()
    assert time.monotonic() - begin < 300, "it waited for a function that sleeps for 600 seconds"
    assert_no_workers()


def sleeps_after_0(item: int) -> drt.CacheInput:
    time.sleep(600 if item else 0)
    return drt.CacheInput(b"", {"i": item})


def test_dropping_the_results_ends_the_workers() -> None:
    results = map_in_workers(drt.MapSource("m", [0, 1, 2, 3], sleeps_after_0), config(), 0)
    next(results)
    del results
    assert_no_workers()


def test_a_write_that_fails_ends_the_workers(tmp_path: Path) -> None:
    drt.write_cache(drt.MapSource("m", range(9), uneven), tmp_path, config=config(1))
    with pytest.raises(drt.CacheExistsError):
        drt.write_cache(drt.MapSource("m", range(9), sleeps), tmp_path, config=config())
    assert_no_workers()


def test_a_progress_function_that_raises_ends_the_workers(tmp_path: Path) -> None:
    def receive(progress: drt.Progress) -> None:
        if progress.samples:
            raise ZeroDivisionError

    many = drt.MapSource("m", range(100_000), slow_a_little)
    with pytest.raises(ZeroDivisionError):
        drt.write_cache(
            many, tmp_path, config=drt.WriterConfig(progress=receive, workers=2, worker_start_method="fork")
        )
    assert_no_workers()


def slow_a_little(item: int) -> drt.CacheInput:
    time.sleep(0.002)
    return drt.CacheInput(b"", {"i": item})


@pytest.mark.parametrize("method", METHODS)
def test_workers_end_by_themselves_when_all_is_done(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasetrt.pool.LAST_SECONDS", 60.0)
    begin = time.monotonic()
    assert len(mapped(slow_at_first, range(9), 3, method)) == 9
    assert time.monotonic() - begin < 30
    assert_no_workers()


def test_workers_ignore_ctrl_c() -> None:
    assert len(mapped(interrupts_itself, range(9))) == 9


SCRIPT = """
    import os, pathlib, sys, time
    import datasetrt as drt

    def begun():
        pathlib.Path(sys.argv[3], f"begun-{os.getpid()}").touch()

    def sleeps(item):
        begun()
        time.sleep(600)

    def quick(item):
        begun()
        return drt.CacheInput(b"x", {"i": item})

    class Endless:
        def __len__(self): return 10**9
        def __getitem__(self, index): return index

    if __name__ == "__main__":
        fn, method, root = {"sleeps": sleeps, "quick": quick}[sys.argv[1]], sys.argv[2], sys.argv[3]
        config = drt.WriterConfig(progress=False, workers=2, worker_start_method=method)
        drt.write_cache(drt.MapSource("m", Endless(), fn), root, config=config)
"""


def children_of(pid: int) -> list[int]:
    """Process ids of all descendants."""
    direct = [int(each.name) for each in Path("/proc").glob("[0-9]*") if _stat(int(each.name))[1] == str(pid)]
    return direct + [each for child in direct for each in children_of(child)]


def is_running(pid: int) -> bool:
    return _stat(pid)[0] not in {"", "Z"}


def _stat(pid: int) -> tuple[str, str]:
    """State and parent of a process; empty if it is gone."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return state, parent


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fn", ["sleeps", "quick"])
def test_ctrl_c_ends_everything_at_once(fn: str, method: Method, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    # A session of its own: like a terminal, the signal goes to the whole process group.
    process = subprocess.Popen(
        [sys.executable, str(script), fn, method, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("begun-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    family = children_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    # The function sleeps for far longer than this guard against a hang.
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert errors.count("KeyboardInterrupt") == 1, "the parent's own, and none of the workers'"
    time.sleep(0.2)
    assert len(family) >= 2
    assert not any(map(is_running, family))
    assert not (tmp_path / "m").exists()


# Refused before anything starts


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_function_that_cannot_be_sent_is_refused_first(method: Method, tmp_path: Path) -> None:
    def local(item: int) -> drt.CacheInput:
        return drt.CacheInput(b"", {"i": item})

    for fn in (local, lambda item: None):
        with pytest.raises(drt.InvalidInputError) as refused:
            drt.write_cache(drt.MapSource("m", range(9), fn), tmp_path / "root", config=config(2, method))
        assert fn.__qualname__ in str(refused.value)
        assert "top level" in str(refused.value)
        assert "workers=1" in str(refused.value)
    assert not (tmp_path / "root").exists()


def test_a_first_item_that_cannot_be_sent_is_refused_first(tmp_path: Path) -> None:
    unsendable: list[Any] = [lambda: None]
    with pytest.raises(drt.InvalidInputError, match="item 0 of source 'm' cannot be sent"):
        drt.write_cache(drt.MapSource("m", unsendable, uneven), tmp_path / "root", config=config())
    assert not (tmp_path / "root").exists()


def test_a_forked_worker_has_the_function_already() -> None:
    assert len(mapped(lambda item: drt.CacheInput(b"", {"i": item}), range(9))) == 9


def run_code(code: str, *, stdin: bool = False) -> str:
    command = [sys.executable, "-"] if stdin else [sys.executable, "-c", textwrap.dedent(code)]
    given = textwrap.dedent(code) if stdin else None
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


INTERACTIVE = """
    import datasetrt as drt, tempfile

    class Item: pass

    def fn(item): return drt.CacheInput(b"", {})

    for items, function in [([1], fn), ([Item()], print)]:
        try:
            drt.write_cache(drt.MapSource("m", items, function), tempfile.mkdtemp(),
                            config=drt.WriterConfig(workers=2, progress=False))
        except drt.InvalidInputError as error:
            print(error)
"""


def test_what_an_interactive_session_defines_is_refused() -> None:
    first, second = run_code(INTERACTIVE).splitlines()
    assert first.startswith("the function fn of source 'm' is defined in an interactive session")
    assert second.startswith("item 0 of source 'm' is defined in an interactive session")
    assert "workers=1" in first


def test_a_script_that_is_no_file_is_refused() -> None:
    for line in run_code(INTERACTIVE, stdin=True).splitlines():
        assert "they import the main script and <stdin> is no file" in line


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_without_main_guard_is_told_so(method: Method, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    code = f"""
        import datasetrt as drt

        def fn(item): return drt.CacheInput(b"", {{"i": item}})

        config = drt.WriterConfig(workers=2, progress=False, worker_start_method={method!r})
        drt.cache(drt.MapSource("m", range(9), fn), {str(tmp_path / "root")!r}, config=config)
    """
    script.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()
    message = next(line for line in reversed(last) if line.startswith("datasetrt.errors.DatasetRTError"))
    assert 'if __name__ == "__main__":' in message


def test_a_daemonic_process_is_told_to_use_one_worker(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=write_in_daemon, args=(theirs, tmp_path), daemon=True)
    process.start()
    assert "daemonic process" in ours.recv()
    process.join(30)


def write_in_daemon(pipe: Any, root: Path) -> None:
    try:
        drt.write_cache(drt.MapSource("m", range(9), uneven), root, config=config())
    except drt.InvalidInputError as error:
        pipe.send(str(error))


def test_a_function_that_cannot_be_loaded_says_so() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module") as caught:
        mapped(Unloadable(), range(3), method="spawn")
    assert "in a worker process" in "\n".join(caught.value.__notes__)


class Unloadable:
    """Pickles here, and does not unpickle anywhere."""

    def __call__(self, item: int) -> None:
        return None

    def __reduce__(self) -> Any:
        return _import, ("no_such_module",)


def _import(name: str) -> Any:
    return __import__(name)


# Resuming


class Counted:
    """Writes down each item it is called for; fails at one item, until a file says that it need not."""

    def __init__(self, folder: Path, root: Path, at: int) -> None:
        self.folder = folder
        self.root = root
        self.at = at

    def __call__(self, item: int) -> list[drt.CacheInput]:
        if item == self.at and not (self.folder / "repaired").exists():
            wait_for_files(self.root, 10)
            raise KeyError(item)
        (self.folder / f"{os.getpid()}-{item}").touch()
        return [drt.CacheInput(bytes([item]) * 20_000, {"i": item, "part": part}) for part in range(3)]

    def calls(self) -> list[int]:
        return sorted(int(path.name.split("-")[1]) for path in self.folder.iterdir() if "-" in path.name)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_write_resumes_at_its_item(workers: int, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    counted = Counted(calls, tmp_path / "r", 50)
    source = drt.MapSource("m", range(60), counted, fingerprint="v1")
    small = config(workers, max_shard_bytes=100_000)
    with pytest.raises(KeyError):
        drt.write_cache(source, tmp_path / "r", config=small)
    for path in calls.iterdir():
        path.unlink()
    (calls / "repaired").touch()
    report = drt.write_cache(source, tmp_path / "r", config=small)
    assert report.resumed_at is not None
    assert report.sample_count == 180
    assert counted.calls() == list(range((report.resumed_at - 1) // 3, 60)), (
        "from the item of the last stored sample"
    )
    drt.write_cache(source, tmp_path / "clean", config=small)
    assert files(tmp_path / "r" / "m") == files(tmp_path / "clean" / "m")


def test_an_item_that_gives_fewer_samples_than_were_stored_is_refused(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    small = config(1, max_shard_bytes=100_000)
    counted = Counted(calls, tmp_path / "r", 50)
    with pytest.raises(KeyError):
        drt.write_cache(
            drt.MapSource("m", range(60), counted, fingerprint="v1"), tmp_path / "r", config=small
        )
    with pytest.raises(
        drt.StaleCacheError, match=r"source 'm' gave 0 samples of item \d+, .* another fingerprint"
    ):
        drt.write_cache(
            drt.MapSource("m", range(60), nothing, fingerprint="v1"), tmp_path / "r", config=small
        )


def test_the_workers_exceptions_survive_another_pickling() -> None:
    with pytest.raises(KeyError) as caught:
        mapped(fails_at_30, range(60))
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.__notes__ == caught.value.__notes__


class Failing:
    """A sequence whose item 500 cannot be looked up."""

    def __len__(self) -> int:
        return 1_000

    def __getitem__(self, index: int) -> int:
        if index == 500:
            raise LookupError("broken")
        return index


def one_sample(item: int) -> drt.CacheInput:
    return drt.CacheInput(item.to_bytes(8, "little"), {"item": item})


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failed_lookup_comes_after_all_samples_before_it(workers: int, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="broken") as caught:
        drt.write_cache(drt.MapSource("m", Failing(), one_sample), tmp_path, config=config(workers))
    assert caught.value.__notes__ == [
        "while item 500 of source 'm' was being looked up",
        "while sample 500 of source 'm' was being produced",
    ]
    assert_no_workers()
    if workers == 2:
        made = map_in_workers(drt.MapSource("m", Failing(), one_sample), config(workers), 0)
        with closing(made):
            assert [next(made)[0] for _ in range(500)] == list(range(500))
            with pytest.raises(LookupError):
                next(made)


class Label(str):
    """Text that cannot be made from its text alone, as pickle does."""

    language: str

    def __new__(cls, text: str, language: str) -> Self:
        made = super().__new__(cls, text)
        made.language = language
        return made


class Other(int):
    def __reduce__(self) -> Any:
        return int, (99,)


class Packed(bytes):
    def __reduce__(self) -> Any:
        return bytes, (b"other",)


class Number(np.int64):
    def item(self) -> int:  # type: ignore[override]
        return 5


def odd_values(item: int) -> drt.CacheInput:
    metadata = {Label("text", "en"): Label("cat", "en"), "other": Other(item), "number": Number(3)}
    return drt.CacheInput(Packed(b"real"), metadata)


class OddError(Exception):
    def __reduce__(self) -> Any:
        return dict, ()


def raises_odd(item: int) -> None:
    raise OddError("as it is")


def test_workers_store_what_one_process_stores(tmp_path: Path) -> None:
    for workers in (1, 2):
        source = drt.MapSource("m", range(4), odd_values)
        ds = drt.cache(source, tmp_path / str(workers), config=config(workers))
        assert [ds[row].data for row in range(4)] == [b"real"] * 4
        assert ds[2].metadata == {"text": "cat", "other": 2, "number": 5}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_that_unpickles_as_something_else_keeps_its_class(workers: int, tmp_path: Path) -> None:
    with pytest.raises(OddError, match="as it is"):
        drt.write_cache(drt.MapSource("m", range(4), raises_odd), tmp_path, config=config(workers))


CTRL_C_IN_A_FORK = """
import os, signal, sys
import datasetrt as drt

def work(item):
    return drt.CacheInput(b"", {"item": item})

def interrupt():
    if os.getpid() == parent and not sent:
        sent.append(True)
        os.kill(parent, signal.SIGINT)

parent, sent = os.getpid(), []
os.register_at_fork(after_in_parent=interrupt)
config = drt.WriterConfig(workers=2, worker_start_method="fork", progress=False)
before = signal.getsignal(signal.SIGINT)
try:
    drt.write_cache(drt.MapSource("m", range(2000), work), sys.argv[1], config=config)
except KeyboardInterrupt:
    assert sent and signal.getsignal(signal.SIGINT) is before
    assert not os.path.exists(os.path.join(sys.argv[1], "m"))
    print("interrupted")
"""


SIGNALS_IN_A_FORK = """
import faulthandler, os, signal, sys, threading, time
import datasetrt as drt

class Slow(Exception):
    pass

def on_alarm(number, frame):
    raise Slow

def work(item):
    # Handlers of the parent hold in a forked worker, as they do in any forked process.
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        time.sleep(20 if item == 3 else 0)
        data = b"quick"
    except Slow:
        data = b"slow"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return drt.CacheInput(data, {"blocked": bool(signal.pthread_sigmask(signal.SIG_BLOCK, ()))})

def interrupt():
    if os.getpid() == parent and not sent:
        sent.append(True)
        for number in (signal.SIGUSR1, signal.SIGALRM):
            signal.pthread_kill(threading.main_thread().ident, number)

got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
signal.signal(signal.SIGALRM, on_alarm)
signal.siginterrupt(signal.SIGUSR1, False)
parent, sent = os.getpid(), []
config = drt.WriterConfig(workers=2, worker_start_method="fork", progress=False)
os.register_at_fork(before=interrupt)
try:
    drt.write_cache(drt.MapSource("m", range(6), work), sys.argv[1], config=config)
except Slow:
    print("raised")
assert got == [1], "each handler runs once"
assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
assert threading.active_count() == 1
ds = drt.cache(drt.MapSource("m", range(6), work), sys.argv[1], config=config)
print([sample.data.decode() for sample in ds], any(sample.metadata["blocked"] for sample in ds))
"""


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (CTRL_C_IN_A_FORK, "interrupted\n"),
        (SIGNALS_IN_A_FORK, "raised\n['quick', 'quick', 'quick', 'slow', 'quick', 'quick'] False\n"),
    ],
    ids=["ctrl-c", "others"],
)
def test_signals_within_a_fork_are_not_lost(program: str, says: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (says, "")


class Slowly:
    """An item in whose pickling a signal comes."""

    def __reduce__(self) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return Slowly, ()


def test_what_a_handler_raises_is_no_fault_of_an_item(tmp_path: Path) -> None:
    def on_alarm(_number: int, _frame: object) -> None:
        raise TimeoutError("budget is over")

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        with pytest.raises(TimeoutError, match="budget is over"):
            drt.write_cache(drt.MapSource("m", [1, Slowly()], one_sample), tmp_path, config=config(2))
    finally:
        signal.signal(signal.SIGALRM, before)


class OwnInitError(FileNotFoundError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "no", path)


@dataclasses.dataclass(frozen=True)
class FrozenError(ValueError):
    lock: Any


class FetchError(Exception):
    """Unpickled by its args, it says something else."""

    def __init__(self, url: str) -> None:
        super().__init__(f"cannot fetch {url}")
        self.url = url
        self.status = None


class DefaultsError(Exception):
    def __init__(self, path: str = "default", code: int = 1) -> None:
        super().__init__(f"{path}: {code}")


class WrapError(Exception):
    pass


class SlotError(Exception):
    """Unpickled by its args, it has another code."""

    __slots__ = ("code",)

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class ReadError(OSError):
    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.errno = code


class NeedsAttributeError(Exception):
    """Cannot say what it is without its attribute, as some of pytest's cannot."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __str__(self) -> str:
        return self.text


class KeywordsError(ValueError):
    def __new__(cls, *, path: str) -> Self:
        return super().__new__(cls, path)

    def __init__(self, *, path: str) -> None:
        super().__init__(path)


def raised(number: int) -> BaseException:
    """An exception of which something does not survive pickling."""
    if number == 0:
        return ValueError("bad", threading.Lock())
    if number == 1:
        return OwnInitError("/p")
    if number == 2:
        return FrozenError(threading.Lock())
    if number == 3:
        return KeywordsError(path="/p")
    if number == 4:
        return ExceptionGroup("some", [KeyError(threading.Lock()), OSError(2, "no")])
    if number == 5:
        return type("LocalError", (KeyError,), {})("only here")
    if number == 11:
        return type("LocalError", (FileNotFoundError,), {})(2, "no", "a.jpg")
    if number == 12:
        return type("LocalError", (subprocess.CalledProcessError,), {})(3, ["ffmpeg"], stderr=b"bad file")
    if number == 13:
        return type("LocalError", (NeedsAttributeError,), {})("no data")
    if number == 14:
        return type("LocalError", (KeyError,), {"__str__": lambda _: "in its own words"})("only here")
    if number == 15:
        return type("LocalError", (Exception,), {})("only here")
    if number == 16:
        return SlotError("unreadable", 7)
    if number == 17:
        return ReadError("unreadable", 5)
    if number == 18:
        return AttributeError("no such thing", name="thing", obj=threading.Lock())
    if number == 8:
        return FetchError("/p")
    if number == 9:
        return DefaultsError("/p", 7)
    if number == 10:
        return ExceptionGroup("some", [FetchError("/p"), WrapError("in", FetchError("/p"))])
    if number == 7:
        error = ValueError()
        error.args = (error, [error])
        return error
    error = ValueError("noted")
    error.add_note("mine")
    error.__notes__.append(threading.Lock())  # type: ignore[arg-type]
    return error


def raises_number(number: int) -> None:
    try:
        raise LookupError("the cause")
    except LookupError as cause:
        raise raised(number) from cause


@pytest.mark.parametrize("number", range(19))
def test_exceptions_of_workers_keep_their_class_and_cause(number: int) -> None:
    expected = raised(number)
    kind = type(expected)
    if kind.__name__ == "LocalError":
        kind = kind.__base__ if number != 15 else RuntimeError
    with pytest.raises(kind) as caught:
        mapped(raises_number, [number])
    found = caught.value
    assert type(found) is kind
    assert isinstance(found.__cause__, LookupError)
    assert f"while item {0} of source 'm' was being processed" in found.__notes__
    assert "the cause" in "".join(found.__notes__)
    if number == 1:
        assert isinstance(found, OSError)
        assert (found.errno, found.filename, str(found)) == (2, "/p", str(expected))
    if number == 4:
        assert isinstance(found, ExceptionGroup)
        assert [type(each) for each in found.exceptions] == [KeyError, FileNotFoundError]
    if number == 15:
        assert str(found) == "LocalError: only here"
    if number in (5, 11, 12, 13):
        # The worker's traceback tells the class of which only a base is known here.
        assert "LocalError" in "".join(found.__notes__)
        assert (found.args, str(found)) == (expected.args, str(expected))
        assert vars(found).items() >= vars(expected).items()
    if number == 11:
        assert isinstance(found, OSError)
        assert (found.errno, found.filename) == (2, "a.jpg")
    if number == 14:
        assert "in its own words" in str(found)
    if number in (16, 17, 18):
        for name in ("code", "errno", "name"):
            assert getattr(found, name, None) == getattr(expected, name, None)
        assert str(found) == str(expected)
    if number == 6:
        assert found.__notes__[0] == "mine"
    if number == 8:
        assert vars(found).keys() >= {"url", "status"}
    if number in (8, 9):
        assert (found.args, str(found)) == (expected.args, str(expected))
    if number == 10:
        assert isinstance(found, ExceptionGroup)
        first, second = found.exceptions
        assert isinstance(first, FetchError)
        assert (str(first), first.url) == ("cannot fetch /p", "/p")
        assert isinstance(second, WrapError)
        assert isinstance(second.args[1], FetchError)


def imports_late(item: int) -> None:
    module = types.ModuleType("only_in_the_worker")
    sys.modules["only_in_the_worker"] = module
    exec("class LateError(FileNotFoundError): pass", vars(module))
    error = module.LateError(2, "the real reason", "a.jpg")
    error.of_the_worker = error.__class__
    raise error


def test_an_exception_that_only_the_worker_knows_is_told_all_the_same() -> None:
    with pytest.raises(FileNotFoundError, match="the real reason") as caught:
        mapped(imports_late, range(1))
    assert (caught.value.errno, caught.value.filename) == (2, "a.jpg")
    assert caught.value.__notes__[0] == "while item 0 of source 'm' was being processed"
    assert "LateError" in caught.value.__notes__[1]
    assert "imports_late" in caught.value.__notes__[1]
