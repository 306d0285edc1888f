"""Runs the paths of ``hot_paths`` under callgrind and counts.

A path runs with two numbers of repeats; the difference of the counts is the work of the repeats between,
without the start of the process and the opening of the cache. Callgrind shows a program no AVX-512, so the
AVX2 paths are counted on every machine that has AVX2.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class HotPath:
    """One path: its name in ``hot_paths``, what one unit of its work is, and how much of it is counted.

    Args:
        name: As ``crates/datasetrt-core/examples/hot_paths.rs`` has it.
        unit: What a count is given for.
        units: Units in a repeat.
        repeats: The smaller and the larger number of repeats; between them lies what is counted.
    """

    name: str
    unit: str
    units: int
    repeats: tuple[int, int]


PATHS = (
    HotPath("sample", "ds[i], raw 1 KiB", 1, (200, 1200)),
    HotPath("batch", "shuffled batch of 256 of 1 KiB", 4, (1, 5)),
    HotPath("record_batch", "shuffled batch of 256 Records of 12 KiB, in columns", 4, (1, 3)),
    HotPath("metadata_rows", "metadata of 256 rows, three columns", 1, (20, 120)),
    HotPath("index_lookup", "index lookup of 256 rows", 1, (20, 220)),
    HotPath("shuffle_position", "Shuffle: 256 positions of 1,000,000", 1, (10, 110)),
    HotPath("write", "write of 1,000 samples of 1 KiB, synced and published", 1, (1, 5)),
)


class CountError(Exception):
    """Something that is needed is missing, or a run failed."""


def build() -> Path:
    """The example as released code is compiled: path of the program."""
    command = ["cargo", "build", "--release", "--package", "datasetrt-core", "--example", "hot_paths"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / "hot_paths"


def prepare(program: Path, folder: Path) -> None:
    """Write the samples, outside of callgrind."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run([str(program), "prepare", str(folder)], check=True)


def count(program: Path, folder: Path, path: HotPath) -> int:
    """Instructions of one unit of a path's work."""
    few, many = (_run(program, folder, path, repeats) for repeats in path.repeats)
    return round((many - few) / ((path.repeats[1] - path.repeats[0]) * path.units))


def _run(program: Path, folder: Path, path: HotPath, repeats: int) -> int:
    """Instructions of one whole run."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise CountError("valgrind is missing: install it, then run again")
    command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={os.devnull}"]
    # Nothing of the caller's environment may decide how much is done.
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    command += [str(program), path.name, str(folder), str(repeats)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = re.search(r"^==\d+== Collected : (\d+)$", result.stderr, re.MULTILINE)
    if result.returncode or found is None:
        last = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CountError(f"{path.name} under valgrind ended with {result.returncode}: {last}")
    return int(found[1])
