"""Writing, reusing, refusing and resuming caches, seen through `write_cache` and `cache`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt import writer
from tests.rows import RowSource, rows_of, wait_for_files


class Failing(RowSource):
    """A source that raises at one of its rows, as long as ``error`` is set."""

    def __init__(
        self, name: str, count: int, at: int, error: BaseException | None, **optional: object
    ) -> None:
        super().__init__(name, rows_of(count), **optional)
        self.at = at
        self.error = error
        self.made = 0

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number, sample in enumerate(super().__iter__()):
            if number == self.at and self.error is not None:
                raise self.error
            self.made += 1
            yield sample


class Untouchable:
    """A source that must not be run, because its cache is complete."""

    def __init__(self, name: str, **optional: object) -> None:
        self.name = name
        self.__dict__.update(optional)

    def __iter__(self) -> Iterator[drt.CacheInput]:
        raise AssertionError("a complete cache must not run its source again")


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


# Reports


def test_a_report_says_what_was_written(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    rows = rows_of(20)
    report = drt.write_cache(RowSource("s", rows, fingerprint="v1"), tmp_path, config=quiet)
    assert report.path == tmp_path / "s"
    assert (report.name, report.sample_count, report.fingerprint) == ("s", 20, "v1")
    assert report.payload_bytes == sum(len(data) for data, _ in rows)
    assert report.stored_bytes > report.payload_bytes
    assert (report.reused, report.resumed_at) == (False, None)
    assert 0 < report.seconds < 60


def test_a_reused_cache_has_the_same_report(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    written = drt.write_cache(RowSource("s", rows_of(20), fingerprint="v1"), tmp_path, config=quiet)
    (reused,) = drt.cache(Untouchable("s", fingerprint="v1"), tmp_path, config=quiet).reports
    assert reused.reused
    for name in (
        "path",
        "name",
        "sample_count",
        "payload_bytes",
        "stored_bytes",
        "fingerprint",
        "resumed_at",
    ):
        assert getattr(reused, name) == getattr(written, name)


def test_an_opened_dataset_has_no_reports(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    report = drt.write_cache(RowSource("s", rows_of(3)), tmp_path, config=quiet)
    assert drt.open_dataset(report.path).reports == ()


# Arguments


@pytest.mark.parametrize("root", [3, None, b"bytes"])
def test_a_root_is_a_path(root: Any, quiet: drt.WriterConfig) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"root = .* give a str or a pathlib.Path"):
        drt.write_cache(RowSource("s", rows_of(3)), root, config=quiet)


def test_a_config_is_a_writer_config(tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match="config is a dict; give a WriterConfig"):
        drt.write_cache(RowSource("s", rows_of(3)), tmp_path, config={})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["s", Path("s"), 3, None])
def test_a_source_is_no_path(given: Any, tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError):
        drt.cache(given, tmp_path)


def test_no_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match="there are no sources"):
        drt.cache([], tmp_path)


def test_a_sample_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"CacheInput.* is no source; give an iterable"):
        drt.cache(drt.CacheInput(b"", {}), tmp_path)  # type: ignore[arg-type]


def test_on_stale_is_one_of_three(tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match="on_stale = 'ignore' is not known; use 'error' or"):
        drt.cache(RowSource("s", rows_of(3)), tmp_path, on_stale="ignore")  # type: ignore[arg-type]


def test_a_name_never_leads_out_of_the_root(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    drt.write_cache(RowSource("s", rows_of(3)), tmp_path, config=quiet)
    for name in ("../s", "x/../../s", str(tmp_path / "s"), "..", "."):
        with pytest.raises(drt.InvalidInputError):
            drt.cache(Untouchable(name), tmp_path / "root", config=quiet)


# Reuse and staleness


def test_a_source_that_claims_nothing_reuses(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    drt.write_cache(RowSource("s", rows_of(3), fingerprint="v1"), tmp_path, config=quiet)
    assert len(drt.cache(Untouchable("s"), tmp_path, config=quiet)) == 3


@pytest.mark.parametrize(
    ("written", "asked", "words"),
    [
        ({"fingerprint": "v1"}, {"fingerprint": "v2"}, ["fingerprint 'v1'", "'v2'"]),
        ({}, {"fingerprint": "v2"}, ["fingerprint None", "'v2'"]),
        ({"codec": "json"}, {"codec": "npy"}, ["codec 'json'", "'npy'"]),
        ({}, {"codec": "npy"}, ["codec None", "'npy'"]),
        (
            {},
            {"schema": {"label": float, "split": str, "score": float, "even": bool}},
            ["'int64'", "'float64'"],
        ),
        ({"fingerprint": "v1", "codec": "json"}, {"fingerprint": "v2", "codec": "npy"}, ["'v2'", "'npy'"]),
    ],
    ids=["fingerprint", "no-fingerprint", "codec", "no-codec", "schema", "both"],
)
def test_a_stale_cache_is_named_with_both_values(
    written: dict[str, Any], asked: dict[str, Any], words: list[str], tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    drt.write_cache(RowSource("s", rows_of(3), **written), tmp_path, config=quiet)
    with pytest.raises(drt.StaleCacheError) as stale:
        drt.cache(Untouchable("s", **asked), tmp_path, config=quiet)
    for word in [*words, "on_stale='rebuild'", str(tmp_path / "s")]:
        assert word in str(stale.value)
    assert stale.value.kind == "stale"
    assert stale.value.path == str(tmp_path / "s")
    assert "\n" not in str(stale.value)
    reused = drt.cache(Untouchable("s", **asked), tmp_path, config=quiet, on_stale="reuse")
    assert reused.reports[0].reused


def test_a_schema_in_another_order_is_the_same(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    drt.write_cache(RowSource("s", rows_of(3)), tmp_path, config=quiet)
    schema = {"even": bool, "score": float, "split": str, "label": int}
    assert len(drt.cache(Untouchable("s", schema=schema), tmp_path, config=quiet)) == 3


def test_a_rebuild_leaves_the_old_cache_until_the_new_one_is_there(
    tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    folder = tmp_path / "s"
    drt.write_cache(RowSource("s", rows_of(3), fingerprint="v1"), tmp_path, config=quiet)
    lengths = []

    class Rebuilt(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            for sample in super().__iter__():
                lengths.append(len(drt.open_dataset(folder)))
                yield sample

    new = drt.cache(Rebuilt("s", rows_of(5), fingerprint="v2"), tmp_path, config=quiet, on_stale="rebuild")
    assert (len(new), new.reports[0].reused, new.caches[0].fingerprint) == (5, False, "v2")
    assert lengths == [3] * 5


def test_a_rebuild_that_fails_leaves_the_old_cache(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    drt.write_cache(RowSource("s", rows_of(3), fingerprint="v1"), tmp_path, config=quiet)
    failing = Failing("s", 10, 5, KeyError("x"), fingerprint="v2")
    with pytest.raises(KeyError):
        drt.cache(failing, tmp_path, config=quiet, on_stale="rebuild")
    assert len(drt.cache(Untouchable("s", fingerprint="v1"), tmp_path, config=quiet)) == 3


# Several sources


def test_all_sources_are_tried_and_what_succeeds_is_published(
    tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    first, second = KeyError("first"), ZeroDivisionError("second")
    sources = [
        Failing("a", 5, 2, first),
        RowSource("b", rows_of(4)),
        Failing("c", 5, 0, second),
        RowSource("d", rows_of(6)),
    ]
    with pytest.raises(ExceptionGroup, match="2 of 4 sources failed") as failed:
        drt.cache(sources, tmp_path, config=quiet)
    assert failed.value.exceptions == (first, second)
    assert "source 'a'" in first.__notes__
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["b", "d"]


def test_one_failure_among_several_is_a_group_and_a_single_source_is_not(
    tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    boom = KeyError("boom")
    with pytest.raises(ExceptionGroup) as failed:
        drt.cache([Failing("a", 5, 2, boom), RowSource("b", rows_of(4))], tmp_path, config=quiet)
    assert failed.value.exceptions == (boom,)
    for single in (Failing("a", 5, 2, boom), [Failing("a", 5, 2, boom)]):
        with pytest.raises(KeyError):
            drt.cache(single, tmp_path, config=quiet)


def test_equal_names_are_refused_before_anything_is_written(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    with pytest.raises(drt.InvalidInputError, match="several sources are named 'a'"):
        drt.cache([RowSource("b", rows_of(3)), Untouchable("a"), Untouchable("a")], tmp_path, config=quiet)
    assert list(tmp_path.iterdir()) == []


def test_rows_come_in_the_order_of_the_sources(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    sources = (RowSource(name, [(name.encode(), {})]) for name in ("b", "a", "c"))
    ds = drt.cache(sources, tmp_path, config=quiet)
    assert [sample.data for sample in ds] == [b"b", b"a", b"c"]
    assert [report.name for report in ds.reports] == ["b", "a", "c"]


def test_ctrl_c_ends_all_sources(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    with pytest.raises(KeyboardInterrupt):
        drt.cache([Failing("a", 5, 2, KeyboardInterrupt()), Untouchable("b")], tmp_path, config=quiet)


# Failures


@pytest.mark.parametrize(
    "error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3), drt.CodecError("c")]
)
def test_the_exception_of_a_source_is_the_same_object_with_the_sample(
    error: BaseException, tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    with pytest.raises(type(error)) as caught:
        drt.write_cache(Failing("s", 20, 7, error), tmp_path, config=quiet)
    assert caught.value is error
    assert any("sample 7" in note and "'s'" in note for note in error.__notes__)
    with pytest.raises(drt.CacheNotFoundError):
        drt.open_dataset(tmp_path / "s")
    # The lock is free, and nothing of the failed write is left in the way.
    assert drt.write_cache(RowSource("s", rows_of(3)), tmp_path, config=quiet).sample_count == 3


def test_an_iterable_that_cannot_begin_names_the_first_sample(
    tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    boom = OSError("no such file")

    class Broken(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            raise boom

    with pytest.raises(OSError, match="no such file") as caught:
        drt.write_cache(Broken("s", []), tmp_path, config=quiet)
    assert caught.value is boom
    assert boom.__notes__ == ["while sample 0 of source 's' was being produced"]


@pytest.mark.parametrize("bad", [{"label": "x"}, {}], ids=["type", "missing"])
def test_a_generator_is_closed_when_the_write_fails(
    bad: dict[str, Any], tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    closed = []

    class Generates(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            try:
                yield drt.CacheInput(b"", {"label": 1})
                yield drt.CacheInput(b"", bad)
                yield drt.CacheInput(b"", {"label": 3})
            finally:
                closed.append(True)

    with pytest.raises(drt.InvalidInputError, match="sample 1"):
        drt.write_cache(Generates("s", [], schema={"label": int}), tmp_path, config=quiet)
    assert closed == [True]


# Waiting for another writer


def test_cache_waits_for_another_writer_and_reuses_its_work(
    tmp_path: Path, quiet: drt.WriterConfig, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            begun.set()
            assert go_on.wait(30)
            yield from super().__iter__()

    other = threading.Thread(
        target=drt.write_cache, args=(Slow("s", rows_of(5)), tmp_path), kwargs={"config": quiet}
    )
    other.start()
    assert begun.wait(30)
    with pytest.raises(drt.CacheExistsError) as busy:
        drt.write_cache(Untouchable("s"), tmp_path, config=quiet)
    assert busy.value.kind == "being-written"
    found: list[drt.CachedDataset] = []
    with caplog.at_level(logging.WARNING, logger="datasetrt"):
        waiting = threading.Thread(
            target=lambda: found.append(drt.cache(Untouchable("s"), tmp_path, config=quiet))
        )
        waiting.start()
        time.sleep(0.5)
        assert not found
        go_on.set()
        waiting.join(30)
        other.join(30)
    assert [len(ds) for ds in found] == [5]
    assert found[0].reports[0].reused
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for another writer of {tmp_path / 's'}"
    ]


def test_cache_takes_over_from_a_writer_that_fails(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Doomed(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            begun.set()
            assert go_on.wait(30)
            raise KeyError("doomed")

    def doomed() -> None:
        with pytest.raises(KeyError):
            drt.write_cache(Doomed("s", []), tmp_path, config=quiet)

    other = threading.Thread(target=doomed)
    other.start()
    assert begun.wait(30)
    threading.Timer(0.3, go_on.set).start()
    ds = drt.cache(RowSource("s", rows_of(5)), tmp_path, config=quiet)
    other.join(30)
    assert (len(ds), ds.reports[0].reused) == (5, False)


# Resuming


SMALL_SHARDS = drt.WriterConfig(progress=False, max_shard_bytes=100_000)


class Large(Failing):
    """A source of 4 MB; it fails when some of it is durable."""

    def __init__(self, root: Path, error: BaseException | None, at: int = 80, **optional: object) -> None:
        super().__init__("s", 100, at, error, **optional)
        self.root = root
        self.rows = [(data + bytes(40_000), metadata) for data, metadata in self.rows]

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number, sample in enumerate(super().__iter__()):
            yield sample
            if number + 1 == self.at and isinstance(self.error, KeyError):
                wait_for_files(self.root, 20)


def interrupted(root: Path, **optional: Any) -> Large:
    source = Large(root, KeyError("interrupted"), **optional)
    with pytest.raises(KeyError):
        drt.write_cache(source, root, config=SMALL_SHARDS)
    source.error = None
    return source


def clean(root: Path) -> dict[str, bytes]:
    drt.write_cache(Large(root, None, fingerprint="v1"), root, config=SMALL_SHARDS)
    return files(root / "s")


def test_an_interrupted_write_continues_and_gives_the_same_bytes(tmp_path: Path) -> None:
    source = interrupted(tmp_path / "r", fingerprint="v1")
    report = drt.write_cache(source, tmp_path / "r", config=SMALL_SHARDS)
    assert report.resumed_at is not None
    assert 0 < report.resumed_at <= 80
    assert report.sample_count == 100
    assert files(tmp_path / "r" / "s") == clean(tmp_path / "clean")


def test_iter_from_spares_the_samples_that_are_stored(tmp_path: Path) -> None:
    starts = []

    class Seekable(Large):
        def iter_from(self, start: int) -> Iterator[drt.CacheInput]:
            starts.append(start)
            for data, metadata in self.rows[start:]:
                yield drt.CacheInput(data, metadata)

    interrupted(tmp_path / "r", fingerprint="v1")
    source = Seekable(tmp_path, None, fingerprint="v1")
    report = drt.write_cache(source, tmp_path / "r", config=SMALL_SHARDS)
    assert starts == [report.resumed_at]
    assert source.made == 0, "__iter__ was not used"
    assert files(tmp_path / "r" / "s") == clean(tmp_path / "clean")


def test_a_first_write_does_not_use_iter_from(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    class Seekable(RowSource):
        def iter_from(self, start: int) -> Iterator[drt.CacheInput]:
            raise AssertionError("nothing is stored")

    assert drt.write_cache(Seekable("s", rows_of(3)), tmp_path, config=quiet).sample_count == 3


def test_without_a_fingerprint_a_write_begins_again(tmp_path: Path) -> None:
    source = interrupted(tmp_path)
    assert drt.write_cache(source, tmp_path, config=SMALL_SHARDS).resumed_at is None


def test_a_source_that_became_shorter_is_refused(tmp_path: Path) -> None:
    interrupted(tmp_path, fingerprint="v1")
    with pytest.raises(drt.StaleCacheError, match=r"source 's' gave 2 samples, .* another fingerprint"):
        drt.write_cache(RowSource("s", rows_of(2), fingerprint="v1"), tmp_path, config=SMALL_SHARDS)


def test_an_exception_while_stored_samples_are_dropped_names_the_sample(tmp_path: Path) -> None:
    interrupted(tmp_path, fingerprint="v1")
    boom = ZeroDivisionError("early")
    with pytest.raises(ZeroDivisionError):
        drt.write_cache(Large(tmp_path, boom, 3, fingerprint="v1"), tmp_path, config=SMALL_SHARDS)
    assert boom.__notes__ == ["while sample 3 of source 's' was being produced"]


# Damaged caches


def empty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"")


def no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def no_index(folder: Path) -> None:
    (folder / "index.bin").unlink()


def short_metadata(folder: Path) -> None:
    path = folder / "metadata.arrow"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [empty_manifest, no_manifest, no_index, short_metadata])
def test_a_rebuild_cures_what_cannot_be_opened(
    damage: Callable[[Path], None], tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    source = RowSource("s", rows_of(20), fingerprint="v1")
    drt.cache(source, tmp_path, config=quiet)
    before = files(tmp_path / "s")
    damage(tmp_path / "s")
    for on_stale in ("error", "reuse"):
        with pytest.raises((drt.FormatError, drt.CorruptionError)):
            drt.cache(source, tmp_path, config=quiet, on_stale=on_stale)
    rebuilt = drt.cache(source, tmp_path, config=quiet, on_stale="rebuild")
    assert not rebuilt.reports[0].reused
    assert files(tmp_path / "s") == before
    assert drt.cache(source, tmp_path, config=quiet).reports[0].reused


def test_a_rebuild_does_not_touch_what_is_no_cache(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.txt").write_text("three years")
    with pytest.raises((drt.FormatError, drt.CacheExistsError)):
        drt.cache(RowSource("s", rows_of(3)), tmp_path, config=quiet, on_stale="rebuild")
    assert files(tmp_path / "s") == {"thesis.txt": b"three years"}


# A source that asks for itself


class Asking(RowSource):
    """A source that asks for the cache that is being made of it."""

    def __init__(self, name: str, root: Path) -> None:
        super().__init__(name, rows_of(3))
        self.root = root

    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield from super().__iter__()
        drt.cache(RowSource(self.name, rows_of(3)), self.root, config=drt.WriterConfig(progress=False))


def test_a_source_does_not_wait_for_itself(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    # Were it to wait for itself, that would be for ever: no clock is needed to tell.
    for root in (tmp_path, tmp_path / "." / "sub" / ".."):
        with pytest.raises(drt.CacheExistsError, match="this very thread") as refused:
            drt.cache(Asking("s", root), tmp_path, config=quiet)
        assert refused.value.kind == "being-written"
    assert len(drt.cache(RowSource("s", rows_of(3)), tmp_path, config=quiet)) == 3, "nothing is left behind"


def test_a_source_may_make_other_caches(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    class Nested(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            inner = drt.cache(RowSource("inner", rows_of(3)), tmp_path, config=quiet)
            yield from (drt.CacheInput(sample.data, sample.metadata) for sample in inner)

    assert len(drt.cache(Nested("outer", []), tmp_path, config=quiet)) == 3


# Long values


def test_a_long_fingerprint_does_not_fill_the_message(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    drt.cache(RowSource("s", rows_of(3), fingerprint="a" * 4_000), tmp_path, config=quiet)
    with pytest.raises(drt.StaleCacheError, match="of length 4,000") as refused:
        drt.cache(RowSource("s", rows_of(3), fingerprint="b" * 4_000), tmp_path, config=quiet)
    assert len(str(refused.value)) < 1000


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


@pytest.mark.parametrize("count", [8, 9, 10, 12])
def test_a_few_bytes_are_no_ground_for_a_dictionary(count: int, tmp_path: Path) -> None:
    rows: list[Any] = [(bytes([number]), {}) for number in range(count)]
    config = drt.WriterConfig(compression="zstd-dictionary", progress=False)
    ds = drt.cache(RowSource("tiny", rows), tmp_path, config=config)
    assert [sample.data for sample in ds] == [data for data, _ in rows]


@pytest.mark.parametrize("edit", [lambda found: found.update(late=1), dict.clear], ids=["grows", "shrinks"])
def test_metadata_that_change_while_they_are_read_are_taken_as_they_were(
    edit: Callable[[dict[str, Any]], None], tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    class Changing(np.int64):
        def item(self) -> int:  # type: ignore[override]
            edit(metadata)
            return 5

    metadata: dict[str, Any] = {"a": Changing(3), "b": "x"}
    source = RowSource("s", [(b"", metadata)])
    report = drt.write_cache(source, tmp_path, config=quiet)
    assert drt.open_dataset(report.path)[0].metadata == {"a": 5, "b": "x"}


def test_a_resumed_source_is_not_over_at_its_first_none(tmp_path: Path) -> None:
    interrupted(tmp_path, fingerprint="v1")

    class Nones:
        name = "s"
        fingerprint = "v1"

        def __iter__(self) -> Iterator[Any]:
            return iter([None] * 101)

    with pytest.raises(drt.InvalidInputError, match="object of type NoneType; give CacheInput"):
        drt.write_cache(Nones(), tmp_path, config=SMALL_SHARDS)


class Unreadable(Mapping[str, int]):
    """Metadata whose values cannot be had."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, name: str) -> int:
        raise self.error


@pytest.mark.parametrize("mapped", [False, True])
def test_what_metadata_raise_comes_back_with_the_sample(
    mapped: bool, tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    def source(error: BaseException) -> Any:
        rows = [drt.CacheInput(b"", {"a": 1}), drt.CacheInput(b"", Unreadable(error))]
        return drt.MapSource("s", rows, lambda row: row) if mapped else RowSource("s", rows)

    error = OSError("no disk")
    with pytest.raises(OSError, match="no disk") as raised:
        drt.write_cache(source(error), tmp_path, config=quiet)
    assert raised.value is error
    assert error.__notes__[0] == "while sample 1 was being read"
    assert ("it was made of item 1 of source 's'" in error.__notes__) == mapped
    with pytest.raises(RuntimeError, match="StopIteration was raised") as stopped:
        drt.write_cache(source(StopIteration()), tmp_path, config=quiet)
    assert isinstance(stopped.value.__cause__, StopIteration)


def test_a_stop_iteration_of_iter_is_no_end(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    class Source:
        name = "s"

        def __iter__(self) -> Iterator[Any]:
            raise StopIteration

    with pytest.raises(RuntimeError, match="raised StopIteration") as raised:
        drt.write_cache(Source(), tmp_path, config=quiet)
    assert isinstance(raised.value.__cause__, StopIteration)


def test_reports_take_no_other_attribute(tiny: drt.CachedDataset) -> None:
    for name in ("other", "name"):
        with pytest.raises(AttributeError):
            setattr(tiny.caches[0], name, 1)
