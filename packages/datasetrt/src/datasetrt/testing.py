"""For tests of code that uses datasetrt: a small dataset, and the proof that something resumes exactly."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ._core import SampleBatch
from .checks import count
from .config import WriterConfig
from .dataset import CachedDataset
from .errors import StaleCacheError
from .source import CacheInput, MapSource
from .writer import cache

__all__ = ["Resumable", "assert_resumes", "tiny_dataset"]


def tiny_dataset(samples: int = 10, *, root: str | os.PathLike[str] | None = None) -> CachedDataset:
    """Write and open a small cache.

    Sample ``i`` has the payload ``b"sample i"``, the label ``i`` and a split: ``"val"`` for every fifth one,
    beginning with the first, ``"train"`` for the others.

    Args:
        samples: How many, at least 1.
        root: Folder that holds the cache ``tiny``; without one, a temporary folder, which is removed when
            Python ends.

    Raises:
        InvalidInputError: ``samples`` is no whole number, or out of range.
        StaleCacheError: ``root`` has such a cache with another number of samples; give another folder.

    Example:
        >>> import datasetrt as drt
        >>> ds = drt.testing.tiny_dataset(3)
        >>> [(sample.data, sample.metadata["split"]) for sample in ds]
        [(b'sample 0', 'val'), (b'sample 1', 'train'), (b'sample 2', 'train')]
    """
    samples = count("samples", samples)
    source = MapSource("tiny", range(samples), _tiny_sample, fingerprint=f"tiny {samples}")
    folder = _temporary_folder() if root is None else root
    try:
        return cache(source, folder, config=WriterConfig(progress=False))
    except StaleCacheError as error:
        raise StaleCacheError(
            f"{error.path} has another number of samples than {samples}; give another root, or remove it",
            kind=error.kind,
            path=error.path,
        ) from None


def _tiny_sample(number: int) -> CacheInput:
    metadata = {"label": number, "split": "train" if number % 5 else "val"}
    return CacheInput(f"sample {number}".encode(), metadata)


def _temporary_folder() -> str:
    folder = tempfile.mkdtemp(prefix="datasetrt-")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, owner: int) -> None:
    # A forked child that ends must not take its parent's files away.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class Resumable(Protocol):
    """A loader, of this library or around it.

    Example:
        >>> import datasetrt as drt
        >>> class Labels:
        ...     def __init__(self):
        ...         self.inner = drt.testing.tiny_dataset().loader(batch_size=4)
        ...         self.state_dict, self.load_state_dict = self.inner.state_dict, self.inner.load_state_dict
        ...     def __iter__(self):
        ...         return (batch.metadata["label"].tolist() for batch in self.inner)
        >>> drt.testing.assert_resumes(Labels)
    """

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch, or finish the one that a loaded state is in."""

    def state_dict(self) -> Any:
        """Where the run is, as JSON."""

    def load_state_dict(self, state: Any, /) -> None:
        """Go to the place that a state names."""


def assert_resumes(make: Callable[[], Resumable], *, epochs: int = 2) -> None:
    """Save at every step of some epochs, restore each state into a new loader, and compare the rest.

    States go through JSON, as they do on disk.

    Args:
        make: Makes a loader at its start; called once for each step, and once more.
        epochs: How many epochs to go through, at least 1.

    Raises:
        InvalidInputError: ``epochs`` is no whole number, or out of range.
        AssertionError: A restored loader gave something else than the run that was not interrupted; names the
            step and the state.

    Example:
        >>> import datasetrt as drt
        >>> ds = drt.testing.tiny_dataset()
        >>> drt.testing.assert_resumes(lambda: ds.loader(batch_size=3, sampler=drt.Shuffle(seed=1)))
    """
    epochs = count("epochs", epochs)
    straight = make()
    items: list[Any] = []
    states = [json.dumps(straight.state_dict())]
    for _ in range(epochs):
        for item in straight:
            items.append(item)
            states.append(json.dumps(straight.state_dict()))
    for step, state in enumerate(states):
        restored = make()
        restored.load_state_dict(json.loads(state))
        rest = _taken(restored, len(items) - step)
        assert len(rest) == len(items) - step, (
            f"restored after step {step} from {state}: {len(rest)} items came, not {len(items) - step}"
        )
        for later, (found, expected) in enumerate(zip(rest, items[step:], strict=True)):
            place = f"restored after step {step} from {state}: step {step + later}"
            assert _same(found, expected), (
                f"{place} gave {found!r}, not {expected!r}{_differing(found, expected)}"
            )


def _taken(loader: Resumable, most: int) -> list[Any]:
    """So many items, of as many epochs as it takes; fewer if an epoch gives none twice in a row."""
    items: list[Any] = []
    empty = 0
    while len(items) < most and empty < 2:
        before = len(items)
        for item in loader:
            items.append(item)
            if len(items) == most:
                break
        empty = empty + 1 if len(items) == before else 0
    return items


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, SampleBatch):
        return isinstance(found, SampleBatch) and _same(_described(found), _described(expected))
    if isinstance(expected, Mapping):
        return found.keys() == expected.keys() and all(_same(found[key], expected[key]) for key in expected)
    if isinstance(expected, str | bytes):
        return bool(found == expected)
    if isinstance(expected, Sequence):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if hasattr(expected, "__array__"):
        ours, theirs = np.asarray(found), np.asarray(expected)
        return (
            ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes() and ours.shape == theirs.shape
        )
    return bool(found == expected)


def _differing(found: Any, expected: Any) -> str:
    """Which rows two batches have, where their texts do not tell them apart."""
    if not (isinstance(found, SampleBatch) and isinstance(expected, SampleBatch)):
        return ""
    return f": rows {found.indices.tolist()}, not {expected.indices.tolist()}"


def _described(batch: SampleBatch) -> list[Any]:
    return [list(batch), batch.indices, batch.positions, batch.padding, batch.epoch]
