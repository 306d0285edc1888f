"""Measures every operation at every point, each time in a fresh process; prints exponents, draws plots.

python -m benchmarks.growth --data FOLDER [--quick] [--rounds 3] [--only OPERATION ...] [--axis AXIS ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .axes import Axis, axes
from .data import Shape, write
from .operations import BY_NAME, OPERATIONS, measured
from .report import lines

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 900


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--data", type=Path, required=True, help="folder for the caches, about 3 GB")
    parser.add_argument("--out", type=Path, help="results as JSON; DATA/growth.json if not given")
    parser.add_argument("--plots", type=Path, help="draw SVGs there, such as docs/benchmarks")
    parser.add_argument("--rounds", type=int, default=3, help="processes; the best figure of each counts")
    parser.add_argument("--quick", action="store_true", help="the axes end early: does it run?")
    parser.add_argument("--only", nargs="+", metavar="OPERATION", choices=list(BY_NAME))
    parser.add_argument("--axis", nargs="+", choices=[axis.name for axis in axes(True)])
    parser.add_argument("--report", action="store_true", help="print and draw earlier results")
    parser.add_argument("--write", metavar="SHAPE", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("OPERATION", "SHAPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    if options.write:
        write_here(Shape(**json.loads(options.write)), options.data)
    elif options.measure:
        operation, shape = BY_NAME[options.measure[0]], Shape(**json.loads(options.measure[1]))
        print(json.dumps(measured(operation, shape, options.data)))
    else:
        everything(options)


def everything(options: argparse.Namespace) -> None:
    """Measure, unless the results are there; report; draw."""
    out = options.out or options.data / "growth.json"
    if options.report:
        results = json.loads(out.read_text(encoding="utf-8"))
    else:
        results = run(options)
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines(results)))
    if options.plots:
        from .plots import draw

        draw(results, options.plots)


def write_here(shape: Shape, root: Path) -> None:
    """Write a cache, and see that it has as many shards as it should."""
    folder = write(shape, root)
    found = len(list((folder / "shards").iterdir()))
    if found != shape.shards:
        sys.exit(f"{shape.name} has {found} shards instead of {shape.shards}")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Every operation at every point, in turns."""
    from benchmarks.core.machine import described

    wanted = [axis for axis in axes(options.quick) if not options.axis or axis.name in options.axis]
    operations = [operation for operation in OPERATIONS if not options.only or operation.name in options.only]
    begin, figures, failures = time.monotonic(), [], []
    about = {"quick": options.quick, "rounds": options.rounds, **described(options.data)}
    for axis, at, shape in points(wanted):
        _, error = in_fresh_process(options, "--write", json.dumps(vars(shape)))
        say(begin, f"{axis.name} {at:,}: written", error)
        for operation in operations:
            rounds = []
            for _ in range(options.rounds):
                found, error = in_fresh_process(options, "--measure", operation.name, json.dumps(vars(shape)))
                if error:
                    failures.append(f"{axis.name} {at:,}, {operation.name}: {error}")
                    break
                rounds.append(found)
            if rounds:
                best = {key: min(each[key] for each in rounds) for key in rounds[0]}
                figures.append({"axis": axis.name, "at": at, "operation": operation.name, **best})
                say(begin, f"{axis.name} {at:,}, {operation.name}: {best['seconds']:.3g} s", None)
    return {"about": about, "figures": figures, "failures": failures}


def points(wanted: list[Axis]) -> list[tuple[Axis, int, Shape]]:
    """Every point of every axis."""
    return [(axis, at, shape) for axis in wanted for at, shape in axis.shapes.items()]


def in_fresh_process(options: argparse.Namespace, *arguments: str) -> tuple[dict[str, float], str | None]:
    """What the process printed, or why it did not."""
    command = [sys.executable, "-m", __package__ or "", "--data", str(options.data), *arguments]
    try:
        result = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {}, f"took longer than {LIMIT_SECONDS} s"
    if result.returncode:
        return {}, (result.stderr.strip().splitlines() or [f"ended with {result.returncode}"])[-1]
    printed = result.stdout.splitlines()
    found: dict[str, float] = json.loads(printed[-1]) if printed else {}
    return found, None


def say(begin: float, what: str, error: str | None) -> None:
    print(f"{time.monotonic() - begin:6.1f} s  {what} {error or ''}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
