"""Tables of results: the ratios against their targets, the rates behind them, the machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from . import machine
from .rows import Row, Target

Results = Sequence[dict[str, Any]]


def tables(rows: list[Row], results: Results) -> list[str]:
    """All of it in Markdown."""
    figures = [line["figures"] for line in results if "figures" in line]
    return [
        *about(results),
        "",
        *ratios(rows, results),
        "",
        *(f"- {row.key}: {row.note}" for row in rows if row.note),
        "",
        *rates(rows, results),
        *(["", *machine.table(figures)] if figures else []),
        *failures(results),
    ]


def about(results: Results) -> list[str]:
    """The machine, in a line."""
    facts = next(line["about"] for line in results if "about" in line)
    lines = [", ".join(f"{name} {value}" for name, value in facts.items())]
    if facts["quick"]:
        lines += ["", "**Quick: a tenth of the samples, which shows only that everything runs.**"]
    if facts["load_1m"] > facts["cores"] / 2:
        lines += ["", "**The machine was busy with something else; even ratios move then.**"]
    return lines


def ratios(rows: list[Row], results: Results) -> list[str]:
    """A line a target; in one run of the same machine, only these compare."""
    lines = [
        "| row | against | target | found | lowest … highest | met | our share of the limit |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for row in rows:
        if row.missing:
            lines.append(f"| {row.work} | - | - | {row.missing} | - | - | - |")
        for target in row.targets:
            lines.append(_line(row, target, values(row, results)))
    return lines


def values(row: Row, results: Results) -> dict[str, dict[int, float]]:
    """Contender, then round, to figure."""
    found: dict[str, dict[int, float]] = {}
    for line in results:
        if line.get("row") == row.key and "value" in line:
            found.setdefault(line["contender"], {})[line["round"]] = line["value"]
    return found


def _line(row: Row, target: Target, found: dict[str, dict[int, float]]) -> str:
    sign = "≥" if target.at_least else "≤"
    unit = "x" if target.against else f" {row.unit}"
    work = row.work if target.ours == "ours" else f"{row.work}: {target.ours}"
    head = f"| {work} | {target.against or '-'} | {sign} {target.bound:g}{unit} |"
    ours, theirs = found.get(target.ours), found.get(target.against or target.ours)
    if not ours or not theirs:
        return f"{head} failed | - | - | - |"
    figure = median(ours) / median(theirs) if target.against else median(ours)
    each = [ours[n] / theirs[n] if target.against else ours[n] for n in ours.keys() & theirs.keys()]
    spread = f"{min(each):.2f} … {max(each):.2f}" if each else "-"
    return (
        f"{head} {figure:.2f}{unit} | {spread} | {_met(target, figure)} | {share(row, target.ours, found)} |"
    )


def _met(target: Target, figure: float) -> str:
    return "yes" if target.met(figure) else "no"


def share(row: Row, ours: str, found: dict[str, dict[int, float]]) -> str:
    """How near a figure of ours is to the row's limit."""
    if row.limit is None or row.limit not in found or ours not in found:
        return "-"
    part = median(found[ours]) / median(found[row.limit])
    return f"{part if row.larger_is_better else 1 / part:.0%} of {row.limit}"


def rates(rows: list[Row], results: Results) -> list[str]:
    """A line a contender: how large the machine is."""
    lines = ["| row | contender | median | unit |", "| --- | --- | ---: | --- |"]
    for row in rows:
        for name, each in values(row, results).items():
            lines.append(f"| {row.key} | {name} | {median(each):,.4g} | {row.unit} |")
    return lines


def failures(results: Results) -> list[str]:
    """Everything that went wrong, and in which round."""
    lines = []
    for line in results:
        if "error" in line:
            where = (
                f"{line['row']}, {line['contender']}"
                if "row" in line
                else f"writing {line['workload']}, {line['store']}"
            )
            lines.append(f"- {where}: {line['error']}")
    return ["", "Failed:", "", *lines] if lines else []


def median(rounds: dict[int, float]) -> float:
    """Of all rounds that gave a figure."""
    return statistics.median(rounds.values())
