"""Record: a layout that its name spells out, strict on the way in, whole batches on the way out."""

import enum
import itertools
import pickle
import sys
from collections import UserList, deque
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import datasetrt as drt
from datasetrt.codecs import Record
from tests.rows import RowSource

FIELDS: dict[str, Any] = {
    "flag": ("bool", ()),
    "box": ("float32", (2, 2)),
    "word": ("S5", (2,)),
    "id": ("int64", ()),
    "wave": ("complex64", (3,)),
    "image": ("uint8", (4, 4)),
}
CODEC = Record(FIELDS)


def a_record(n: int = 0) -> dict[str, Any]:
    return {
        "flag": np.bool_(n % 2),
        "box": np.full((2, 2), n, np.float32),
        "word": np.array([b"ab", b"cdefg"]),
        "id": np.int64(2**40 + n),
        "wave": np.array([1j, n, -1], np.complex64),
        "image": np.full((4, 4), n, np.uint8),
    }


def assert_equal(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert list(left) == list(right)
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name])


def test_the_name_is_the_layout() -> None:
    assert CODEC.name == (
        "record(flag:bool[],box:float32[2,2],word:S5[2],id:int64[],wave:complex64[3],image:uint8[4,4])"
    )
    names = {
        Record({"a": ("f4", (2,)), "b": ("f4", ())}).name,
        Record({"b": ("f4", ()), "a": ("f4", (2,))}).name,
        Record({"a": ("f4", (1, 2)), "b": ("f4", ())}).name,
        Record({"a": ("i4", (2,)), "b": ("f4", ())}).name,
        Record({"a": ("f4", (2,)), "c": ("f4", ())}).name,
    }
    assert len(names) == 5


def test_layouts_are_equal_however_they_are_spelt() -> None:
    one = Record({"x": (np.float32, (2,)), "y": (">i8", [3])})  # type: ignore[dict-item]
    assert one == Record({"x": ("<f4", (2,)), "y": ("int64", (3,))})
    assert one != Record({"x": ("f4", (2,))})
    assert pickle.loads(pickle.dumps(one)).dtype == one.dtype
    assert eval(repr(one)) == one
    with pytest.raises(AttributeError, match="immutable"):
        one.size = 3  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        del one._name


def test_fields_lie_where_the_guide_says() -> None:
    fields = CODEC.dtype.fields
    assert fields is not None
    assert {name: place[1] for name, place in fields.items()} == {
        "flag": 0,
        "box": 4,
        "word": 20,
        "id": 32,
        "wave": 40,
        "image": 64,
    }
    assert CODEC.size == CODEC.dtype.itemsize == 80
    payload = CODEC.dumps(a_record(1))
    assert len(payload) == 80
    assert payload[:4] == b"\1\0\0\0"
    assert payload[4:8] == b"\0\0\x80\x3f"
    assert payload[20:32] == b"ab\0\0\0cdefg\0\0"
    assert payload[32:40] == (2**40 + 1).to_bytes(8, "little")
    assert Record({"a": ("u1", (3,)), "b": ("c16", ()), "c": ("u1", ())}).size == 32
    assert Record({"a": ("u1", (3,))}).size == 3
    assert Record({"a": ("S3", ()), "b": ("f2", ())}).size == 6


def test_every_dtype_of_a_record_comes_back() -> None:
    for kind in ("?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "f", "d", "F", "D", "S1", "S9"):
        codec = Record({"x": (kind, (2,)), "y": (kind, ())})
        value = np.array([1, 0]).astype(kind)
        back = codec.loads(codec.dumps({"x": value, "y": value[0]}))
        assert back["x"].dtype == np.dtype(kind)
        np.testing.assert_array_equal(back["x"], value)
        np.testing.assert_array_equal(back["y"], value[0])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        None,
        [("x", ("f4", ()))],
        {"": ("f4", ())},
        {"a b": ("f4", ())},
        {"a:b": ("f4", ())},
        {"a,b": ("f4", ())},
        {"a[0]": ("f4", ())},
        {"(a)": ("f4", ())},
        {"a\0": ("f4", ())},
        {1: ("f4", ())},
        {"x": "f4"},
        {"x": ("f4",)},
        {"x": ("f4", (), 1)},
        {"x": (None, ())},
        {"x": ("no", ())},
        {"x": ("O", ())},
        {"x": ("U3", ())},
        {"x": ("S", ())},
        {"x": ("V4", ())},
        {"x": ("g", ())},
        {"x": ("G", ())},
        {"x": ("M8[s]", ())},
        {"x": ("m8[s]", ())},
        {"x": ("f4,f4", ())},
        {"x": ("(2,)f4", ())},
        {"x": ("f4", 3)},
        {"x": ("f4", "3")},
        {"x": ("f4", (0,))},
        {"x": ("f4", (-1,))},
        {"x": ("f4", (True,))},
        {"x": ("f4", (2.0,))},
        {"x": ("f4", (1,) * 32)},
        {"x": ("f4", (2**30,))},
        {"x": ("f4", (2**40, 2**40))},
    ],
)
def test_layouts_that_cannot_be(fields: Any) -> None:
    with pytest.raises(drt.InvalidInputError) as caught:
        Record(fields)
    assert caught.value.kind == "invalid-argument"
    assert "\n" not in str(caught.value)


def test_one_payload_comes_back_as_views() -> None:
    payload = bytearray(CODEC.dumps(a_record(3)))
    back = CODEC.loads(payload)
    assert_equal(back, a_record(3))
    for array in back.values():
        assert np.shares_memory(array, np.frombuffer(payload, np.uint8))
        assert array.flags.writeable
        assert array.flags.aligned
    assert not any(array.flags.writeable for array in CODEC.loads(bytes(payload)).values())


# Packing is strict.

ONE = Record({"i8": ("i8", ()), "u1": ("u1", (2,)), "f4": ("f4", ()), "f8": ("f8", ()), "s": ("S3", ())})
FITTING: dict[str, Any] = {"i8": 1, "u1": [1, 2], "f4": np.float32(1), "f8": 0.1, "s": b"abc"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("i8", -(2**63)),
        ("i8", np.int32(-5)),
        ("i8", np.uint32(5)),
        ("i8", np.array(5, ">i2")),
        ("u1", (0, 255)),
        ("u1", np.array([1, 2], np.uint8)),
        ("u1", np.arange(4, dtype=np.uint8)[::2]),
        ("f4", np.float16(0.5)),
        ("f8", np.float32(0.5)),
        ("f8", np.nan),
        ("s", b""),
        ("s", np.bytes_(b"a")),
    ],
)
def test_values_that_fit(field: str, value: Any) -> None:
    back = ONE.loads(ONE.dumps({**FITTING, field: value}))
    np.testing.assert_array_equal(back[field], np.asarray(value))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("i8", 2**63, "within"),
        ("i8", 2**64, "not within"),
        ("i8", np.uint64(1), "uint64"),
        ("i8", 1.0, "1.0, a float"),
        ("i8", True, "bool"),
        ("i8", [1], "shape (1,)"),
        ("i8", None, "None, a NoneType"),
        ("i8", "1", "a str"),
        ("u1", [0, 256], "0 to 256"),
        ("u1", [-1, 0], "-1 to 0"),
        ("u1", np.array([1, 2]), "int64"),
        ("u1", 1, "shape ()"),
        ("u1", [[1, 2]], "shape (1, 2)"),
        ("u1", [[1], [2, 3]], "no array"),
        ("u1", np.ma.masked_array([1, 2], [0, 1], dtype=np.uint8), "MaskedArray"),
        ("f4", 0.5, "np.asarray(value, 'f4')"),
        ("f4", np.float64(0.5), "float64"),
        ("f4", np.int8(1), "int8"),
        ("f8", 1, "int64"),
        ("f8", 1j, "1j, a complex"),
        ("s", b"abcd", "S4"),
        ("s", "abc", "a str; give bytes"),
        ("s", b"ab\0", "zero byte"),
    ],
)
def test_values_that_would_lose_something(field: str, value: Any, words: str) -> None:
    with pytest.raises(drt.CodecError) as caught:
        ONE.dumps({**FITTING, field: value})
    assert caught.value.kind == "encode"
    assert words in str(caught.value)
    assert f"field {field}:" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fields_are_exactly_those_of_the_record() -> None:
    with pytest.raises(drt.CodecError, match=r"missing fields \['f8'\], unknown fields \['f9'\]") as caught:
        ONE.dumps({"f9" if name == "f8" else name: value for name, value in FITTING.items()})
    assert ONE.name in str(caught.value)
    with pytest.raises(drt.CodecError, match="not a mapping"):
        ONE.dumps([1, 2])  # type: ignore[arg-type]


def test_bools_are_stored_as_0_and_1() -> None:
    codec = Record({"m": ("?", (3,))})
    odd = np.array([2, 0, 255], np.uint8).view(np.bool_)
    assert codec.dumps({"m": odd}) == b"\1\0\1"
    with pytest.raises(drt.CodecError, match="bool") as caught:
        codec.loads(b"\1\0\2")
    assert caught.value.kind == "decode"


@pytest.mark.parametrize("size", [0, 79, 81, 160])
def test_a_payload_of_another_size_is_refused_with_both(size: int) -> None:
    with pytest.raises(drt.CodecError) as caught:
        CODEC.loads(bytes(size))
    assert caught.value.kind == "layout"
    assert f"{size} bytes" in str(caught.value)
    assert "takes 80" in str(caught.value)


# Batches.


@pytest.fixture
def batch_of(tmp_path: Path, quiet: drt.WriterConfig) -> Any:
    names = map(str, itertools.count())

    def make(*payloads: bytes) -> Any:
        ds = drt.cache(
            RowSource(next(names), [(payload, {}) for payload in payloads]), tmp_path, config=quiet
        )
        return ds.take(range(len(ds)))

    return make


def test_a_batch_is_one_array_a_field(batch_of: Any) -> None:
    batch = batch_of(*(CODEC.dumps(a_record(n)) for n in range(5)))
    columns = CODEC.loads_batch(batch)
    assert_equal(columns, {name: np.stack([a_record(n)[name] for n in range(5)]) for name in FIELDS})
    for name, array in columns.items():
        assert array.dtype == np.dtype(FIELDS[name][0])
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.ctypes.data % 64 == 0
        array[:] = array[0]
    assert_equal(CODEC.loads(batch.payloads[4]), a_record(4))


def test_a_field_that_fills_the_record_is_memory_of_its_own(batch_of: Any) -> None:
    codec = Record({"x": ("f8", (2,))})
    batch = batch_of(codec.dumps({"x": [1.0, 2.0]}), codec.dumps({"x": [3.0, 4.0]}))
    codec.loads_batch(batch)["x"][:] = 0
    assert codec.loads(batch.payloads[1])["x"].tolist() == [3.0, 4.0]


def test_a_payload_of_another_size_is_found_in_a_batch(batch_of: Any) -> None:
    good = CODEC.dumps(a_record())
    with pytest.raises(drt.CodecError, match="payload 2 of the batch has 79 bytes") as caught:
        CODEC.loads_batch(batch_of(good, good, good[:-1], good))
    assert (caught.value.kind, caught.value.sample_id) == ("layout", 2)
    with pytest.raises(drt.CodecError, match="payload 0 of the batch has 4 bytes"):
        CODEC.loads_batch(batch_of(b"1234", b"1234"))


def test_a_damaged_bool_is_found_in_a_batch(batch_of: Any) -> None:
    good = CODEC.dumps(a_record())
    with pytest.raises(drt.CodecError, match="bool"):
        CODEC.loads_batch(batch_of(good, b"\2" + good[1:]))


def test_the_work_in_python_does_not_grow_with_the_batch(batch_of: Any) -> None:
    def calls(count: int) -> int:
        batch = batch_of(*[CODEC.dumps(a_record())] * count)
        seen = 0

        def count_calls(frame: object, event: str, argument: object) -> None:
            nonlocal seen
            seen += event in ("call", "c_call")

        sys.setprofile(count_calls)
        try:
            CODEC.loads_batch(batch)
        finally:
            sys.setprofile(None)
        return seen

    assert calls(3) == calls(50) > 0


def test_lists_of_ints_fit_by_value_whatever_numpy_would_make_of_them() -> None:
    codec = Record({"i": ("uint64", (2,)), "j": ("int8", (2, 1))})
    packed = codec.dumps({"i": [2**64 - 1, 5], "j": ((1,), [-128])})
    loaded = codec.loads(packed)
    assert (loaded["i"].tolist(), loaded["j"].tolist()) == ([2**64 - 1, 5], [[1], [-128]])
    for wrong in ([2**64, 5], [-1, 5], [True, 2], [1, 2.0], [1], [[1], [2, 3]], [None, 1]):
        with pytest.raises(drt.CodecError):
            codec.dumps({"i": wrong, "j": [[1], [2]]})
    assert codec.loads(codec.dumps({"i": [np.uint64(7), np.uint8(2)], "j": [[1], [2]]}))["i"].tolist() == [
        7,
        2,
    ]


NAN = float("nan")


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        ("int8", [np.int64(3), 2**63], "the values 3 to 9223372036854775808 are not within -128 to 127"),
        ("int64", [np.int64(3), 2**63], "the values 3 to 9223372036854775808 are not within"),
        ("uint64", [np.int64(-1), np.uint64(2**63)], "the values -1 to 9223372036854775808 are not within 0"),
        ("int64", [10**5000, 1], "the values 1 to an int of 16,610 bits are not within"),
        ("int8", 300, "the value 300 is not within -128 to 127"),
        ("int8", [True, 1], "the value has True, a bool; give whole numbers"),
        ("int64", [np.True_, 1], ", a bool"),
        ("int8", [1, 1.0], "the value has 1.0, a float; give whole numbers"),
        ("int8", [NAN, 1], "the value has nan, a float; give whole numbers"),
        ("uint8", [1, None], "the value has None, a NoneType; give whole numbers"),
        ("int32", [1, "a"], "the value has 'a', a str; give whole numbers"),
        ("int32", np.array([1, None], object), "the value has None, a NoneType; give whole numbers"),
        ("bool", [True, 1], "the value has 1, an int; give bools"),
        ("bool", [True, None], "the value has None, a NoneType; give bools"),
        ("float64", [1.5, True], "the value has True, a bool; give floats"),
        ("float64", [1.5, None], "the value has None, a NoneType; give floats"),
        ("float64", [2**53 + 1, 1.5], "the value has 9007199254740993, which no float is; give floats"),
        ("float64", [10**5000, 1.5], "the value has an int of 16,610 bits, which no float is; give floats"),
        ("float32", [1.5, 2.5], "the value has dtype float64, which may lose something; cast it"),
        ("complex128", [1j, "a"], "the value has 'a', a str; give complex numbers"),
        ("S5", [b"a", "b"], "the value has 'b', a str; give bytes"),
        ("S5", [b"a", 1], "the value has 1, an int; give bytes"),
        ("S5", [b"a", b"too long"], "the value has dtype |S8, which may lose something"),
        ("int8", [[1, 2], [3]], "the value is no array"),
        (
            "int8",
            np.ma.masked_array([1, 2], [True, False]),
            "a MaskedArray, whose mask would be lost",
        ),
        ("float32", np.ones((2, 1), "f4"), "an ndarray of shape (2, 1) does not fit; reshape it"),
    ],
)
def test_what_does_not_fit_is_told_as_it_is(dtype: str, value: Any, words: str) -> None:
    shape = () if isinstance(value, int) else (2,)
    with pytest.raises(drt.CodecError) as refused:
        drt.codecs.Record({"x": (dtype, shape)}).dumps({"x": value})
    assert words in str(refused.value)
    assert "CodecError" not in str(refused.value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint64", [np.int64(3), 2**63]),
        ("int8", [np.int64(3), 4]),
        ("int64", [np.int8(1), np.uint64(2)]),
        ("float64", [2**60, 1.5]),
        ("float64", [NAN, np.float32(2)]),
        ("complex128", [1, 2j]),
        ("bool", [np.True_, False]),
        ("S5", [b"", b"abcde"]),
    ],
)
def test_mixtures_that_lose_nothing_are_taken(dtype: str, value: Any) -> None:
    codec = drt.codecs.Record({"x": (dtype, (2,))})
    assert repr(codec.loads(codec.dumps({"x": value}))["x"].tolist()) == repr(np.array(value, dtype).tolist())


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
        (("S5", ()), np.bytes_(b"a\0"), "ends in a zero byte"),
        (("S5", (1, 2)), [(b"", np.bytes_(b"a\0"))], "ends in a zero byte"),
        (("S5", (1,)), deque([np.bytes_(b"a\0")]), "ends in a zero byte"),
        (("S5", (1,)), np.array([b"a\0", 1], object)[:1], "ends in a zero byte"),
        (("int64", (2,)), deque([True, 2]), "True, a bool; give whole numbers"),
        (("int64", (2,)), UserList([True, 2]), "True, a bool; give whole numbers"),
        (("int64", (1, 2)), [deque([True, 2])], "True, a bool; give whole numbers"),
        (("float32", ()), {1.5}, "a set; give floats"),
        (("float64", (3,)), pa.array([2**53 + 1, None, 1]), "with nulls, which would be numbers"),
        (("float64", (2,)), pa.chunked_array([[1.0], [None]]), "with nulls, which would be numbers"),
        (("float64", (2,)), pl.Series([1.0, None]), "with nulls, which would be numbers"),
        (("float64", (1, 2)), pl.Series([[1.0, None]], dtype=pl.Array(pl.Float64, 2)), "with nulls"),
        (("float64", (2, 2)), [pa.array([1.0, None]), pa.array([3.0, 4.0])], "with nulls"),
        (("float64", (1, 2)), UserList([pl.Series([1.0, None])]), "with nulls"),
        (("float64", (2,)), pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([1.0, None])), "nulls"),
        (("float64", (1, 1)), pa.table({"a": [1.0]}), "a table; give an array"),
        (("float64", (1, 1)), pl.DataFrame({"a": [1.0]}), "a table; give an array"),
        (("float64", (2,)), deque([np.ma.masked, 1.0]), "mask would be lost"),
        (("int64", (1, 2)), UserList([np.ma.array([1, 2], mask=[0, 1])]), "mask would be lost"),
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


class Named(str, enum.Enum):  # noqa: UP042 - a StrEnum formats as its text
    X = "x"


def test_the_name_of_a_field_is_its_text() -> None:
    codec = drt.codecs.Record({Named.X: ("i4", ())})
    assert codec == drt.codecs.Record({"x": ("i4", ())})
    assert codec.name == "record(x:int32[])"
    assert codec.loads(codec.dumps({"x": 5}))["x"] == 5


def test_columns_of_other_libraries_without_nulls_are_taken() -> None:
    codec = drt.codecs.Record({"x": ("f8", (2,))})
    for value in (pa.array([1.0, 2.0]), pa.chunked_array([[1.0], [2.0]]), pl.Series([1.0, 2.0])):
        assert codec.loads(codec.dumps({"x": value}))["x"].tolist() == [1.0, 2.0]


class Raising:
    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("no array")


def test_what_a_value_raises_is_the_cause() -> None:
    with pytest.raises(drt.CodecError, match="no array") as refused:
        drt.codecs.Record({"x": ("f8", ())}).dumps({"x": Raising()})
    assert refused.value.kind == "encode"
    assert isinstance(refused.value.__cause__, RuntimeError)


def test_messages_about_many_fields_are_short() -> None:
    codec = drt.codecs.Record({f"field_{number}": ("i4", ()) for number in range(2_000)})
    odd = {f"other\n{number}": 1 for number in range(5_000)} | {10**5000: 1}
    for call in (lambda: codec.dumps(odd), lambda: codec.dumps({}), lambda: codec.loads(b"")):
        with pytest.raises(drt.CodecError) as refused:
            call()
        assert len(str(refused.value)) < 1_000
        assert "\n" not in str(refused.value)


def test_a_layout_of_many_fields_is_named_by_its_digest(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    def record(count: int, dtype: str = "uint8") -> drt.codecs.Record:
        return drt.codecs.Record({f"a_field_{number:03}": (dtype, ()) for number in range(count)})

    codec = record(400)
    assert codec.name.startswith("record(400 fields,sha256:")
    assert codec == record(400)
    assert len({codec.name, record(401).name, record(400, "int8").name}) == 3
    payload = codec.dumps({f"a_field_{number:03}": number % 256 for number in range(400)})
    source = drt.MapSource("wide", range(2), lambda _: drt.CacheInput(payload, {}), codec=codec)
    ds = drt.cache(source, tmp_path, config=quiet)
    assert codec.loads_batch(ds.take([0, 1]))["a_field_399"].tolist() == [143, 143]
    with pytest.raises(drt.CodecError):
        ds.loader(transform=record(400, "int8"))
