"""Values in messages: one line, of bounded length, whatever was given; and what argument checks refuse."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt.checks import shown
from tests.rows import RowSource, rows_of

HUGE = 10**5000
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
