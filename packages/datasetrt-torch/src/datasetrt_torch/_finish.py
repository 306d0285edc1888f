"""The last touches to a batch: one length for all, a mask, a TensorDict, page-locked memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import datasetrt as drt

from ._checks import invalid
from ._pinning import pinned


@dataclass(frozen=True)
class Finish:
    """What is done to each batch once it is decoded.

    ``rows`` fills every batch up to so many, None leaves it as it is; ``mask_key`` names the mask, None is
    none.
    """

    rows: int | None
    mask_key: str | None
    as_tensordict: bool
    pin_memory: bool

    def __call__(self, made: Any, batch: drt.SampleBatch) -> Any:
        if self.mask_key is not None:
            made = self._masked(made, batch, self.mask_key)
        if self.as_tensordict:
            made = _tensordict(made, self.rows or len(batch))
        return pinned(made) if self.pin_memory else made

    def _masked(self, made: Any, batch: drt.SampleBatch, key: str) -> dict[Any, Any]:
        if not isinstance(made, Mapping):
            raise invalid(
                f"decode gives a {type(made).__name__}, and the mask {key!r} of padded rows needs a dict; "
                "let decode give a dict, or use tail='drop'"
            )
        if key in made:
            raise invalid(f"decode gives {key!r} already; rename it there, or choose another mask_key")
        mask = torch.from_numpy(~batch.padding)
        rows, found = self.rows or len(batch), len(batch)
        if found == rows:
            return {**made, key: mask}
        # Rows of the batch again, so that padding looks like data, and costs nobody a special case.
        again = torch.arange(rows) % found
        filled = {name: _again(name, part, again) for name, part in made.items()}
        return {**filled, key: torch.cat([mask, torch.zeros(rows - found, dtype=torch.bool)])}


def _again(path: Any, part: Any, rows: Tensor) -> Any:
    """The given rows of everything in a batch."""
    if isinstance(part, Tensor):
        return part[rows]
    if isinstance(part, Mapping):
        return {key: _again(f"{path}.{key}", value, rows) for key, value in part.items()}
    if isinstance(part, tuple):
        made = [_again(f"{path}[{at}]", value, rows) for at, value in enumerate(part)]
        return type(part)(*made) if hasattr(part, "_fields") else tuple(made)
    if isinstance(part, list) and all(isinstance(value, str | bytes) for value in part):
        return [part[row] for row in rows.tolist()]
    if isinstance(part, list):
        return [_again(f"{path}[{at}]", value, rows) for at, value in enumerate(part)]
    raise invalid(f"column {path!r} is a {type(part).__name__}, which cannot be padded; use tail='drop'")


def _tensordict(made: Any, rows: int) -> Any:
    from tensordict import TensorDict

    if not isinstance(made, Mapping):
        raise invalid(f"decode gives a {type(made).__name__}, which is no TensorDict; let it give a dict")
    for name, part in made.items():
        if not isinstance(part, Tensor | Mapping):
            raise invalid(
                f"column {name!r} is a {type(part).__name__}, which a TensorDict does not take; leave it out"
            )
    return TensorDict(dict(made), batch_size=[rows])
