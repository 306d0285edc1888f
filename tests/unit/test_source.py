"""What a source says about itself is read once, and wrong attributes are refused by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import datasetrt as drt
from datasetrt.source import Description


class Source:
    """A source with whatever attributes a test gives it."""

    def __init__(self, name: object = "s", **attributes: object) -> None:
        self.name = name
        self.__dict__.update(attributes)

    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput(b"", {})


def describe(source: Any) -> Description:
    return Description.of(source)


def test_optional_attributes_may_be_absent() -> None:
    assert describe(Source()) == Description("s", None, None, None, None)


def test_optional_attributes_are_read() -> None:
    source = Source("s", fingerprint="v1", codec=drt.codecs.Json(), schema={"a": int, "b": pl.String})
    assert describe(source) == Description("s", "v1", "json", [("a", "int64"), ("b", "string")], None)


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        *((bool, "bool"), (int, "int64"), (float, "float64"), (str, "string")),
        *((pl.Boolean, "bool"), (pl.Int64, "int64"), (pl.Float64, "float64"), (pl.String, "string")),
        *((pl.Boolean(), "bool"), (pl.Int64(), "int64"), (pl.Float64(), "float64"), (pl.String(), "string")),
    ],
)
def test_schema_takes_python_and_polars_types(declared: object, stored: str) -> None:
    assert describe(Source(schema={"x": declared})).schema == [("x", stored)]


@pytest.mark.parametrize("declared", [bytes, pl.Int32, pl.Date(), "int", None, 3, list[int], np.int64])
def test_other_types_are_refused_by_column(declared: object) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"source 's': schema declares column 'x' as .*pl\.Int64"):
        describe(Source(schema={"x": declared}))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Source(name=3), ["3", "str"]),
        (Source(name=None), ["name"]),
        (Source(fingerprint=b"v1"), ["'s'", "fingerprint", "b'v1'", "str"]),
        (Source(codec=3), ["'s'", "codec", "3"]),
        (Source(schema=["a"]), ["'s'", "schema", "list", "dict"]),
        (Source(schema={1: int}), ["'s'", "1", "str"]),
        (drt.CacheInput(b"", {}), ["CacheInput", "name"]),
    ],
)
def test_wrong_attributes_are_refused(source: object, words: list[str]) -> None:
    with pytest.raises(drt.InvalidInputError) as refusal:
        describe(source)
    for word in words:
        assert word in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_something_named_that_cannot_be_iterated_is_refused() -> None:
    class Named:
        name = "n"

    with pytest.raises(drt.InvalidInputError, match="'n' cannot be iterated"):
        describe(Named())


def test_a_length_is_the_total_and_a_wrapped_none_is_none() -> None:
    class Sized(Source):
        def __len__(self) -> int:
            return 7

    class Wraps(Source):
        def __len__(self) -> int:
            return len(3)  # type: ignore[arg-type]

    assert describe(Sized()).total == 7
    assert describe(Wraps()).total is None


def test_describing_a_source_does_not_import_polars() -> None:
    code = (
        "import sys, datasetrt as drt\n"
        "from datasetrt.source import Description\n"
        "Description.of(drt.MapSource('m', [1], print, schema={'a': int}))\n"
        "assert 'polars' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_map_source_runs_in_this_process_when_it_is_iterated() -> None:
    def some(item: int) -> Any:
        choices: list[Any] = [
            None,
            drt.CacheInput(b"one", {"i": item}),
            [drt.CacheInput(b"a", {"i": item}), drt.CacheInput(b"b", {"i": item})],
            (drt.CacheInput(b"c", {"i": item}) for _ in range(2)),
            [],
        ]
        return choices[item]

    source = drt.MapSource("m", range(5), some)
    assert [bytes(sample.data) for sample in source] == [b"one", b"a", b"b", b"c", b"c"]
    assert [sample.metadata["i"] for sample in source] == [1, 2, 2, 3, 3]


@pytest.mark.parametrize("items", [{"a": 1}, {1, 2}, iter([1]), "text", b"bytes", 3, None])
def test_items_have_to_be_a_sequence(items: Any) -> None:
    with pytest.raises(drt.InvalidInputError, match=f"items is an? .*{type(items).__name__}"):
        drt.MapSource("m", items, print)


def test_arrays_and_own_sequences_are_sequences() -> None:
    class Squares:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            return index * index

    def sample(item: int) -> drt.CacheInput:
        return drt.CacheInput(b"", {"i": int(item)})

    for items in (np.array([0, 1, 4]), Squares()):
        assert [each.metadata["i"] for each in drt.MapSource("m", items, sample)] == [0, 1, 4]


def test_the_function_has_to_be_callable() -> None:
    with pytest.raises(drt.InvalidInputError, match="fn is 3, which cannot be called"):
        drt.MapSource("m", [1], 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("result", [3, "text", b"bytes", {"data": b""}, (b"", {}), [b""]])
def test_a_function_that_gives_no_samples_is_refused_by_item(result: Any) -> None:
    source = drt.MapSource("m", [1, 2], lambda item: result if item == 2 else None)
    with pytest.raises(drt.InvalidInputError, match=r"gave an? \w+ for item 1; return CacheInput"):
        list(source)


def test_what_function_and_sequence_raise_is_the_same_object_with_the_item() -> None:
    boom = ZeroDivisionError("boom")

    def fail(item: int) -> None:
        if item == 2:
            raise boom

    with pytest.raises(ZeroDivisionError) as caught:
        list(drt.MapSource("m", [0, 1, 2], fail))
    assert caught.value is boom
    assert boom.__notes__ == ["while item 2 of source 'm' was being processed"]

    class Broken:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            raise boom

    with pytest.raises(ZeroDivisionError):
        list(drt.MapSource("m", Broken(), fail))
    assert boom.__notes__[-1] == "while item 0 of source 'm' was being looked up"


def test_stop_iteration_does_not_end_the_data() -> None:
    def stop(item: int) -> drt.CacheInput:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration for item 0") as caught:
        list(drt.MapSource("m", [1], stop))
    assert isinstance(caught.value.__cause__, StopIteration)


def test_a_map_source_is_frozen_and_tells_what_it_is() -> None:
    source = drt.MapSource("m", range(5), print, fingerprint="v1")
    with pytest.raises(FrozenInstanceError):
        source.name = "other"  # type: ignore[misc]
    assert repr(source) == "MapSource('m', 5 items, print)"


@pytest.mark.parametrize(
    "name", ["n" * 201, "é" * 101, "n" * 5000, "", "..", "a/b", ".hidden", "a\0b", "a\nb"]
)
@pytest.mark.parametrize("write", [drt.write_cache, drt.cache], ids=["write_cache", "cache"])
def test_a_name_that_is_no_folder_name_is_refused_before_anything_is_there(
    write: Any, name: str, tmp_path: Path
) -> None:
    with pytest.raises(drt.InvalidInputError) as refused:
        write(Source(name), tmp_path / "root")
    assert "\n" not in str(refused.value)
    if len(name) > 100:
        assert f"{len(name.encode())} bytes" in str(refused.value)
        assert "200" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_is_written_and_read(tmp_path: Path) -> None:
    quiet = drt.WriterConfig(progress=False)
    for name in ("n" * 200, "é" * 100):
        assert len(drt.cache(Source(name), tmp_path, config=quiet)) == 1
        assert drt.cache(Source(name), tmp_path, config=quiet).reports[0].reused


@pytest.mark.parametrize("attribute", ["fingerprint", "codec"])
@pytest.mark.parametrize("value", ["f" * 4097, "é" * 2049, "a\0b"], ids=["long", "wide", "nul"])
@pytest.mark.parametrize("write", [drt.write_cache, drt.cache], ids=["write_cache", "cache"])
def test_texts_without_measure_are_refused(write: Any, attribute: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"4096|NUL") as refused:
        write(Source(**{attribute: value}), tmp_path / "root")
    assert attribute in str(refused.value)
    assert len(str(refused.value)) < 300
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_a_column_is_bounded(tmp_path: Path) -> None:
    def source(name: str) -> drt.MapSource[int]:
        return drt.MapSource("s", range(2), lambda i: drt.CacheInput(b"", {name: i}))

    quiet = drt.WriterConfig(progress=False)
    with pytest.raises(drt.InvalidInputError, match="4096"):
        drt.write_cache(source("c" * 4097), tmp_path, config=quiet)
    assert list(drt.cache(source("c" * 4096), tmp_path, config=quiet).schema) == ["c" * 4096]


class Sized(Source):
    """A source whose length is what a test says."""

    def __init__(self, length: object) -> None:
        super().__init__("s")
        self.length = length

    def __len__(self) -> Any:
        if isinstance(self.length, Exception):
            raise self.length
        return self.length


@pytest.mark.parametrize(
    "length", [ValueError("no\nlength"), TypeError(), -5, "3", 0, 10**18, 10**30, None], ids=repr
)
def test_a_length_that_fails_or_lies_is_no_reason_not_to_write(length: object, tmp_path: Path) -> None:
    told: list[drt.Progress] = []
    report = drt.write_cache(Sized(length), tmp_path, config=drt.WriterConfig(progress=told.append))
    assert report.sample_count == 1
    assert told[-1].fraction == 1.0
    assert told[-1].total in {None, 0, 10**18}


class Endless:
    """Something with a ``repr`` of many lines, and no end."""

    def __repr__(self) -> str:
        return "a\n" * 100_000


@pytest.mark.parametrize(
    "sample",
    [
        *(
            None,
            3,
            (b"",),
            (b"", {}, 1),
            Endless(),
            drt.CacheInput(Endless(), {}),
            drt.CacheInput("text", {}),
        ),  # type: ignore[arg-type]
        *(drt.CacheInput(b"", [("a", 1)]), drt.CacheInput(b"", {"a": Endless()})),  # type: ignore[arg-type,dict-item]
        *(drt.CacheInput(b"", {Endless(): 1}), drt.CacheInput(b"", {"a": 10**6000})),  # type: ignore[dict-item]
    ],
)
def test_what_is_no_sample_is_told_in_one_short_line_with_the_cure(sample: Any, tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"sample 0.*; ") as refused:
        drt.write_cache(Samples([sample]), tmp_path, config=drt.WriterConfig(progress=False))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


class Samples(list[Any]):
    """A source of whatever a test gives it."""

    name = "s"


@pytest.mark.parametrize("write", [drt.write_cache, drt.cache])
def test_a_source_without_a_name_or_a_class_is_refused_before_it_runs(write: Any, tmp_path: Path) -> None:
    made = []

    class Nameless:
        def __iter__(self) -> Iterator[drt.CacheInput]:
            for number in range(1000):
                made.append(number)
                yield drt.CacheInput(b"", {})

    with pytest.raises(drt.InvalidInputError, match=r"Nameless .*has no name; a source is a named iterable"):
        write(Nameless(), tmp_path)
    assert len(made) <= 1
    for given in (Nameless, Samples):
        with pytest.raises(drt.InvalidInputError, match=r"is a class; give a source, such as \w+\(\)"):
            write(given, tmp_path)
    drt.write_cache(Samples([drt.CacheInput(b"", {})]), tmp_path)
    with pytest.raises(drt.InvalidInputError, match="is a class"):
        write(Samples, tmp_path)
