"""The samples that every contender stores: the same bytes and metadata in every run."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

Metadata = dict[str, Any]

SPLITS = ("train", "val", "test")
BATCH = 256
IMAGE, BOXES = (64, 64, 3), (8, 4)
_POOL_BYTES = 32 << 20


@dataclass(frozen=True)
class Workload:
    """So many samples of so many payload bytes; without a size, pickled annotations or records."""

    name: str
    count: int
    size: int | None


def workloads(quick: bool) -> dict[str, Workload]:
    """All workloads by name; ``quick`` ones are a tenth or less, and their ratios only smoke."""
    counts = {
        "1k": (200_000, 20_000),
        "64b": (1_000_000, 100_000),
        "64k": (4_000, 500),
        "2m": (200, 20),
        "records": (20_000, 2_000),
        "dicts": (100_000, 20_000),
        "tiny": (10_000_000, 300_000),
        "tiny-few": (10_000, 1_000),
    }
    sizes = {"1k": 1024, "64b": 64, "64k": 1 << 16, "2m": 2 << 20, "tiny": 8, "tiny-few": 8}
    return {name: Workload(name, counts[name][quick], sizes.get(name)) for name in counts}


@cache
def _pool() -> bytes:
    return random.Random(0).randbytes(_POOL_BYTES)


def payload(i: int, size: int) -> bytes:
    """Bytes that no compression makes smaller, and that differ from sample to sample."""
    begin = i * 506_347 % (_POOL_BYTES - size)
    return i.to_bytes(8, "little") + _pool()[begin : begin + size - 8]


def metadata(i: int) -> Metadata:
    """A whole number in [0, 100), a short text, a float."""
    return {"label": i % 100, "split": SPLITS[i % 3], "score": i % 4096 / 4096.0}


def record(i: int) -> dict[str, Any]:
    """An image of random bytes, a label, eight boxes: 12,424 bytes."""
    import numpy as np

    begin = i * 506_347 % (_POOL_BYTES - 12_288)
    image = np.frombuffer(_pool(), np.uint8, 12_288, begin).reshape(IMAGE)
    return {"image": image, "label": np.int64(i % 100), "boxes": np.full(BOXES, i % 64, np.float32)}


#: Words of captions and names of categories; sampled like those of a language, few of them often.
_WORDS = [first + last for first in ("bal", "con", "dir", "fest", "gun", "hol", "kes") for last in "aeiouy"]


def annotated(i: int) -> dict[str, Any]:
    """What is known of a picture, as detection sets have it: a caption, five boxes; 1 KiB pickled."""
    of = random.Random(i)

    def box() -> list[float]:
        return [round(of.uniform(0, 640), 2) for _ in range(4)]

    words = of.choices(_WORDS, [1 / rank for rank in range(1, len(_WORDS) + 1)], k=15)
    return {
        "file_name": f"train/{of.randrange(10**12):012d}.jpg",
        "width": of.choice([480, 500, 640]),
        "height": of.choice([360, 427, 480]),
        "caption": " ".join(words),
        "annotations": [
            {
                "bbox": box(),
                "segmentation": [box(), box()],
                "area": of.uniform(10, 1e5),
                "category": of.choice(_WORDS),
                "iscrowd": False,
            }
            for _ in range(5)
        ],
    }


def samples(workload: Workload) -> Iterator[tuple[bytes, Metadata]]:
    """The samples in order; records and annotations as a plain pickle."""
    if workload.name == "dicts":
        for i in range(workload.count):
            yield pickle.dumps(annotated(i), protocol=5), metadata(i)
    elif workload.size is None:
        for i in range(workload.count):
            yield pickle.dumps(record(i), protocol=5), metadata(i)
    else:
        for i in range(workload.count):
            yield payload(i, workload.size), metadata(i)


def labels_sum(count: int) -> int:
    """What the labels of the first ``count`` samples add up to."""
    return count // 100 * 4950 + sum(range(count % 100))
