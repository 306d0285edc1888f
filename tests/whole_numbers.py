"""Whole numbers of every size, and what only looks like one: taken, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import datasetrt as drt

#: Python writes out ints of so many digits for nobody.
HUGE = 10**5000

#: What is tried of the arguments of adapters, by the names that their tables have.
NUMBERS: dict[str, Any] = {
    "-1": -1,
    "0": 0,
    "2": 2,
    "2**62": 2**62,
    "2**63": 2**63,
    "2**64": 2**64,
    "10**30": 10**30,
    "huge": HUGE,
    "-huge": -HUGE,
    "True": True,
    "1.0": 1.0,
    "None": None,
    "text": "1",
}


def assert_taken_or_refused(
    use: Callable[[Any], object], taken: str, numbers: Mapping[str, Any] = NUMBERS, most: int = 400
) -> None:
    """Use every number, also as one of NumPy's: those named in ``taken`` pass, the others are refused.

    Args:
        use: Calls something with the number.
        taken: Names of numbers, with blanks between them.
        numbers: Name to number.
        most: A message has fewer characters.
    """
    for name, value in numbers.items():
        # Whole numbers of NumPy are numbers like any other, also those that NumPy keeps unsigned.
        values = [value]
        if type(value) is int and -(2**63) <= value < 2**64:
            values.append(np.uint64(value) if value >= 0 else np.int64(value))
        for given in values:
            place = f"{name} as {type(given).__name__}"
            if name in taken.split():
                use(given)
                continue
            with pytest.raises(drt.DatasetRTError) as refused:
                use(given)
            assert refused.value.kind != "bug", place
            assert isinstance(refused.value, ValueError | IndexError), place
            assert "\n" not in str(refused.value), place
            assert len(str(refused.value)) < most, place
