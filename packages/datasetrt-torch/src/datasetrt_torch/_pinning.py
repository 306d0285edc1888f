"""Batches in page-locked memory, from which a GPU copies while the program goes on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def can_pin() -> bool:
    """Whether there is anything to pin memory for; says so if not, as PyTorch's DataLoader does."""
    if torch.accelerator.is_available():
        return True
    warnings.warn("pin_memory=True has no effect: PyTorch finds no accelerator", UserWarning, stacklevel=3)
    return False


def pinned(batch: Any) -> Any:
    """The same batch with its tensors in page-locked memory; what is no tensor stays as it is."""
    if isinstance(batch, Tensor):
        return batch.pin_memory()
    if isinstance(batch, Mapping):
        return {key: pinned(part) for key, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(pinned, batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map(pinned, batch))
    return batch
