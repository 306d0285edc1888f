"""What grows: for each axis its points, and the shape of the dataset at each."""

from __future__ import annotations

from dataclasses import dataclass

from .data import Shape

_PAYLOAD_TOTAL = 256 << 20


@dataclass(frozen=True)
class Axis:
    """One thing that grows while all else stays."""

    name: str
    label: str
    shapes: dict[int, Shape]


def axes(quick: bool) -> tuple[Axis, ...]:
    """All axes; the quick ones end early."""
    samples = [10**power for power in range(3, 6 if quick else 8)]
    shards = [1, 10, 100] if quick else [1, 10, 100, 1000]
    columns = [1, 10, 100] if quick else [1, 10, 100, 1000]
    payloads = [0, 64, 1 << 10, 1 << 14, 1 << 18] + ([] if quick else [1 << 22, 1 << 26])
    return (
        Axis("samples", "samples", {n: Shape(samples=n) for n in samples}),
        Axis("shards", "shards of 10,000 samples", {n: Shape(shards=n) for n in shards}),
        Axis("columns", "metadata columns of 10,000 samples", {n: Shape(columns=n) for n in columns}),
        Axis("payload", "bytes of a payload", {n: Shape(samples=_fitting(n), payload=n) for n in payloads}),
    )


def _fitting(payload: int) -> int:
    """Samples of 256 MiB together, 4 to 10,000 of them."""
    return max(4, min(10_000, _PAYLOAD_TOTAL // max(payload, 1)))
