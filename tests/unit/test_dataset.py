"""The dataset as an immutable view: reading, selecting, weighing, pickling."""

from __future__ import annotations

import copy
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count, repeat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import datasetrt as drt
from tests.rows import RowSource, number_of, rows_of

ROWS = rows_of(100)


def numbers(ds: drt.CachedDataset) -> list[int]:
    return [number_of(sample.data) for sample in ds]


def typed(value: object) -> str:
    """An id of a test that tells ``7`` from ``np.int64(7)``, whose repr is the same before NumPy 2."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__name__} {value}"


# Indices


def test_a_sample_is_what_was_written(tiny: drt.CachedDataset) -> None:
    sample = tiny[37]
    assert (sample.data, sample.metadata) == ROWS[37]
    assert (sample.sample_id, sample.cache_id) == (37, tiny.caches[0].cache_id)


@pytest.mark.parametrize(
    "index",
    [7, -93, np.int64(7), np.uint8(7), np.int16(-93)],
    ids=typed,
)
def test_whole_numbers_of_all_kinds_are_indices(index: Any, tiny: drt.CachedDataset) -> None:
    assert tiny[index].sample_id == 7


@pytest.mark.parametrize("index", [100, -101, 2**63, 10**30, -(10**30)])
def test_an_index_out_of_range_is_an_index_error(index: int, tiny: drt.CachedDataset) -> None:
    with pytest.raises(IndexError) as refused:
        tiny[index]
    assert isinstance(refused.value, drt.SampleIndexError)


@pytest.mark.parametrize(
    "index", [True, np.True_, 1.0, np.float64(1), "label", None, [1, 2], (1, 2), np.array([1, 2])], ids=typed
)
def test_other_indices_are_refused_with_the_cure(index: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"take\(\)"):
        tiny[index]


@settings(deadline=None)
@given(
    start=st.none() | st.integers(-120, 120) | st.integers(),
    stop=st.none() | st.integers(-120, 120) | st.integers(),
    step=st.none() | st.integers(-120, 120).filter(bool) | st.integers().filter(bool),
)
def test_a_slice_is_the_slice_of_a_list(start: int | None, stop: int | None, step: int | None) -> None:
    part = opened()[start:stop:step]
    assert isinstance(part, drt.CachedDataset)
    assert [part[row].sample_id for row in range(len(part))] == list(range(100))[start:stop:step]


_OPENED: list[drt.CachedDataset] = []


def opened() -> drt.CachedDataset:
    """One dataset for all examples of a property: a fixture would be made once too, but Hypothesis warns."""
    if not _OPENED:
        import tempfile

        root = tempfile.mkdtemp()
        _OPENED.append(drt.cache(RowSource("s", ROWS), root, config=drt.WriterConfig(progress=False)))
    return _OPENED[0]


def test_a_slice_of_a_slice_is_a_view_of_the_same_samples(tiny: drt.CachedDataset) -> None:
    assert numbers(tiny[10:50][::-2][3:5]) == list(range(10, 50))[::-2][3:5]
    assert len(tiny) == 100


def test_head_takes_what_is_there(tiny: drt.CachedDataset) -> None:
    assert numbers(tiny.head()) == [0, 1, 2, 3, 4]
    assert len(tiny.head(1000)) == 100
    for n in (-1, True, 2.0):
        with pytest.raises(drt.InvalidInputError, match="n = "):
            tiny.head(n)  # type: ignore[arg-type]


# Taking


@pytest.mark.parametrize(
    "indices",
    [
        [5, 3, 3, -1],
        (5, 3, 3, 99),
        np.array([5, 3, 3, 99]),
        np.array([5, 3, 3, 99], np.uint8),
        pl.Series([5, 3, 3, 99]),
        [np.int64(5), 3, 3, 99],
    ],
    ids=["list", "tuple", "int64", "uint8", "series", "mixed"],
)
def test_take_accepts_rows_in_any_form(indices: Any, tiny: drt.CachedDataset) -> None:
    assert tiny.take(indices).sample_ids.tolist() == [5, 3, 3, 99]


@pytest.mark.parametrize(
    "indices",
    [
        *([True, False], [1, True], np.zeros(100, bool), [1.0], np.array([1.5]), ["1"], "12", b"34", {1, 2}),
        *(3, None, [[1, 2]], [[1], [2, 3]], np.zeros((2, 2), int), np.array(3), [None], {1: 2}, repeat(0)),
        np.broadcast_to(np.int64(0), (10**13,)),
    ],
)
def test_take_refuses_what_is_no_row(indices: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError) as refused:
        tiny.take(indices)
    assert "\n" not in str(refused.value)


def test_take_of_a_row_that_is_not_there_is_an_index_error(tiny: drt.CachedDataset) -> None:
    # None of them becomes a list, or rows, before it is looked at.
    absent = ([0, 100], [-101], [2**63], [2**64], [10**5000], range(99, 101))
    # As int64 these are rows.
    wrapped = [np.array([number], dtype) for number in (2**63, 2**64 - 1) for dtype in ("<u8", ">u8")]
    for indices in (*absent, *wrapped, range(10**12), range(-(10**12), 0), range(0, 10**30, 10**29), count()):
        with pytest.raises((drt.SampleIndexError, drt.InvalidInputError)) as refused:
            tiny.take(indices)
        assert isinstance(refused.value, drt.SampleIndexError) == (not isinstance(indices, count))
        assert "\n" not in str(refused.value)


def test_take_accepts_ranges_both_ways(tiny: drt.CachedDataset) -> None:
    for rows in (range(3), range(99, -1, -7), range(-3, 0), range(5, 5)):
        assert tiny.take(rows).indices.tolist() == [row % 100 for row in rows]


def test_take_of_no_rows_is_an_empty_batch(tiny: drt.CachedDataset) -> None:
    assert len(tiny.take([])) == 0


# The active table


def test_the_table_has_its_columns_in_order(tiny: drt.CachedDataset) -> None:
    frame = tiny.metadata
    assert frame.columns == ["cache_id", "sample_id", "label", "split", "score", "even", "weight"]
    assert frame["label"].to_list() == [metadata["label"] for _, metadata in ROWS]
    assert frame["weight"].to_list() == [1.0] * 100


EDITS: dict[str, Callable[[pl.DataFrame], object]] = {
    "item": lambda frame: frame.__setitem__((0, "label"), 7),
    "column": lambda frame: frame.__setitem__(["label", "score"], np.ones((100, 2))),
    "drop": lambda frame: frame.drop_in_place("split"),
    "names": lambda frame: setattr(frame, "columns", list("abcdefg")),
    "extend": lambda frame: frame.extend(frame.clone()),
    "vstack": lambda frame: frame.vstack(frame.clone(), in_place=True),
    "replace": lambda frame: frame.replace_column(2, pl.Series("label", [7] * 100)),
    "insert": lambda frame: frame.insert_column(0, pl.Series("first", [7] * 100)),
    "hstack": lambda frame: frame.hstack([pl.Series("last", [7] * 100)], in_place=True),
    "scatter": lambda frame: frame["label"].scatter([0], 7),
    "append": lambda frame: frame["label"].append(pl.Series("label", [7])),
    "sort": lambda frame: frame["label"].sort(in_place=True),
    "array": lambda frame: frame["score"].to_numpy(writable=True).fill(7),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_table_that_is_edited_in_place_leaves_the_dataset_alone(edit: str, tiny: drt.CachedDataset) -> None:
    before = tiny.metadata.to_dicts()
    EDITS[edit](tiny.metadata)
    assert tiny.metadata.to_dicts() == before
    assert numbers(tiny.filter(label=7)) == list(range(7, 100, 10))
    assert tiny.with_weights(pl.col("score") + 1).metadata["weight"].to_list() == [
        number / 8 + 1 for number in range(100)
    ]


PREDICATES: dict[str, tuple[Any, ...]] = {
    "none": (),
    "true": (True,),
    "comparison": (pl.col("label") > 6,),
    "name of a column": ("even",),
    "several": (pl.col("label") > 2, "even", pl.col("score") < 9),
    "list of expressions": ([pl.col("label") > 2, pl.col("even")],),
    "nulls": (pl.when(pl.col("label") > 5).then(True),),
    "aggregate": (pl.col("label").sum() > 3,),
    "window": (pl.col("score") == pl.col("score").max().over("label"),),
    "ranked": (pl.col("score").rank("ordinal", descending=True).over("split") <= 3,),
    "shifted": (pl.col("label") > pl.col("label").shift(1),),
    "sorted": (pl.col("label").sort() > 6,),
    "place": (pl.int_range(pl.len()) % 3 == 1,),
    "first column": (pl.first() == pl.col("cache_id").first(), pl.col("label") == 3),
    "last column": (pl.last() == 1.0, pl.col("label") == 3),
    "nth column": (pl.nth(1) < 10,),
    "nth column from the end": (pl.nth(-2),),
    "selector": (~pl.any_horizontal(cs.numeric() == 3),),
    "boolean selector": (cs.boolean(),),
    "all columns": (pl.all_horizontal(pl.all().is_not_null()), pl.col("label") == 2),
    "struct": (pl.struct(pl.all()).struct.field("label") == 2,),
    "mask": (np.arange(100) % 7 == 0,),
    "mask as list": ([number % 7 == 0 for number in range(100)],),
    "mask as series": (pl.Series([number % 7 == 0 for number in range(100)]),),
    "masks and expression": (np.arange(100) % 7 == 0, pl.Series(np.arange(100) < 50), pl.col("even")),
    "function": (pl.col("label").map_batches(lambda labels: labels == 4, return_dtype=pl.Boolean),),
}


@pytest.mark.parametrize("which", PREDICATES)
def test_a_filter_is_what_polars_makes_of_the_table(which: str, tiny: drt.CachedDataset) -> None:
    given = PREDICATES[which]
    extra = tiny.metadata.with_columns(row=pl.lit("u"), weight=pl.col("label") + 1.0)
    for ds in (tiny, tiny.with_metadata(tiny.metadata.reverse()), tiny.with_metadata(extra[::-3])):
        if len(ds) != 100 and ("mask" in which or "last" in which or "end" in which):
            continue  # They fit the stored rows and columns alone.
        table = ds.metadata.filter(*given) if given else ds.metadata  # Polars 1.22 refuses none
        if table.is_empty():
            continue
        expected = ds.with_metadata(table)
        found = ds.filter(*given)
        assert found.metadata.equals(table)
        assert numbers(found) == numbers(expected)
        assert found.fingerprint == expected.fingerprint


@pytest.mark.parametrize("kind", [iter, list, lambda mask: (kept for kept in mask), pl.Series, np.array])
def test_a_mask_is_one_however_it_comes(kind: Any, tiny: drt.CachedDataset) -> None:
    mask = [number % 3 == 0 for number in range(100)]
    expected = tiny.metadata.filter(kind(mask))
    assert tiny.filter(kind(mask)).metadata.equals(expected)
    assert numbers(tiny.filter(kind(mask), pl.col("label") > 2)) == [
        number for number in range(0, 100, 3) if number % 10 > 2
    ]
    assert len(tiny.filter(kind([True] * 100))) == 100


def test_a_filter_takes_a_generator_once(tiny: drt.CachedDataset) -> None:
    found = tiny.filter(expression for expression in (pl.col("label") > 2, pl.col("even")))
    assert numbers(found) == [number for number in range(0, 100, 2) if number % 10 > 2]


@pytest.mark.parametrize(
    "predicate",
    [pl.col("row") < 2, pl.col("label"), pl.lit(1), [True, False], None, pl.col("even").head(3), []],
    ids=["no column", "numbers", "number", "short mask", "none", "short expression", "nothing"],
)
def test_what_polars_refuses_comes_through_unchanged(predicate: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever it is
        tiny.metadata.filter(predicate)
    with pytest.raises(type(theirs.value)) as ours:
        tiny.filter(predicate)
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value)


def test_a_column_without_values_needs_no_type(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    rows = [(b"x", {"name": None, "count": None, "score": None, "good": None, "n": n}) for n in range(3)]
    schema = {"name": str, "count": int, "score": float, "good": bool, "n": int}
    ds = drt.cache(RowSource("s", rows, schema=schema), tmp_path, config=quiet)
    untyped = pl.DataFrame(ds.metadata.to_dicts(), infer_schema_length=None).with_columns(note=None)
    assert untyped.schema["name"] == untyped.schema["count"] == pl.Null
    view = ds.with_metadata(untyped)
    assert view.metadata.drop("note").equals(ds.metadata)
    assert view.metadata.schema["note"] == pl.String
    assert view[1].metadata == {**ds[1].metadata, "note": None}
    assert untyped.schema["note"] == pl.Null, "the user's own table stays as it is"
    with pytest.raises(drt.InvalidInputError, match="weight"):
        ds.with_metadata(ds.metadata.with_columns(weight=None))


NUL_COLUMNS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "column": lambda frame: frame.with_columns(pl.lit(1).alias("a\0b")),
    "field": lambda frame: frame.with_columns(x=pl.struct(pl.lit(1).alias("a\0b"))),
    "field in a list": lambda frame: frame.with_columns(x=pl.concat_list(pl.struct(pl.lit(1).alias("a\0b")))),
    "arrow": lambda frame: frame.to_arrow().append_column("a\0b", frame.to_arrow()["label"]),
    "arrow batch": lambda frame: (
        frame.to_arrow().append_column("a\0b", frame.to_arrow()["label"]).to_batches()[0]
    ),
}


@pytest.mark.parametrize("which", NUL_COLUMNS)
def test_a_name_with_a_nul_is_refused_before_it_is_passed_on(which: str, tiny: drt.CachedDataset) -> None:
    # Polars ends the process where it exports such a name.
    with pytest.raises(drt.InvalidInputError, match="NUL"):
        tiny.with_metadata(NUL_COLUMNS[which](tiny.metadata))


class Streaming:
    """An object with the method of a table."""

    def __init__(self, stream: Callable[[], object]) -> None:
        self.stream = stream

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.stream()


def consumed(frame: pl.DataFrame) -> Any:
    reader = frame.to_arrow().to_reader()
    reader.read_all()
    return reader


def released(frame: pl.DataFrame) -> Any:
    capsule = frame.__arrow_c_stream__(None)
    pl.DataFrame(Streaming(lambda: capsule))
    return Streaming(lambda: capsule)


TABLES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "lazy frame": lambda frame: frame.lazy(),
    "series": lambda frame: frame["label"],
    "consumed": consumed,
    "released": released,
    "no capsule": lambda frame: Streaming(lambda: 5),
    "another capsule": lambda frame: Streaming(lambda: frame.to_arrow().schema.__arrow_c_schema__()),
    "no method": lambda frame: type("Table", (), {"__arrow_c_stream__": 5})(),
    "arrow array": lambda frame: frame.to_arrow()["label"],
    "wide integers": lambda frame: frame.with_columns(x=pl.lit(1).cast(pl.Int128)),
    "object": lambda frame: object(),
    "class": lambda frame: pl.DataFrame,
}


@pytest.mark.parametrize("which", TABLES)
def test_what_is_no_table_is_refused_in_one_line(which: str, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError) as refused:
        tiny.with_metadata(TABLES[which](tiny.metadata))
    assert "\n" not in str(refused.value)


def test_what_a_table_itself_raises_comes_back(tiny: drt.CachedDataset) -> None:
    error = RuntimeError("no stream")

    def fail() -> object:
        raise error

    with pytest.raises(RuntimeError) as raised:
        tiny.with_metadata(Streaming(fail))
    assert raised.value is error


def test_masked_arrays_tell_no_hidden_numbers(tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="indices have 1 masked"):
        tiny.take(np.ma.array([1, 2], mask=[False, True]))
    with pytest.raises(drt.InvalidInputError, match="weights have 100 masked"):
        tiny.with_weights(np.ma.array(np.ones(100), mask=True))
    assert tiny.take(np.ma.array([1, 2])).sample_ids.tolist() == [1, 2]


def test_a_filter_keeps_weights_and_extra_columns(tiny: drt.CachedDataset) -> None:
    edited = tiny.with_metadata(
        tiny.metadata.with_columns(weight=pl.col("sample_id") + 1.0, note=pl.lit("x"))
    )
    some = edited.filter(pl.col("label") == 3, pl.col("score") > 2)
    assert numbers(some) == [number for number in range(100) if number % 10 == 3 and number / 8 > 2]
    assert some.metadata["weight"].to_list() == [number + 1.0 for number in numbers(some)]
    assert some.metadata["note"].unique().to_list() == ["x"]
    # The table of a filtered view is what the native side has, too.
    assert some.metadata.equals(some[:].metadata)


def test_filters_chain_and_take_constraints_and_masks(tiny: drt.CachedDataset) -> None:
    assert numbers(tiny.filter(split="val").filter(pl.col("even"))) == list(range(0, 100, 10))
    assert numbers(tiny.filter(np.arange(100) < 3)) == [0, 1, 2]
    assert numbers(tiny[::-1].filter(pl.col("sample_id") < 3)) == [2, 1, 0]


def test_a_filter_works_with_a_column_named_row(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    rows: Any = [(b"", {"row": number * 10, "row_": 0}) for number in range(5)]
    ds = drt.cache(RowSource("s", rows), tmp_path, config=quiet)
    kept = ds.filter(pl.col("row") >= 30)
    assert kept.metadata.columns == ds.metadata.columns
    assert [sample.metadata["row"] for sample in kept] == [30, 40]


def test_a_filter_that_leaves_nothing_is_refused(tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="none of 100 rows") as refused:
        tiny.filter(pl.col("label") > 99)
    assert refused.value.kind == "empty"


def test_an_unknown_column_is_polars_own_error(tiny: drt.CachedDataset) -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="labell"):
        tiny.filter(pl.col("labell") == 1)


def test_other_tables_are_refused_with_the_cure(tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"LazyFrame; call collect\(\) first"):
        tiny.with_metadata(tiny.metadata.lazy())  # type: ignore[arg-type]
    with pytest.raises(drt.InvalidInputError, match="dict; give a Polars DataFrame"):
        tiny.with_metadata({})  # type: ignore[arg-type]


def test_arrow_tables_of_others_are_accepted(tiny: drt.CachedDataset) -> None:
    arrow = tiny.metadata[3:6].to_arrow()
    assert numbers(tiny.with_metadata(arrow)) == [3, 4, 5]


def test_empty_parts_of_arrow_tables_are_no_rows(tiny: drt.CachedDataset) -> None:
    (whole,) = tiny.metadata.to_arrow().combine_chunks().to_batches()
    parts = [whole.slice(at, length) for at, length in [(0, 5), (5, 0), (5, 3), (100, 0)]]
    for table in (pa.Table.from_batches(parts), pa.RecordBatchReader.from_batches(whole.schema, parts)):
        assert numbers(tiny.with_metadata(table)) == list(range(8))
    with pytest.raises(drt.InvalidInputError) as raised:
        tiny.with_metadata(pa.Table.from_batches(parts[1:2]))
    assert raised.value.kind == "empty"


def test_what_a_reader_raises_is_told_in_one_line(tiny: drt.CachedDataset) -> None:
    (whole,) = tiny.metadata.to_arrow().combine_chunks().to_batches()

    def batches() -> Iterator[pa.RecordBatch]:
        yield whole.slice(0, 5)
        raise KeyError("in the middle")

    reader = pa.RecordBatchReader.from_batches(whole.schema, batches())
    with pytest.raises(drt.InvalidInputError, match="KeyError: 'in the middle'") as raised:
        tiny.with_metadata(reader)
    assert len(str(raised.value)) < 200


# Weights

EXPECTED = [number % 10 + 1.0 for number in range(100)]


@pytest.mark.parametrize(
    "weights",
    [
        pl.col("label") + 1,
        pl.Series(EXPECTED),
        pl.Series([int(weight) for weight in EXPECTED]),
        np.array(EXPECTED),
        np.array(EXPECTED, np.float32),
        np.array(EXPECTED, np.int8),
        EXPECTED,
    ],
    ids=["expression", "series", "int-series", "float64", "float32", "int8", "list"],
)
def test_weights_come_in_all_forms(weights: Any, tiny: drt.CachedDataset) -> None:
    weighted = tiny.with_weights(weights)
    assert weighted.metadata["weight"].to_list() == EXPECTED
    assert tiny.metadata["weight"].to_list() == [1.0] * 100


def test_weights_can_be_a_column_or_a_constant(tiny: drt.CachedDataset) -> None:
    assert tiny[1:].with_weights("score").metadata["weight"].to_list() == [
        number / 8 for number in range(1, 100)
    ]
    assert tiny.with_weights(pl.lit(2)).metadata["weight"].to_list() == [2.0] * 100


@pytest.mark.parametrize(
    "weights",
    [
        [1.0] * 99,
        np.ones((100, 1)),
        2.0,
        ["1"] * 100,
        [True] * 100,
        [None] * 100,
        "split",
        "score",
        [0.0] + [1.0] * 99,
        [float("nan")] * 100,
        [float("inf")] * 100,
        pl.when(pl.col("label") > 3).then(1.0),
    ],
    ids=[
        *("short", "shape", "scalar", "text", "bool", "none", "text-column", "zero-in-column"),
        *("zero", "nan", "infinite", "null"),
    ],
)
def test_other_weights_are_refused(weights: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError):
        tiny.with_weights(weights)


# Provenance


def test_a_dataset_says_where_it_comes_from(tiny: drt.CachedDataset, tiny_folder: Path) -> None:
    (cache,) = tiny.caches
    assert (cache.path, cache.name, cache.sample_count) == (tiny_folder, "tiny", 100)
    assert cache.payload_bytes == sum(len(data) for data, _ in ROWS)
    assert (cache.fingerprint, cache.codec, cache.compression) == (None, None, "none")
    assert tiny.schema == {"label": int, "split": str, "score": float, "even": bool}
    assert tiny.codec is None
    assert tiny.config == drt.ReaderConfig()


def test_a_schema_is_one_that_a_source_can_declare(tiny: drt.CachedDataset, tmp_path: Path) -> None:
    again = drt.cache(
        RowSource("s", ROWS, schema=tiny.schema), tmp_path, config=drt.WriterConfig(progress=False)
    )
    assert again.schema == tiny.schema


def test_the_codec_of_the_source_is_recorded(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    ds = drt.cache(RowSource("s", ROWS, codec=drt.codecs.Json()), tmp_path, config=quiet)
    assert ds.codec == "json"
    assert ds.caches[0].codec == "json"


def test_fingerprints_follow_rows_order_and_weights(tiny: drt.CachedDataset) -> None:
    views = [tiny, tiny[1:], tiny[::-1], tiny.with_weights([2.0] * 100), tiny.take]
    prints = [view.fingerprint for view in views[:4] if isinstance(view, drt.CachedDataset)]
    assert len(set(prints)) == 4
    assert tiny[:].fingerprint == tiny.fingerprint


def test_a_sound_cache_verifies(tiny: drt.CachedDataset) -> None:
    report = tiny.verify()
    assert report.ok
    assert (report.caches, report.samples, report.problems) == (1, 100, ())
    assert str(report) == "1 cache with 100 samples: no problem"


def test_a_report_of_problems_is_readable() -> None:
    problem = drt.Problem("record-checksum", "shard 0 record 3: checksum differs", "p", 0, 99, 3)
    report = drt.VerifyReport((problem, problem), caches=2, samples=5_000)
    assert not report.ok
    assert str(report).splitlines() == [
        "2 caches with 5,000 samples: 2 problems",
        "  record-checksum: shard 0 record 3: checksum differs",
        "  record-checksum: shard 0 record 3: checksum differs",
    ]


def test_repr_is_one_line_that_helps(tiny: drt.CachedDataset) -> None:
    assert repr(tiny) == (
        "CachedDataset(100 samples of 'tiny', columns {label: int, split: str, score: float, even: bool})"
    )


# Opening


@pytest.mark.parametrize("paths", [3, None, [], [3], b"bytes"], ids=typed)
def test_paths_are_paths(paths: Any) -> None:
    with pytest.raises(drt.InvalidInputError):
        drt.open_dataset(paths)


def test_a_config_is_a_reader_config(tiny_folder: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match="config is a WriterConfig; give a ReaderConfig"):
        drt.open_dataset(tiny_folder, config=drt.WriterConfig())  # type: ignore[arg-type]


def test_paths_may_be_text_and_several(tiny_folder: Path) -> None:
    assert len(drt.open_dataset(str(tiny_folder))) == 100
    other = drt.testing.tiny_dataset(5)
    assert len(drt.open_dataset(path for path in [other.caches[0].path])) == 5


# Iterating


def test_iterating_gives_the_rows_of_the_view(tiny: drt.CachedDataset) -> None:
    assert numbers(tiny) == list(range(100))
    assert numbers(tiny[::-3]) == list(range(100))[::-3]
    assert list(tiny[:0]) == []


def test_iterations_do_not_disturb_each_other(tiny: drt.CachedDataset) -> None:
    pairs = list(zip(tiny, tiny, strict=True))
    assert all(left == right for left, right in pairs)
    first = iter(tiny)
    next(first)
    del first


# Pickling


def test_a_pickled_dataset_is_the_same_view(tiny: drt.CachedDataset) -> None:
    view = tiny.with_weights(EXPECTED)[10:50].filter(pl.col("even"))
    again = pickle.loads(pickle.dumps(view))
    assert numbers(again) == numbers(view)
    assert again.fingerprint == view.fingerprint
    assert again.metadata.equals(view.metadata)


def test_a_recipe_is_small(tiny: drt.CachedDataset) -> None:
    assert len(pickle.dumps(tiny)) < 1000


def test_unpickling_reads_nothing_until_first_use(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    ds = drt.cache(RowSource("s", ROWS), tmp_path, config=quiet)
    blob = pickle.dumps(ds)
    shutil.move(tmp_path / "s", tmp_path / "away")
    lazy = pickle.loads(blob)
    assert repr(lazy) == "CachedDataset(of 's', not opened yet)"
    assert pickle.loads(pickle.dumps(lazy)) is not lazy, "it pickles without being opened"
    with pytest.raises(drt.CacheNotFoundError):
        len(lazy)
    shutil.move(tmp_path / "away", tmp_path / "s")
    assert len(lazy) == 100


def test_a_recipe_refuses_another_cache(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    blob = pickle.dumps(drt.cache(RowSource("s", ROWS), tmp_path, config=quiet))
    shutil.rmtree(tmp_path / "s")
    drt.cache(RowSource("s", ROWS[:50]), tmp_path, config=quiet)
    with pytest.raises(drt.StaleCacheError):
        pickle.loads(blob)[0]


def test_config_and_reports_travel(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    drt.cache(RowSource("s", ROWS), tmp_path, config=quiet)
    ds = drt.open_dataset(tmp_path / "s", config=drt.ReaderConfig(max_open_shards=3))
    assert pickle.loads(pickle.dumps(ds[1:])).config == ds.config
    written = drt.cache(RowSource("s", ROWS), tmp_path, config=quiet)
    assert pickle.loads(pickle.dumps(written[1:])).reports == written.reports != ()


def test_copies_are_the_dataset_itself(tiny: drt.CachedDataset) -> None:
    assert copy.copy(tiny) is tiny
    assert copy.deepcopy({"ds": tiny})["ds"] is tiny


def test_views_have_no_attributes_to_set(tiny: drt.CachedDataset) -> None:
    for name in ("fingerprint", "config", "anything"):
        with pytest.raises(AttributeError):
            setattr(tiny, name, 1)


# Processes and threads


def test_reading_does_not_import_polars(tiny_folder: Path) -> None:
    code = f"""
import sys, pickle, datasetrt as drt
ds = drt.open_dataset({str(tiny_folder)!r})
ds.head(3)[0], ds[1:5].take([0]), len(list(ds)), repr(ds), ds.with_weights([1.0] * 100)
loader = ds.loader(batch_size=8, sampler=drt.Shuffle(seed=1), transform=lambda sample: sample.metadata)
list(loader), loader.state_dict(), pickle.loads(pickle.dumps(ds))[0]
assert "polars" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_several_threads_share_a_dataset(tiny: drt.CachedDataset) -> None:
    lazy = pickle.loads(pickle.dumps(tiny))
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(numbers(lazy[::-1]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [list(range(100))[::-1]] * 8


@pytest.mark.parametrize("sample_id", [-1, 2**64, 10**5000], ids=["negative", "wide", "huge"])
def test_a_sample_has_an_id_of_64_bits(sample_id: int) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"sample_id = .* is out of range; give"):
        drt.CachedSample(b"", {}, "", sample_id)


def test_a_sample_does_not_change_with_the_dict_it_was_made_of() -> None:
    given = {"a": 1}
    sample = drt.CachedSample(b"", given, "", 0)
    given["a"] = 2
    assert sample.metadata == {"a": 1}


def test_weights_in_no_row_are_refused(tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="give one number a row"):
        tiny.with_weights([[1.0], [2.0, 3.0]])


def test_a_view_is_decoded_with_the_codec_of_its_rows(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    json, msgpack = drt.codecs.Json(), drt.codecs.Msgpack()
    sources = [
        RowSource(name, [(codec.dumps([n]), {"n": n}) for n in range(3)], codec=codec)
        for name, codec in (("j", json), ("m", msgpack))
    ]
    both = drt.cache(sources, tmp_path, config=quiet)
    assert both.codec is None
    assert (both[:3].codec, both[3:].codec, both[1:2].codec) == ("json", "msgpack", "json")
    assert both.take([0, 3]).indices.tolist() == [0, 3]
    first = both.filter(cache_id=both.caches[0].cache_id)
    assert list(first.loader(batch_size=3, transform=json)) == [[[0], [1], [2]]]
    assert list(both[::-1][:3].loader(batch_size=None, transform=msgpack)) == [[2], [1], [0]]
    for codec in (json, msgpack):
        with pytest.raises(
            drt.CodecError, match=r"codecs 'json' and 'msgpack'.*filter the rows of one cache"
        ):
            both.loader(transform=codec)
    with pytest.raises(drt.CodecError, match=r"written with codec 'json' .* 'msgpack'; decode with"):
        both[:3].loader(transform=msgpack)
    assert both[:0].codec is None


def test_dictionaries_of_numbers_are_delivered_as_numbers(tiny: drt.CachedDataset) -> None:
    columns = {
        "int": pa.array([2**40, None] * 50),
        "unsigned": pa.array([2**63 - 1, 0] * 50, pa.uint64()),
        "float": pa.array([0.5, -0.0] * 50),
        "bool": pa.array([True, False] * 50),
        "text": pa.array(["a", None] * 50),
    }
    table = pa.table(tiny.metadata)
    for name, column in columns.items():
        table = table.append_column(name, column.dictionary_encode())
    ds = tiny.with_metadata(table)
    for row in range(2):
        found = {name: ds[row].metadata[name] for name in columns}
        assert repr(found) == repr({name: column[row].as_py() for name, column in columns.items()})
    # What is shown says the same, so that giving it back changes nothing.
    assert ds.with_metadata(ds.metadata).fingerprint == ds.fingerprint
    too_large = table.append_column("more", pa.array([2**63] * 100, pa.uint64()).dictionary_encode())
    with pytest.raises(drt.InvalidInputError, match="does not fit in int64"):
        tiny.with_metadata(too_large)


def test_stored_columns_may_come_as_dictionaries(tiny: drt.CachedDataset) -> None:
    table = pa.table(tiny.metadata)
    for number, name in enumerate(table.column_names):
        encoded = table[name].combine_chunks().dictionary_encode()
        table = table.set_column(number, name, encoded)
    ds = tiny.with_metadata(table)
    assert ds.fingerprint == tiny.fingerprint
    assert ds[3] == tiny[3]
    nothing = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array([None], pa.null()))
    ds = tiny.with_metadata(table.append_column("nothing", nothing))
    assert ds.metadata["nothing"].dtype == pl.String
    assert ds[0].metadata["nothing"] is None
    assert ds.with_metadata(ds.metadata).fingerprint == ds.fingerprint


REFUSED_TYPES = [
    pa.decimal32(5, 2),
    pa.decimal64(10, 2),
    pa.decimal256(50, 2),
    pa.decimal128(5, -2),
    pa.decimal128(5, 7),
    pa.list_(pa.int8(), 0),
    pa.binary(0),
    pa.list_(pa.null()),
    pa.struct([("x", pa.null())]),
    pa.dictionary(pa.int8(), pa.decimal32(5, 2)),
    pa.map_(pa.string(), pa.decimal256(3, 0)),
    pa.list_view(pa.int8()),
    pa.month_day_nano_interval(),
]


@pytest.mark.parametrize("type_", REFUSED_TYPES, ids=str)
def test_types_that_polars_lacks_are_refused(type_: pa.DataType, tiny: drt.CachedDataset) -> None:
    column = pa.nulls(100, type_)
    with pytest.raises(drt.InvalidInputError, match=r"column 'e' has type .*, which a table cannot keep"):
        tiny.with_metadata(pa.table(tiny.metadata).append_column("e", column))


def test_nested_columns_that_begin_within_their_buffers_are_no_panic(tiny: drt.CachedDataset) -> None:
    inner = pa.array([{"a": number} for number in range(100)])
    column = pa.StructArray.from_arrays([inner], ["x"])
    table = pa.table(tiny.metadata).append_column("e", column)
    assert len(tiny.with_metadata(table)) == 100
    with pytest.raises(drt.InvalidInputError, match=r"pl.DataFrame\(table\)"):
        tiny.with_metadata(table.slice(2))
    kept = tiny.with_metadata(pl.DataFrame(table.slice(2)))
    assert kept.metadata["e"].to_list()[0] == {"x": {"a": 2}}


KEPT_TYPES = [
    pa.decimal128(38, 2),
    pa.decimal128(5, 5),
    pa.float16(),
    pa.binary(2),
    pa.binary_view(),
    pa.date64(),
    pa.time32("s"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.duration("s"),
    pa.list_(pa.int8(), 2),
    pa.large_list(pa.list_(pa.string())),
    pa.struct([("x", pa.date32())]),
    pa.list_(pa.dictionary(pa.int8(), pa.string())),
]


@pytest.mark.parametrize("type_", KEPT_TYPES, ids=str)
def test_types_that_polars_has_are_kept(type_: pa.DataType, tiny: drt.CachedDataset) -> None:
    column = pa.nulls(100, type_)
    ds = tiny.with_metadata(pa.table(tiny.metadata).append_column("e", column))
    assert ds.metadata["e"].null_count() == 100
    again = ds.with_metadata(ds.metadata).filter(split="train")
    assert again.metadata["e"].null_count() == len(again)


def test_weights_that_are_no_column_are_refused(tiny: drt.CachedDataset) -> None:
    for weights in (pl.DataFrame({"a": [1]}), pl.LazyFrame({"a": [1]}), pl.Int64):
        with pytest.raises(
            drt.InvalidInputError, match="give an expression, a column, or one number"
        ) as refused:
            tiny.with_weights(weights)  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)


def test_take_iterates_over_its_rows_once(tiny: drt.CachedDataset) -> None:
    class Once(list[int]):
        def __iter__(self) -> Iterator[int]:
            found = [*super().__iter__()]
            self.clear()
            return iter(found)

    assert np.ma.masked is not None, "numpy.ma is loaded: lists are searched for what it masks"
    assert tiny.take(Once([5, 3])).indices.tolist() == [5, 3]


def test_a_link_that_leads_to_itself_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(drt.StorageError, match="leads nowhere or in a circle"):
        drt.open_dataset(tmp_path / "loop")
