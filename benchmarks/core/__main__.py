"""Takes turns: every contender of every row, each round in a fresh process; prints the table of ratios.

python -m benchmarks.core --data FOLDER [--rounds 5] [--quick] [--only KEY ...]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from .case import Case
from .rows import Row, all_rows

#: A measurement that takes longer has failed.
LIMIT_SECONDS = 900
#: The machine's own figures are measured as a row beside the others.
MACHINE = "machine"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core")
    parser.add_argument("--data", type=Path, required=True, help="folder for the stores, about 6 GB")
    parser.add_argument("--out", type=Path, help="results as JSON lines; DATA/results.jsonl if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples: does it run?")
    parser.add_argument("--only", nargs="+", metavar="KEY", help="these rows")
    parser.add_argument("--report", action="store_true", help="print the tables of earlier results")
    parser.add_argument("--write", nargs=2, metavar=("WORKLOAD", "STORE"), help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("KEY", "CONTENDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = {row.key: row for row in all_rows()}
    if options.write:
        write_here(options, *options.write)
    elif options.measure:
        print(json.dumps(measure_here(options, rows, *options.measure)))
    else:
        unknown = set(options.only or ()) - {*rows, MACHINE}
        if unknown:
            parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join([*rows, MACHINE])}")
        everything(options, [row for key, row in rows.items() if not options.only or key in options.only])


def everything(options: argparse.Namespace, rows: list[Row]) -> None:
    from benchmarks import floor

    from . import machine, report

    options.data.mkdir(parents=True, exist_ok=True)
    out = options.out or options.data / "results.jsonl"
    if not options.report:
        floor.build(Case.of(options.data, options.quick, "1k").data / "floor")
        about = {"quick": options.quick, "rounds": options.rounds, **machine.described(options.data)}
        with out.open("w") as results:
            print(json.dumps({"about": about}), file=results, flush=True)
            run(options, rows, results)
    print("\n".join(report.tables(rows, [json.loads(line) for line in out.read_text().splitlines()])))


def run(options: argparse.Namespace, rows: list[Row], results: TextIO) -> None:
    """Write the stores, then measure; what fails is a result too."""
    needed = [pair for row in rows for pair in row.stores_needed()]
    turns = {row.key: list(row.contenders) for row in rows}
    if not options.only or MACHINE in options.only:
        needed.append(("raw", "64k"))
        turns = {MACHINE: [MACHINE], **turns}
    for store, workload in dict.fromkeys(needed):
        prepare(options, workload, store, results)
    begin = time.monotonic()
    for round_number in range(options.rounds):
        for key, names in turns.items():
            # Another contender begins each round: what runs first after a pause is not always the same.
            first = round_number % max(len(names), 1)
            for name in names[first:] + names[:first]:
                found = in_fresh_process(options, "--measure", key, name)
                line = {"row": key, "contender": name, "round": round_number, **found}
                print(json.dumps(line), file=results, flush=True)
                say(begin, f"round {round_number + 1}, {key}: {name}", found)


def prepare(options: argparse.Namespace, workload: str, store: str, results: TextIO) -> None:
    """Write a store in a process of its own, unless an earlier run finished that."""
    folder = Case.of(options.data, options.quick, workload).folder(store)
    done = folder.with_name(folder.name + ".done")
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    found = in_fresh_process(options, "--write", workload, store)
    say(begin, f"wrote {workload} for {store}", found)
    if "error" in found:
        print(json.dumps({"workload": workload, "store": store, **found}), file=results, flush=True)
    else:
        done.touch()


def say(begin: float, what: str, found: dict[str, Any]) -> None:
    figure = found.get("error") or (f"{found['value']:,.4g}" if "value" in found else "")
    print(f"{time.monotonic() - begin:6.1f} s  {what} {figure}", file=sys.stderr)


def in_fresh_process(options: argparse.Namespace, *arguments: str) -> dict[str, Any]:
    """What the process printed, or why it did not."""
    command = [sys.executable, "-m", __package__ or "", "--data", str(options.data), *arguments]
    command += ["--quick"] if options.quick else []
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {LIMIT_SECONDS} s"}
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"ended with {result.returncode}"]
        return {"error": lines[-1]}
    last: dict[str, Any] = json.loads((result.stdout.splitlines() or ["{}"])[-1])
    return last


def write_here(options: argparse.Namespace, workload: str, store: str) -> None:
    from . import stores

    stores.write(Case.of(options.data, options.quick, workload), store)
    print("{}")


def measure_here(
    options: argparse.Namespace, rows: dict[str, Row], key: str, contender: str
) -> dict[str, Any]:
    if key == MACHINE:
        from . import machine

        return {"figures": machine.floors(Case.of(options.data, options.quick, "64k"))}
    row = rows[key]
    case = Case.of(options.data, options.quick, row.workload)
    return {"value": row.contenders[contender](case), "unit": row.unit}


if __name__ == "__main__":
    main()
