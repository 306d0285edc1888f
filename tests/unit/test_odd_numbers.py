"""Numbers that are none, too large, masked or missing: refused by name, with every warning an error."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest

import datasetrt as drt

pytestmark = pytest.mark.filterwarnings("error")
ONES = [1.0] * 99


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([*ONES, np.longdouble("1e4000")], "row 99 has weight inf; weights must be finite"),
        (np.array([*ONES, np.longdouble("1e4000")]), "row 99 has weight inf; weights must be finite"),
        ([*ONES, 10**400], "weights have an int of 1,329 bits at place 99, which is beyond a float64; scale"),
        ([*ONES, None], r"row 99 has no weight \(None or null\); fill it"),
        (np.array([*ONES, None]), r"row 99 has no weight \(None or null\)"),
        (pl.Series([*ONES, None]), r"row 99 has no weight \(None or null\)"),
        (pl.when(pl.col("label") < 5).then(1.0), r"row \d+ has no weight \(None or null\)"),
        ((weight for weight in ONES), r"weights are a generator, .*; give list\(weights\)"),
        ([*ONES, "heavy"], "weights have 'heavy', a str, at place 99; give one number a row"),
        ([*ONES, Decimal(1)], r"weights have Decimal\('1'\), a Decimal, at place 99"),
        ([*ONES, np.ma.masked], "weights have masked values; leave them out, or fill them"),
    ],
    ids=[
        *("long double", "long doubles", "huge", "None", "object array", "series", "expression"),
        *("generator", "text", "decimal", "masked"),
    ],
)
def test_weights_that_are_none_are_refused_by_row_and_value(
    weights: Any, message: str, tiny: drt.CachedDataset
) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        tiny.with_weights(weights)


@pytest.mark.parametrize("large", [2**63, 2**70, 2**64])
def test_large_whole_numbers_are_weights(large: int, tiny: drt.CachedDataset) -> None:
    assert tiny.with_weights([*ONES, large]).metadata["weight"][-1] == float(large)
    assert tiny.with_weights([1] * 99 + [large]).metadata["weight"][-1] == float(large)


def test_weights_of_128_bits_are_taken(tiny: drt.CachedDataset) -> None:
    weights = pl.Series([2] * 100, dtype=pl.Int128)
    assert tiny.with_weights(weights).metadata["weight"].to_list() == [2.0] * 100


@pytest.mark.parametrize("positions", [[1, np.ma.masked], np.ma.array([1, 2], mask=[False, True])])
def test_masked_positions_are_refused(positions: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"positions have .*masked values"):
        drt.Shuffle(seed=1).indices_at(tiny, positions)
    with pytest.raises(drt.InvalidInputError, match=r"indices have .*masked values"):
        tiny.take(positions)


@pytest.mark.parametrize("value", [[1, np.ma.masked], [[1], [np.ma.masked]]])
def test_masked_values_of_records_are_refused(value: Any) -> None:
    shape = np.shape([[0]] * 2) if isinstance(value[0], list) else (2,)
    for dtype in ("float32", "int32"):
        codec = drt.codecs.Record({"x": (dtype, shape)})
        with pytest.raises(drt.CodecError, match=r"field x.*whose mask would be lost; fill it"):
            codec.dumps({"x": value})


def test_a_view_without_rows_says_so(tiny: drt.CachedDataset) -> None:
    empty = tiny[5:5]
    assert len(empty) == len(tiny.head(0)) == 0
    assert list(empty.loader()) == []
    with pytest.raises(drt.InvalidInputError, match="row = 0 is not there, because the dataset has no rows"):
        drt.Shuffle(seed=1).position_of(empty, 0)
    with pytest.raises(
        drt.SampleIndexError, match=r"position 0 is not among the 0 .*; the dataset has no rows"
    ):
        drt.Shuffle(seed=1).indices_at(empty, [0])
    with pytest.raises(drt.InvalidInputError) as refused:
        empty.with_metadata(empty.metadata)
    assert refused.value.kind == "empty"


@pytest.mark.parametrize(
    ("dtype", "values", "message"),
    [
        (
            pl.Int128(),
            [1] * 100,
            "has the type Int128, which .*; cast it to Int64, or to String",
        ),
        (pl.List(pl.Int128()), [[1]] * 100, "column 'big' has the type Int128 within, .*; cast it to Int64"),
        (pl.Struct({"a": pl.Int128()}), [{"a": 1}] * 100, "column 'big' has the type Int128 within"),
        (pl.List(pl.Null()), [[]] * 100, "column 'big' has the type Null within, .*; cast it"),
        (None, [[None]] * 100, "column 'big' has the type Null within, .*; cast it"),
        (None, [{"a": None}] * 100, "column 'big' has the type Null within, .*; cast it"),
        (None, [[{"a": [None]}]] * 100, "column 'big' has the type Null within, .*; cast it"),
        (pl.Array(pl.Null(), 2), [[None, None]] * 100, "column 'big' has the type Null within, .*; cast it"),
        (pl.Object(), [object()] * 100, "column 'big' has the type Object, .*; make numbers or text of them"),
    ],
    ids=["plain", "list", "struct", "empty", "null", "field", "deep", "array", "object"],
)
def test_types_that_arrow_lacks_are_refused_by_name(
    dtype: pl.DataType | None, values: list[Any], message: str, tiny: drt.CachedDataset
) -> None:
    frame = tiny.metadata.with_columns(pl.Series("big", values, dtype=dtype))
    with pytest.raises(drt.InvalidInputError, match=message):
        tiny.with_metadata(frame)
    cast = tiny.metadata.with_columns(big=pl.lit(1).cast(pl.Int128).cast(pl.Int64))
    assert tiny.with_metadata(cast)[0].metadata["big"] == 1


def test_the_state_after_the_last_epoch_loads_and_its_loop_is_refused(tiny: drt.CachedDataset) -> None:
    loader = tiny.loader(batch_size=100)
    loader.set_epoch(2**63 - 1)
    assert len(list(loader)) == 1
    state = loader.state_dict()
    assert state["epoch"] == 2**63
    other = tiny.loader(batch_size=100)
    other.load_state_dict(state)
    with pytest.raises(drt.InvalidInputError, match="was the last one; begin another run with set_epoch"):
        next(iter(other))
    other.set_epoch(0)
    assert len(list(other)) == 1
    with pytest.raises(drt.StateError, match="outside of 0 to 9223372036854775808"):
        other.load_state_dict({**state, "epoch": 2**63 + 1})
