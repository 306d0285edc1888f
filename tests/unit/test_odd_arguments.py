"""Arguments that are almost what they should be: text of an Enum, exceptions that take no note."""

from __future__ import annotations

import dataclasses
import enum
import os
import subprocess
import sys
import textwrap
from collections import UserList, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt import writer
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


@pytest.mark.parametrize(
    "error", [FrozenError(7), NotedError(), StubbornError()], ids=lambda e: type(e).__name__
)
def test_an_exception_that_takes_no_notes_stays_itself(
    error: Exception, tiny: drt.CachedDataset, tmp_path: Path, quiet: drt.WriterConfig
) -> None:
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


NO_MEMORY = """
import resource, sys
import numpy, polars, pyarrow
import datasetrt as drt

class Source:
    name = "s"
    def __iter__(self):
        return (drt.CacheInput(payload, {}) for payload in payloads)

def limited(extra):
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, resource.RLIM_INFINITY))

def unlimited():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
WITHOUT_MEMORY = {
    **{
        f"write {method}": f"""
        payloads = [numpy.random.default_rng(0).bytes(60 << 20)] * 3
        config = drt.WriterConfig(progress=False, compression={method!r}, threads=1)
        for extra in (8, 40, 100, 150, 200, 250):
            limited(extra << 20)
            try:
                drt.write_cache(Source(), sys.argv[1] + str(extra), config=config)
            except (drt.StorageError, MemoryError) as error:
                assert "memory" in str(error).lower() or isinstance(error, MemoryError), error
                refused = True
            unlimited()
        assert refused
        """
        for method in ("none", "lz4", "zstd", "zstd-dictionary")
    },
    "arrow": """
        payloads = [bytes(length << 20) for length in (40, 41, 42)]
        config = drt.WriterConfig(progress=False)
        ds = drt.open_dataset(drt.write_cache(Source(), sys.argv[1], config=config).path)
        batch = ds.take([0, 1, 2])
        limited(60 << 20)
        try:
            pyarrow.record_batch(batch)
        except drt.StorageError as error:
            assert "not enough memory" in str(error)
        else:
            raise AssertionError
        """,
}


@pytest.mark.parametrize("what", WITHOUT_MEMORY)
def test_memory_that_is_refused_is_an_error(what: str, tmp_path: Path) -> None:
    code = NO_MEMORY + textwrap.dedent(WITHOUT_MEMORY[what])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


class Whole(int):
    pass


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        (("float64", (2,)), [np.int64(2**53 + 1), 1.0], "which no float is"),
        (("float64", (2,)), (np.uint64(2**64 - 1), 0.5), "which no float is"),
        (("float64", (2,)), [Whole(2**53 + 1), 1.0], "which no float is"),
        (("complex128", (2,)), [np.int64(2**53 + 1), 1j], "which no float is"),
        (("S5", (1,)), [b"a\0"], "ends in a zero byte"),
        (("S5", ()), b"a\0", "ends in a zero byte"),
        (("int64", (2,)), deque([True, 2]), "True, a bool; give whole numbers"),
        (("int64", (2,)), UserList([True, 2]), "True, a bool; give whole numbers"),
        (("int64", (1, 2)), [deque([True, 2])], "True, a bool; give whole numbers"),
        (("float32", ()), {1.5}, "a set; give floats"),
    ],
)
def test_records_take_nothing_that_would_be_lost(spec: Any, value: Any, message: str) -> None:
    with pytest.raises(drt.CodecError, match=message):
        drt.codecs.Record({"x": spec}).dumps({"x": value})


def test_records_take_what_is_kept() -> None:
    codec = drt.codecs.Record({"x": ("float64", (2,)), "n": ("int8", (3,)), "s": ("S5", (1,))})
    packed = codec.dumps({"x": deque([np.int64(2**53), 1.5]), "n": range(3), "s": [b"a\0b"]})
    found = codec.loads(packed)
    assert found["x"].tolist() == [2.0**53, 1.5]
    assert (found["n"].tolist(), found["s"].tolist()) == ([0, 1, 2], [b"a\0b"])


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


def test_cures_of_a_wrong_type_help(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    def write(values: list[Any], schema: dict[str, type] | None = None) -> None:
        drt.cache(
            RowSource("s", [(b"", {"a": value}) for value in values], schema=schema), tmp_path, config=quiet
        )

    for values in ([1, True], [1, "x"], [1.5, "x"], [True, 1]):
        with pytest.raises(drt.InvalidInputError, match=r"; convert the value, or declare .* if all samples"):
            write(values)
    with pytest.raises(drt.InvalidInputError, match=r"; declare schema=\{'a': float\} or convert"):
        write([1, 1.5])
    write([1, 1.5], {"a": float})


@pytest.mark.parametrize(
    "value",
    [np.ma.array([1, 2]), np.recarray(2, dtype=[("a", "i4")])],
    ids=lambda v: type(v).__name__,
)
def test_subclasses_of_arrays_need_trust_and_are_told_so(value: Any) -> None:
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    names = ["numpy", "numpy.ma.core._mareconstruct", "numpy.ma.MaskedArray", "numpy.rec.recarray", name]
    codec = drt.codecs.Pickle(allow=[*names, "numpy.matrix", "numpy.ma.core.MaskedArray", "numpy.record"])
    with pytest.raises(drt.CodecError, match="trust=True"):
        codec.loads(drt.codecs.Pickle().dumps(value))


@pytest.mark.parametrize("value", [2**8200, (((0,) * 20,) * 20, 1)], ids=["int", "key"])
def test_bounds_of_restricted_pickles_are_no_damage(value: Any) -> None:
    given = value if isinstance(value, int) else {value: 1}
    with pytest.raises(drt.CodecError, match="which is not read without trust; use trust=True") as refused:
        drt.codecs.Pickle(allow="numpy").loads(drt.codecs.Pickle().dumps(given))
    assert "damaged" not in str(refused.value)


def test_a_type_that_is_not_defined_is_refused_at_once() -> None:
    with pytest.raises(drt.InvalidInputError, match="no adapter for 'zzz'"):
        drt.codecs.Validated(drt.codecs.Json(), "zzz")  # type: ignore[arg-type]


def test_a_tiny_dataset_of_another_size_needs_another_root(tmp_path: Path) -> None:
    drt.testing.tiny_dataset(4, root=tmp_path)
    assert len(drt.testing.tiny_dataset(4, root=tmp_path)) == 4
    with pytest.raises(drt.StaleCacheError, match="another number of samples than 5; give another root"):
        drt.testing.tiny_dataset(5, root=tmp_path)


def test_a_state_without_a_version_is_no_state(tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.StateError, match="has no version; give the dict of state_dict"):
        tiny.loader().load_state_dict({})  # type: ignore[typeddict-item]


def test_a_map_source_does_not_go_on_where_another_kind_of_source_stopped(
    tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    config = quiet.model_copy(update={"max_shard_bytes": 2000})

    def crops(item: int) -> list[drt.CacheInput]:
        return [drt.CacheInput(bytes([item]) * 300, {"item": item, "crop": crop}) for crop in (0, 1)]

    class Crops:
        name, fingerprint = "x", "v1"

        def __iter__(self) -> Iterator[drt.CacheInput]:
            for item in range(5):
                yield from crops(item)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drt.cache(Crops(), tmp_path, config=config)
    assert (tmp_path / ".x.journal").exists()
    ds = drt.cache(drt.MapSource("x", range(15), crops, fingerprint="v1"), tmp_path, config=config)
    assert ds.reports[0].resumed_at is None
    found = [(sample.metadata["item"], sample.metadata["crop"]) for sample in ds]
    assert found == [(item, crop) for item in range(15) for crop in (0, 1)]


def test_what_another_rebuilt_between_look_and_lock_is_not_rebuilt_again(
    tmp_path: Path, quiet: drt.WriterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def source(version: str) -> RowSource:
        return RowSource("s", [(version.encode(), {"n": 1})], fingerprint=version)

    drt.cache(source("v1"), tmp_path, config=quiet)
    begin = writer._begin

    def late(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(writer, "_begin", begin)
        other = drt.cache(source("v2"), tmp_path, config=quiet, on_stale="rebuild")
        assert not other.reports[0].reused
        return begin(*given, **options)

    monkeypatch.setattr(writer, "_begin", late)
    ds = drt.cache(source("v2"), tmp_path, config=quiet, on_stale="rebuild")
    assert (ds.reports[0].reused, ds[0].data) == (True, b"v2")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
