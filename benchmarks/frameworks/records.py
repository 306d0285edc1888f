"""The records that every contender stores, and the sums that every epoch has to give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

COUNT = 20_000
BATCH = 256
IMAGE = (64, 64, 3)
BOXES = (8, 4)


def records() -> Iterator[dict[str, Any]]:
    """The records in order: ``image`` uint8, ``label`` int64, ``boxes`` float32."""
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        yield {
            "image": rng.integers(0, 256, IMAGE, np.uint8),
            "label": np.int64(number % 1000),
            "boxes": rng.random(BOXES, np.float32),
        }


def expected() -> tuple[int, int]:
    """Sums of all labels and of all image bytes."""
    labels = images = 0
    for record in records():
        labels += int(record["label"])
        images += int(record["image"].sum(dtype=np.int64))
    return labels, images
