"""Values as columns: what fits is kept to the last byte, and what does not is an error with its name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt_tf._columns import Column, Ragged, column_of, stacked, whole_batch

FLOATS = Column("x", np.dtype(np.float32), (2,))
NUMBERS = Column("x", np.dtype(np.int32), ())
TEXT = Column("x", np.dtype(object), ())


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (3, "int64", ()),
        (2.5, "float64", ()),
        (True, "bool", ()),
        (np.float16(1), "float16", ()),
        (np.zeros((2, 3), np.uint8), "uint8", (2, 3)),
        (np.zeros(2, ">i4"), "int32", (2,)),
        ([1, 2], "int64", (2,)),
        (1j, "complex128", ()),
        ("text", "object", ()),
        (b"a\0", "object", ()),
        (["a", "bcd"], "object", (2,)),
        (np.array([b"a"]), "object", (1,)),
    ],
)
def test_the_column_of_a_value(value: object, dtype: str, shape: tuple[int, ...]) -> None:
    assert column_of("x", value, 3) == Column("x", np.dtype(dtype), shape)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "None, where a tensor is wanted"),
        (object(), "an object of type object"),
        ({"a": 1}, "an object of type dict"),
        ([[1], [1, 2]], "a list that is no array"),
        ([1, None], "an object of type int"),
        (np.ma.masked_array([1], [True]), "a masked array"),
        (np.datetime64("2020"), "dtype datetime64"),
    ],
)
def test_what_no_tensor_can_be_is_refused_by_name(value: object, problem: str) -> None:
    with pytest.raises(drt.CodecError, match=f"column 'x' of sample 3: .*{re.escape(problem)}"):
        column_of("x", value, 3)


def test_rows_are_stacked_in_fresh_aligned_memory() -> None:
    rows = [np.array([1, 2], np.float32), [3, 4], np.array([5, 6], np.float16)]
    found = stacked(FLOATS, rows, [0, 1, 2])
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert found.ctypes.data % 64 == 0


def test_text_keeps_its_trailing_nuls() -> None:
    found = stacked(TEXT, [b"a\0\0", "é", b"", np.bytes_(b"b")], [0, 1, 2, 3])
    assert found.tolist() == [b"a\0\0", "é".encode(), b"", b"b"]  # type: ignore[union-attr]
    pairs = stacked(Column("x", np.dtype(object), (2,)), [["a", b"b\0"]], [0])
    assert pairs.tolist() == [[b"a", b"b\0"]]  # type: ignore[union-attr]


def test_ragged_rows_become_values_and_splits() -> None:
    column = column_of("x", [1, 2], 3, ragged=True)
    assert column.shape == (None,)
    found = stacked(column, [[1, 2], [], [3]], [0, 1, 2])
    assert isinstance(found, Ragged)
    assert found.values.tolist() == [1, 2, 3]
    assert found.values.dtype == np.int64
    assert found.row_splits.tolist() == [0, 2, 2, 3]


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (FLOATS, [1, 2, 3], "shape (3,), but (2,) is expected; pad it in decode, or give ragged=['x']"),
        (FLOATS, ["a", "b"], "dtype <U1, where float32 is wanted"),
        (NUMBERS, 1.5, "dtype float64, where int32 is wanted"),
        (NUMBERS, 2**40, "values of dtype int64 that int32 does not hold"),
        (NUMBERS, None, "None, where a tensor is wanted"),
        (TEXT, 3, "an int where text is expected"),
    ],
)
def test_a_row_that_does_not_fit_is_named(column: Column, value: object, problem: str) -> None:
    good: Any = {FLOATS: [0, 0], NUMBERS: 0, TEXT: "a"}[column]
    with pytest.raises(drt.CodecError, match=re.escape(f"column 'x' of sample 17: {problem}")) as caught:
        stacked(column, [good, value], [4, 17])
    assert caught.value.sample_id == 17


def test_rows_of_one_batch_have_one_shape() -> None:
    column = Column("x", np.dtype(np.int64), (None,))
    assert stacked(column, [[1], [2]], [0, 1]).shape == (2, 1)  # type: ignore[union-attr]
    with pytest.raises(drt.CodecError, match=r"of sample 9: shape \(2,\), but sample 4 .* has \(1,\)"):
        stacked(column, [[1], [2, 3]], [4, 9])


def test_python_ints_fit_unsigned_columns_by_value() -> None:
    column = Column("x", np.dtype(np.uint8), ())
    assert stacked(column, [3, 255], [0, 1]).tolist() == [3, 255]  # type: ignore[union-attr]
    with pytest.raises(drt.CodecError, match="uint8 does not hold"):
        stacked(column, [-1], [0])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (np.zeros((3, 2), np.float32), "decode gives shape (3, 2) for a batch of 2 samples; give 2 rows"),
        (np.float32(1), "decode gives shape () for a batch"),
        (np.zeros((2, 3), np.float32), "rows of shape (3,), but (2,) is expected"),
        (np.zeros((2, 2), complex), "dtype complex128, where float32 is wanted"),
    ],
)
def test_a_whole_batch_that_does_not_fit_is_named(value: object, problem: str) -> None:
    with pytest.raises(drt.CodecError, match=re.escape(f"column 'x': {problem}")):
        whole_batch(FLOATS, value, 2)


def test_a_whole_batch_that_fits_is_not_copied() -> None:
    batch = np.zeros((2, 2), np.float32)
    assert whole_batch(FLOATS, batch, 2) is batch
    assert whole_batch(FLOATS, batch.astype(">f4"), 2).dtype.isnative


@pytest.mark.filterwarnings("error")
def test_floats_beyond_the_column_are_refused_and_infinite_ones_are_not() -> None:
    with pytest.raises(drt.CodecError, match="values of dtype float64 that float32 does not hold"):
        stacked(FLOATS, [[1e300, 0.0]], [0])
    found = stacked(FLOATS, [[np.inf, 0.5]], [0])
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[np.inf, 0.5]]
