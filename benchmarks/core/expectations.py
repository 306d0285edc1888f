"""The ratios of a run beside stored ones: shows that something moved, judges nothing.

python -m benchmarks.core.expectations RESULTS.jsonl            prints found against stored
python -m benchmarks.core.expectations RESULTS.jsonl --store    makes the results the new expectation

Ratios of quick and of whole runs are kept apart: they differ.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .report import Results, median, values
from .rows import Row, Target, all_rows

STORED = Path(__file__).parent / "expectations.json"


@dataclass(frozen=True)
class Found:
    """One ratio, or one figure without a contender, over the rounds of a run."""

    value: float
    lowest: float
    highest: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core.expectations")
    parser.add_argument("results", type=Path, help="what a run of benchmarks.core left")
    parser.add_argument("--store", action="store_true", help="write them as the new expectations")
    options = parser.parse_args()
    results = [json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines()]
    about = next(line["about"] for line in results if "about" in line)
    kind = "quick" if about["quick"] else "full"
    everything: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    if options.store:
        everything[kind] = {"about": described(about), "ratios": stored_form(results)}
        STORED.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {STORED}")
    else:
        print("\n".join(compared(results, everything.get(kind), kind)))


def described(about: dict[str, Any]) -> dict[str, Any]:
    """When, where, and beside how much other work."""
    kept = ("cpu", "cores", "memory_gib", "kernel", "python", "load_1m", "rounds")
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return {"date": today, **{name: about[name] for name in kept}}


def ratios(results: Results) -> Iterator[tuple[str, Row, Target, Found | None]]:
    """Every promised ratio by a name that lasts; None where a contender gave no figure."""
    for row in all_rows():
        figures = values(row, results)
        for target in row.targets:
            yield (
                f"{row.key}: {target.ours} / {target.against or row.unit}",
                row,
                target,
                found(target, figures),
            )


def found(target: Target, figures: dict[str, dict[int, float]]) -> Found | None:
    """The ratio of the medians, and the range over single rounds."""
    ours, theirs = figures.get(target.ours), figures.get(target.against or target.ours)
    if not ours or not theirs:
        return None
    value = median(ours) / median(theirs) if target.against else median(ours)
    each = [ours[n] / theirs[n] if target.against else ours[n] for n in ours.keys() & theirs.keys()]
    return Found(value, min([value, *each]), max([value, *each]))


def stored_form(results: Results) -> dict[str, dict[str, float]]:
    """Value and spread of every ratio that was found, to four digits."""
    return {
        name: {part: float(f"{number:.4g}") for part, number in vars(one).items()}
        for name, _, _, one in ratios(results)
        if one is not None
    }


def compared(results: Results, expected: dict[str, Any] | None, kind: str) -> list[str]:
    """A line a ratio: what was found, what was expected, and whether it is within the expected spread."""
    if expected is None:
        return [f"No expectation of a {kind} run is stored; make these one with --store.", ""]
    about, before = expected["about"], expected["ratios"]
    lines = [
        "Expected: " + ", ".join(f"{name} {value}" for name, value in about.items()),
        "",
        "| ratio | found | expected | lowest … highest | found / expected | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, row, target, one in ratios(results):
        stored = before.get(name)
        if one is None and stored is None:
            continue
        now = "not measured" if one is None else f"{one.value:.3g}"
        if one is None or stored is None:
            lines.append(f"| {name} | {now} | {'-' if stored is None else stored['value']} | - | - | |")
            continue
        was, spread = stored["value"], f"{stored['lowest']:.3g} … {stored['highest']:.3g}"
        change = f"{one.value / was:.2f}" if was else "-"
        moved = movement(one.value, stored, row.larger_is_better, target)
        lines.append(f"| {name} | {now} | {was:.3g} | {spread} | {change} | {moved} |")
    return [*lines, "", "Nothing here is a pass or a fail; other work on the machine moves ratios too."]


def movement(value: float, stored: dict[str, float], larger_is_better: bool, target: Target) -> str:
    """A word where a figure is outside the spread of the stored rounds."""
    if stored["lowest"] <= value <= stored["highest"]:
        return ""
    better = (value > stored["value"]) == target.at_least
    assert target.against is None or larger_is_better == target.at_least, "a ratio counts as its figures do"
    return "better" if better else "worse"


if __name__ == "__main__":
    main()
