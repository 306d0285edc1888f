"""collate: PyTorch's batches, without its warnings, and with names in its errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import datasetrt as drt
import datasetrt_torch as drtt


class Point(NamedTuple):
    x: int
    y: float


SAMPLES: dict[str, list[Any]] = {
    "ints": [1, 2],
    "floats": [1.5, 2.5],
    "bools": [True, False],
    "strings": ["a", "b"],
    "bytes": [b"a", b"b"],
    "tensors": [torch.ones(2), torch.zeros(2)],
    "arrays": [np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)],
    "numpy scalars": [np.float32(1), np.float32(2)],
    "dicts": [{"a": 1, "b": [1.0, 2.0]}, {"a": 2, "b": [3.0, 4.0]}],
    "tuples": [(1, "a"), (2, "b")],
    "named tuples": [Point(1, 2.0), Point(3, 4.0)],
    "empty arrays": [np.zeros((0, 3)), np.zeros((0, 3))],
}


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and found == expected


@pytest.mark.parametrize("name", SAMPLES)
def test_batches_are_those_of_default_collate(name: str) -> None:
    assert same(drtt.collate(SAMPLES[name]), default_collate(SAMPLES[name]))


def test_ints_and_floats_are_float64_whichever_comes_first() -> None:
    # default_collate makes float32 of these, and float64 of the same the other way round.
    assert drtt.collate([1, 2.5]).dtype == drtt.collate([2.5, 1]).dtype == torch.float64


def test_numpy_bools_are_bools() -> None:
    # Not compared with default_collate, which NumPy 1 warns.
    assert drtt.collate([np.True_, np.False_]).dtype == torch.bool


@pytest.mark.parametrize(
    "dtype", ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
)
def test_read_only_arrays_give_writable_memory_and_no_warning(dtype: str) -> None:
    arrays = [np.frombuffer(bytes(16), dtype) for _ in range(2)]
    batch = drtt.collate(arrays)
    batch[0] = 1
    assert batch.shape == (2, 16 // np.dtype(dtype).itemsize)
    assert not arrays[0].any()


@pytest.mark.parametrize("dtype", ["bool", "i8", "u2", "f4", "f8", "c8"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3)])
def test_empty_and_scalar_arrays_cost_no_warning(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.frombuffer(bytes(64), dtype)[: int(np.prod(shape))].reshape(shape)
    assert not array.flags.writeable
    batch = drtt.collate([{"x": array}, {"x": array}])
    assert batch["x"].shape == (2, *shape)
    batch["x"].fill_(1)
    assert not array.any()


def test_big_endian_arrays_become_native() -> None:
    assert drtt.collate([np.array([1, 2], ">i4")]).tolist() == [[1, 2]]


def test_batches_pass() -> None:
    batch = {"x": torch.ones(2)}
    assert drtt.collate(batch) is batch
    assert drtt.collate(batch["x"]) is batch["x"]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([{"a": {"b": None}}], r"column 'a\.b' cannot be collated: a NoneType cannot be in a tensor"),
        ([{"a": 1}, {"a": None}], r"column 'a' .* some samples have an int there, others a NoneType"),
        ([{"a": object()}], "column 'a' .* an object cannot be in a tensor"),
        ([{"a": [1, "x"]}, {"a": [2, 3]}], r"column 'a\[1\]' .* a str there, others an int"),
        ([{"a": np.array(["x"], object)}], "column 'a' cannot be a tensor: it holds strings or other"),
        ([{"a": np.array(["x"])}], "column 'a' cannot be a tensor: it holds text"),
        ([{"a": np.array(["2020"], "M8[D]")}], "column 'a' cannot be a tensor: it holds dates"),
        ([{"a": np.array([b"x"])}], "column 'a' cannot be a tensor: it holds bytes"),
        (
            [{"a": np.zeros(2)}, {"a": np.zeros(3)}],
            r"column 'a' .* the shapes \(2,\) and \(3,\); pad or crop",
        ),
        ([{"a": torch.zeros(2)}, {"a": torch.zeros(3)}], r"column 'a' .* the shapes \(2,\) and \(3,\)"),
        ([{"a": [1]}, {"a": [1, 2]}], "column 'a' .* sequences of 1 to 2 parts"),
        ([{"a": 1}, {"b": 1}], r"a sample .* the keys \['a'\] and \['b'\]"),
        ([{"a": 2**63}], "column 'a' .* beyond int64"),
        ([], "of no samples"),
        (7, "an int of no samples"),
        ([drt.CachedSample(b"", {}, "c", 0)], "CachedSample, whose bytes no tensor can hold; give decode="),
    ],
)
def test_errors_name_the_column(samples: Any, message: str) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        drtt.collate(samples)
