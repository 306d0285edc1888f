"""What users give to select and weigh rows, as arrays for the native module."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from .checks import BATCH_SAMPLES, invalid, refuse_masked, whole_numbers
from .errors import InvalidInputError, SampleIndexError
from .wording import a_type, shorten, shown

if TYPE_CHECKING:
    import polars as pl

    from .dataset import CachedDataset

    IntoWeights: TypeAlias = pl.Expr | pl.Series | str | npt.ArrayLike

#: Integers that Polars has and Arrow's interface does not.
_NOT_OF_ARROW = ("Int128", "UInt128")


class ArrowStream(Protocol):
    """A table in the Arrow C stream interface: a Polars frame, a pyarrow table, and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class _Exported:
    """The stream of a table, taken out already."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._capsule


def exportable(frame: object, stored: list[tuple[str, str]]) -> ArrowStream:
    """The table as a stream for the native module; what the user's own class raises comes back unchanged.

    Args:
        frame: What shall become the active table.
        stored: The stored columns and their types.

    Raises:
        InvalidInputError: It is no table, or has a column name that Arrow cannot pass on.
    """
    # Polars is loaded already where one of its objects was made.
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(frame, polars.DataFrame):
        _check_names(frame.columns)
        for name, dtype in frame.schema.items():
            _check_fields(dtype)
            _check_type(name, dtype)
        return cast(ArrowStream, _typed(frame, stored))
    export = getattr(frame, "__arrow_c_stream__", None)
    series = polars is not None and isinstance(frame, polars.Series)
    if not callable(export) or isinstance(frame, type) or series:
        cure = "call collect() first" if hasattr(frame, "collect") else "give a Polars DataFrame"
        raise invalid(f"the metadata table is {a_type(frame)}; {cure}")
    for place in (frame, getattr(frame, "schema", None)):
        for attribute in ("column_names", "names", "columns"):
            _check_names(getattr(place, attribute, None))
    return _Exported(export())


def _check_names(names: object) -> None:
    """Arrow's interface passes names on as C strings: Polars aborts at a NUL, others cut the name there."""
    if not isinstance(names, Iterable):
        return
    for name in names:
        if isinstance(name, str) and "\0" in name:
            raise invalid(f"column {shown(name)} has a NUL character in its name; rename the column")


def _check_fields(dtype: Any) -> None:
    """The same, for the names within a nested type of Polars."""
    for field in getattr(dtype, "fields", ()):
        _check_names([field.name])
        _check_fields(field.dtype)
    inner = getattr(dtype, "inner", None)
    if inner is not None:
        _check_fields(inner)


def _check_type(column: str, dtype: Any, within: str = "") -> None:
    """Refuse the types of Polars that the Arrow format lacks, also within nested ones."""
    kind = type(dtype).__name__
    if kind in _NOT_OF_ARROW:
        raise invalid(
            f"column {shown(column)} has the type {kind}{within}, which the Arrow format does not have; "
            "cast it to Int64, or to String where the values are larger"
        )
    if kind == "Object":
        # Polars itself exports them as binary: the addresses of the objects.
        raise invalid(
            f"column {shown(column)} has the type Object{within}, Python objects that no Arrow type holds; "
            "make numbers or text of them, or drop the column"
        )
    if kind == "Null" and within:
        raise invalid(
            f"column {shown(column)} has the type Null{within}, which cannot be passed on; cast it to "
            "the type that its values would have"
        )
    for part in (*(field.dtype for field in getattr(dtype, "fields", ())), getattr(dtype, "inner", None)):
        if part is not None:
            # Polars has classes where no parameter is given.
            _check_type(column, part() if isinstance(part, type) else part, " within")


def _typed(frame: pl.DataFrame, stored: list[tuple[str, str]]) -> pl.DataFrame:
    """The same frame; a column whose type Polars could not tell, because it has no value, has one."""
    import polars as pl

    own = {"bool": pl.Boolean, "int64": pl.Int64, "float64": pl.Float64, "string": pl.String}
    types = {"sample_id": pl.Int64, "weight": pl.Float64, **{name: own[kind] for name, kind in stored}}
    untyped = [name for name, dtype in frame.schema.items() if dtype == pl.Null]
    return frame.with_columns(frame[name].cast(types.get(name, pl.String)) for name in untyped)


def row_numbers(indices: Sequence[int] | npt.NDArray[np.integer[Any]], length: int) -> npt.NDArray[np.int64]:
    """Indices as an int64 array, for a dataset of ``length`` rows.

    Raises:
        InvalidInputError: They are no whole numbers, or not one-dimensional, or absurdly many.
        SampleIndexError: One of them is no row.
    """
    if not isinstance(indices, Iterable):
        raise invalid(f"indices = {shown(indices)} is {a_type(indices)}; give a list or an array of rows")
    if isinstance(indices, str | bytes | bytearray | Mapping | AbstractSet):
        raise invalid(
            f"indices = {shown(indices)} is {a_type(indices)}, which is no sequence of rows; "
            "give a list or an array"
        )
    if isinstance(indices, range):
        return _row_range(indices, length)
    most = max(length, BATCH_SAMPLES)
    array = indices if isinstance(indices, np.ndarray) else _row_array(indices, length, most)
    refuse_masked("indices", array)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.size > most:
        raise _too_many(array.size, most)
    if array.dtype.kind == "b":
        raise invalid("indices are booleans; give numbers of rows, such as numpy.flatnonzero(mask)")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise invalid(
            f"indices are an array of {array.dtype} with {array.ndim} dimensions; give whole numbers in a row"
        )
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        # Converted, it would be a negative number, and read another row.
        raise no_row(int(array.max()), length)
    return array.astype(np.int64, copy=False)


def _row_range(rows: range, length: int) -> npt.NDArray[np.int64]:
    """A range: its ends are looked at before it becomes numbers."""
    if not rows:
        return np.empty(0, np.int64)
    for end in (rows[0], rows[-1]):
        if not -length <= end < length:
            raise no_row(end, length)
    return np.fromiter(rows, np.int64)


def _row_array(indices: Iterable[Any], length: int, most: int) -> npt.NDArray[Any]:
    """Python's numbers as an array; iterators without an end are left at the limit."""
    if hasattr(indices, "__array__"):
        return np.asarray(indices)
    # Once: what is given may change when it is iterated over.
    rows = list(islice(indices, most + 1))
    if len(rows) > most:
        raise _too_many(None, most)
    refuse_masked("indices", rows)
    numbers = whole_numbers("indices", rows, -length, length, partial(no_row, length=length))
    return np.array(numbers, np.int64)


def no_row(number: int, length: int) -> SampleIndexError:
    """The refusal of a row that a dataset does not have."""
    cure = f"indices run from -{length} to {length - 1}" if length else "there are none"
    return SampleIndexError(
        f"index {shown(number)} is out of range for {length} samples; {cure}", kind="index-out-of-range"
    )


def _too_many(found: int | None, most: int) -> InvalidInputError:
    return invalid(
        f"indices are {'an iterator of more' if found is None else f'{found:,} rows, more'} than the "
        f"{most:,} that are read at once; take them in parts, or use loader()"
    )


def weights_of(ds: CachedDataset[Any], weights: IntoWeights) -> npt.NDArray[np.float64]:
    """Weights as one float64 a row; whether they are finite and above 0 is checked where they are used.

    Raises:
        InvalidInputError: They are no numbers, or their number is wrong.
    """
    refuse_masked("weights", weights)
    if isinstance(weights, Iterator):
        raise invalid(f"weights are {a_type(weights)}, which is no sequence of numbers; give list(weights)")
    values = _evaluated(ds, weights)
    try:
        values = np.asarray(values)
    except ValueError as error:  # lists of different lengths
        reason = shorten(str(error), 300)
        raise invalid(f"weights are no row of numbers ({reason}); give one number a row") from error
    if isinstance(weights, list | tuple) and values.dtype.kind not in "iuf":
        # The very objects: beside text, NumPy would make text of numbers.
        values = _floats(weights)
    elif values.dtype.kind == "O" and values.ndim == 1:
        values = _floats(values)
    if values.dtype.kind not in "iuf":
        raise invalid(f"weights are {values.dtype}; give one number a row, or an expression of numbers")
    if values.shape != (len(ds),):
        raise invalid(f"weights have the shape {values.shape}; give one number for each of {len(ds)} rows")
    # A long double beyond float64 becomes infinite, which is refused by its row, and no warning.
    with np.errstate(all="ignore"):
        return values.astype(np.float64, copy=False)


def _floats(weights: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Objects as floats, such as ints beyond 64 bits; names the first that is no number."""
    values = np.empty(len(weights), np.float64)
    for place, weight in enumerate(weights):
        if weight is None:
            raise _missing(place)
        if isinstance(weight, bool | np.bool_) or not isinstance(weight, int | float | np.number):
            raise invalid(
                f"weights have {shown(weight)}, {a_type(weight)}, at place {place}; give one number a row"
            )
        try:
            values[place] = weight
        except OverflowError:
            raise invalid(
                f"weights have {shown(weight)} at place {place}, which is beyond a float64; "
                "scale them down, because only their ratios count"
            ) from None
    return values


def _missing(row: int) -> InvalidInputError:
    return invalid(f"row {row} has no weight (None or null); fill it with a number, or filter the row out")


def _evaluated(ds: CachedDataset[Any], weights: IntoWeights) -> object:
    # Polars is loaded already where one of its objects was made.
    if not isinstance(weights, str) and type(weights).__module__.partition(".")[0] != "polars":
        return weights
    import polars as pl

    if isinstance(weights, pl.Series):
        series = weights
    elif not isinstance(weights, str | pl.Expr):
        raise invalid(f"weights are {a_type(weights)}; give an expression, a column, or one number a row")
    else:
        expression = weights if isinstance(weights, pl.Expr) else pl.col(weights)
        # Not select, which would give a literal the length 1.
        series = ds.metadata.with_columns(expression.alias("weight"))["weight"]
    # NumPy would have NaN for a null, and has no integers of 128 bits.
    missing = series.is_null().arg_max()
    if missing is not None and series[missing] is None:
        raise _missing(missing)
    return (series.cast(pl.Float64) if type(series.dtype).__name__ in _NOT_OF_ARROW else series).to_numpy()
