"""Which part of a global batch this process takes, found out as late as possible."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from datasetrt.wording import shown

from ._errors import ShardingError, invalid, whole


@dataclass(frozen=True)
class Processes:
    """A process among those that share the data, or the wish to ask JAX.

    Args:
        index: This process, in ``[0, count)``; None asks JAX.
        count: How many processes there are; None asks JAX.
    """

    index: int | None
    count: int | None

    def __post_init__(self) -> None:
        if (self.index is None) != (self.count is None):
            raise invalid(
                f"process_index={shown(self.index)} and process_count={shown(self.count)}: give both, or "
                "neither to ask JAX"
            )
        if self.index is None or self.count is None:
            return
        object.__setattr__(self, "count", whole("process_count", self.count, 1))
        object.__setattr__(self, "index", whole("process_index", self.index, 0))
        if self.index >= self.count:
            raise invalid(
                f"process_index = {self.index} is out of range; give one of 0 to {self.count - 1}, "
                f"below process_count = {self.count}"
            )

    def resolved(self) -> tuple[int, int]:
        """Index and count.

        Asking JAX starts its backend, which must not happen before the user's own set-up, so that this is
        called at the first step. A program that has not imported JAX by then has one process.
        """
        if self.index is not None and self.count is not None:
            return self.index, self.count
        jax = sys.modules.get("jax")
        return (0, 1) if jax is None else (jax.process_index(), jax.process_count())


def local_batch(global_batch: int, count: int) -> int:
    """Rows of a global batch for each process.

    Raises:
        ShardingError: They cannot share it evenly.
    """
    if global_batch % count:
        fitting = -(-global_batch // count) * count
        raise ShardingError(
            f"global_batch = {global_batch} cannot be shared evenly by {count} processes; "
            f"give a multiple of {count}, such as {fitting}"
        )
    return global_batch // count


def is_first_process() -> bool:
    """Whether this is the process that writes what all share."""
    jax = sys.modules.get("jax")
    return jax is None or jax.process_index() == 0
