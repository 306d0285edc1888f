"""Pickle: consent, what the allow-list reads, and that it reads what pickle reads."""

import base64
import collections
import dataclasses
import datetime
import enum
import fractions
import os
import pickle
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import datasetrt as drt
from datasetrt.codecs import Pickle

HERE = __name__


@dataclasses.dataclass
class Box:
    label: int
    corners: list[float]


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    parts: tuple[int, ...]


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = 1


class Stubborn:
    def __setstate__(self, state: object) -> None:
        raise KeyError("no such column\nin this table")

    def __reduce__(self) -> tuple[Any, ...]:
        return Stubborn, (), {"a": 1}


class Unwilling:
    def __reduce__(self) -> str:
        raise RuntimeError("not today")


def error_of(codec: Any, payload: bytes) -> drt.CodecError:
    with pytest.raises(drt.CodecError) as caught:
        codec.loads(payload)
    assert "\n" not in str(caught.value)
    return caught.value


# Consent.


def test_reading_takes_consent_and_the_error_gives_both_cures() -> None:
    error = error_of(Pickle(), Pickle().dumps({"a": 1}))
    assert error.kind == "untrusted"
    assert isinstance(error, ValueError)
    assert "trust=True" in str(error)
    assert "allow=" in str(error)


def test_without_consent_the_payload_is_not_even_looked_at() -> None:
    assert error_of(Pickle(), b"").kind == "untrusted"


@pytest.mark.parametrize(
    "options",
    [
        {"trust": 1},
        {"trust": True, "allow": "numpy"},
        {"trust": True, "allow": []},
        {"allow": "torch"},
        {"allow": "os.system"},
        {"allow": ["dict"]},
        {"allow": ["a..b"]},
        {"allow": ["a.b c"]},
        {"allow": [""]},
        {"allow": [3]},
        {"allow": 3},
        {"protocol": 6},
        {"protocol": -1},
        {"protocol": "5"},
        {"protocol": True},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(drt.InvalidInputError) as caught:
        Pickle(**options)
    assert caught.value.kind == "invalid-argument"


def test_equal_options_make_equal_codecs() -> None:
    assert Pickle(allow=["a.b", "numpy"]) == Pickle(allow=("numpy", "a.b", "a.b"))
    assert Pickle(allow="numpy") == Pickle(allow=["numpy"])
    assert {Pickle(trust=True).name, Pickle(allow="numpy").name, Pickle(protocol=4).name} == {"pickle"}


def test_an_empty_list_reads_plain_values() -> None:
    value = {"a": [1, 2.5, None, True, "é", b"x", (1, 2), {3}, frozenset([4])]}
    assert Pickle(allow=[]).loads(Pickle().dumps(value)) == value
    assert error_of(Pickle(allow=[]), Pickle().dumps(np.ones(2))).kind == "refused-global"


# The same values as pickle.


PLAIN = [
    None,
    True,
    0,
    -1,
    255,
    256,
    65535,
    65536,
    2**31,
    -(2**31),
    2**63,
    -(2**100),
    2**2000,
    1.5,
    float("inf"),
    "",
    "é\0\n" * 100,
    "\ud800",
    "x" * 70_000,
    b"",
    b"\xff" * 300,
    b"y" * 70_000,
    (),
    (1,),
    (1, 2),
    (1, 2, 3),
    (1, 2, 3, 4),
    [],
    [1],
    list(range(3000)),
    {},
    {"a": 1},
    {n: str(n) for n in range(3000)},
    {("key", 1): ("inner",)},
    [[[]]],
]


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_come_back_in_every_protocol(protocol: int) -> None:
    codec = Pickle(allow=[], protocol=protocol)
    for value in PLAIN:
        # Protocols 0 to 2 spell bytes as a call; the preset has it.
        reader = Pickle(allow="numpy") if type(value) is bytes else codec
        back = reader.loads(codec.dumps(value))
        assert back == value
        assert type(back) is type(value)


@pytest.mark.parametrize("protocol", [4, 5])
def test_sets_and_bytearrays_come_back(protocol: int) -> None:
    for value in (
        set(),
        {1, "a"},
        frozenset(),
        frozenset([1, ("a", frozenset())]),
        bytearray(b"abc"),
        bytearray(70_000),
    ):
        codec = Pickle(allow=["builtins.bytearray"], protocol=protocol)
        assert codec.loads(codec.dumps(value)) == value


def test_shared_and_recursive_values_keep_their_shape() -> None:
    shared = ["x"]
    ring: list[Any] = [shared, shared]
    ring.append(ring)
    back = Pickle(allow=[]).loads(Pickle().dumps(ring))
    assert back[0] is back[1]
    assert back[2] is back


def an_array(dtype: Any, shape: tuple[int, ...] = (2, 3)) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


NESTED = np.dtype([("a", "u1"), ("inner", [("t", "U3"), ("b", "?", (2,))]), ("m", "M8[us]")])
ARRAYS = [
    *(an_array(dtype) for dtype in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")),
    *(an_array(dtype) for dtype in ("f2", "f4", "f8", "g", "F", "D", "G")),
    *(an_array(dtype) for dtype in (">i4", ">f8", ">c16", "q", "L", "S3", "U4", ">U2", "V5")),
    *(an_array(dtype) for dtype in ("M8[D]", "M8[25s]", "m8[ns]", ">M8[ms]", "m8")),
    np.array(["NaT"], "M8"),
    np.zeros(3, NESTED),
    np.zeros((2, 1), np.dtype([("a", "u1"), ("b", "i8"), ("c", "f4", (2, 2))], align=True)),
    np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["i2", "i2"], "offsets": [4, 0], "itemsize": 9})),
    an_array("f4", ()),
    an_array("f4", (0, 3)),
    an_array("i2", (1,) * 20),
    np.asfortranarray(an_array("f4")),
    an_array("f4")[:, ::2],
    an_array("i4", (2, 3, 4)).transpose(1, 0, 2),
    np.array([1, "a", None, [2], np.ones(2)], object),
    np.array([[None, {}]], object),
    np.frombuffer(b"abcd", np.uint8),
]


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_are_what_pickle_makes_of_them(protocol: int) -> None:
    codec = Pickle(allow="numpy", protocol=protocol)
    for array in ARRAYS:
        payload = codec.dumps({"array": array, "dtype": array.dtype, "again": array})
        back, expected = codec.loads(payload), pickle.loads(payload)
        assert back["again"] is back["array"]
        assert back["dtype"] == expected["dtype"]
        assert back["dtype"].isalignedstruct == expected["dtype"].isalignedstruct
        mine, theirs = back["array"], expected["array"]
        assert type(mine) is np.ndarray
        assert (mine.dtype, mine.dtype.str) == (theirs.dtype, theirs.dtype.str)
        assert (mine.shape, mine.strides) == (theirs.shape, theirs.strides)
        assert mine.flags.writeable == theirs.flags.writeable
        np.testing.assert_equal(mine.tolist(), theirs.tolist())


SCALARS = [
    *(np.dtype(kind).type(1) for kind in "?bhilqBHILQefdgFDG"),
    *(np.str_(""), np.str_("é"), np.bytes_(b""), np.bytes_(b"ab")),
    *(np.datetime64("2020-01-01"), np.datetime64("NaT"), np.timedelta64(3, "h")),
    np.zeros(1, [("a", "f4"), ("b", "S2")])[0],
]


@pytest.mark.parametrize("protocol", range(6))
def test_numpy_scalars_are_what_pickle_makes_of_them(protocol: int) -> None:
    codec = Pickle(allow="numpy", protocol=protocol)
    for scalar in SCALARS:
        back, expected = codec.loads(codec.dumps(scalar)), pickle.loads(codec.dumps(scalar))
        assert type(back) is type(expected)
        assert back.dtype == expected.dtype
        np.testing.assert_equal(back, expected)


# np.arange(3, "f4") twice, a strided array, a date, a scalar: by NumPy 1.26.4 in protocols 4, 5, 2, 4, 3.
NUMPY_1 = [
    (
        "gASVlAAAAAAAAACMFW51bXB5LmNvcmUubXVsdGlhcnJheZSMDF9yZWNvbnN0cnVjdJSTlIwFbnVtcHmUjAduZGFycmF5lJOU"
        "SwCFlEMBYpSHlFKUKEsBSwOFlGgDjAVkdHlwZZSTlIwCZjSUiYiHlFKUKEsDjAE8lE5OTkr/////Sv////9LAHSUYolDDAAA"
        "AAAAAIA/AAAAQJR0lGIu"
    ),
    (
        "gAWVfwAAAAAAAACMEm51bXB5LmNvcmUubnVtZXJpY5SMC19mcm9tYnVmZmVylJOUKJYMAAAAAAAAAAAAAAAAAIA/AAAAQJSM"
        "BW51bXB5lIwFZHR5cGWUk5SMAmY0lImIh5RSlChLA4wBPJROTk5K/////0r/////SwB0lGJLA4WUjAFDlHSUUpQu"
    ),
    (
        "gAJjbnVtcHkuY29yZS5tdWx0aWFycmF5Cl9yZWNvbnN0cnVjdApxAGNudW1weQpuZGFycmF5CnEBSwCFcQJjX2NvZGVjcwpl"
        "bmNvZGUKcQNYAQAAAGJxBFgGAAAAbGF0aW4xcQWGcQZScQeHcQhScQkoSwFLA0sChnEKY251bXB5CmR0eXBlCnELWAIAAABm"
        "NHEMiYiHcQ1ScQ4oSwNYAQAAADxxD05OTkr/////Sv////9LAHRxEGKJaANYGgAAAAAAAAAAAABAAABAQAAAwqBAAADDgEAA"
        "AABBcRFoBYZxElJxE3RxFGIu"
    ),
    (
        "gASVoQAAAAAAAACMFW51bXB5LmNvcmUubXVsdGlhcnJheZSMDF9yZWNvbnN0cnVjdJSTlIwFbnVtcHmUjAduZGFycmF5lJOU"
        "SwCFlEMBYpSHlFKUKEsBSwGFlGgDjAVkdHlwZZSTlIwCTTiUiYiHlFKUKEsEjAE8lE5OTkr/////Sv////9LAH2UKEMBRJRL"
        "AUsBSwF0lIaUdJRiiUMIVkcAAAAAAACUdJRiLg=="
    ),
    (
        "gANjbnVtcHkuY29yZS5tdWx0aWFycmF5CnNjYWxhcgpxAGNudW1weQpkdHlwZQpxAVgCAAAAZjRxAomIh3EDUnEEKEsDWAEA"
        "AAA8cQVOTk5K/////0r/////SwB0cQZiQwQAAEBAcQeGcQhScQku"
    ),
]


def test_pickles_of_numpy_1_are_read() -> None:
    expected = [
        np.arange(3, dtype="f4"),
        np.arange(3, dtype="f4"),
        np.arange(9, dtype="f4").reshape(3, 3)[:, ::2],
        np.array(["2020-01-01"], "M8[D]"),
        np.float32(3),
    ]
    for text, value in zip(NUMPY_1, expected, strict=True):
        back = Pickle(allow="numpy").loads(base64.b64decode(text))
        assert back.dtype == value.dtype
        np.testing.assert_array_equal(back, value)


def test_the_fixtures_are_of_numpy_1() -> None:
    for text in NUMPY_1:
        payload = base64.b64decode(text)
        assert b"numpy.core." in payload
        assert b"_core" not in payload


# Allowed classes.


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("value", "allow"),
    [
        (Box(3, [0.5]), [f"{HERE}.Box"]),
        (Frozen("a", (1, 2)), [f"{HERE}.Frozen"]),
        (Point(1, 2), [f"{HERE}.Point"]),
        (Colour.RED, [f"{HERE}.Colour"]),
        (Slotted(4), [f"{HERE}.Slotted"]),
        (fractions.Fraction(1, 3), ["fractions.Fraction"]),
        (1 + 2j, ["builtins.complex"]),
        (datetime.datetime(2020, 1, 2), ["datetime.datetime", "numpy"]),
        (collections.OrderedDict(b=1, a=2), ["collections.OrderedDict"]),
        (collections.deque([1, 2]), ["collections.deque"]),
        (collections.Counter("aab"), ["collections.Counter"]),
        ({"box": Box(3, []), "array": None}, ["numpy", f"{HERE}.Box"]),
        (os.path.join, ["posixpath.join"]),
    ],
    ids=str,
)
def test_allowed_classes_come_back(value: Any, allow: list[str], protocol: int) -> None:
    codec = Pickle(allow=allow, protocol=protocol)
    back = codec.loads(codec.dumps(value))
    assert back == value
    assert type(back) is type(value)
    error = error_of(Pickle(allow=[]), codec.dumps(value))
    assert error.kind == "refused-global"
    assert allow[-1].rpartition(".")[2] in str(error) or "numpy" in allow


def test_dtypes_of_other_packages_may_be_allowed() -> None:
    # A scalar class with a dtype attribute is how such packages introduce themselves to numpy.
    payload = pickle.dumps(np.dtype("f4"), 4).replace(b"\x8c\x02f4\x94", b"cbuiltins\nfloat\n\x94")
    codec = Pickle(allow=["numpy", "builtins.float"])
    # The frame is a byte count of the original; without it the rest stands.
    assert payload[2:3] == b"\x95"
    assert codec.loads(payload[:2] + payload[11:]) == np.dtype("f8")


def test_a_nested_class_is_named_by_its_qualified_name() -> None:
    payload = pickle.dumps(collections.abc.Mapping, 4)
    assert Pickle(allow=["collections.abc.Mapping"]).loads(payload) is collections.abc.Mapping


@pytest.mark.parametrize(
    ("allow", "words"),
    [
        ("no_such_module_here.Box", "no module 'no_such_module_here'"),
        ("collections.NoSuch", "no 'NoSuch'"),
        ("os.path", "is a module"),
    ],
)
def test_an_allowed_name_that_is_nothing_is_an_error_of_the_list(allow: str, words: str) -> None:
    module, _, name = allow.rpartition(".")
    error = error_of(Pickle(allow=[allow]), f"c{module}\n{name}\n.".encode())
    assert error.kind == "decode"
    assert words in str(error)


def test_a_module_that_fails_to_import_says_what_it_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking_module.py").write_text("import no_such_module_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    error = error_of(Pickle(allow=["lacking_module.Box"]), b"clacking_module\nBox\n.")
    assert error.kind == "decode"
    assert "no_such_module_here" in str(error)


# What goes wrong in between.


def test_an_exception_of_a_class_is_the_cause() -> None:
    payload = Pickle().dumps(Stubborn())
    for codec in (Pickle(trust=True), Pickle(allow=[f"{HERE}.Stubborn"])):
        error = error_of(codec, payload)
        assert error.kind == "decode"
        assert type(error.__cause__) is KeyError
        assert "no such column" in str(error)


def test_what_cannot_be_pickled_is_an_error_with_its_cause() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value, cause in (
        (Unwilling(), RuntimeError),
        (lambda: 0, (pickle.PicklingError, AttributeError)),
        (nested, RecursionError),
    ):
        with pytest.raises(drt.CodecError) as caught:
            Pickle().dumps(value)
        assert caught.value.kind == "encode"
        assert isinstance(caught.value.__cause__, cause)
        assert type(value).__name__ in str(caught.value)


def test_interrupts_are_not_swallowed() -> None:
    class Interrupting:
        def __reduce__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pickle().dumps(Interrupting())


@pytest.mark.parametrize("codec", [Pickle(trust=True), Pickle(allow="numpy")], ids=["trust", "allow"])
def test_bytes_behind_the_pickle_are_refused(codec: Pickle) -> None:
    error = error_of(codec, codec.dumps([1]) + codec.dumps([2]))
    assert error.kind == "decode"
    assert "follow" in str(error)


def test_numpy_is_not_warned_about() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Pickle(allow="numpy").loads(base64.b64decode(NUMPY_1[0]))
