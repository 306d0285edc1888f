"""What is no payload: refused in words that name what it is and the cure, and before anything is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from tests.rows import RowSource

REFUSED: dict[str, tuple[Any, str]] = {
    "masked": (
        np.ma.array([1, 2], mask=[False, True]),
        r"a MaskedArray, whose mask would be lost; give data\.filled\(value\), or numpy\.asarray",
    ),
    "masked nowhere": (np.ma.array([1, 2]), "a MaskedArray, whose mask would be lost"),
    "masked constant": (np.ma.masked, "a MaskedConstant, whose mask would be lost"),
    "dates": (
        np.array(["2020-01-01"], "M8[D]"),
        r"an array of datetime64\[D\], a dtype that Python's buffers do not have; give data\.view\('i8'\)",
    ),
    "spans": (np.array([1], "m8[s]"), r"an array of timedelta64\[s\], .*; give data\.view\('i8'\)"),
    "records of dates": (
        np.zeros(2, [("a", "M8[s]")]),
        r"an array of \[\('a', '<M8\[s\]'\)\], .*pack it first",
    ),
    "objects": (np.array([object(), 1]), "a buffer of Python objects or pointers, .*pack the record first"),
    "records of objects": (np.zeros(1, [("i", "i4"), ("a", "O")]), "a buffer of Python objects or pointers"),
    "strided": (np.zeros((4, 4))[:, ::2], r"not C-contiguous; give numpy\.ascontiguousarray\(data\)"),
    "no buffer": ({"a": 1}, "an object of type dict, expected bytes or another C-contiguous buffer"),
    "text": ("text", "an object of type str, expected bytes"),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_payload_is_refused_by_what_it_is(case: str, workers: int, tmp_path: Path) -> None:
    _, message = REFUSED[case]
    # Made where the function runs: on the way to a worker an array that is not contiguous becomes so.
    source = drt.MapSource("s", [case], lambda case: drt.CacheInput(REFUSED[case][0], {}))
    config = drt.WriterConfig(progress=False, workers=workers, worker_start_method="fork")
    with pytest.raises(drt.InvalidInputError, match=message) as refused:
        drt.write_cache(source, tmp_path, config=config)
    assert refused.value.kind == "invalid-argument"
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "s").exists()


def test_a_source_of_its_own_is_refused_in_the_same_words(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    data, message = REFUSED["masked"]
    with pytest.raises(drt.InvalidInputError, match=f"^sample 1: data is {message}") as refused:
        drt.write_cache(RowSource("s", [(b"", {}), (data, {})]), tmp_path, config=quiet)
    assert refused.value.sample_id == 1
    assert not (tmp_path / "s").exists()


def test_the_cures_of_arrays_work(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    dates, masked = np.array(["2020-01-01"], "M8[D]"), np.ma.array([1, 2], mask=[False, True])
    rows = [(dates.view("i8"), {}), (masked.filled(7), {})]
    ds = drt.cache(RowSource("s", rows), tmp_path, config=quiet)
    assert np.frombuffer(ds[0].data, "M8[D]") == dates
    assert np.frombuffer(ds[1].data, np.int64).tolist() == [1, 7]
