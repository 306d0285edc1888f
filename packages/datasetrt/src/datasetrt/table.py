"""What users give to select and weigh rows, as arrays for the native module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .checks import invalid

if TYPE_CHECKING:
    import polars as pl

    from .dataset import CachedDataset

    IntoWeights: TypeAlias = pl.Expr | pl.Series | str | npt.ArrayLike


class ArrowStream(Protocol):
    """A table in the Arrow C stream interface: a Polars frame, a pyarrow table, and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def row_numbers(indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Indices as an int64 array.

    Raises:
        InvalidInputError: They are no whole numbers, or not one-dimensional.
    """
    if not isinstance(indices, Iterable):
        raise invalid(f"indices = {indices!r} is a {type(indices).__name__}; give a list or an array of rows")
    array = indices if isinstance(indices, np.ndarray) else np.asarray(list(indices))
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind == "b":
        raise invalid("indices are booleans; give numbers of rows, such as numpy.flatnonzero(mask)")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise invalid(
            f"indices are an array of {array.dtype} with {array.ndim} dimensions; give whole numbers in a row"
        )
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        # Converted, it would be a negative number, and read another row.
        raise invalid(f"index {array.max()} is out of range; give rows of the dataset")
    return array.astype(np.int64, copy=False)


def free_name(taken: list[str]) -> str:
    """A column name that is not taken."""
    name = "row"
    while name in taken:
        name += "_"
    return name


def weights_of(ds: CachedDataset, weights: IntoWeights) -> npt.NDArray[np.float64]:
    """Weights as one float64 a row; whether they are finite and above 0 is checked where they are used.

    Raises:
        InvalidInputError: They are no numbers, or their number is wrong.
    """
    values = np.asarray(_evaluated(ds, weights))
    if values.dtype.kind not in "iuf":
        raise invalid(f"weights are {values.dtype}; give one number a row, or an expression of numbers")
    if values.shape != (len(ds),):
        raise invalid(f"weights have the shape {values.shape}; give one number for each of {len(ds)} rows")
    return values.astype(np.float64, copy=False)


def _evaluated(ds: CachedDataset, weights: IntoWeights) -> object:
    # Polars is loaded already where one of its objects was made.
    if not isinstance(weights, str) and type(weights).__module__.partition(".")[0] != "polars":
        return weights
    import polars as pl

    if isinstance(weights, pl.Series):
        return weights.to_numpy()
    expression = weights if isinstance(weights, pl.Expr) else pl.col(str(weights))
    # Not select, which would give a literal the length 1.
    return ds.metadata.with_columns(expression.alias("weight"))["weight"].to_numpy()
