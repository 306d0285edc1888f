"""The errors of this package: datasetrt's, and three that only JAX makes necessary."""

from __future__ import annotations

from typing import ClassVar

import datasetrt as drt


class ShardingError(drt.InvalidInputError):
    """Batch, processes and devices do not go together; the numbers that clash are named."""

    default_kind: ClassVar[str] = "sharding"


class StaticShapeError(drt.DatasetRTError, ValueError):
    """An array of a sample has another shape or dtype than that of others, so that JAX would compile anew."""

    default_kind: ClassVar[str] = "static-shape"


class NarrowingError(drt.DatasetRTError, OverflowError):
    """A 64-bit number does not fit into the 32 bits that JAX would keep of it."""

    default_kind: ClassVar[str] = "narrowing"


def invalid(message: str) -> drt.InvalidInputError:
    """The refusal of an argument."""
    return drt.InvalidInputError(message, kind="invalid-argument")
