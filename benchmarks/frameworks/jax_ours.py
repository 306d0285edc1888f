"""datasetrt_jax.batches over Record payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ours
import records

import datasetrt as drt
import datasetrt_jax as drtj

write = ours.write


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    # Whole epochs without padding: 20,000 rows in batches of 250 come out even.
    dataset: drt.CachedDataset = ours.dataset(folder)
    assert records.COUNT % EVEN == 0

    def epoch() -> Iterable[dict[str, Any]]:
        return drtj.batches(dataset, global_batch=EVEN, decode=ours.CODEC, seed=1, num_epochs=1)

    return epoch


EVEN = 250
