"""Values in messages: one line, of bounded length, whatever was given; and what argument checks refuse."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt.wording import a_type, shown, with_article
from tests.rows import RowSource, rows_of
from tests.whole_numbers import HUGE, assert_taken_or_refused

SURROGATE = "a\ud800"


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        ("a\nb", r"'a\nb'"),
        (HUGE, "an int of 16,610 bits"),
        ([HUGE], "<list>"),
        (Unshowable(), "<Unshowable>"),
        ([Unshowable()], "<list>"),
        ("x" * 100_000, f"'{'x' * 80}'… (of length 100,000)"),
        (list(range(1000)), f"{str(list(range(1000)))[:80]}…"),
        (np.zeros((2, 2)), "array([[0., 0.], [0., 0.]])"),
        ("\ud800", r"'\ud800'"),
    ],
    ids=[
        "int",
        "line",
        "huge",
        "huge within",
        "object",
        "object within",
        "long",
        "list",
        "array",
        "surrogate",
    ],
)
def test_a_value_is_shown_on_one_short_line(value: Any, text: str) -> None:
    assert shown(value) == text


USES: dict[str, Callable[[drt.CachedDataset, Any], object]] = {
    "index": lambda ds, value: ds[value],
    "slice": lambda ds, value: ds[: Wrong(value)],
    "head": lambda ds, value: ds.head(-value if isinstance(value, int) else value),
    "seed": lambda ds, value: drt.Shuffle(seed=value),
    "num_samples": lambda ds, value: drt.Weighted(seed=1, num_samples=value),
    "sampler": lambda ds, value: ds.loader(sampler=value),
    "batch_size": lambda ds, value: ds.loader(batch_size=value),
    "threads": lambda ds, value: ds.loader(threads=value),
    "drop_last": lambda ds, value: ds.loader(drop_last=value),
    "shard": lambda ds, value: ds.loader(shard=value),
    "on_corrupt": lambda ds, value: ds.loader(on_corrupt=value),
    "transform": lambda ds, value: ds.loader(transform=value),
    "collate": lambda ds, value: ds.loader(collate=value),
    "epoch": lambda ds, value: ds.loader().set_epoch(value),
    "rank": lambda ds, value: drt.Shard(value, 2),
    "indices of": lambda ds, value: drt.Shuffle(seed=1).indices(value),
    "epoch of": lambda ds, value: drt.Shuffle(seed=1).indices(ds, epoch=value),
    "position of": lambda ds, value: drt.Shuffle(seed=1).position_of(value, 1),
    "path": lambda ds, value: drt.open_dataset(value),
    "take": lambda ds, value: ds.take(value),
    "workers": lambda ds, value: drt.WriterConfig(workers=value),
    "compression": lambda ds, value: drt.WriterConfig(compression=value),
    "max_open_shards": lambda ds, value: drt.ReaderConfig(max_open_shards=value),
    "table": lambda ds, value: ds.with_metadata(value),
    "state": lambda ds, value: ds.loader().load_state_dict(value),
    "version": lambda ds, value: ds.loader().load_state_dict({**ds.loader().state_dict(), "version": value}),
    "state epoch": lambda ds, value: ds.loader().load_state_dict(
        {**ds.loader().state_dict(), "epoch": value}
    ),
    "state print": lambda ds, value: ds.loader().load_state_dict(
        {**ds.loader().state_dict(), "fingerprint": value}
    ),
    "state sampler": lambda ds, value: ds.loader().load_state_dict(
        {**ds.loader().state_dict(), "sampler": {"kind": value}}
    ),
    "source": lambda ds, value: drt.write_cache(value, "nowhere"),
    "source name": lambda ds, value: drt.write_cache(RowSource(value, rows_of(1)), "nowhere"),
    "function": lambda ds, value: drt.MapSource("s", [1], value),
    "codec": lambda ds, value: drt.write_cache(RowSource("s", rows_of(1), codec=value), "nowhere"),
    "schema": lambda ds, value: drt.write_cache(RowSource("s", rows_of(1), schema={"a": value}), "nowhere"),
    "print": lambda ds, value: drt.write_cache(RowSource("s", rows_of(1), fingerprint=value), "nowhere"),
}


class Wrong:
    """A stop of a slice that is no whole number, whatever it holds."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("value", [HUGE, Unshowable(), [HUGE]], ids=["huge", "object", "list"])
def test_a_refusal_holds_whatever_was_given(
    value: Any, use: str, tiny: drt.CachedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(drt.DatasetRTError) as refused:
        USES[use](tiny, value)
    assert refused.value.kind != "bug"
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize(
    "write",
    [
        lambda root: drt.write_cache(RowSource(SURROGATE, rows_of(1)), root),
        lambda root: drt.cache(RowSource(SURROGATE, rows_of(1)), root),
        lambda root: drt.write_cache(RowSource("s", rows_of(1), fingerprint=SURROGATE), root),
        lambda root: drt.write_cache(RowSource("s", rows_of(1), codec=SURROGATE), root),
        lambda root: drt.write_cache(RowSource("s", rows_of(1), schema={SURROGATE: int}), root),
        lambda root: drt.write_cache(RowSource("s", rows_of(1)), f"{root}/{SURROGATE}"),
        lambda root: drt.cache(RowSource("s", rows_of(1)), Path(f"{root}/{SURROGATE}")),
        lambda root: drt.open_dataset(f"{root}/{SURROGATE}"),
        lambda root: drt.open_dataset([f"{root}/{SURROGATE}"]),
    ],
    ids=["name", "cached name", "print", "codec", "schema", "root", "cached root", "path", "paths"],
)
def test_text_that_is_no_unicode_is_refused(write: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match="lone surrogate"):
        write(tmp_path)
    assert not list(tmp_path.iterdir())


class NoPath(os.PathLike[str]):
    def __fspath__(self) -> str:
        return 5  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("path", "words"),
    [("", "empty"), (b"/x", "bytes"), (bytearray(b"/x"), "bytearray"), ("a\0b", "NUL"), (NoPath(), "NoPath")],
    ids=["empty", "bytes", "bytearray", "NUL", "no path"],
)
def test_a_path_is_text_that_names_something(
    path: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (
        lambda: drt.open_dataset(path),
        lambda: drt.write_cache(RowSource("s", rows_of(1)), path),
        lambda: drt.cache(RowSource("s", rows_of(1)), path),
    ):
        with pytest.raises(drt.InvalidInputError, match=words) as refused:
            use()
        assert "= 47 " not in str(refused.value), "bytes are no list of paths"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "part",
    [slice(None, None, 0), slice(1.0, None), slice("a"), slice(True, 3), slice(None, None, 1.5)],
    ids=str,
)
def test_other_slices_are_refused(part: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="slice"):
        tiny[part]


class Cut:
    """A user's own codec, of any widths."""

    name = "cut"

    def __init__(self, widths: Any) -> None:
        self.column_widths = widths

    def dumps(self, obj: object, /) -> bytes:
        return repr(obj).encode()

    def loads(self, buffer: object, /) -> object:
        return buffer

    def loads_batch(self, batch: drt.SampleBatch, /) -> object:
        return batch


def read(loader: Any) -> None:
    for _ in loader:
        break
    loader.close()


def plan_with(place: int) -> Callable[[drt.CachedDataset, Any], object]:
    """A plan of which one number is another."""

    def make(_: drt.CachedDataset, value: Any) -> object:
        arguments: list[Any] = [10, 0, 4, 0, 2, "pad", False]
        arguments[place] = value
        plan = drt.BatchPlan(*arguments)
        return len(plan), plan.samples, plan.position_after(2**62), repr(plan)

    return make


ORDER = drt.Shuffle(seed=1)
MANY = drt.Weighted(seed=1, num_samples=2**63 - 1)

ROW = "-1 0 3"
COUNT = "3 2**61 2**63-1"
WORD = "0 3 2**61 2**63-1 2**63"
ANY = "-huge -1 0 3 2**61 2**63-1 2**63 2**64 10**30 huge"

#: Every public argument that is a whole number. Beside it: which of NUMBERS it takes.
INTEGERS: dict[str, tuple[Callable[[drt.CachedDataset, Any], object], str]] = {
    "ds[i]": (lambda ds, v: ds[v], ROW),
    "ds[v:]": (lambda ds, v: ds[v:], f"{ANY} None"),
    "ds[::v]": (lambda ds, v: ds[::v], f"{ANY.replace(' 0 ', ' ')} None"),
    "head": (lambda ds, v: v == 0 or ds.head(v), "0 3 2**61 2**63-1 2**63 2**64 10**30 huge"),
    "take": (lambda ds, v: ds.take([v]), ROW),
    "take array": (lambda ds, v: ds.take(np.array([v])), ROW),
    "batch[i]": (lambda ds, v: ds.take([0, 1, 2, 3])[v], ROW),
    "batch[v:]": (lambda ds, v: ds.take([0, 1])[v:], f"{ANY} None"),
    "batch[::v]": (lambda ds, v: ds.take([0, 1])[::v], f"{ANY.replace(' 0 ', ' ')} None"),
    "as_array": (lambda ds, v: ds.take([0]).as_array("uint8", (v,)), ""),
    "split": (lambda ds, v: ds.take([0]).split([v]), ""),
    "one": (lambda ds, v: ds.take([0, 1, 2, 3]).info.one(v), ROW),
    "sample_id": (lambda ds, v: drt.CachedSample(b"", {}, "", v), WORD),
    "seed": (lambda ds, v: drt.Shuffle(v).indices(ds), WORD),
    "block_samples": (lambda ds, v: drt.BlockShuffle(1, block_samples=v).indices(ds), WORD[2:]),
    "window_blocks": (lambda ds, v: drt.BlockShuffle(1, window_blocks=v).indices(ds), WORD[2:]),
    "num_samples": (lambda ds, v: drt.Weighted(1, v).indices(ds, stop=1), f"{COUNT} None"),
    "num_samples of a plan": (
        lambda ds, v: len(ds.loader(batch_size=1, sampler=drt.Weighted(1, v))),
        f"{COUNT} None",
    ),
    "rank": (lambda ds, v: drt.Shard(v, 4), "0 3"),
    "world_size": (lambda ds, v: read(ds.loader(batch_size=1, shard=drt.Shard(0, v, "fill"))), COUNT),
    "epoch of": (lambda ds, v: ORDER.indices(ds, v), WORD),
    "start": (lambda ds, v: ORDER.indices(ds, start=v), "0 3"),
    "stop": (lambda ds, v: ORDER.indices(ds, stop=v), "0 3 None"),
    "stop of many": (lambda ds, v: MANY.indices(ds, stop=v), "0 3"),
    "indices_at": (lambda ds, v: ORDER.indices_at(ds, [v]), "0 3"),
    "indices_at epoch": (lambda ds, v: ORDER.indices_at(ds, [0], v), WORD),
    "transform_seeds": (lambda ds, v: ORDER.transform_seeds(ds, [v]), "0 3"),
    "position_of": (lambda ds, v: ORDER.position_of(ds, v), "0 3"),
    "position_of epoch": (lambda ds, v: ORDER.position_of(ds, 0, v), WORD),
    "batch_size": (lambda ds, v: read(ds.loader(batch_size=v)), "3 None"),
    "threads": (lambda ds, v: ds.loader(threads=v), "3 None"),
    "prefetch_batches": (lambda ds, v: read(ds.loader(prefetch_batches=v)), f"0 {COUNT}"),
    "prefetch_bytes": (lambda ds, v: read(ds.loader(prefetch_bytes=v)), COUNT),
    "set_epoch": (lambda ds, v: ds.loader().set_epoch(v), f"0 {COUNT}"),
    "plan": (lambda ds, v: ds.loader().plan(v), "0 3"),
    "step": (lambda ds, v: ds.loader(batch_size=4).plan().positions(v), "0 3"),
    "stop of steps": (lambda ds, v: ds.loader(batch_size=4).plan().positions(0, v), "0 3 None"),
    "step of padding": (lambda ds, v: ds.loader(batch_size=4).plan().padding(v), "0 3"),
    "position_after": (lambda ds, v: ds.loader().plan().position_after(v), WORD),
    "BatchPlan length": (plan_with(0), f"0 {COUNT}"),
    "BatchPlan start": (plan_with(1), "0 3"),
    "BatchPlan batch_size": (plan_with(2), "3"),
    "BatchPlan rank": (plan_with(3), "0"),
    "BatchPlan world_size": (plan_with(4), "3"),
    "BatchPlan uneven": (plan_with(5), ""),
    "BatchPlan drop_last": (plan_with(6), "True"),
    "a width": (lambda ds, v: ds.loader(transform=Cut([v])), COUNT),
    "widths": (lambda ds, v: ds.loader(transform=Cut(v)), "None"),
    "max_shard_bytes": (lambda ds, v: drt.WriterConfig(max_shard_bytes=v), COUNT),
    "writing threads": (lambda ds, v: drt.WriterConfig(threads=v), "3 None"),
    "queue_bytes": (lambda ds, v: drt.WriterConfig(queue_bytes=v), COUNT),
    "workers": (lambda ds, v: drt.WriterConfig(workers=v), COUNT),
    "compression_level": (
        lambda ds, v: drt.WriterConfig(compression="zstd", compression_level=v),
        "3 None",
    ),
    "max_open_shards": (lambda ds, v: drt.ReaderConfig(max_open_shards=v), COUNT),
    "tiny_dataset": (lambda ds, v: v in (2**61, 2**63 - 1) or drt.testing.tiny_dataset(v), COUNT),
    "items": (lambda ds, v: drt.write_cache(drt.MapSource("s", v, print), "nowhere"), ""),
    "record": (lambda ds, v: drt.codecs.Record({"x": ("uint8", (v,))}), "3"),
    "records": (lambda ds, v: drt.codecs.Record({"x": ("uint8", v)}), ""),
}

NUMBERS: dict[str, Any] = {
    "-1": -1,
    "0": 0,
    "3": 3,
    "2**61": 2**61,
    "2**63-1": 2**63 - 1,
    "2**63": 2**63,
    "2**64": 2**64,
    "10**30": 10**30,
    "huge": HUGE,
    "-huge": -HUGE,
    "True": True,
    "1.0": 1.0,
    "None": None,
    "text": "1",
}


@pytest.mark.parametrize("use", INTEGERS)
def test_a_whole_number_is_taken_or_refused(
    use: str, tiny: drt.CachedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, taken = INTEGERS[use]
    assert_taken_or_refused(lambda number: function(tiny, number), taken, NUMBERS, most=500)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(("int", "an int"), ("object", "an object"), ("ndarray", "an ndarray"), ("Expr", "an Expr")),
        *(
            ("_Own", "an _Own"),
            ("Unknown", "an Unknown"),
            ("mmap", "an mmap"),
            ("OrderedDict", "an OrderedDict"),
        ),
        *(("str", "a str"), ("uint8", "a uint8"), ("UnionType", "a UnionType"), ("UserDict", "a UserDict")),
        *(("bool", "a bool"), ("NoneType", "a NoneType"), ("UUID", "a UUID"), ("ufunc", "a ufunc")),
    ],
)
def test_a_name_has_the_article_of_its_sound(name: str, words: str) -> None:
    assert with_article(name) == words
    assert a_type(type(name, (), {})()) == words


def test_messages_take_the_article_from_the_one_helper() -> None:
    sources = list((Path(__file__).parents[2] / "packages").glob("*/src/**/*.py"))
    assert len(sources) > 50
    found = re.compile(r"\ban? \{[^{}]*__name__")
    assert [path for path in sources if found.search(path.read_text(encoding="utf-8"))] == []


# Bytes that no valid Unicode stands for, as Python has them; and a character that an ASCII locale lacks.
UNNAMEABLE = """
import sys, datasetrt as drt
from tests.rows import RowSource, rows_of
for use in (
    lambda: drt.open_dataset("\\xe9"),
    lambda: drt.cache(RowSource("s", rows_of(1)), "\\xe9"),
    lambda: drt.write_cache(RowSource("\\xe9", rows_of(1)), "."),
    lambda: drt.clean("\\udcc3"),
):
    try:
        use()
    except drt.InvalidInputError as error:
        print(ascii(str(error)))
"""


def test_where_the_locale_cannot_name_a_path_the_message_says_how_it_can(tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(
        [sys.executable, "-c", UNNAMEABLE], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == 4
    assert all("encoding of paths is ascii here" in line and "set PYTHONUTF8=1" in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_a_path_that_is_no_utf8_says_what_to_rename(tmp_path: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"lone surrogate '\\udcff' at .*valid UTF-8"):
        drt.open_dataset(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
