"""What the tests store and how they decode it; at the top of a module, so that workers can be sent it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import datasetrt as drt

RECORD = drt.codecs.Record({"x": ("float32", (3,)), "id": ("int64", ()), "weight": ("float64", ())})


def record(number: int) -> drt.CacheInput:
    """A record that tells its number, and a metadata column of each type; ``rank`` misses every seventh."""
    packed = RECORD.dumps({"x": np.full(3, number, np.float32), "id": number, "weight": number / 8})
    metadata = {
        "label": number % 10,
        "split": "val" if number % 5 == 0 else "train",
        "score": number / 8,
        "even": number % 2 == 0,
        "rank": None if number % 7 == 0 else number,
    }
    return drt.CacheInput(packed, metadata)


def decode(sample: drt.CachedSample) -> dict[str, Any]:
    """The number, from the record, and the label, from the metadata."""
    return {"id": int(RECORD.loads(sample.data)["id"]), "label": sample.metadata["label"]}


def decode_stopping(sample: drt.CachedSample) -> dict[str, Any]:
    """Raises StopIteration at sample 17, as a careless ``next()`` does."""
    if sample.sample_id == 17:
        raise StopIteration
    return decode(sample)


def decode_failing(sample: drt.CachedSample) -> dict[str, Any]:
    """Raises KeyError at sample 17."""
    if sample.sample_id == 17:
        raise KeyError("pixels")
    return decode(sample)


def ids_of(batches: Any) -> list[list[int]]:
    """The numbers in each batch."""
    return [batch["id"].tolist() for batch in batches]


def joined(lists: Iterable[Iterable[int]]) -> list[int]:
    """All of them, one after the other."""
    return [number for each in lists for number in each]


def slices(order: list[int], size: int) -> list[list[int]]:
    """An order, cut into batches."""
    return [order[at : at + size] for at in range(0, len(order), size)]
