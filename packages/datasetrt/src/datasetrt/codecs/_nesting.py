"""How deep and how large the values of one pickle are, so that none can exhaust the C stack or the clock.

Python hashes a tuple, and numpy frees an object array, by recursion in C that nothing bounds: a few hundred
kilobytes of nested values end the process. Shared values are worse: 60 tuples, each holding the one before
twice, take 2**60 steps to hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from datasetrt.errors import CodecError

_NESTED = (tuple, frozenset, np.ndarray, np.dtype)
_MAX_DEPTH = 64
# Parts of a dict key or set member, all levels together.
_MAX_KEY_PARTS = 256
# Leaves of a structured dtype, all levels together.
_MAX_DTYPE_PARTS = 10_000


def too_much(what: str) -> CodecError:
    """The error for what an honest pickle may hold, and a forged one could end the process with."""
    return CodecError(
        f"the pickle has {what}, which is not read without trust; "
        "use trust=True for data that you wrote yourself",
        kind="decode",
    )


class Nesting:
    """Depth and size of tuples, frozensets, object arrays and dtypes, each counted when it is made."""

    def __init__(self) -> None:
        # By identity. The value is kept, so that its identity is not given to another one.
        self._known: dict[int, tuple[object, int, int]] = {}

    def add(self, value: Any, parts: Iterable[Any]) -> None:
        """Count a finished value from its parts, which are finished already."""
        depth, size, nested = 1, 0, False
        for part in parts:
            size += 1
            if isinstance(part, _NESTED):
                nested = True
                part_depth, part_size = self._of(part)
                depth, size = max(depth, part_depth + 1), size + part_size
        if depth > _MAX_DEPTH:
            raise too_much(f"values nested more than {_MAX_DEPTH} deep")
        if isinstance(value, np.dtype) and size > _MAX_DTYPE_PARTS:
            raise too_much(f"a dtype of more than {_MAX_DTYPE_PARTS:,} fields")
        if nested:
            self._known[id(value)] = (value, depth, size)

    def check_key(self, key: object) -> None:
        """Refuse a dict key or set member that is slow or dangerous to hash."""
        if isinstance(key, tuple | frozenset) and self._of(key)[1] > _MAX_KEY_PARTS:
            raise too_much(f"a dict key or set member of more than {_MAX_KEY_PARTS} parts")

    def _of(self, value: Any) -> tuple[int, int]:
        known = self._known.get(id(value))
        if known is not None:
            return known[1], known[2]
        return 1, len(value) if isinstance(value, tuple | frozenset) else 1
