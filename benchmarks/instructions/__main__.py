"""Compares the instructions of the hot paths with the stored counts; fails where one left its bounds.

python -m benchmarks.instructions --data FOLDER [--only PATH ...] [--store] [--rounds N]
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from .count import PATHS, CountError, build, count, prepare

STORED = Path(__file__).parent / "counts.json"
#: A count may differ by this share of the stored one.
TOLERANCE = 0.10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("--data", type=Path, required=True, help="folder for the samples, about 25 MB")
    parser.add_argument("--only", nargs="+", choices=[path.name for path in PATHS], help="these paths")
    parser.add_argument("--rounds", type=int, default=1, help="count so often; shows whether counts repeat")
    parser.add_argument("--store", action="store_true", help="keep the counts as the new expectation")
    options = parser.parse_args()
    try:
        found = counted(options)
    except CountError as error:
        sys.exit(str(error))
    if options.store:
        store(found)
        return
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    problems = judged(found, stored["counts"])
    if problems:
        problems.append(f"stored counts: {', '.join(stored['about'].values())}; this compiler: {compiler()}")
        sys.exit("\n".join(["", *problems, "", *advice(problems[0].partition(":")[0])]))
    print(f"all within {TOLERANCE:.0%} of the stored counts")


def counted(options: argparse.Namespace) -> dict[str, int]:
    """Path to instructions a unit: the smallest of the rounds, all of which are printed."""
    program, folder = build(), options.data / "hot_paths"
    prepare(program, folder)
    found = {}
    for path in PATHS:
        if options.only and path.name not in options.only:
            continue
        rounds = [count(program, folder, path) for _ in range(options.rounds)]
        print(f"{path.name:17} {' '.join(f'{n:>12,}' for n in rounds)}   {path.unit}", flush=True)
        found[path.name] = min(rounds)
    return found


def judged(found: dict[str, int], stored: dict[str, int]) -> list[str]:
    """What left its bounds, a line each; a path without a stored count is a problem too."""
    problems = []
    for name, now in found.items():
        if name not in stored:
            problems.append(f"{name}: {now:,} instructions, and no stored count to compare with")
            continue
        change = now / stored[name] - 1
        if abs(change) > TOLERANCE:
            problems.append(
                f"{name}: {now:,} instructions, {change:+.1%} of the stored {stored[name]:,}; "
                f"{TOLERANCE:.0%} are allowed"
            )
    return problems


def advice(name: str) -> list[str]:
    """How to look, and what to do about it."""
    path = next(path for path in PATHS if path.name == name)
    program = f"target/release/examples/hot_paths {path.name} D/hot_paths {path.repeats[1]}"
    return [
        "Look where they are spent, here for the first of them (D is the folder given as --data):",
        f"  valgrind --tool=callgrind --callgrind-out-file=now.out {program}",
        "  callgrind_annotate now.out | head -40",
        "and the same for the commit before, which tells what became more. If the change is meant, or they",
        "became fewer, store the new counts with the change, and say why in its message:",
        "  nox -s instructions -- --store",
    ]


def store(found: dict[str, int]) -> None:
    """Write the counts; those of paths that were not counted stay."""
    before: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    about = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": f"{cpu()}, {platform.machine()}, {' '.join(platform.libc_ver())}",
        "compiler": compiler(),
    }
    counts = {**before.get("counts", {}), **found}
    text = json.dumps({"about": about, "counts": counts}, indent=2) + "\n"
    STORED.write_text(text, encoding="utf-8")
    print(f"stored in {STORED}")


def compiler() -> str:
    """Its version: another one may make other instructions of the same code."""
    found = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def cpu() -> str:
    """What the kernel calls the processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
