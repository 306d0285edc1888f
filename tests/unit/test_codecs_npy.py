"""Npy: numpy's own format, without copies, and whole batches at once."""

import functools
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt.codecs import Npy
from datasetrt.codecs._arrays import MAX_DIMS
from tests.rows import RowSource

CODEC = Npy()


def an_array(dtype: Any, shape: tuple[int, ...] = (2, 3)) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


ARRAYS = [
    *(an_array(dtype) for dtype in ("?", "i1", "i8", "u2", "f2", "f8", "g", "F", "D", ">i4", ">f8")),
    *(an_array(dtype) for dtype in ("S3", "U4", ">U2", "V5", "M8[D]", "M8[25s]", "m8[ns]", ">M8[ms]")),
    an_array("f4", ()),
    an_array("f4", (0, 3)),
    np.asfortranarray(an_array("f4")),
    np.asfortranarray(an_array("f4", (2, 3, 4))),
    an_array("f4")[:, ::2],
    an_array("i4", (2, 3, 4)).transpose(1, 0, 2),
    np.zeros(3, [("a", "u1"), ("inner", [("t", "U3"), ("b", "?", (2,))])]),
    np.zeros(2, np.dtype([("a", "u1"), ("b", "i8")], align=True)),
    np.zeros(2, [("été", "f4"), ("a b", "f4")]),
    np.zeros(2, [(("title", "a"), "f4")]),
    np.zeros(2, "M8"),
]


@pytest.mark.parametrize("array", ARRAYS)
def test_arrays_come_back_as_views(array: np.ndarray[Any, Any]) -> None:
    payload = bytearray(CODEC.dumps(array))
    back = CODEC.loads(payload)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable
    assert back.flags.aligned
    assert array.size == 0 or np.shares_memory(back, np.frombuffer(payload, np.uint8))
    assert array.flags.f_contiguous == back.flags.f_contiguous or not array.flags.contiguous
    assert not CODEC.loads(bytes(payload)).flags.writeable
    np.testing.assert_array_equal(np.load(io.BytesIO(payload)), array)


@pytest.mark.filterwarnings("ignore:Stored array in format")
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_format_is_read(version: tuple[int, int]) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, an_array("f4"), version=version)
    np.testing.assert_array_equal(CODEC.loads(file.getvalue()), an_array("f4"))


def test_items_begin_on_a_boundary_of_the_payload() -> None:
    payload = bytearray(CODEC.dumps(np.arange(5, dtype=np.int8)))
    base = np.frombuffer(payload, np.uint8).ctypes.data
    assert (CODEC.loads(payload).ctypes.data - base) % 64 == 0


def test_scalars_become_arrays_of_no_dimensions() -> None:
    back = CODEC.loads(CODEC.dumps(np.float32(1.5)))
    assert (back.shape, back.dtype, back.item()) == ((), np.dtype("f4"), 1.5)


def test_memory_maps_are_arrays(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "m", np.uint8, "w+", shape=3)
    assert CODEC.loads(CODEC.dumps(mapped)).tolist() == [0, 0, 0]


class Metres(np.ndarray[Any, Any]):
    pass


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        3,
        None,
        b"x",
        np.array([None]),
        *(np.array(["a"], kind()) for kind in [getattr(np.dtypes, "StringDType", None)] if kind),
        np.zeros(2, [("a", "O")]),
        np.ma.masked_array([1, 2], [True, False]),
        np.ones(2).view(Metres),
        np.zeros(2, "V0"),
        np.zeros(2, []),
        np.zeros(1, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}),
    ],
)
def test_what_would_not_come_back_is_refused(value: Any) -> None:
    with pytest.raises(drt.CodecError) as caught:
        CODEC.dumps(value)
    assert caught.value.kind == "encode"
    assert "\n" not in str(caught.value)


def npy(header: str | bytes, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin1") if isinstance(header, str) else header
    return (
        b"\x93NUMPY"
        + bytes(version)
        + len(text).to_bytes(2 if version == (1, 0) else 4, "little")
        + text
        + data
    )


def stated(descr: str, shape: str = "(1,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n"


DAMAGED = {
    "empty": b"",
    "magic only": b"\x93NUMPY",
    "no length": b"\x93NUMPY\1\0",
    "other magic": b"PK\3\4" + bytes(60),
    "version 0": npy(stated("'<u1'"), b"x", (0, 0)),
    "version 4": npy(stated("'<u1'"), b"x", (4, 0)),
    "header beyond": b"\x93NUMPY\2\0\xff\xff\xff\xff{}" + bytes(40),
    "header too long": npy(stated("'<u1'")[:-1] + " " * 20_000 + "\n", b"x", (2, 0)),
    "no dict": npy("[]", b"x"),
    "no literal": npy("__import__('os')", b"x"),
    "nested": npy("(" * 9_000, b"x"),
    "negated": npy("-" * 9_000 + "1", b"x"),
    "a chain": npy("1+" * 4_500 + "1", b"x"),
    "bytes in it": npy("{'descr': '\0'}", b"x"),
    "not text": npy(b"{'descr': '\xff\xfe'}", b"x", (3, 0)),
    "unhashable": npy("{[]: 1}", b"x"),
    "keys": npy("{'descr': '<u1', 'shape': (1,)}", b"x"),
    "more keys": npy(stated("'<u1'")[:-2] + ", 'x': 1}", b"x"),
    "object": npy(stated("'|O'"), bytes(8)),
    "object field": npy(stated("[('a', '|O')]"), bytes(8)),
    "unknown": npy(stated("'<i3'"), bytes(3)),
    "two types": npy(stated("'<i4,<i4'"), bytes(8)),
    "repeated": npy(stated("'(2,)<i4'"), bytes(8)),
    "named": npy(stated("'float64'"), bytes(8)),
    "unit": npy(stated("'<M8[eon]'"), bytes(8)),
    "subarray": npy(stated("('<i4', (2,))"), bytes(8)),
    "no descr": npy(stated("None"), bytes(8)),
    "field twice": npy(stated("[('a', '<i4'), ('a', '<i4')]"), bytes(8)),
    "field without type": npy(stated("[('a',)]"), bytes(8)),
    "field with negative shape": npy(stated("[('a', '<i4', (-1,))]"), bytes(8)),
    "field too large": npy(stated("[('a', '<i4', (2147483647, 2147483647))]"), bytes(8)),
    "deep fields": npy(stated("[('a', " * 40 + "'<i4'" + ")]" * 40), bytes(4)),
    "empty items": npy(stated("'|V0'"), b""),
    "order": npy(stated("'<u1'", order="1"), b"x"),
    "shape is a list": npy(stated("'<u1'", "[1]"), b"x"),
    "negative": npy(stated("'<u1'", "(-1,)"), b"x"),
    "a bool": npy(stated("'<u1'", "(True,)"), b"x"),
    "overflow": npy(stated("'<u1'", "(4294967296, 4294967296)"), b""),
    "overflow to fit": npy(stated("'<u1'", f"({2**63}, 2)"), b""),
    "zero times too much": npy(stated("'<i8'", f"(0, {2**62})"), b""),
    "66 dimensions": npy(stated("'<u1'", str((1,) * 66)), b"x"),
    "too short": npy(stated("'<i4'"), bytes(3)),
    "too long": npy(stated("'<i4'"), bytes(5)),
    "a bool of 2": npy(stated("'|b1'"), b"\2"),
    "no character": npy(stated("'<U1'"), b"\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_refused(case: str) -> None:
    for _ in range(2):  # headers are remembered, refusals as well as any
        with pytest.raises(drt.CodecError) as caught:
            CODEC.loads(DAMAGED[case])
        assert caught.value.kind == "decode"
        assert "\n" not in str(caught.value)


def test_the_builder_of_damage_builds_arrays() -> None:
    assert CODEC.loads(npy(stated("'<u1'")[:-1] + " " * 9_000 + "\n", b"x", (2, 0))).tolist() == [120]
    assert CODEC.loads(npy(stated("'<i4'"), b"\1\0\0\0")).tolist() == [1]


def test_fields_may_state_their_shape_in_either_way() -> None:
    for field in ("('a', '<i2', (2,))", "('a', ('<i2', (2,)))"):
        assert CODEC.loads(npy(stated(f"[{field}]"), b"\1\0\2\0"))["a"].tolist() == [[1, 2]]


# Batches.


@pytest.fixture
def batch_of(tmp_path: Path, quiet: drt.WriterConfig) -> Any:
    def make(*arrays: Any) -> Any:
        rows = [(CODEC.dumps(array), {}) for array in arrays]
        ds = drt.cache(RowSource("s", rows), tmp_path, config=quiet)
        return ds.take(range(len(ds)))

    return make


@pytest.mark.parametrize("array", ARRAYS)
def test_a_batch_is_stacked(batch_of: Any, array: np.ndarray[Any, Any]) -> None:
    other = array[::-1].copy(order="K") if array.ndim else array.copy()
    stacked = CODEC.loads_batch(batch_of(array, other, array))
    np.testing.assert_array_equal(stacked, np.stack([array, other, array]))
    assert stacked.dtype == array.dtype
    assert stacked.flags.writeable
    assert stacked.flags.c_contiguous
    assert stacked.size == 0 or stacked.ctypes.data % 64 == 0


def test_arrays_of_either_order_are_stacked(batch_of: Any) -> None:
    array = np.arange(9.0).reshape(3, 3)
    stacked = CODEC.loads_batch(batch_of(array, array.T, array + 1, array.T + 1))
    np.testing.assert_array_equal(stacked, [array, array.T, array + 1, array.T + 1])
    assert stacked.flags.c_contiguous


def test_a_stacked_batch_is_memory_of_its_own(batch_of: Any) -> None:
    batch = batch_of(np.zeros(3), np.zeros(3))
    stacked = CODEC.loads_batch(batch)
    stacked[:] = 1
    assert CODEC.loads(batch.payloads[0]).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "other",
    [np.zeros(4, np.float32), np.zeros(3, np.int32), np.zeros((3, 1), np.float32), np.zeros(3, ">f4")],
)
def test_arrays_that_differ_are_not_stacked(batch_of: Any, other: Any) -> None:
    batch = batch_of(np.zeros(3, np.float32), other)
    with pytest.raises(drt.CodecError, match="payload") as caught:
        CODEC.loads_batch(batch)
    assert caught.value.kind == "layout"
    assert "loads" in str(caught.value)


def test_no_arrays_have_no_shape_to_stack() -> None:
    with pytest.raises(drt.CodecError, match="empty"):
        CODEC.loads_batch(SimpleNamespace(lengths=np.zeros(0, np.int64)))  # type: ignore[arg-type]


def test_a_damaged_item_is_found_in_a_batch(batch_of: Any) -> None:
    batch = batch_of(np.array([True]), np.array([True]))
    batch.payloads[1][-1] = 2
    with pytest.raises(drt.CodecError, match="bool"):
        CODEC.loads_batch(batch)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(4, dtype="u1").view("?"),
        np.array([0x110000], "u4").view("U1"),
        np.zeros(1, [(f"{number:04}" * 5, "i4") for number in range(500)]),
        np.zeros(1, functools.reduce(lambda inner, _: np.dtype([("a", inner)]), range(20), np.dtype("i4"))),
    ],
    ids=["bools", "characters", "long", "deep"],
)
def test_what_would_not_be_read_again_is_not_packed(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(drt.CodecError, match="would not be read again") as refused:
        drt.codecs.Npy().dumps(array)
    assert refused.value.kind == "encode"
    assert "\n" not in str(refused.value)
    assert "verify" not in str(refused.value)


def test_a_batch_of_arrays_of_all_dimensions_is_refused() -> None:
    array = np.zeros((1,) * MAX_DIMS)
    assert CODEC.loads(CODEC.dumps(array)).shape == array.shape
    batch = SimpleNamespace(payloads=[memoryview(CODEC.dumps(array))], lengths=[len(CODEC.dumps(array))])
    batch.as_array = lambda dtype, shape: np.frombuffer(batch.payloads[0], dtype).reshape(1, *shape)
    with pytest.raises(drt.CodecError, match=f"{MAX_DIMS} dimensions") as refused:
        CODEC.loads_batch(batch)  # type: ignore[arg-type]
    assert refused.value.kind == "layout"
