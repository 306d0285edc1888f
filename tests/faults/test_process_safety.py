"""Processes, threads, interpreters, interrupts and signals: no hang, nothing left, and the same samples.

Most cases are programs of their own: they end an interpreter, or count what is left in one.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Literal

import pytest

import datasetrt as drt
from tests.rows import RowSource, number_of, rows_of

Method = Literal["fork", "forkserver", "spawn"]

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

PREAMBLE = """
import os, signal, sys, threading, time
import datasetrt as drt

def left():
    # Native threads of ours, descriptors, and child processes.
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            names.append(open(f"/proc/self/task/{task}/comm").read().strip())
        except (FileNotFoundError, ProcessLookupError):
            pass
    return (
        sorted(name for name in names if name.startswith("drt-")),
        len(os.listdir("/proc/self/fd")),
        open(f"/proc/self/task/{os.getpid()}/children").read().split(),
    )

def settled(before):
    # A joined thread's entry outlives it by a moment.
    deadline = time.monotonic() + 10
    while left() != before:
        assert time.monotonic() < deadline, (before, left())
        time.sleep(0.01)

class Source:
    name, fingerprint = "s", "v1"
    def __iter__(self):
        for i in range(400):
            yield drt.CacheInput(i.to_bytes(8, "little") * 20, {"i": i})

def row(i):
    return drt.CacheInput(i.to_bytes(8, "little"), {"i": i})

config = drt.WriterConfig(progress=False, max_shard_bytes=20_000)
"""


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {each.name for each in folder.iterdir()} if folder.is_dir() else set()


def run(code: str, *arguments: str, temporary: Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program; it must leave no temporary file, no child and no shared memory."""
    temporary.mkdir(exist_ok=True)
    script = temporary.parent / "program.py"
    script.write_text(PREAMBLE + textwrap.dedent(code))
    before = {name for name in shared_memory() if "datasetrt" in name or name.startswith("psm_")}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    try:
        # It ends only when everybody who inherited its pipes has ended, too.
        out, errors = process.communicate(timeout=seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    after = {name for name in shared_memory() if "datasetrt" in name or name.startswith("psm_")}
    assert after <= before
    assert [each.name for each in temporary.iterdir() if not each.name.startswith("pymp-")] == []
    return subprocess.CompletedProcess(script, process.returncode, out, errors)


# Other processes


def numbers(ds: drt.CachedDataset) -> list[int]:
    """What a process reads of a dataset, in the order of the table."""
    return [number_of(sample.data) for batch in ds.loader(batch_size=9, threads=2) for sample in batch]


def rest(loader: drt.Loader[drt.SampleBatch]) -> list[int]:
    """What a process reads of a loader, from its place on."""
    return [int(row) for batch in loader for row in batch.indices]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_datasets_and_loaders_in_mid_epoch_travel_to_processes(
    method: Method, tiny: drt.CachedDataset
) -> None:
    loader = tiny.loader(batch_size=8, sampler=drt.Shuffle(seed=3), threads=2)
    batches = iter(loader)
    head = [int(row) for _ in range(4) for row in next(batches).indices]
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(numbers, (tiny,)) == list(range(100))
        tail = pool.apply(rest, (loader,))
    pool.join()
    assert sorted(head + tail) == list(range(100))
    assert tail == [int(row) for batch in batches for row in batch.indices], "the parent's own goes on"


def test_a_fork_in_the_middle_of_reads_by_other_threads(tiny: drt.CachedDataset, tmp_path: Path) -> None:
    code = f"""
    ds = drt.open_dataset({str(tiny.caches[0].path)!r})
    stop = threading.Event()
    def reads():
        while not stop.is_set():
            assert sum(len(b) for b in ds.loader(batch_size=5, threads=2)) == 100
    threads = [threading.Thread(target=reads) for _ in range(3)]
    [t.start() for t in threads]
    shared = iter(ds.loader(batch_size=5, threads=2))
    next(shared)
    for _ in range(30):
        pid = os.fork()
        if not pid:
            try:
                assert sum(len(b) for b in ds.loader(batch_size=5, threads=2)) == 100
                assert sum(len(b) for b in shared) == 95
                os._exit(7)
            finally:
                os._exit(8)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    stop.set()
    [t.join() for t in threads]
    print("done")
    """
    done = run(code, temporary=tmp_path / "t")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-800:]


def test_another_interpreter_of_the_process_is_refused_in_words() -> None:
    code = """
    import datasetrt
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    other = interpreters.create()
    result = interpreters.run_string(other, '''if True:
        try:
            import datasetrt
        except ImportError as error:
            print(error, flush=True)
        else:
            print("imported", flush=True)
    ''')
    assert result is None, result
    interpreters.destroy(other)
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout == (
        "datasetrt is loaded in another interpreter of this process, and works in one only; "
        "use processes or threads instead of subinterpreters\n"
    )


# The end of the interpreter

ENDINGS = {
    "loader": """
    ds = drt.open_dataset(drt.write_cache(Source(), root, config=config).path)
    batches = iter(ds.loader(batch_size=4, threads=3, sampler=drt.Shuffle(seed=1)))
    next(batches)
    """,
    "loader in a daemon thread": """
    ds = drt.open_dataset(drt.write_cache(Source(), root, config=config).path)
    begun = threading.Event()
    def reads():
        while True:
            for _ in ds.loader(batch_size=4, threads=3):
                begun.set()
    threading.Thread(target=reads, daemon=True).start()
    begun.wait(30)
    """,
    "samples": """
    ds = drt.open_dataset(drt.write_cache(Source(), root, config=config).path)
    samples = iter(ds)
    next(samples)
    """,
    "write in a daemon thread": """
    begun = threading.Event()
    class Endless:
        name = "e"
        def __iter__(self):
            while True:
                yield drt.CacheInput(bytes(5000), {})
                begun.set()
    def write():
        drt.write_cache(Endless(), root, config=config)
    threading.Thread(target=write, daemon=True).start()
    begun.wait(30)
    """,
    "write that a source ends": """
    class Exits(Source):
        def __iter__(self):
            yield from super().__iter__()
            sys.exit(5)
    drt.write_cache(Exits(), root, config=config)
    """,
    "workers": """
    class Exits:
        def __len__(self):
            return 10**6
        def __getitem__(self, index):
            if index == 3000:
                sys.exit(5)
            return index
    workers = drt.WriterConfig(progress=False, workers=2, worker_start_method="fork")
    drt.write_cache(drt.MapSource("m", Exits(), row), root, config=workers)
    """,
}


@pytest.mark.parametrize("what", ENDINGS)
def test_the_interpreter_ends_in_the_middle_of_it(what: str, tmp_path: Path) -> None:
    code = f"root = {str(tmp_path / 'root')!r}\n{textwrap.dedent(ENDINGS[what])}\nsys.exit(5)\n"
    done = run(code, temporary=tmp_path / "t")
    assert done.returncode == 5, done.stderr[-800:]
    assert done.stderr == ""


# Interrupts and exceptions

INTERRUPTED = {
    "transform": "for _ in ds.loader(batch_size=5, threads=2, transform=interrupts): pass",
    "collate": "for _ in ds.loader(batch_size=5, threads=2, collate=interrupts): pass",
    "loop": "for batch in ds.loader(batch_size=5, threads=2): interrupts(batch)",
    "samples": "for sample in ds: interrupts(sample)",
    "source": "drt.write_cache(Interrupts(), root + '/other', config=config)",
    "map function": """drt.write_cache(
        drt.MapSource('m', range(200), interrupts), root + '/other', config=config)""",
    "progress": """drt.write_cache(
        Slow(), root + '/other', config=drt.WriterConfig(progress=interrupts, max_shard_bytes=20_000))""",
}


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "ZeroDivisionError"])
@pytest.mark.parametrize("where", INTERRUPTED)
def test_what_is_raised_anywhere_comes_through_and_leaves_nothing(
    where: str, raised: str, tmp_path: Path
) -> None:
    code = f"""
    root = {str(tmp_path / "root")!r}
    ds = drt.open_dataset(drt.write_cache(Source(), root, config=config).path)
    list(ds.loader(batch_size=50))
    calls = 0
    def interrupts(given):
        global calls
        calls += 1
        if calls == 3:
            if {raised!r} == "KeyboardInterrupt":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                1 / 0
        return row(calls)
    class Interrupts(Source):
        def __iter__(self):
            for sample in super().__iter__():
                interrupts(sample)
                yield sample
    class Slow(Source):
        name = "slow"
        def __iter__(self):
            while True:
                time.sleep(0.01)
                yield drt.CacheInput(b"x", {{}})
    before = left()
    def attempt():
        try:
            {INTERRUPTED[where]}
        except {raised}:
            return
        raise AssertionError("nothing was raised")
    attempt()
    settled(before)
    assert not os.path.exists(root + "/other/s/manifest.json")
    assert sum(len(b) for b in ds.loader(batch_size=50)) == 400
    """
    done = run(code, temporary=tmp_path / "t")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-1500:]


def test_closed_generators_leave_nothing(tmp_path: Path) -> None:
    code = f"""
    ds = drt.open_dataset(drt.write_cache(Source(), {str(tmp_path / "root")!r}, config=config).path)
    def batches():
        for batch in ds.loader(batch_size=5, threads=3):
            yield batch
    def samples():
        yield from ds
    list(ds.loader(batch_size=50)), list(ds)
    before = left()
    for make in (batches, samples):
        for _ in range(20):
            generator = make()
            next(generator)
            generator.close()
            dropped = make()
            next(dropped)
            del dropped, generator
    settled(before)
    """
    done = run(code, temporary=tmp_path / "t")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-1500:]


# Depth

DEPTH = 100_000


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(DEPTH):
        nested = [nested]
    return nested


@pytest.mark.parametrize("make", [drt.codecs.Pickle, drt.codecs.PickleOOB, drt.codecs.Json])
def test_values_that_are_too_deep_are_an_error(make: Callable[[], Any]) -> None:
    codec = make() if make is drt.codecs.Json else make(trust=True)
    with pytest.raises((drt.CodecError, RecursionError)):
        codec.dumps(deep())


def test_payloads_that_are_too_deep_are_a_value_or_an_error(tmp_path: Path) -> None:
    # A program of its own: what it guards against is a crash. Pickle opcodes: lists, one in the other.
    code = f"""
    nested = b"\\x80\\x04" + b"]" * {DEPTH} + b"a" * {DEPTH - 1} + b"."
    for codec in (drt.codecs.Pickle(trust=True), drt.codecs.Pickle(allow=[])):
        try:
            value = codec.loads(nested)
        except (drt.CodecError, RecursionError):
            continue
        while value:
            (value,) = value
    try:
        drt.codecs.Json().loads(b"[" * {DEPTH} + b"]" * {DEPTH})
    except (drt.CodecError, RecursionError):
        pass
    """
    done = run(code, temporary=tmp_path / "t")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-1500:]


def test_an_item_that_is_too_deep_for_its_worker_is_named(tmp_path: Path) -> None:
    config = drt.WriterConfig(progress=False, workers=2, worker_start_method="fork")
    with pytest.raises(drt.InvalidInputError, match="item 0 of source 'm' cannot be sent"):
        drt.write_cache(drt.MapSource("m", [deep()] * 4, len), tmp_path, config=config)
    assert list(tmp_path.iterdir()) == []


# Signals


def test_a_storm_of_signals_disturbs_no_system_call(tmp_path: Path) -> None:
    code = f"""
    import json
    root = {str(tmp_path / "root")!r}
    count = 0
    def handler(number, frame):
        global count
        count += 1
    signal.signal(signal.SIGUSR1, handler)
    pid = os.getpid()
    stop = os.fork()
    if not stop:
        # Not SA_RESTART: Python's handlers interrupt system calls.
        while os.getppid() == pid:
            try:
                os.kill(pid, signal.SIGUSR1)
            except ProcessLookupError:
                break
            time.sleep(0.0002)
        os._exit(0)
    try:
        for name in ("s", "t"):
            Source.name = name
            drt.write_cache(Source(), root, config=config)
        ds = drt.open_dataset([root + "/s", root + "/t"])
        for epoch in range(5):
            loader = ds.loader(batch_size=5, threads=2, sampler=drt.Shuffle(seed=epoch))
            got = sorted(int.from_bytes(s.data[:8], "little") for batch in loader for s in batch)
            assert got == sorted(2 * list(range(400)))
        assert ds.verify().ok
        drt.write_cache(drt.MapSource("m", range(2000), row), root, config=drt.WriterConfig(
            progress=False, workers=2, worker_start_method="fork"))
        deadline = time.monotonic() + 30
        while count < 50 and time.monotonic() < deadline:
            drt.open_dataset(root + "/m").verify()
    finally:
        os.kill(stop, signal.SIGKILL)
        os.waitpid(stop, 0)
    print(json.dumps(count))
    """
    done = run(code, temporary=tmp_path / "t")
    assert done.returncode == 0, done.stderr[-1500:]
    assert json.loads(done.stdout) >= 50


def test_one_table_shared_by_threads_gives_each_its_own(tiny: drt.CachedDataset) -> None:
    # Loader objects are not shared between loops: each loop of another thread is another epoch of it.
    loader = tiny.loader(batch_size=7, sampler=drt.Shuffle(seed=1), threads=2)
    with ThreadPool(6) as pool:
        epochs = pool.map(lambda _: rest(loader), range(12))
    assert all(sorted(each) == list(range(100)) for each in epochs)


def test_a_source_of_several_rows_is_the_same_for_all(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    # Two sources written by threads of one process do not disturb each other.
    with ThreadPool(4) as pool:
        pool.map(lambda n: drt.write_cache(RowSource(f"s{n}", rows_of(60)), tmp_path, config=quiet), range(8))
    for number in range(8):
        assert numbers(drt.open_dataset(tmp_path / f"s{number}")) == list(range(60))
