"""Arguments that are almost what they should be: text of an Enum, exceptions that take no note."""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import datasetrt as drt
from tests.rows import RowSource


class Text(str, enum.Enum):  # noqa: UP042 - a StrEnum is its own text
    """``str()`` of a member is not the text that it is."""

    NAME = "train"
    ROOT = "root"
    PRINT = "v1"


def test_the_text_of_an_enum_is_a_name_a_root_and_a_fingerprint(
    tmp_path: Path, quiet: drt.WriterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = RowSource(Text.NAME, [(b"a", {"n": 1})], fingerprint=Text.PRINT)
    other = RowSource("Text.NAME", [(b"other", {"n": 2})])
    drt.write_cache(other, "root", config=quiet)
    first = drt.cache(source, Text.ROOT, config=quiet)
    again = drt.cache(source, Text.ROOT, config=quiet)
    assert (first[0].data, again[0].data, again.reports[0].reused) == (b"a", b"a", True)
    assert type(again.reports[0].name) is str
    with pytest.raises(drt.CacheExistsError):
        drt.write_cache(source, Text.ROOT, config=quiet)
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["Text.NAME", "train"]


def test_a_source_that_changes_the_directory_moves_no_root(
    tmp_path: Path, quiet: drt.WriterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path)

    class Moves(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            yield from super().__iter__()
            os.chdir("else")

    sources = [Moves("a", [(b"1", {})]), RowSource("b", [(b"2", {})])]
    ds = drt.cache(sources, "root", config=quiet)
    assert [sample.data for sample in ds] == [b"1", b"2"]
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["a", "b"]
    assert list((tmp_path / "else").iterdir()) == []


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    row: int


class NotedError(Exception):
    __notes__ = ()  # type: ignore[assignment]


class StubbornError(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError

    def add_note(self, note: str) -> None:
        raise RuntimeError


def raising(error: Exception) -> Callable[[Any], Any]:
    def raises(_: Any) -> Any:
        raise error

    return raises


@pytest.mark.parametrize("make", [lambda: FrozenError(7), NotedError, StubbornError])
def test_an_exception_that_takes_no_notes_stays_itself(
    make: Callable[[], Exception], tiny: drt.CachedDataset, tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    # Made here: one that outlives the test would keep the iterators in its traceback.
    error = make()

    class Raises(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            yield from super().__iter__()
            raise error

    raises = raising(error)
    attempts: dict[str, Callable[[], object]] = {
        "source": lambda: drt.cache(Raises("s", [(b"1", {})]), tmp_path, config=quiet),
        "function": lambda: drt.cache(drt.MapSource("m", range(3), raises), tmp_path, config=quiet),
        "transform": lambda: list(tiny.loader(batch_size=5, transform=raises)),
        "sample": lambda: tiny.with_transform(raises)[0],
        "collate": lambda: list(tiny.loader(batch_size=5, collate=raises)),
    }
    for what, attempt in attempts.items():
        with pytest.raises(type(error)) as caught:
            attempt()
        assert caught.value is error, what
        if not isinstance(error, StubbornError):
            assert len(error.__notes__) > 0, what
    assert list(tmp_path.iterdir()) == []


def test_a_tiny_dataset_of_another_size_needs_another_root(tmp_path: Path) -> None:
    drt.testing.tiny_dataset(4, root=tmp_path)
    assert len(drt.testing.tiny_dataset(4, root=tmp_path)) == 4
    with pytest.raises(drt.StaleCacheError, match="another number of samples than 5; give another root"):
        drt.testing.tiny_dataset(5, root=tmp_path)
