"""Takes turns: each contender of one framework, each round in a fresh process; prints rates and ratios.

python benchmarks/frameworks/run.py FRAMEWORK --data FOLDER [--rounds 5]
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import records  # noqa: E402

EPOCHS = 3
CONTENDERS = {
    "torch": ["torch_ours", "torch_files", "torch_streaming", "torch_litdata"],
    "jax": ["jax_ours", "jax_grain"],
    "tf": ["tf_ours", "tf_records", "tf_generator"],
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("framework", choices=CONTENDERS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contender", help="measure this one here, once")
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(measure(options.contender, options.data / options.contender)))
        return
    options.data.mkdir(parents=True, exist_ok=True)
    sums = options.data / "expected.json"
    if not sums.exists():
        sums.write_text(json.dumps(records.expected()))
    names = CONTENDERS[options.framework]
    for name in names:
        prepare(name, options.data / name)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for round_number in range(options.rounds):
        # Another one begins each round: what runs first after a pause is not always the same.
        for name in names[round_number % len(names) :] + names[: round_number % len(names)]:
            rates[name].append(in_fresh_process(options, name))
            print(f"round {round_number + 1}: {name} {rates[name][-1]:,.0f} samples/s", file=sys.stderr)
    report(rates, names[0])


def prepare(name: str, folder: Path) -> None:
    """Let a contender write its own format, unless an earlier run finished that."""
    done = folder.with_suffix(".done")
    if not done.exists():
        importlib.import_module(name).write(folder)
        done.touch()


def in_fresh_process(options: argparse.Namespace, name: str) -> float:
    command = [sys.executable, __file__, options.framework, "--data", str(options.data), "--contender", name]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(result.stdout.splitlines()[-1])["rate"])


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Samples a second of the fastest epoch; the sums are checked in the warm-up epoch."""
    epoch: Callable[[], Iterable[dict[str, Any]]] = importlib.import_module(name).epochs(folder)
    found = [0, 0]
    for batch in epoch():
        found[0] += int(np.asarray(batch["label"]).sum())
        found[1] += int(np.asarray(batch["image"]).sum(dtype=np.int64))
    wanted = json.loads((folder.parent / "expected.json").read_text())
    if found != wanted:
        raise SystemExit(f"{name} delivered sums {found}, expected {wanted}")
    best = min(timed(epoch) for _ in range(EPOCHS))
    return {"rate": records.COUNT / best}


def timed(epoch: Callable[[], Iterable[dict[str, Any]]]) -> float:
    begin = time.perf_counter()
    count = sum(len(batch["label"]) for batch in epoch())
    seconds = time.perf_counter() - begin
    if count != records.COUNT:
        raise SystemExit(f"an epoch had {count} samples, not {records.COUNT}")
    return seconds


def report(rates: dict[str, list[float]], ours: str) -> None:
    medians = {name: statistics.median(found) for name, found in rates.items()}
    print(f"| contender | samples/s, median of {len(rates[ours])} | ours is so many times as fast |")
    print("| --- | ---: | ---: |")
    for name, median in medians.items():
        ratio = "" if name == ours else f"{medians[ours] / median:.1f}"
        print(f"| {name} | {median:,.0f} | {ratio} |")


if __name__ == "__main__":
    main()
