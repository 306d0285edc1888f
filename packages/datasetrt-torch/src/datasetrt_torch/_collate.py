"""From a list of samples to a batch of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

import datasetrt as drt
from datasetrt.wording import a_type

from ._checks import invalid
from ._tensors import as_tensor


def collate(batch: Any) -> Any:
    """Put samples together into a batch; one that is a batch already stays as it is.

    Like PyTorch's ``default_collate``: tensors, arrays and numbers are stacked along a new first axis, dicts
    and tuples are entered, strings and bytes become lists. Arrays may be read-only, which costs no warning:
    the batch has its own, writable memory. Errors name the part of the sample that they are about.

    Args:
        batch: A list of samples; or a mapping or a tensor, which `TorchDataset` gives with
            ``output="columns"``.

    Returns:
        The samples' structure, with a tensor or a list in each place.

    Raises:
        InvalidInputError: Samples hold something that no tensor can hold, or do not go together.

    Example:
        >>> import datasetrt_torch as drtt
        >>> drtt.collate([{"x": np.ones(2), "id": 3}, {"x": np.zeros(2), "id": 4}])["id"]
        tensor([3, 4])
    """
    if isinstance(batch, Mapping | Tensor):
        return batch
    if not isinstance(batch, list | tuple) or not batch:
        raise invalid(f"collate was given {a_type(batch)} of no samples; give a list of samples")
    return _merged("", list(batch))


def _merged(path: str, parts: list[Any]) -> Any:
    first = parts[0]
    if isinstance(first, drt.CachedSample):
        raise invalid("samples are CachedSample, whose bytes no tensor can hold; give decode=")
    merge = next((merge for known, merge in _MERGES if isinstance(first, known)), None)
    if merge is None:
        raise _refused(path, f"{a_type(first)} cannot be in a tensor; let decode give arrays and numbers")
    others = [part for part in parts if not isinstance(part, _family(first))]
    if others:
        raise _refused(path, f"some samples have {a_type(first)} there, others {a_type(others[0])}")
    return merge(path, parts)


def _family(first: Any) -> type | tuple[type, ...]:
    """What may stand beside it in other samples: 1 beside 2.5, as in PyTorch, but nothing else."""
    for types in ((Tensor,), (np.ndarray,), (bool, np.bool_), (int, float, np.number), (str,), (bytes,)):
        if isinstance(first, types):
            return types
    return Mapping if isinstance(first, Mapping) else type(first)


def _mappings(path: str, parts: list[Any]) -> dict[Any, Any]:
    keys = parts[0].keys()
    for part in parts:
        if part.keys() != keys:
            raise _refused(
                path, f"samples have the keys {list(keys)} and {list(part.keys())}; give all the same"
            )
    return {
        key: _merged(f"{path}.{key}" if path else str(key), [part[key] for part in parts]) for key in keys
    }


def _sequences(path: str, parts: list[Any]) -> Any:
    lengths = {len(part) for part in parts}
    if len(lengths) != 1:
        raise _refused(path, f"samples have sequences of {min(lengths)} to {max(lengths)} parts; pad them")
    merged = [_merged(f"{path}[{at}]", list(column)) for at, column in enumerate(zip(*parts, strict=True))]
    kind = type(parts[0])
    if hasattr(kind, "_fields"):  # a named tuple
        return kind(*merged)
    return merged if kind is list else tuple(merged)


def _arrays(path: str, parts: list[Any]) -> Tensor:
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise _refused(path, "masked arrays have places without a value; give filled(...) ones")
    arrays = [np.asarray(part) for part in parts]
    _same("shapes", path, [array.shape for array in arrays])
    return as_tensor(path or "sample", np.stack(arrays))


def _tensors(path: str, parts: list[Tensor]) -> Any:
    _same("shapes", path, [tuple(part.shape) for part in parts])
    # PyTorch's own stacks into shared memory where this is a worker.
    return default_collate(parts)


def _bools(_path: str, parts: list[Any]) -> Tensor:
    return torch.tensor([bool(part) for part in parts])


def _numbers(path: str, parts: list[Any]) -> Tensor:
    if any(isinstance(part, np.generic) for part in parts):
        return _arrays(path, parts)
    if any(isinstance(part, float) for part in parts):
        return torch.tensor(parts, dtype=torch.float64)
    try:
        return torch.tensor(parts, dtype=torch.int64)
    except (OverflowError, RuntimeError, ValueError) as error:
        raise _refused(
            path, f"{max(parts, key=abs)} is beyond int64; store it as float or as two ints"
        ) from error


def _listed(_path: str, parts: list[Any]) -> list[Any]:
    return parts


_MERGES: tuple[tuple[type | tuple[type, ...], Callable[[str, list[Any]], Any]], ...] = (
    (Tensor, _tensors),
    (np.ndarray, _arrays),
    ((bool, np.bool_), _bools),
    ((int, float, np.number), _numbers),
    ((str, bytes), _listed),
    (Mapping, _mappings),
    ((list, tuple), _sequences),
)


def _same(what: str, path: str, found: list[tuple[int, ...]]) -> None:
    if len(set(found)) > 1:
        other = next(shape for shape in found if shape != found[0])
        raise _refused(path, f"samples have the {what} {found[0]} and {other}; pad or crop them in decode")


def _refused(path: str, why: str) -> drt.InvalidInputError:
    place = f"column {path!r}" if path else "a sample"
    return invalid(f"{place} cannot be collated: {why}")
