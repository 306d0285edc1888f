"""The last touches to a batch: a mask, a TensorDict, page-locked memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import datasetrt as drt
from datasetrt.wording import a_type

from ._checks import invalid
from ._pinning import pinned


@dataclass(frozen=True)
class Finish:
    """What is done to each batch once it is decoded.

    ``mask_key`` names the mask, and ``substituted_key`` what marks substitutes of damaged samples; None is
    none.
    """

    mask_key: str | None
    substituted_key: str | None
    as_tensordict: bool
    pin_memory: bool

    def __call__(self, made: Any, batch: drt.SampleBatch) -> Any:
        if self.mask_key is not None:
            made = _beside(made, self.mask_key, "mask", ~batch.padding)
        if self.substituted_key is not None:
            made = _beside(made, self.substituted_key, "substituted", batch.substituted)
        if self.as_tensordict:
            made = _tensordict(made, len(batch))
        return pinned(made) if self.pin_memory else made


def _beside(made: Any, key: str, what: str, flags: npt.NDArray[np.bool_]) -> dict[Any, Any]:
    if not isinstance(made, Mapping):
        raise invalid(
            f"decode gives {a_type(made)}, and {what}_key = {key!r} needs a dict; let decode give a "
            "dict, or leave it out" + (" with tail='drop'" if what == "mask" else "")
        )
    if key in made:
        raise invalid(f"decode gives {key!r} already; rename it there, or choose another {what}_key")
    return {**made, key: torch.from_numpy(flags)}


def _tensordict(made: Any, rows: int) -> Any:
    from tensordict import TensorDict

    if not isinstance(made, Mapping):
        raise invalid(f"decode gives {a_type(made)}, which is no TensorDict; let it give a dict")
    for name, part in made.items():
        if not isinstance(part, Tensor | Mapping):
            raise invalid(
                f"column {name!r} is {a_type(part)}, which a TensorDict does not take; leave it out"
            )
    return TensorDict(dict(made), batch_size=[rows])
