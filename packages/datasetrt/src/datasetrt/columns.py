"""The metadata of a batch as NumPy columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl


class BatchMetadata(dict[str, npt.NDArray[Any]]):
    """The metadata of a batch: column name to NumPy array, one value a sample.

    Columns are bool, int64, float64, or objects (``str`` or ``None``). A column with missing values
    anywhere in the dataset is a masked array in every batch. The arrays are the caller's own.

    Example:
        >>> import datasetrt as drt
        >>> columns = drt.testing.tiny_dataset().take([0, 1]).metadata
        >>> columns["label"].tolist()
        [0, 1]
        >>> columns.to_polars().height
        2
    """

    def to_polars(self) -> pl.DataFrame:
        """Give the columns as a Polars data frame; masked values become nulls.

        Returns:
            A frame with the columns in their order, one row a sample.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> ds.take([0, 1]).metadata.to_polars()["label"].to_list()
            [0, 1]
        """
        import polars as pl

        return pl.DataFrame([_series(name, values) for name, values in self.items()])


def _series(name: str, values: npt.NDArray[Any]) -> pl.Series:
    import polars as pl

    if isinstance(values, np.ma.MaskedArray):
        types = {"b": pl.Boolean, "i": pl.Int64, "f": pl.Float64}
        return pl.Series(name, values.tolist(), dtype=types[values.dtype.kind])
    if values.dtype == object:
        return pl.Series(name, values.tolist(), dtype=pl.String)
    return pl.Series(name, values)
