"""PickleOOB: arrays are aligned views of the payload or the batch, and a frame that lies is refused."""

import copyreg
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt.codecs import PickleOOB
from tests.rows import RowSource

CODECS = [PickleOOB(trust=True), PickleOOB(allow="numpy")]
BOTH = pytest.mark.parametrize("codec", CODECS, ids=["trust", "allow"])


def a_record(n: int = 0) -> dict[str, Any]:
    return {
        "image": np.full((5, 7), n, np.uint8),
        "box": np.arange(3, dtype=np.float64) + n,
        "columns": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "words": ["a", "b"] * n,
    }


def assert_equal(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        np.testing.assert_array_equal(value, right[key])


@BOTH
def test_arrays_are_views_of_the_payload(codec: PickleOOB) -> None:
    payload = bytearray(codec.dumps(a_record(3)))
    back = codec.loads(payload)
    assert_equal(back, a_record(3))
    base = np.frombuffer(payload, np.uint8)
    for array in (back["image"], back["box"], back["columns"]):
        assert array.flags.writeable
        assert np.shares_memory(array, base)
        assert (array.ctypes.data - base.ctypes.data) % 64 == 0
    assert back["columns"].flags.f_contiguous
    back["image"][0, 0] = 99
    assert codec.loads(payload)["image"][0, 0] == 99


@BOTH
def test_arrays_over_bytes_are_read_only(codec: PickleOOB) -> None:
    back = codec.loads(codec.dumps(a_record()))
    assert not back["image"].flags.writeable


@BOTH
def test_read_only_arrays_stay_read_only(codec: PickleOOB) -> None:
    array = np.ones(3)
    array.setflags(write=False)
    assert not codec.loads(bytearray(codec.dumps(array))).flags.writeable


@BOTH
def test_arrays_of_a_batch_are_aligned_writable_views_of_it(
    codec: PickleOOB, tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    rows = [(codec.dumps(a_record(n)), {}) for n in range(4)]
    batch = drt.cache(RowSource("s", rows), tmp_path, config=quiet).take([3, 0, 2])
    back = codec.loads_batch(batch)
    for record, n in zip(back, (3, 0, 2), strict=True):
        assert_equal(record, a_record(n))
    for record, payload in zip(back, batch.payloads, strict=True):
        for array in (record["image"], record["box"], record["columns"]):
            assert array.ctypes.data % 64 == 0
            assert array.flags.writeable
            assert np.shares_memory(array, np.frombuffer(payload, np.uint8))


@BOTH
def test_payloads_of_one_size_are_aligned_too(
    codec: PickleOOB, tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    rows = [(codec.dumps(np.full(n % 2 + 3, n, np.float64)), {}) for n in range(5)]
    assert len({len(payload) for payload, _ in rows}) == 1
    batch = drt.cache(RowSource("s", rows), tmp_path, config=quiet).take(range(5))
    assert all(array.ctypes.data % 64 == 0 for array in codec.loads_batch(batch))


@BOTH
@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        np.empty((0, 3)),
        np.array(1.5),
        np.arange(6)[::2],
        np.array(["x", None], object),
        np.array(["2020"], "M8[D]"),
        [np.zeros(0, np.uint8), np.ones(1, np.uint8), np.zeros(64, np.uint8), np.ones(65, np.uint8)],
        np.zeros(2, [("a", "f4"), ("b", "i8")]),
    ],
)
def test_whatever_pickle_takes(codec: PickleOOB, value: Any) -> None:
    back = codec.loads(codec.dumps(value))
    assert type(back) is type(value)
    for mine, theirs in zip(back, value, strict=True) if isinstance(value, list) else [(back, value)]:
        np.testing.assert_array_equal(mine, theirs)


def test_buffers_without_an_array_come_back_too() -> None:
    back = PickleOOB(trust=True).loads(PickleOOB().dumps(pickle.PickleBuffer(bytearray(b"abc"))))
    assert bytes(back) == b"abc"


def test_the_layout_is_the_documented_one() -> None:
    payload = PickleOOB().dumps([np.arange(3, dtype=np.uint8), np.arange(2, dtype=np.uint8)])
    magic, version, body, count, first, second = struct.unpack_from("<4sIQQQQ", payload)
    assert (magic, version, count, first, second) == (b"DRTB", 1, 2, 3, 2)
    at = -(-(40 + body) // 64) * 64
    assert payload[40 + body : at] == bytes(at - 40 - body)
    assert payload[at:] == b"\0\1\2" + bytes(61) + b"\0\1" + bytes(62)
    first_buffer, second_buffer = payload[at : at + 3], payload[at + 64 : at + 66]
    back = pickle.loads(payload[40 : 40 + body], buffers=[first_buffer, second_buffer])
    assert [part.tolist() for part in back] == [[0, 1, 2], [0, 1]]


def test_without_consent_nothing_is_read() -> None:
    with pytest.raises(drt.CodecError) as caught:
        PickleOOB().loads(PickleOOB().dumps([1]))
    assert caught.value.kind == "untrusted"
    assert "pickle-oob" in str(caught.value)


def test_globals_are_refused_here_too() -> None:
    with pytest.raises(drt.CodecError, match="Path") as caught:
        PickleOOB(allow="numpy").loads(PickleOOB().dumps(Path("x")))
    assert caught.value.kind == "refused-global"


def test_what_cannot_be_pickled_is_refused() -> None:
    strided = pickle.PickleBuffer(np.arange(6)[::2])
    for value in (lambda: 0, strided):
        with pytest.raises(drt.CodecError) as caught:
            PickleOOB().dumps(value)
        assert caught.value.kind == "encode"


GOOD = PickleOOB().dumps([np.arange(5, dtype=np.uint8), np.arange(3.0)])


def padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 64)


def patched(at: int, size: int, value: int) -> bytes:
    return GOOD[:at] + value.to_bytes(size, "little") + GOOD[at + size :]


HUGE = 2**64 - 1
DAMAGED = {
    "empty": b"",
    "header cut": GOOD[:23],
    "magic": b"X" + GOOD[1:],
    "version 0": patched(4, 4, 0),
    "version 2": patched(4, 4, 2),
    "no pickle": patched(8, 8, 0),
    "pickle too long": patched(8, 8, HUGE),
    "pickle too short": patched(8, 8, int.from_bytes(GOOD[8:16], "little") - 1),
    "no buffers": patched(16, 8, 0),
    "one buffer less": patched(16, 8, 1),
    "one buffer more": patched(16, 8, 3),
    "buffers beyond number": patched(16, 8, HUGE),
    "first buffer short": patched(24, 8, 4),
    "first buffer longer": patched(24, 8, 65),
    "first buffer huge": patched(24, 8, HUGE),
    "second buffer short": patched(32, 8, 23),
    "second buffer huge": patched(32, 8, HUGE - 64),
    "tail cut": GOOD[:-1],
    "tail added": GOOD + b"\0",
    "padding after the pickle": GOOD[:-129] + b"\1" + GOOD[-128:],
    "padding between": GOOD[:-65] + b"\1" + GOOD[-64:],
    "padding at the end": GOOD[:-1] + b"\1",
}


@BOTH
@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_frames_are_refused(codec: PickleOOB, case: str) -> None:
    with pytest.raises(drt.CodecError) as caught:
        codec.loads(DAMAGED[case])
    assert caught.value.kind == "decode"
    assert "\n" not in str(caught.value)


def test_bytes_behind_the_inner_pickle_are_refused() -> None:
    body = pickle.dumps([1], 5) + b"N."
    payload = padded(struct.pack("<4sIQQ", b"DRTB", 1, len(body), 0) + body)
    for codec in CODECS:
        with pytest.raises(drt.CodecError, match="follow"):
            codec.loads(payload)


@BOTH
def test_buffers_that_the_pickle_leaves_are_refused(codec: PickleOOB) -> None:
    body = pickle.dumps([1], 5)
    payload = padded(padded(struct.pack("<4sIQQQ", b"DRTB", 1, len(body), 1, 3) + body) + b"abc")
    with pytest.raises(drt.CodecError, match="unused"):
        codec.loads(payload)


INTEGERS = [
    np.int8(-128),
    np.int64(-(2**63)),
    np.uint64(2**64 - 1),
    np.uint16(7),
    np.longlong(3),
    np.intc(-4),
]
SCALARS = [*INTEGERS, np.bool_(True), np.float32(0.1), np.float64("nan"), np.complex64(1j), np.str_("x")]


@BOTH
def test_scalars_come_back_as_they_were(codec: PickleOOB) -> None:
    back = codec.loads(codec.dumps(SCALARS))
    for value, expected in zip(back, SCALARS, strict=True):
        assert (type(value), repr(value)) == (np.dtype(expected.dtype.str).type, repr(expected))


@BOTH
def test_arrays_of_every_kind_come_back_as_they_were(codec: PickleOOB) -> None:
    arrays: list[Any] = [
        np.zeros((), ">f4"),
        np.zeros((0, 3), "<i2"),
        np.asfortranarray(np.arange(6, dtype=">c16").reshape(2, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(10)[::2],
        np.array([True, False]),
        np.array(["a", "bc"]),
        np.array([(1, 2.0)], [("x", "i4"), ("y", "f8")]),
        np.array(["2026-11-30", "NaT"], "M8[s]"),
        np.arange(3, dtype=np.float16),
        np.array([np.nan, -0.0], np.longdouble),
        np.broadcast_to(np.int32(3), (2, 2)),
        np.ones(2, np.dtype("i4", metadata={"unit": "mm"})),
    ]
    twice = codec.loads(bytearray(codec.dumps([*arrays, arrays[0]])))
    for array, expected in zip(twice, arrays, strict=False):
        assert (array.dtype, array.shape, array.tobytes()) == (
            expected.dtype,
            expected.shape,
            expected.tobytes(),
        )
        assert type(array) is np.ndarray
    # One object is one object.
    assert twice[-1] is twice[0]


class Tagged(np.ndarray[Any, Any]):
    """A class of its own stays what it is."""


def test_subclasses_of_arrays_come_back_as_such() -> None:
    codec = PickleOOB(trust=True)
    assert type(codec.loads(codec.dumps(np.arange(3).view(Tagged)))) is Tagged


def test_what_a_program_registers_for_arrays_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(copyreg.dispatch_table, np.ndarray, lambda array: (list, (array.tolist(),)))
    assert PickleOOB(trust=True).loads(PickleOOB().dumps(np.arange(3))) == [0, 1, 2]


def program(call: tuple[Any, ...], data: bytes = bytes(8)) -> bytes:
    """A payload that calls ``numpy.ndarray`` or another class with any arguments; ``...`` is the buffer."""

    class Call:
        def __reduce__(self) -> tuple[Any, ...]:
            cls, *arguments = call
            return cls, tuple(pickle.PickleBuffer(data) if each is ... else each for each in arguments)

    return PickleOOB().dumps(Call())


@pytest.mark.parametrize(
    "call",
    [
        (np.ndarray,),
        (np.ndarray, (1,)),
        (np.ndarray, (1,), "<i8"),
        (np.ndarray, (2,), "<i8", ...),
        (np.ndarray, (-1,), "<i8", ...),
        (np.ndarray, [1], "<i8", ...),
        (np.ndarray, (1,), "O", ...),
        (np.ndarray, (1,), "<M8[s]", ...),
        (np.ndarray, (1,), "i4,i4", ...),
        (np.ndarray, (1,), ("<i8", (1,)), ...),
        (np.ndarray, (1,), "<i8", bytes(8)),
        (np.ndarray, (1,), "<i4", ..., 4),
        (np.ndarray, (1,), "<i8", ..., 0, (0,)),
        (np.ndarray, (1,), "<i8", ..., 0, None, "K"),
        (np.int8, 128),
        (np.uint64, -1),
        (np.int64, "1"),
        (np.int64,),
    ],
    ids=str,
)
def test_hostile_calls_are_refused(call: tuple[Any, ...]) -> None:
    with pytest.raises(drt.CodecError) as caught:
        PickleOOB(allow="numpy").loads(program(call))
    assert caught.value.kind == "decode"


def test_flags_that_are_none_are_refused() -> None:
    with pytest.raises(drt.CodecError, match="bool"):
        PickleOOB(allow="numpy").loads(program((np.ndarray, (8,), "|b1", ...), b"\2" * 8))


@pytest.mark.parametrize("dtype", [">g", ">G", np.dtype("g").newbyteorder("<")])
def test_arrays_that_have_no_buffer_travel_in_the_pickle(dtype: Any) -> None:
    array = np.arange(3).astype(dtype)
    codec = drt.codecs.PickleOOB(allow="numpy")
    assert codec.loads(codec.dumps({"x": array}))["x"].tolist() == array.tolist()
