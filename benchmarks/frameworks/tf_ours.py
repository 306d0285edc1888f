"""datasetrt_tf.dataset over Record payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ours
import records

import datasetrt_tf as drtf

write = ours.write


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    source = ours.dataset(folder)

    def epoch() -> Iterable[dict[str, Any]]:
        return drtf.dataset(source, records.BATCH, decode=ours.CODEC, seed=1, tail="short")

    return epoch
