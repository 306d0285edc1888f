"""The table of exponents, and what grows faster than its work."""

from __future__ import annotations

from typing import Any

from .fit import growth
from .operations import OPERATIONS, Operation


def of(results: dict[str, Any], operation: str, axis: str, key: str) -> dict[int, float]:
    """Point of an axis to figure."""
    return {
        line["at"]: line[key]
        for line in results["figures"]
        if line["operation"] == operation and line["axis"] == axis
    }


def lines(results: dict[str, Any]) -> list[str]:
    """All of it in Markdown."""
    about, names = results["about"], list(dict.fromkeys(line["axis"] for line in results["figures"]))
    said = [", ".join(f"{name} {value}" for name, value in about.items()), ""]
    if about["quick"]:
        said += ["**Quick: the axes end early, which shows that it runs and little else.**", ""]
    said += [
        "Exponents of time: over all points / over the upper half (that of the work).",
        "",
        "| operation | " + " | ".join(names) + " |",
        "| --- |" + " ---: |" * len(names),
    ]
    faster: list[str] = []
    for operation in OPERATIONS:
        cells = [_cell(results, operation, axis, faster) for axis in names]
        said.append(f"| {operation.name} | " + " | ".join(cells) + " |")
    said += ["", "Grow faster than their work:", "", *(faster or ["- none"])]
    failures = [f"- {failure}" for failure in results["failures"]]
    return [*said, *(["", "Failed:", "", *failures] if failures else [])]


def _cell(results: dict[str, Any], operation: Operation, axis: str, faster: list[str]) -> str:
    figures, work = of(results, operation.name, axis, "seconds"), operation.work.get(axis, 0)
    found = growth(figures)
    if found is None:
        return "-"
    marked = found.too_fast(work)
    if marked:
        first, last = min(figures), max(figures)
        faster.append(
            f"- {operation.name}, {axis}: {figures[first]:.3g} s at {first:,}, "
            f"{figures[last]:.3g} s at {last:,}; "
            f"exponent {found.exponent:.2f}, upper half {found.tail:.2f}, work {work:g}"
        )
    cell = f"{found.exponent:.2f} / {found.tail:.2f} ({work:g})"
    return f"**{cell}**" if marked else cell
