"""What a row of the table is, and all rows in the table's order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .case import Case


@dataclass(frozen=True)
class Target:
    """What one of our figures shall be, as a ratio to a contender's or by itself."""

    ours: str
    against: str | None
    bound: float
    at_least: bool = True

    def met(self, found: float) -> bool:
        """Whether a ratio or a figure is within the bound."""
        return found >= self.bound if self.at_least else found <= self.bound


@dataclass(frozen=True)
class Row:
    """One line of the table: contenders that do the same work, each measured in a process of its own.

    Args:
        key: Short name, for ``--only`` and the results.
        work: What is done, in words.
        unit: Of every contender's figure. Rates and shares are better when larger, all others when smaller.
        contenders: Name to measurement.
        targets: What the ratios shall be.
        workload: The samples.
        stores: What has to be written beforehand.
        limit: The contender that shows what the machine allows.
        missing: Why nothing is measured.
        note: What a reader of the table must know.
        also: Further pairs of store and workload.
    """

    key: str
    work: str
    unit: str
    contenders: dict[str, Callable[[Case], float]]
    targets: list[Target]
    workload: str
    stores: tuple[str, ...] = ()
    limit: str | None = None
    missing: str | None = None
    note: str | None = None
    also: tuple[tuple[str, str], ...] = ()

    @property
    def larger_is_better(self) -> bool:
        """Whether the figures are rates or shares."""
        return self.unit.endswith("/s") or self.unit == "share"

    def stores_needed(self) -> list[tuple[str, str]]:
        """Pairs of store and workload; with every store goes the file of what its samples add up to."""
        own = [(store, self.workload) for store in (*self.stores, "sums")] if self.stores else []
        return [*own, *self.also]


def all_rows() -> list[Row]:
    """Every row of the table, in its order."""
    from . import cold_rows, point_rows, process_rows, read_rows, table_rows, write_rows

    rows = [
        *read_rows.ROWS,
        *point_rows.ROWS,
        *process_rows.ROWS,
        *write_rows.ROWS,
        *cold_rows.ROWS,
        *table_rows.ROWS,
    ]
    assert len({row.key for row in rows}) == len(rows)
    return rows
