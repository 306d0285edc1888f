"""Shapes and dtypes of a batch, known before the first one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._errors import StaticShapeError

#: Column name to array, one row a sample.
Batch: TypeAlias = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ShapeDtype:
    """Shape and dtype of a column; JAX takes it wherever it takes a ``jax.ShapeDtypeStruct``.

    Args:
        shape: That of a whole batch of this process, samples first.
        dtype: NumPy's, of the column as it is handed out.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> ds = drt.testing.tiny_dataset()
        >>> drtj.batches(ds, global_batch=4, process_index=0, process_count=2).element_spec
        {'data': ShapeDtype(shape=(2, 8), dtype=dtype('uint8'))}
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def check_spec(batch: Batch, spec: Mapping[str, ShapeDtype], where: str) -> None:
    """Refuse a batch that JAX would compile anew for.

    Raises:
        StaticShapeError: A column is missing or new, or has another shape or dtype; names it.
    """
    if batch.keys() != spec.keys():
        raise StaticShapeError(
            f"the batch {where} has the columns {sorted(batch)}, but the first sample has {sorted(spec)}; "
            "let decode return the same keys for every sample"
        )
    for name, column in batch.items():
        expected = spec[name]
        if column.shape != expected.shape or column.dtype != expected.dtype:
            raise StaticShapeError(
                f"column {name!r} of the batch {where} is {column.dtype} of shape {column.shape}, but the "
                f"first sample makes it {expected.dtype} of shape {expected.shape}; let decode return one "
                f"shape, or give pad_to={{{name!r}: …}}"
            )
