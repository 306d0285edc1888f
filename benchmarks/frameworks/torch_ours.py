"""datasetrt_torch.NativeLoader over Record payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ours
import records

import datasetrt_torch as drtt

write = ours.write


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    loader = drtt.NativeLoader(
        ours.dataset(folder), batch_size=records.BATCH, decode=ours.CODEC, seed=1, tail="short"
    )
    return lambda: loader
