"""What TensorFlow's functions reach their reader through: a number.

TensorFlow never lets go of a Python function that a graph calls, and so of all that the function holds. Ours
holds a number. Behind it stay the recipe of the dataset (paths and rows, no open file) and what decodes; the
open dataset goes with the pipeline's Python object. A graph that outlives that object opens it again.
"""

from __future__ import annotations

import itertools
import pickle
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import datasetrt as drt

from ._batches import Batch, Reader

#: Datasets that were opened again and are kept open.
_KEPT_REOPENED = 4
#: Reads after which one is kept. A pipeline that ends is still read from by the calls that were under way;
#: those are fewer, and what they open is closed at once.
_READS_UNDER_WAY = 64

_numbers = itertools.count()
_handles: dict[int, _Handle] = {}
_reopened: OrderedDict[int, Reader] = OrderedDict()
_lock = threading.Lock()
# One recipe for all pipelines of a dataset: that of a view of chosen rows has 8 bytes a row.
_recipes: weakref.WeakKeyDictionary[drt.CachedDataset, bytes] = weakref.WeakKeyDictionary()


class _Handle:
    """A reader while its pipeline lives, and how to make it again."""

    def __init__(self, recipe: bytes, make: Callable[[drt.CachedDataset], Reader], reader: Reader) -> None:
        self.recipe = recipe
        self.make = make
        self.reader: Reader | None = reader
        self.late_reads = 0


def register(source: drt.CachedDataset, make: Callable[[drt.CachedDataset], Reader]) -> int:
    """Keep what reads a dataset; returns its number.

    Args:
        source: The dataset.
        make: Makes the reader of a dataset; must not hold the dataset itself.
    """
    handle = _Handle(_recipe(source), make, make(source))
    number = next(_numbers)
    _handles[number] = handle
    return number


def read(number: int, element: int) -> Batch:
    """An element of the pipeline with that number."""
    reader = _handles[number].reader or _opened_again(number)
    return reader.read(element)


def release_with(owner: Any, number: int) -> None:
    """Let the open dataset go when ``owner``, the pipeline's Python object, does."""
    finalizer = weakref.finalize(owner, _release, number)
    finalizer.atexit = False  # the process takes it all away


def live() -> int:
    """How many handles hold an open dataset; for tests."""
    return sum(handle.reader is not None for handle in _handles.values()) + len(_reopened)


def _release(number: int) -> None:
    _handles[number].reader = None


def _opened_again(number: int) -> Reader:
    with _lock:
        handle = _handles[number]
        handle.late_reads += 1
        reader = _reopened.pop(number, None) or handle.make(pickle.loads(handle.recipe))
        if handle.late_reads > _READS_UNDER_WAY:
            _reopened[number] = reader
            while len(_reopened) > _KEPT_REOPENED:
                _reopened.popitem(last=False)
    return reader


def _recipe(source: drt.CachedDataset) -> bytes:
    recipe = _recipes.get(source)
    if recipe is None:
        recipe = _recipes[source] = pickle.dumps(source)
    return recipe
