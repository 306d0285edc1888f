"""Plots of the results: an SVG an axis, time on the left and private memory on the right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from .axes import axes
from .operations import OPERATIONS
from .report import of

_STYLE = {
    # Text stays text: smaller files, and the same bytes again from the same figures.
    "svg.fonttype": "none",
    "svg.hashsalt": "datasetrt",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}
_SIDES = (("seconds", "seconds", 1.0), ("private_kb", "private memory, MB", 1e-3))
#: Less is the noise of an allocator; a logarithm needs something above 0.
_LEAST_MEGABYTES = 0.01


def draw(results: dict[str, Any], folder: Path) -> None:
    """Write ``growth-AXIS.svg`` for each axis that was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    for axis in axes(quick=True):
        if any(line["axis"] == axis.name for line in results["figures"]):
            with mpl.rc_context(_STYLE):
                _figure(results, axis.name, axis.label).savefig(
                    folder / f"growth-{axis.name}.svg", metadata={"Date": None, "Creator": None}
                )


def _figure(results: dict[str, Any], axis: str, label: str) -> Figure:
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    sides = figure.subplots(1, 2)
    colours = mpl.colormaps["tab20"]
    for number, operation in enumerate(OPERATIONS):
        for side, (key, _, scale) in zip(sides, _SIDES, strict=True):
            found = sorted(of(results, operation.name, axis, key).items())
            values = [value * scale for _, value in found]
            if key == "private_kb":
                values = [max(value, _LEAST_MEGABYTES) for value in values]
            side.plot(
                [at for at, _ in found],
                values,
                marker="os^vD"[number % 5],
                markersize=4,
                linewidth=1.2,
                color=colours(number),
                label=operation.name,
            )
    for side, (_, title, _) in zip(sides, _SIDES, strict=True):
        # A payload may have no byte; its place is left of 1.
        side.set_xscale("symlog", linthresh=1) if axis == "payload" else side.set_xscale("log")
        side.set_yscale("log")
        side.set_xlabel(label)
        side.set_ylabel(title)
    handles, labels = sides[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center")
    return figure
