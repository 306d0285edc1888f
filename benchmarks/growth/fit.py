"""The exponent of a growth, and whether it is more than that of the work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

#: An exponent may be so much above that of the work: memory that no longer fits a cache, and noise.
ALLOWED = 0.25


class Growth(NamedTuple):
    """How a figure grows: over all points, and over the upper half, where fixed costs hide less."""

    exponent: float
    tail: float

    def too_fast(self, work: float) -> bool:
        """Whether it grows faster than its work, where it grows fastest."""
        return max(self.exponent, self.tail) > work + ALLOWED


def growth(figures: Mapping[int, float]) -> Growth | None:
    """Least squares through the logarithms; None with fewer than two points above 0."""
    points = [
        (math.log(at), math.log(value)) for at, value in sorted(figures.items()) if at > 0 and value > 0
    ]
    if len(points) < 2:
        return None
    upper = points[len(points) // 2 :] if len(points) > 3 else points[-2:]
    return Growth(_slope(points), _slope(upper))


def _slope(points: list[tuple[float, float]]) -> float:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    over = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return over / sum((x - mean_x) ** 2 for x, _ in points)
