"""Laws of all codecs: what is packed comes back, and any bytes are a value or a `CodecError`."""

import math
import pickle
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import datasetrt as drt
from datasetrt import codecs

LAYOUT = {
    "flag": ("?", (3,)),
    "x": ("f4", (2, 2)),
    "id": ("i8", ()),
    "word": ("S4", ()),
    "wave": ("c8", (2,)),
    "tiny": ("u1", ()),
}
RECORD = codecs.Record(LAYOUT)
ALLOWED = {
    "pickle": codecs.Pickle(allow="numpy"),
    "oob": codecs.PickleOOB(allow="numpy"),
    "npy": codecs.Npy(),
    "json": codecs.Json(),
    "msgpack": codecs.Msgpack(),
    "record": RECORD,
    "validated": codecs.Validated(codecs.Json(), dict[str, list[int]]),
}
TRUSTING = {
    "pickle": codecs.Pickle(trust=True),
    "oob": codecs.PickleOOB(trust=True),
    "dill": codecs.Dill(trust=True),
}

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=20)


def plain(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists and dicts with str keys over the leaves."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=12,
    )


NATIVE = ["?", "i1", "u2", "i8", "f2", "f4", "c8", "S3", "V3", "M8[us]", "m8[7D]"]
SWAPPED = [">i4", ">f8", ">M8[s]"]
STRUCTURED = [
    np.dtype([("a", "u1"), ("b", "f4", (2,))]),
    np.dtype([("in", [("c", "i2"), ("s", "S2")])]),
]


@st.composite
def arrays(draw: st.DrawFn, swapped: bool = True) -> np.ndarray[Any, Any]:
    """Arrays of many dtypes, shapes, orders and strides, with arbitrary items."""
    dtype = np.dtype(draw(st.sampled_from([*NATIVE, *STRUCTURED, *(SWAPPED if swapped else ())])))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    size = math.prod(shape) * dtype.itemsize
    raw = draw(st.binary(min_size=size, max_size=size))
    items = bytearray(byte & 1 for byte in raw) if dtype.kind == "b" else bytearray(raw)
    array = np.ndarray(shape, dtype, items)
    change = draw(st.sampled_from(["none", "fortran", "transposed", "every other"]))
    if change == "fortran":
        return np.asfortranarray(array)
    if change == "transposed":
        return array.T
    return array[::2] if change == "every other" and array.ndim else array


def same(left: Any, right: Any) -> bool:
    """Equal in type and value, down to the bits of floats and array items."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, np.ndarray):
        return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right)


@given(plain(scalars.filter(lambda value: not isinstance(value, float) or math.isfinite(value))))
def test_json_gives_back_what_it_takes(value: Any) -> None:
    assert same(codecs.Json().loads(codecs.Json().dumps(value)), value)


@given(plain(scalars | st.binary(max_size=20)))
def test_msgpack_gives_back_what_it_takes(value: Any) -> None:
    assert same(codecs.Msgpack().loads(codecs.Msgpack().dumps(value)), value)


@given(arrays())
def test_npy_gives_back_what_it_takes(array: np.ndarray[Any, Any]) -> None:
    assert same(codecs.Npy().loads(codecs.Npy().dumps(array)), array)


@given(
    # numpy's own pickles of some arrays turn the byte order into the machine's.
    plain(scalars | st.binary(max_size=20) | st.tuples(scalars, arrays(swapped=False))),
    st.integers(2, 5),
    st.sampled_from(["allow", "trust"]),
)
def test_pickles_give_back_what_they_take(value: Any, protocol: int, how: str) -> None:
    consent: dict[str, Any] = {"allow": "numpy"} if how == "allow" else {"trust": True}
    for codec in (codecs.Pickle(protocol=protocol, **consent), codecs.PickleOOB(**consent)):
        payload = codec.dumps(value)
        assert same(codec.loads(payload), value)
        assert same(codec.loads(bytearray(payload)), value)


@given(plain(scalars | arrays()), st.integers(0, 5))
def test_the_allow_list_reads_what_pickle_reads(value: Any, protocol: int) -> None:
    payload = pickle.dumps(value, protocol)
    assert same(codecs.Pickle(allow="numpy").loads(payload), pickle.loads(payload))


def records() -> st.SearchStrategy[dict[str, Any]]:
    """Records of `LAYOUT` with arbitrary bits."""

    def of(raw: bytes) -> dict[str, Any]:
        values, at = {}, 0
        for name, (kind, shape) in LAYOUT.items():
            dtype = np.dtype(kind)
            size = math.prod(shape) * dtype.itemsize
            data = bytes(byte & 1 for byte in raw[at : at + size]) if kind == "?" else raw[at : at + size]
            values[name] = np.ndarray(shape, dtype, data).copy()
            at += size
        return values

    size = sum(math.prod(shape) * np.dtype(kind).itemsize for kind, shape in LAYOUT.values())
    return st.binary(min_size=size, max_size=size).map(of)


@given(records())
def test_records_give_back_what_they_take(record: dict[str, Any]) -> None:
    payload = RECORD.dumps(record)
    assert len(payload) == RECORD.size
    assert same(RECORD.loads(payload), record)
    assert RECORD.dumps(RECORD.loads(payload)) == payload


# No bytes lead anywhere else.


def refusal(codec: Any, payload: bytes) -> drt.CodecError | None:
    """The refusal of a payload, or None where it is a value, which must then be sound."""
    try:
        value = codec.loads(payload)
    except drt.CodecError as error:
        return error
    use(value)
    return None


def check(codec: Any, payload: bytes) -> None:
    error = refusal(codec, payload)
    assert error is None or "\n" not in str(error)
    assert error is None or error.kind in {"decode", "layout", "refused-global"}


def use(value: Any, seen: set[int] | None = None) -> None:
    """Look at every item of every array in a value; containers may hold themselves."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    ):
        use(item, seen)
    if isinstance(value, np.ndarray | np.generic):
        value.tolist()


VALID = {
    "pickle": codecs.Pickle().dumps(
        {"x": np.arange(3), "d": np.dtype([("a", "?")]), "o": np.array([1, "a"], object)}
    ),
    "oob": codecs.PickleOOB().dumps(
        [np.arange(5), np.array([True]), np.array(["ab"]), np.float32(1), "text"]
    ),
    "npy": codecs.Npy().dumps(np.zeros(2, [("a", "U2"), ("b", "?")])),
    "json": b'{"a":[1,2],"b":[]}',
    "msgpack": codecs.Msgpack().dumps({"a": [1, 2.5, b"x", None], "b": {"c": "text"}}),
    "record": RECORD.dumps({name: np.zeros(shape, kind) for name, (kind, shape) in LAYOUT.items()}),
    "validated": b'{"a":[1,2],"b":[]}',
}


@given(st.sampled_from(sorted(ALLOWED)), st.binary(max_size=200))
@settings(max_examples=500)
def test_noise_is_a_value_or_a_codec_error(name: str, payload: bytes) -> None:
    check(ALLOWED[name], payload)


# Bytes that are likely to mean something to the stack machine of a pickle.
OPCODES = [
    *(
        bytes([code])
        for code in b"(.012FGIJKLMNRSTUVX]abcdeghijlopqrstu}\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c"
    ),
    *(bytes([code]) for code in b"\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"),
    *(b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"cnumpy._core.multiarray\n_reconstruct\n"),
    *(b"cnumpy._core.multiarray\nscalar\n", b"cnumpy._core.numeric\n_frombuffer\n", b"c_codecs\nencode\n"),
    *(b"\x8c\x02f4", b"\x8c\x02O8", b"\x8c\x02V8", b"\x8c\x01<", b"\x8c\x01a", b"\x8c\x01C", b"C\4\0\0\0\0"),
    *(b"K\0", b"K\1", b"K\3", b"K\4", b"J\xff\xff\xff\xff", b"q\0", b"h\0", b"q\1", b"h\1"),
]


@given(st.lists(st.sampled_from(OPCODES), max_size=60))
@settings(max_examples=2000)
def test_any_program_is_a_value_or_a_codec_error(program: list[bytes]) -> None:
    check(ALLOWED["pickle"], b"".join(program) + b".")


@given(st.sampled_from(sorted(ALLOWED)), st.data())
@settings(max_examples=1000)
def test_changed_payloads_are_a_value_or_a_codec_error(name: str, data: st.DataObject) -> None:
    payload = bytearray(VALID[name])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    check(ALLOWED[name], bytes(payload))


@given(st.sampled_from(sorted(ALLOWED)), st.data())
def test_truncated_payloads_are_a_codec_error(name: str, data: st.DataObject) -> None:
    cut = VALID[name][: data.draw(st.integers(0, len(VALID[name]) - 1))]
    error = refusal(ALLOWED[name], cut)
    assert error is not None, f"{cut!r} was accepted"
    assert error.kind in {"decode", "layout"}


@given(st.sampled_from(sorted(TRUSTING)), st.data())
def test_truncated_payloads_are_a_codec_error_with_trust_too(name: str, data: st.DataObject) -> None:
    payload = TRUSTING[name].dumps({"x": np.arange(3), "y": ["text", 1.5]})
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    error = refusal(TRUSTING[name], cut)
    assert error is not None, f"{cut!r} was accepted"
    assert error.kind == "decode"


@given(st.sampled_from(sorted(TRUSTING)), st.binary(max_size=60))
def test_noise_is_a_value_or_a_codec_error_with_trust_too(name: str, payload: bytes) -> None:
    # pickle itself takes memory for the numbers of PUT opcodes, without limit before Python 3.14.
    assume(b"r" not in payload and b"p" not in payload)
    check(TRUSTING[name], payload)
