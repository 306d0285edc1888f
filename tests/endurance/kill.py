"""Kill a writer at random moments until it is done: ``python -m tests.endurance.kill MINUTES``.

Every round writes one cache, or rebuilds one. Its writers are forked processes; all but the last are killed
with SIGKILL. After each kill there is no cache, the old one or the new one, whole; at the end there is the
new one, byte for byte that of an undisturbed write, and nothing beside it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import datasetrt as drt
from tests.rows import RowSource, rows_of

Files = dict[str, bytes]

CONFIG = drt.WriterConfig(progress=False, max_shard_bytes=40_000, queue_bytes=20_000)
SAMPLES = 300
#: Kills of one round, after which a writer is left alone.
MOST_KILLS = 25


def source(version: int) -> RowSource:
    """A source of 900 kB in about thirty shards; another version has other payloads."""
    rows = [(data + bytes([version]) * 3000, row) for data, row in rows_of(SAMPLES)]
    return RowSource("s", rows, fingerprint=f"v{version}")


def files(folder: Path) -> Files:
    """The content of every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def forked(run: Callable[[], object]) -> int:
    """Run something in a forked process; its id. It ends with 0 if nothing was raised."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        run()
        code = 0
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    """Wait for a process; its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def write(root: Path, version: int) -> drt.CachedDataset:
    """Write or rebuild the cache."""
    return drt.cache(source(version), root, config=CONFIG, on_stale="rebuild")


def state(root: Path, known: dict[str, Files]) -> str:
    """What there is: the name of the cache that is there, whole, or "none"."""
    try:
        dataset = drt.open_dataset(root / "s")
    except drt.CacheNotFoundError:
        return "none"
    assert dataset.verify().ok
    found = files(root / "s")
    (name,) = [name for name, expected in known.items() if expected == found]
    return name


def killed_round(
    root: Path, old: int | None, new: int, known: dict[str, Files], seconds: float, draw: random.Random
) -> Counter[str]:
    """One cache, written by as many writers as it takes; what was found after each kill."""
    found: Counter[str] = Counter()
    before = "none" if old is None else f"v{old}"
    if old is not None:
        write(root, old)
    for kills in range(MOST_KILLS + 1):
        pid = forked(lambda: write(root, new))
        if kills < MOST_KILLS:
            time.sleep(draw.uniform(0, seconds))
            os.kill(pid, signal.SIGKILL)
        code = ended(pid)
        assert code in (0, -signal.SIGKILL), code
        now = state(root, known)
        assert now in {before, f"v{new}"}, now
        found[
            "ended by itself" if code == 0 else f"killed, {'new' if now == f'v{new}' else 'old'} cache"
        ] += 1
        if code == 0:
            break
    assert state(root, known) == f"v{new}"
    # A writer that was killed right after its publication leaves its journal to the next one.
    if any(each.name != "s" for each in root.iterdir()):
        found["leftovers"] += 1
        try:
            drt.write_cache(source(new), root, config=CONFIG)
        except drt.CacheExistsError as error:
            if error.kind != "already-exists":
                raise
    assert [each.name for each in root.iterdir()] == ["s"]
    return found


def main() -> None:
    """Read the arguments, run rounds, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("minutes", type=float, nargs="?", default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    figures: Counter[str] = Counter()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        known: dict[str, Files] = {}
        took: list[float] = []
        for version in (1, 2):
            started = time.monotonic()
            write(Path(folder, "whole"), version)
            took.append(time.monotonic() - started)
            known[f"v{version}"] = files(Path(folder, "whole", "s"))
        while time.monotonic() - begin < 60 * arguments.minutes:
            with tempfile.TemporaryDirectory(dir=folder) as root:
                old = draw.choice([None, 2])
                figures += killed_round(Path(root), old, 1, known, statistics.mean(took), draw)
                figures["rebuilds" if old else "first writes"] += 1
    print(f"{(time.monotonic() - begin) / 60:.1f} minutes: {dict(sorted(figures.items()))}")


if __name__ == "__main__":
    main()
