"""Json and Msgpack: exactly what went in, or a refusal that says where."""

import collections
import datetime
import enum
import json
import math
from typing import Any

import msgpack
import numpy as np
import pytest

import datasetrt as drt
from datasetrt.codecs import Json, Msgpack

BOTH = pytest.mark.parametrize("codec", [Json(), Msgpack()], ids=["json", "msgpack"])

VALUES = [
    *(None, True, False, 0, -1, 2**53 + 1, -(2**63), 2**64 - 1, 0.1, -0.0, 1e308, 5e-324, 1.0),
    *("", "é\0\n\u2028", "😀", [], [[[]]], {}, {"": {}}, {"b": 1, "a": [None, {"c": "x"}]}),
]


@BOTH
def test_values_come_back_with_their_types(codec: Any) -> None:
    back = codec.loads(codec.dumps(VALUES))
    assert back == VALUES
    assert [type(value) for value in back] == [type(value) for value in VALUES]
    assert math.copysign(1, back[VALUES.index(-0.0, 9)]) == -1


class Text(str):
    __slots__ = ()


class Level(enum.IntEnum):
    LOW = 1


REFUSED = {
    "tuple": ((1, 2), "tuple", "list("),
    "int key": ({1: "a"}, "key 1", "str"),
    "None key": ({None: "a"}, "key None", "str"),
    "bytes key": ({b"a": 1}, "key b'a'", "str"),
    "set": ({1}, "set", "sorted("),
    "bytearray": (bytearray(b"x"), "bytearray", "; give "),
    "float subclass": (np.float64(1.5), "float64", ".item()"),
    "numpy int": (np.int64(1), "int64", ".item()"),
    "numpy bool": (np.bool_(True), "bool", ".item()"),
    "array": (np.ones(2), "ndarray", ".tolist()"),
    "dict subclass": (collections.OrderedDict(a=1), "OrderedDict", "plain"),
    "str subclass": (Text("x"), "Text", "plain"),
    "enum": (Level.LOW, "Level", "plain"),
    "date": (datetime.date(2020, 1, 1), "date", "plain"),
    "complex": (1j, "complex", "plain"),
}


@BOTH
@pytest.mark.parametrize("case", REFUSED)
def test_what_would_come_back_as_something_else_is_refused(codec: Any, case: str) -> None:
    value, what, cure = REFUSED[case]
    for wrapped, where in ((value, "$"), ({"a": [0, value]}, "$.a[1]")):
        with pytest.raises(drt.CodecError) as caught:
            codec.dumps(wrapped)
        assert caught.value.kind == "encode"
        for words in (where, what, cure, codec.name):
            assert words in str(caught.value)


@BOTH
def test_nesting_without_end_is_refused(codec: Any) -> None:
    ring: list[Any] = []
    ring.append(ring)
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    for value in (ring, deep):
        with pytest.raises(drt.CodecError) as caught:
            codec.dumps(value)
        assert caught.value.kind == "encode"


@BOTH
def test_messages_say_where_and_stay_on_one_line(codec: Any) -> None:
    ring: dict[str, Any] = {"a b": [0, {}]}
    ring["a b"][1]["c"] = ring
    deep: list[Any] = []
    for _ in range(600):
        deep = [deep]
    # What is wrong, where, and the cure.
    cases: list[tuple[Any, list[str]]] = [
        (ring, ["$['a b'][1].c", "contains itself", "tree"]),
        ({"x": deep}, ["$.x[0][0]", "more than 500 deep", "flatter"]),
        ({"a\nb": [(1,)]}, [r"$['a\nb'][0]", "tuple", "list(…)"]),
        ({"a": [{1: 2}]}, ["$.a[0]", "the key 1", "give a str"]),
        ({"a": ["x\ud800"]}, ["$.a[0]", r"'x\ud800'", "lone surrogate", "valid Unicode"]),
        ({"a": {"\udfff": 1}}, ["$.a", "key", "lone surrogate", "valid Unicode"]),
        ({"a": [0, 10**6000]}, ["$.a[1]", "an int of 19,932 bits", "give a str"]),
        ({"k" * 5000: [()]}, ["$.kkk", "tuple", "list(…)"]),
    ]
    for value, words in cases:
        with pytest.raises(drt.CodecError) as caught:
            codec.dumps(value)
        message = str(caught.value)
        assert [word for word in words if word not in message] == []
        assert "\n" not in message
        assert len(message) < 500


@BOTH
def test_what_is_as_deep_as_can_be_comes_back(codec: Any) -> None:
    deep: Any = 7
    for _ in range(500):
        deep = [deep]
    assert codec.loads(codec.dumps(deep)) == deep
    shared = {"a": 1}
    assert codec.loads(codec.dumps([shared, [shared], shared])) == [shared, [shared], shared]


@BOTH
@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}])
def test_half_characters_are_refused(codec: Any, value: Any) -> None:
    with pytest.raises(drt.CodecError) as caught:
        codec.dumps(value)
    assert caught.value.kind == "encode"


# Json.


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_has_no_nan_and_no_infinity(value: float) -> None:
    with pytest.raises(drt.CodecError, match=rf"\$\.x\[1\] the value is {value}, .*; give None") as caught:
        Json().dumps({"x": [0, value]})
    assert caught.value.kind == "encode"
    with pytest.raises(drt.CodecError, match="JSON does not have"):
        Json().loads(json.dumps({"x": value}).encode())


def test_json_is_compact_and_keeps_the_order_of_dicts() -> None:
    assert Json().dumps({"b": [1, "é"], "a": None}) == '{"b":[1,"é"],"a":null}'.encode()
    assert list(Json().loads(b'{"b": 1, "a": 2}')) == ["b", "a"]


def test_json_keeps_integers_of_any_size() -> None:
    assert Json().loads(Json().dumps(2**1000)) == 2**1000
    with pytest.raises(drt.CodecError):
        Json().dumps(10**5000)


# fmt: off
DAMAGED_JSON = [
    b"", b" ", b"{", b"[1,]", b"{'a': 1}", b"1 2", b"nul", b"\xff", b"\xff\xfe1\0", b"\xef\xbb\xbf1", b'"\n"',
    b"9" * 5000, b"[" * 100_000, b'{"a":' * 100_000, b'["\\ud800"]', b'{"\\uDFFF": 1}', b'[1] x',
    b'{"a": [1,',
]
# fmt: on


@pytest.mark.parametrize("payload", DAMAGED_JSON, ids=lambda payload: repr(payload[:12]))
def test_damaged_json_is_refused(payload: bytes) -> None:
    with pytest.raises(drt.CodecError) as caught:
        Json().loads(payload)
    assert caught.value.kind == "decode"
    assert "; " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_escapes_of_whole_characters_are_read() -> None:
    assert Json().loads(rb'["\u00e9\ud83d\ude00", {"\u0061": 1}]') == ["é😀", {"a": 1}]


# Msgpack.


def test_msgpack_has_bytes_nan_and_infinity() -> None:
    back = Msgpack().loads(Msgpack().dumps({"jpeg": b"\xff\0", "x": [math.nan, math.inf]}))
    assert back["jpeg"] == b"\xff\0"
    assert type(back["jpeg"]) is bytes
    assert math.isnan(back["x"][0])
    assert back["x"][1] == math.inf
    with pytest.raises(drt.CodecError, match="bytes"):
        Json().dumps(b"x")


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, [2**100]])
def test_msgpack_has_integers_of_64_bits(value: Any) -> None:
    with pytest.raises(drt.CodecError) as caught:
        Msgpack().dumps(value)
    assert caught.value.kind == "encode"
    assert "2**64" in str(caught.value)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x01\x02",
        b"\xdb\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xa1\xff",
        b"\x81\x01\x02",
        b"\x81\x90\x01",
        b"\x91" * 100_000 + b"\x01",
        msgpack.packb(msgpack.ExtType(5, b"x")),
        msgpack.packb({"a": msgpack.ExtType(42, b"")}),
        b"\xc7\x0c\xff" + b"\xff" * 12,
    ],
    ids=lambda payload: repr(payload[:12]),
)
def test_damaged_msgpack_is_refused(payload: bytes) -> None:
    with pytest.raises(drt.CodecError) as caught:
        Msgpack().loads(payload)
    assert caught.value.kind == "decode"
    assert "; " in str(caught.value)


def test_timestamps_of_other_writers_come_back_as_such() -> None:
    stamp = msgpack.Timestamp(5, 6)
    assert Msgpack().loads(msgpack.packb([stamp])) == [stamp]
    with pytest.raises(drt.CodecError):
        Msgpack().dumps([stamp])


@pytest.mark.parametrize("payload", [b"1e400", b"[-1e400]", b'{"a": ' + b"9" * 400 + b".0}"])
def test_numbers_that_no_float_holds_are_refused(payload: bytes) -> None:
    with pytest.raises(drt.CodecError, match="which no float holds") as refused:
        Json().loads(payload)
    assert refused.value.kind == "decode"


@pytest.mark.parametrize(
    "value", [b"x", bytearray(b"x"), memoryview(b"x")], ids=lambda value: type(value).__name__
)
def test_the_cure_for_bytes_is_one_that_works(value: Any) -> None:
    with pytest.raises(drt.CodecError, match="base64"):
        Json().dumps(value)
    if not isinstance(value, bytes):
        with pytest.raises(drt.CodecError, match="give bytes"):
            Msgpack().dumps(value)
