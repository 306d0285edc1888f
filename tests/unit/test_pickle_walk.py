"""Following a pickle without running it names what the unpickler would import, whatever the pickle is."""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import io
import pathlib
import pickle
import struct

import dill
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasetrt.pickle_walk import MAX_NAME_BYTES, walk


class Recorder(pickle.Unpickler):
    """The real unpickler, which tells what it was asked to import."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.asked: set[str] = set()

    def find_class(self, module: str, name: str) -> object:
        real = super().find_class(module, name)
        self.asked.add(f"{module}.{name}")
        return real


OBJECTS = [
    None,
    [1, "a", b"b", 2.5, True, {"k": (1, 2, 3)}, {4}, frozenset({5}), 10**400, bytearray(b"x")],
    collections.OrderedDict(a=collections.Counter("abc")),
    [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), decimal.Decimal("1.5"), pathlib.PurePosixPath("/a")],
    functools.partial(len, "a"),
    [np.arange(5.0), np.float32(3), np.dtype("i4"), np.array(["a", "b"], dtype=object)],
    collections.defaultdict(list, {"a": [1]}),
    ["shared"] * 300,
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_it_names_what_the_unpickler_imports(number: int, protocol: int) -> None:
    data = pickle.dumps(OBJECTS[number], protocol)
    real = Recorder(data)
    real.load()
    found = walk(data)
    assert found.problem is None
    assert found.end == len(data)
    # Below protocol 3 the recorder hears the names of Python 2, which the real one then translates.
    translated = {
        name.replace("__builtin__.", "builtins.").replace("copy_reg.", "copyreg.") for name in real.asked
    }
    assert set(found.names) == translated


def test_it_follows_dill() -> None:
    data = dill.dumps([lambda x: x + 1, type("Local", (), {"a": 1})])
    found = walk(data)
    assert found.problem is None
    assert "dill._dill._create_function" in found.names


CRAFTED = [
    (b"cos\nsystem\n.", ["os.system"]),
    (b"(ios\nsystem\n.", ["os.system"]),
    (b"(S'x'\nios\nsystem\n.", ["os.system"]),
    (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", ["os.system"]),
    # Names from the memo, by every way to keep and recall, and by DUP.
    (b"\x80\x04\x8c\x02os\x940\x8c\x06system\x940h\x00h\x01\x93.", ["os.system"]),
    (b"\x80\x04\x8c\x02osq\x07j\x07\x00\x00\x00\x8c\x06system\x93.", ["os.system"]),
    (b"\x80\x04\x8c\x02osr\x07\x00\x00\x00g7\n\x8c\x06system\x93.", ["os.system"]),
    (b"\x80\x04\x8c\x01a2\x93.", ["a.a"]),
    # Text by every opcode that gives some.
    (b"\x80\x04Vos\nX\x06\x00\x00\x00system\x93.", ["os.system"]),
    (b"\x80\x04S'os'\nU\x06system\x93.", ["os.system"]),
    (b"\x80\x04T\x02\x00\x00\x00os\x8d\x06\0\0\0\0\0\0\0system\x93.", ["os.system"]),
    # What Python 2 called it, as the unpickler translates it.
    (b"c__builtin__\neval\n.", ["builtins.eval"]),
    (b"ccommands\ngetoutput\n.", ["subprocess.getoutput"]),
    (b"\x80\x03c__builtin__\neval\n.", ["__builtin__.eval"]),
    # Names that are not in the text.
    (b"\x80\x04cbuiltins\nstr\n)R\x8c\x06system\x93.", ["builtins.str", "<computed>.system"]),
    (b"\x80\x04\x8c\x02osN\x93.", ["os.<computed>"]),
    (b"\x82\x07.", ["<extension 7>"]),
    (b"\x84\x07\x00\x00\x00.", ["<extension 7>"]),
    (b"c" + b"a" * (MAX_NAME_BYTES + 1) + b"\nb\n.", ["<too long>.b"]),
    # A value that is thrown away, with a mark or without, is not forgotten by mistake.
    (b"\x80\x04\x8c\x02os(\x8c\x01x1\x8c\x06system\x93.", ["os.system"]),
    (b"\x80\x04\x8c\x02os(0\x8c\x06system\x93.", ["os.system"]),
]


@pytest.mark.parametrize(("data", "names"), CRAFTED)
def test_crafted_pickles(data: bytes, names: list[str]) -> None:
    found = walk(data)
    assert list(found.names) == names
    assert (found.problem, found.end) == (None, len(data))


BROKEN = [
    b"",
    b"cos\n",
    b"cos\nsystem\n",
    b"cos\nsystem\n(X\xff\xff\xff\x7f",
    b"\x80\x06N.",
    b"\x80",
    b"\xff",
    b".",
    b"0.",
    b"tN.",
    b"(.",
    b"h\x00.",
    b"g" + b"9" * 5000 + b"\n.",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
    b"T\xff\xff\xff\xff.",
    b"\x93.",
    b"Sno quotes\n.",
    b"c\xff\n\xff\n.",
]


@pytest.mark.parametrize("data", BROKEN)
def test_a_pickle_that_cannot_be_followed_is_told(data: bytes) -> None:
    found = walk(data)
    assert found.problem is not None
    assert "\n" not in found.problem
    assert 0 <= found.end <= len(data)


def test_names_before_a_break_are_kept() -> None:
    # The unpickler would have called it before it came to the break.
    assert list(walk(b"cos\nsystem\n(S'x'\ntR\xff").names) == ["os.system"]


def test_a_pickle_of_too_many_opcodes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasetrt.pickle_walk.MAX_OPCODES", 100)
    data = b"N0" * 50 + b"cos\nsystem\n."
    assert walk(data).problem == "it has more than 100 opcodes"
    assert walk(data[2 * 2 :]).problem is None


def test_lengths_that_are_not_there_take_no_memory() -> None:
    for opcode in (b"\x8d", b"\x8e", b"\x96"):
        assert "cut off" in str(walk(opcode + struct.pack("<Q", 2**63) + b".").problem)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_answer(data: bytes) -> None:
    found = walk(data)
    assert 0 <= found.end <= len(data)


# Opcodes without an import: whatever their order, the real unpickler may run them.
_PIECES = [
    *(
        b"N",
        b"0",
        b"1",
        b"2",
        b"(",
        b"t",
        b"l",
        b"d",
        b"]",
        b"}",
        b")",
        b"\x8f",
        b"\x90",
        b"\x91",
        b"a",
        b"e",
    ),
    *(b"s", b"u", b"b", b"\x85", b"\x86", b"\x87", b"\x94", b"q\x00", b"q\x01", b"h\x00", b"h\x01", b"g0\n"),
    *(b"\x8c\x02os", b"\x8c\x01q", b"K\x05", b"Vx\n", b"C\x01x", b"S'a'\n", b"\x93", b"cos\nsep\n", b"p1\n"),
]


@given(st.lists(st.sampled_from(_PIECES), max_size=25))
def test_no_import_of_the_unpickler_is_missed(pieces: list[bytes]) -> None:
    class Asked(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> object:
            asked.append(f"{module}.{name}")
            return None

    data = b"\x80\x04" + b"".join(pieces) + b"."
    asked: list[str] = []
    try:
        Asked(io.BytesIO(data)).load()
        loaded = True
    except (pickle.UnpicklingError, TypeError, AttributeError, KeyError, ValueError, IndexError, EOFError):
        loaded = False
    found = walk(data)
    assert set(asked) <= set(found.names)
    if loaded:
        assert found.problem is None
