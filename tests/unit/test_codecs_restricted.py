"""Hostile pickles: read with an allow-list, each is a `CodecError` and nothing else happens.

Several of these end the process, take forever or fill the memory when `pickle.Unpickler` reads them with
the same globals allowed by ``find_class``.
"""

import collections
import copyreg
import enum
import functools
import io
import os
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

import datasetrt as drt
from datasetrt.codecs import Pickle, PickleOOB

HERE = __name__


class Box:
    label = 0


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: Any


class Subclass(np.ndarray[Any, Any]):
    pass


SHARED = Box()


def make_box() -> Box:
    return Box()


ALLOW = [
    "numpy",
    *(f"{HERE}.{name}" for name in ("Box", "Colour", "Point", "Subclass", "SHARED", "make_box")),
]


# A small assembler.


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def raw(value: bytes) -> bytes:
    return b"B" + len(value).to_bytes(4, "little") + value


def number(value: int) -> bytes:
    data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8b" + len(data).to_bytes(4, "little") + data


def tuple_of(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def dict_of(**parts: bytes) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in parts.items()) + b"u"


def named(full: str) -> bytes:
    module, _, name = full.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def call(full: str, *args: bytes) -> bytes:
    return named(full) + tuple_of(*args) + b"R"


def here(name: str) -> bytes:
    return named(f"{HERE}.{name}")


def put(key: int) -> bytes:
    return b"q" + bytes([key])


def get(key: int) -> bytes:
    return b"h" + bytes([key])


def dtype(spec: str, state: bytes | None = None) -> bytes:
    plain = tuple_of(number(3), text("<"), b"NNN", number(-1), number(-1), number(0))
    return call("numpy.dtype", text(spec), b"\x89\x88") + (state or plain) + b"b"


def struct_state(names: bytes, fields: bytes, size: int, flags: int = 16) -> bytes:
    return tuple_of(number(3), text("|"), b"N", names, fields, number(size), number(1), number(flags))


def subarray_state(base: bytes, shape: bytes) -> bytes:
    return tuple_of(number(3), text("|"), tuple_of(base, shape), b"NN", number(8), number(1), number(0))


def struct(size: int, **fields: tuple[bytes, int]) -> bytes:
    placed = {name: tuple_of(part, number(offset)) for name, (part, offset) in fields.items()}
    names = tuple_of(*(text(name) for name in fields))
    return dtype(f"V{size}", struct_state(names, dict_of(**placed), size))


EMPTY = call("numpy._core.multiarray._reconstruct", named("numpy.ndarray"), tuple_of(number(0)), raw(b"b"))


def array_state(shape: bytes, of: bytes, items: bytes, fortran: bytes = b"\x89") -> bytes:
    return tuple_of(number(1), shape, of, fortran, items)


def array(shape: bytes, of: bytes, items: bytes) -> bytes:
    return EMPTY + array_state(shape, of, items) + b"b"


def view(buffer: bytes, of: bytes, shape: bytes, order: str = "C", *more: bytes) -> bytes:
    return call("numpy._core.numeric._frombuffer", buffer, of, shape, text(order), *more)


def scalar(of: bytes, data: bytes) -> bytes:
    return call("numpy._core.multiarray.scalar", of, data)


def loads(program: bytes, allow: Any = ALLOW) -> Any:
    return Pickle(allow=allow).loads(program + b".")


def refused(program: bytes, kind: str = "decode", allow: Any = ALLOW) -> str:
    with pytest.raises(drt.CodecError) as caught:
        loads(program, allow)
    assert caught.value.kind == kind
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


ONE = tuple_of(number(1))
OBJECTS = dtype("O8")


def test_the_assembler_assembles() -> None:
    assert loads(tuple_of(number(-5), text("é"), raw(b"x"), dict_of(a=b"N"))) == (-5, "é", b"x", {"a": None})
    assert loads(array(tuple_of(number(2)), dtype("i2"), raw(b"\1\0\2\0"))).tolist() == [1, 2]
    assert loads(view(raw(b"\1\0"), dtype("i2"), ONE)).tolist() == [1]
    assert loads(struct(8, a=(dtype("f4"), 0), b=(dtype("f4"), 4))) == np.dtype([("a", "f4"), ("b", "f4")])
    assert loads(dtype("V8", subarray_state(dtype("f4"), tuple_of(number(2))))) == np.dtype(("f4", (2,)))
    assert loads(array(ONE, OBJECTS, b"(Nl")).tolist() == [None]
    assert loads(here("Box") + b")\x81" + dict_of(label=number(3)) + b"b").label == 3
    core = np.zeros(1).__reduce_ex__(5)[0].__module__.rpartition(".")[0]  # numpy.core before NumPy 2
    program = array(ONE, dtype("i2"), raw(b"\1\0")).replace(b"numpy._core", core.encode())
    assert pickle.loads(program + b".").tolist() == [1]


# Globals.


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "posix.system",
        "builtins.eval",
        "builtins.exec",
        "builtins.getattr",
        "builtins.type",
        "__builtin__.eval",
        "subprocess.Popen",
        "importlib.import_module",
        "codecs.encode",
        "_codecs.decode",
        "operator.attrgetter",
        "functools.partial",
        "copyreg._reconstructor",
        "numpy.load",
        "numpy.memmap",
        "numpy.fromfile",
        "numpy.matrix",
        "numpy.ctypeslib.load_library",
        "numpy.testing._private.utils.runstring",
        "numpy._core.multiarray",
        "numpy._core.multiarray._reconstruct.__globals__",
        "numpy.ndarray.tofile",
        "numpy.ndarray.__class__",
        "numpy.dtype.type",
        "os.path.os.system",
    ],
)
def test_a_global_that_is_not_listed_is_refused_by_name(name: str) -> None:
    shown = name.replace("__builtin__", "builtins")
    message = refused(named(name), "refused-global", "numpy")
    assert repr(shown) in message
    assert "allow=" in message
    assert "trust=True" in message
    module, _, attribute = name.rpartition(".")
    # However the name is split between module and attribute.
    first, _, rest = name.partition(".")
    assert repr(shown) in refused(text(module) + text(attribute) + b"\x93", "refused-global", "numpy")
    assert repr(shown) in refused(text(first) + text(rest) + b"\x93", "refused-global", "numpy")


def test_a_refused_module_is_not_even_imported() -> None:
    import sys

    assert "this" not in sys.modules
    refused(named("this.s"), "refused-global")
    assert "this" not in sys.modules


def test_another_split_of_an_allowed_name_leads_to_the_same_object() -> None:
    # os.path is posixpath by way of an attribute of os: the list says which module is meant.
    split = text("os") + text("path.join") + b"\x93"
    assert loads(split, ["os.path.join"]) is os.path.join


def test_names_must_be_text() -> None:
    assert "two strings" in refused(number(1) + text("x") + b"\x93")
    assert "two strings" in refused(text("os") + raw(b"system") + b"\x93")


def test_the_names_of_a_hostile_pickle_are_cut_short() -> None:
    refused(named("a." + "b" * 100_000), "refused-global")


def test_the_extension_registry_is_not_asked() -> None:
    copyreg.add_extension("os", "system", 0xF0)
    try:
        for program in (b"\x82\xf0", b"\x83\xf0\0", b"\x84\xf0\0\0\0"):
            assert pickle.loads(program + b".") is os.system
            refused(program)
    finally:
        copyreg.remove_extension("os", "system", 0xF0)


@pytest.mark.parametrize(
    "program",
    [
        b"P1\n",
        b"NQ",
        b"N2",
        b"(" + here("Box") + b"o",
        b"(ios\nsystem\n",
        b"S'a'\n",
        b"U\1a",
        b"T\1\0\0\0a",
        b"\x00",
    ],
)
def test_what_python_3_does_not_write_is_refused(program: bytes) -> None:
    assert "Python 3" in refused(program)


# Calls.


@pytest.mark.parametrize(
    "called",
    [
        text("abc"),
        b"]",
        b"N",
        number(3),
        here("Box") + b")\x81",
        dtype("f4"),
        array(ONE, dtype("i2"), raw(b"\1\0")),
        here("Colour") + tuple_of(number(1)) + b"R",
    ],
)
def test_only_listed_globals_are_called(called: bytes) -> None:
    for program in (called + b")R", called + b")\x81", called + b")}\x92"):
        assert "is called" in refused(program)


def test_numpy_values_are_made_in_one_way_only() -> None:
    for name in (
        "numpy.dtype",
        "numpy.ndarray",
        "numpy.int8",
        "numpy._core.multiarray.scalar",
        "_codecs.encode",
        "builtins.bytes",
    ):
        refused(named(name) + b")\x81")
        refused(named(name) + b")}\x92")
    refused(here("make_box") + b")\x81")
    refused(here("Box") + b"]R")
    refused(here("Box") + b"]\x81")
    refused(here("Box") + b")]\x92")


def test_bytes_are_spelt_in_one_way_only() -> None:
    assert loads(call("_codecs.encode", text("é"), text("latin1"))) == b"\xe9"
    assert loads(call("builtins.bytes")) == b""
    for program in (
        call("_codecs.encode", text("x"), text("idna")),
        call("_codecs.encode", raw(b"x"), text("zip")),
        call("_codecs.encode", text("x")),
        call("_codecs.encode", text("\u0100"), text("latin1")),
        call("builtins.bytes", number(10**12)),
    ):
        refused(program)


# States and other changes.


@pytest.mark.parametrize(
    "target",
    [
        here("Box"),
        here("make_box"),
        here("Box") + b"0" + here("SHARED"),
        here("Colour") + tuple_of(number(1)) + b"R",
        named("numpy.ndarray"),
        named("numpy.dtype"),
        dtype("f4"),
        b"]",
        b"}",
        b"\x8f",
        b"N",
        text("x"),
    ],
)
def test_only_objects_of_allowed_classes_get_a_state(target: bytes) -> None:
    for state in (dict_of(label=number(9)), tuple_of(b"N", dict_of(label=number(9)))):
        refused(target + state + b"b", "refused-global")
    assert Box.label == 0
    assert not hasattr(make_box, "label")
    assert not vars(SHARED)
    assert not hasattr(Colour.RED, "label")


def test_the_class_of_what_a_function_makes_must_be_allowed_too() -> None:
    program = call(f"{HERE}.make_box") + dict_of(label=number(9)) + b"b"
    assert loads(program).label == 9
    message = refused(program, "refused-global", [f"{HERE}.make_box"])
    assert f"{HERE}.Box" in message


@pytest.mark.parametrize("name", ["__class__", "__dict__", "__reduce__", "__init__"])
def test_special_attributes_are_not_set(name: str) -> None:
    target = here("Box") + b")\x81"
    state = b"}" + text(name) + here("Point") + b"s"
    assert "special attribute" in refused(target + state + b"b")
    assert "special attribute" in refused(target + tuple_of(b"N", state) + b"b")


def test_a_state_is_a_dict_of_names() -> None:
    for state in (number(3), b"}" + number(1) + b"Ns", tuple_of(b"N", number(3)), b"(Nl"):
        refused(here("Box") + b")\x81" + state + b"b")


def test_items_go_into_plain_containers_only() -> None:
    for target in (here("Box"), here("Box") + b")\x81", named("numpy.ndarray"), dtype("f4"), text("x")):
        for change in (b"Na", b"(Ne", text("k") + b"Ns", b"(" + text("k") + b"Nu", b"(N\x90"):
            with pytest.raises(drt.CodecError):
                loads(target + change)
    assert not hasattr(Box, "k")


# dtypes.

F4, I8, BOOL = dtype("f4"), dtype("i8"), dtype("b1")
NAME_A = tuple_of(text("a"))


@pytest.mark.parametrize(
    "program",
    {
        "field outside": struct(8, a=(F4, 6)),
        "field far outside": struct(8, a=(F4, 2**30)),
        "field before": struct(8, a=(F4, -4)),
        "huge offset": struct(8, a=(F4, 2**70)),
        "overlap": struct(8, a=(F4, 0), b=(F4, 2)),
        "object field": struct(8, a=(OBJECTS, 0)),
        "object in subarray": dtype("V8", subarray_state(OBJECTS, ONE)),
        "no size": struct(0),
        "negative size": struct(-8, a=(F4, 0)),
        "huge size": struct(2**31, a=(F4, 0)),
        "empty field": struct(8, a=(dtype("V0"), 0)),
        "names without fields": dtype("V8", struct_state(NAME_A, b"}", 8)),
        "names are no tuple": dtype("V8", struct_state(text("a"), b"}", 8)),
        "names are numbers": dtype(
            "V8", struct_state(ONE, b"}" + number(1) + tuple_of(F4, number(0)) + b"s", 8)
        ),
        "fields are no dict": dtype("V8", struct_state(NAME_A, b"]", 8)),
        "field is no tuple": dtype("V8", struct_state(NAME_A, dict_of(a=F4), 8)),
        "field is no dtype": dtype("V8", struct_state(NAME_A, dict_of(a=tuple_of(text("f4"), number(0))), 8)),
        "name twice": dtype(
            "V8", struct_state(tuple_of(text("a"), text("a")), dict_of(a=tuple_of(F4, number(0))), 8)
        ),
        "not aligned": dtype("V8", struct_state(NAME_A, dict_of(a=tuple_of(F4, number(1))), 8, 0x80 | 16)),
        "flags are text": dtype(
            "V8",
            tuple_of(
                number(3), text("|"), b"N", NAME_A, dict_of(a=tuple_of(F4, number(0))), number(8), b"NN"
            ),
        ),
        "subarray too large": dtype("V8", subarray_state(F4, tuple_of(number(2**30), number(2**30)))),
        "subarray negative": dtype("V8", subarray_state(F4, tuple_of(number(-1)))),
        "subarray without shape": dtype("V8", subarray_state(F4, number(2))),
        "subarray is none": dtype(
            "V8", tuple_of(number(3), text("|"), ONE, b"NN", number(8), number(1), b"N")
        ),
        "subarray of nothing": dtype("V8", subarray_state(b"N", ONE)),
        "byte order": dtype(
            "f4", tuple_of(number(3), text("f8,"), b"NNN", number(-1), number(-1), number(0))
        ),
        "short state": dtype("f4", ONE),
        "no state at all": dtype("f4", b"N"),
        "large text": dtype("U999999999"),
        "unit missing": dtype("M8"),
        "unit unknown": dtype(
            "M8",
            tuple_of(
                *(number(4), text("<"), b"NNN", number(-1), number(-1), number(0)),
                tuple_of(b"N", tuple_of(raw(b"eon"), number(1), number(1), number(1))),
            ),
        ),
        "no spec": dtype("f4,f4"),
        "odd spec": dtype("i3"),
        "spec by number": call("numpy.dtype", number(4), b"\x89\x88") + b"Nb",
    }.items(),
    ids=lambda item: item[0],
)
def test_dtypes_that_cannot_be(program: tuple[str, bytes]) -> None:
    refused(program[1])


def test_a_dtype_is_used_with_its_state_or_not_at_all() -> None:
    bare = call("numpy.dtype", text("f4"), b"\x89\x88")
    for program in (
        bare,
        tuple_of(bare),
        b"]" + bare + b"a",
        view(raw(bytes(4)), bare, ONE),
        scalar(bare, raw(bytes(4))),
        bare + put(0) + b"0" + get(0),
        bare + put(0) + b"0N",
        here("Point") + tuple_of(bare) + b"\x81",
        dict_of(a=bare),
    ):
        refused(program)
    # Kept under two numbers, it would stay unfinished under the first.
    plain = dtype("f4").removeprefix(bare)
    refused(bare + put(0) + put(1) + plain + b"0" + get(0))
    assert loads(bare + put(0) + put(1) + plain + b"0" + get(1)) == np.dtype("f4")


def test_shared_dtypes_are_never_changed() -> None:
    refused(
        dtype("f4") + tuple_of(number(3), text(">"), b"NNN", number(-1), number(-1), number(0)) + b"b",
        "refused-global",
    )
    assert np.dtype("f4").byteorder == "="


# Arrays.

LENGTHS = {
    "too few bytes": (tuple_of(number(3)), dtype("i2"), raw(bytes(4))),
    "too many bytes": (ONE, dtype("i2"), raw(bytes(4))),
    "product overflows": (tuple_of(number(2**32), number(2**32)), dtype("u1"), raw(b"")),
    "product overflows to fit": (tuple_of(number(2**63), number(2)), dtype("u1"), raw(b"")),
    "zero times too much": (tuple_of(number(0), number(2**62)), dtype("i2"), raw(b"")),
    "negative": (tuple_of(number(-1)), dtype("u1"), raw(b"")),
    "two negatives": (tuple_of(number(-1), number(-1)), dtype("u1"), raw(b"x")),
    "a bool": (tuple_of(b"\x88"), dtype("u1"), raw(b"x")),
    "a float": (tuple_of(b"G?\xf0\0\0\0\0\0\0"), dtype("u1"), raw(b"x")),
    "items that are arrays": (
        ONE,
        dtype("V8", subarray_state(dtype("f4"), tuple_of(number(2)))),
        raw(bytes(8)),
    ),
    "a number": (number(1), dtype("u1"), raw(b"x")),
    "a list": (b"(" + number(1) + b"l", dtype("u1"), raw(b"x")),
    "66 dimensions": (tuple_of(*[number(1)] * 66), dtype("u1"), raw(b"x")),
    "empty items": (tuple_of(number(2**40)), dtype("V0"), raw(b"")),
    "dtype as text": (ONE, text("u1"), raw(b"x")),
    "text for bytes": (ONE, dtype("u1"), text("x")),
    "a list for bytes": (ONE, dtype("u1"), b"(Nl"),
    "pointers": (ONE, OBJECTS, raw(bytes(8))),
    "a bool of 2": (ONE, BOOL, raw(b"\2")),
    "no character": (ONE, dtype("U1"), raw(b"\0\0\x11\0")),
    "a bool of 2 in a field": (ONE, struct(3, a=(BOOL, 2)), raw(b"\2\2\2")),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_arrays_that_cannot_be(case: str) -> None:
    shape, of, items = LENGTHS[case]
    refused(array(shape, of, items))
    refused(view(items, of, shape))
    refused(view(items, of, shape, "F"))


def test_padding_between_fields_may_be_anything() -> None:
    back = loads(array(ONE, struct(3, a=(BOOL, 2)), raw(b"\2\2\1")))
    assert back["a"].tolist() == [True]


def test_characters_are_checked_in_both_byte_orders() -> None:
    big = tuple_of(number(3), text(">"), b"NNN", number(4), number(4), number(8))
    assert loads(view(raw(b"\0\0\0a"), dtype("U1", big), ONE)).tolist() == ["a"]
    refused(view(raw(b"\0\x11\0\0"), dtype("U1", big), ONE))


def test_object_arrays_hold_as_many_as_they_say() -> None:
    for shape, items in ((tuple_of(number(2)), b"(Nl"), (ONE, b"(NNl"), (ONE, b"N"), (ONE, tuple_of(b"N"))):
        refused(array(shape, OBJECTS, items))


def test_an_array_is_filled_once() -> None:
    state = array_state(ONE, dtype("u1"), raw(b"x"))
    assert loads(EMPTY + state + b"b").tolist() == [120]
    assert "complete" in refused(EMPTY + state + b"b" + state + b"b")
    refused(view(raw(b"x"), dtype("u1"), ONE) + state + b"b")
    for bad in (b"N", tuple_of(b"N"), array_state(ONE, dtype("u1"), raw(b"x"), fortran=b"N")):
        refused(EMPTY + bad + b"b")


def test_arrays_of_other_classes_are_refused() -> None:
    made = call("numpy._core.multiarray._reconstruct", here("Subclass"), tuple_of(number(0)), raw(b"b"))
    assert "trust=True" in refused(made)
    fresh = here("Subclass") + tuple_of(tuple_of(number(1))) + b"\x81"
    refused(fresh + array_state(ONE, dtype("u1"), raw(b"x")) + b"b", "refused-global")


@pytest.mark.parametrize("order", ["A", "K", "", "CF"])
def test_orders_that_are_none(order: str) -> None:
    refused(view(raw(b"x"), dtype("u1"), ONE, order))


@pytest.mark.parametrize("axes", [(0, 0), (0,), (0, 2), (-1, 0), (0, 1, 2)])
def test_axes_that_are_no_permutation(axes: tuple[int, ...]) -> None:
    shape, order = tuple_of(number(1), number(2)), tuple_of(*map(number, axes))
    assert loads(view(raw(b"xy"), dtype("u1"), shape, "K", tuple_of(number(1), number(0)))).shape == (2, 1)
    refused(view(raw(b"xy"), dtype("u1"), shape, "K", order))


def test_arrays_lie_over_bytes_only() -> None:
    for buffer in (text("x"), b"]", array(ONE, dtype("u1"), raw(b"x")), b"N"):
        refused(view(buffer, dtype("u1"), ONE))


def test_scalars_that_cannot_be() -> None:
    assert loads(scalar(dtype("i2"), raw(b"\1\0"))) == 1
    for of, data in (
        (dtype("i2"), raw(b"\1")),
        (dtype("i2"), text("ab")),
        (dtype("i2"), b"N"),
        (BOOL, raw(b"\2")),
        (dtype("U1"), raw(b"\xff" * 4)),
        (OBJECTS, raw(bytes(8))),
        (OBJECTS, text("x")),
        (dtype("V0"), raw(b"")),
        (dtype("V8", subarray_state(F4, tuple_of(number(2)))), raw(bytes(8))),
        (text("i2"), raw(b"\1\0")),
    ):
        refused(scalar(of, data))
    refused(call("numpy._core.multiarray.scalar"))


# The C stack, the clock and the memory.


def test_nothing_is_nested_so_deep_that_c_recursion_ends_the_process() -> None:
    tuples = b")" + b"\x85" * 200_000
    points = b")" + b"".join([put(0), b"0", here("Point"), get(0), b"\x85\x81"] * 2_000)
    arrays = array(ONE, OBJECTS, b"(Nl")
    for _ in range(2_000):
        arrays = arrays + put(0) + b"0" + array(ONE, OBJECTS, b"(" + get(0) + b"l")
    structs = F4 + b"".join(
        put(0) + b"0" + dtype("V4", struct_state(NAME_A, dict_of(a=tuple_of(get(0), number(0))), 4))
        for _ in range(2_000)
    )
    for program in (tuples, points, arrays, structs):
        assert "deep" in refused(program)
        assert "deep" in refused(b"}" + program + b"Ns")


def test_a_chain_of_arrays_cannot_be_closed_from_its_far_end() -> None:
    makes = b"".join(EMPTY + put(n) + b"0" for n in range(200))
    fills = b"".join(get(n) + array_state(ONE, OBJECTS, b"(" + get(n + 1) + b"l") + b"b0" for n in range(199))
    assert "unfinished" in refused(makes + fills + b"N")


def test_deep_lists_are_harmless_and_come_back() -> None:
    back = loads(b"]" * 100_000 + b"a" * 99_999)
    for _ in range(99_999):
        back = back[0]
    assert back == []


def test_a_key_is_not_so_large_that_hashing_it_takes_forever() -> None:
    doubled = tuple_of(b"N") + (put(0) + get(0) + b"\x86") * 60
    sets = b"(N\x91" + (put(0) + b"0(" + get(0) + b"(" + get(0) + b"\x91\x91") * 60
    wide = tuple_of(*[b"N"] * 1_000)
    for key in (doubled, wide, tuple_of(wide), b"(" + wide + b"\x91"):
        assert "parts" in refused(b"}" + key + b"Ns")
        assert "parts" in refused(b"}(" + key + b"Nu")
        assert "parts" in refused(b"(" + key + b"Nd")
        assert "parts" in refused(b"\x8f(" + key + b"\x90")
    # Already inside, two sets that are equal but not the same take forever to compare.
    assert "parts" in refused(sets)
    assert len(loads(doubled)) == 2


def test_names_of_fields_are_text_before_they_are_hashed() -> None:
    doubled = tuple_of(b"N") + (put(0) + get(0) + b"\x86") * 60
    refused(dtype("V8", struct_state(tuple_of(doubled), dict_of(a=tuple_of(F4, number(0))), 8)))


def test_a_structured_dtype_does_not_multiply() -> None:
    program = F4
    size = 4
    for _ in range(20):
        fields = {"a": tuple_of(get(0), number(0)), "b": tuple_of(get(0), number(size))}
        names = tuple_of(text("a"), text("b"))
        size *= 2
        program += put(0) + b"0" + dtype(f"V{size}", struct_state(names, dict_of(**fields), size))
    assert "fields" in refused(program)


def test_a_refusal_does_not_write_out_what_it_refuses() -> None:
    doubled = tuple_of(b"N") + (put(0) + get(0) + b"\x86") * 60
    for program in (
        view(raw(b"x"), dtype("u1"), doubled),
        view(raw(b"x"), doubled, ONE),
        view(doubled, dtype("u1"), ONE),
        view(raw(b"x"), dtype("u1"), ONE, "K", doubled),
        array(doubled, dtype("u1"), raw(b"x")),
        call("numpy.dtype", doubled, b"\x89\x88"),
        dtype("f4", tuple_of(number(3), doubled, b"NNN", number(-1), number(-1), number(0))),
        dtype("V8", subarray_state(F4, doubled)),
        call("_codecs.encode", doubled, doubled),
        doubled + doubled + b"\x93",
        doubled + b")R",
        doubled + b"Nb",
    ):
        with pytest.raises(drt.CodecError) as caught:
            loads(program)
        assert len(str(caught.value)) < 1000


def test_arrays_do_not_share_bytes_to_fill_the_memory() -> None:
    data = raw(bytes(100_000)) + put(0) + b"0"
    of = dtype("u1") + put(1) + b"0"
    shape = tuple_of(number(100_000))
    void = dtype("V100000", tuple_of(number(3), text("|"), b"NNN", number(100_000), number(1), number(0)))
    for again in (
        array(shape, get(1), get(0)),
        view(get(0), get(1), shape),
        scalar(void, get(0)),
    ):
        assert "share" in refused(data + of + b"(" + again * 5 + b"l")
    letters = text("x" * 100_000) + put(0) + b"0"
    assert "share" in refused(letters + b"(" + call("_codecs.encode", get(0), text("latin1")) * 5 + b"l")
    items = b"(" + b"N" * 100_000 + b"l" + put(0) + b"0"
    many = OBJECTS + put(1) + b"0"
    assert "share" in refused(items + many + b"(" + array(shape, get(1), get(0)) * 5 + b"l")


@pytest.mark.parametrize(
    "program",
    [
        b"\x8e" + b"\xff" * 8,
        b"\x8d" + b"\xff" * 7 + b"\x7f",
        b"\x96" + b"\0" * 5 + b"\x01\0\0",
        b"B\xff\xff\xff\xff",
        b"X\xff\xff\xff\xff",
        b"\x8b\xff\xff\xff\x7f",
        b"\x95" + b"\xff" * 8 + b"N",
        b"\x8a\xff",
        b"\x8c\xff",
        b"C\xff",
    ],
)
def test_lengths_are_checked_before_memory_is_taken(program: bytes) -> None:
    words = {0x8C: "cut off", 0x95: "cut off", 0x8B: "an integer of"}.get(program[0], "bytes are named")
    assert words in refused(program)


def test_a_memo_number_takes_no_memory() -> None:
    assert loads(b"Nr\xff\xff\xff\xff0j\xff\xff\xff\xff") is None
    assert loads(b"Np99999999999999\n0g99999999999999\n") is None


def test_integers_are_not_so_long_that_they_take_forever() -> None:
    assert loads(number(2**8000)) == 2**8000
    assert "integer" in refused(number(2**9000))
    refused(b"L" + b"9" * 10_000 + b"L\n")
    refused(b"I" + b"9" * 10_000 + b"\n")


# Damage.


# fmt: off
DAMAGED = [
    b"", b"N", b"NN.", b"(N.", b".", b"0.", b"1.", b"a.", b"(a.", b"h\0.", b"\x94.", b"q\0.", b"t.", b"\x86.",
    b"N\x86.", b"s.", b"}s.", b"}(Nu.", b"R.", b")R.", b"b.", b"Nb.", b"\x81.", b"\x92.", b"\x93.", b"\x97.",
    b"\x98.", b"N\x98.", b"Ix\n.", b"I\n.", b"Fx\n.", b"Lx\n.", b"cos", b"cos\n", b"V\\uzz\n.", b"\x80\6N.",
    b"X\1\0\0\0\xff.", b"\x80", b"K", b"J\0", b"G\0", b"]N\x90.", b"\x8f(]\x90.", b"}]Ns.", b"(]\x91.",
]
# fmt: on


@pytest.mark.parametrize("program", DAMAGED)
def test_damaged_pickles_are_refused(program: bytes) -> None:
    with pytest.raises(drt.CodecError) as caught:
        Pickle(allow=ALLOW).loads(program)
    assert caught.value.kind == "decode"


def test_an_error_says_where() -> None:
    with pytest.raises(drt.CodecError) as caught:
        Pickle(allow=[]).loads(b"NNN\xff.")
    assert caught.value.offset == 4
    assert "byte 4" in str(caught.value)


def test_out_of_band_buffers_are_used_up_exactly() -> None:
    codec = PickleOOB(allow="numpy")
    payload = codec.dumps([np.ones(2), np.ones(3)])
    assert [len(part) for part in codec.loads(payload)] == [2, 3]
    one, two = codec.dumps([np.ones(2)]), payload
    body = one[32 : 32 + int.from_bytes(one[8:16], "little")]
    # The pickle of one array beside the buffers of two, and the reverse.
    with pytest.raises(drt.CodecError, match="unused"):
        codec.loads(_reframed(body, two))
    assert b"\x97" in body
    refused(b"\x97", "decode", "numpy")


def _reframed(body: bytes, payload: bytes) -> bytes:
    """A payload with another pickle, and buffers of the same lengths, all zero."""
    count = int.from_bytes(payload[16:24], "little")
    lengths = [int.from_bytes(payload[24 + 8 * n : 32 + 8 * n], "little") for n in range(count)]
    out = payload[:8] + len(body).to_bytes(8, "little") + payload[16 : 24 + 8 * count] + body
    for length in (0, *lengths):
        out += bytes(length)
        out += bytes(-len(out) % 64)
    return out


def test_the_hazards_are_real() -> None:
    """With ``find_class`` alone, the same list lets a pickle change a class for the whole process."""

    class Careful(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            assert (module, name) == (HERE, "Box")
            return Box

    program = here("Box") + tuple_of(b"N", dict_of(label=number(9))) + b"b."
    Careful(io.BytesIO(program)).load()
    assert Box.label == 9
    Box.label = 0
    refused(program[:-1], "refused-global")
    assert Box.label == 0


def test_allowed_containers_take_items() -> None:
    value = collections.OrderedDict(a=collections.deque([1]))
    codec = Pickle(allow=["collections.OrderedDict", "collections.deque"])
    assert codec.loads(codec.dumps(value)) == value


@pytest.mark.parametrize(
    "value",
    [np.ma.array([1, 2]), np.recarray(2, dtype=[("a", "i4")])],
    ids=lambda v: type(v).__name__,
)
def test_subclasses_of_arrays_need_trust_and_are_told_so(value: Any) -> None:
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    names = ["numpy", "numpy.ma.core._mareconstruct", "numpy.ma.MaskedArray", "numpy.rec.recarray", name]
    codec = drt.codecs.Pickle(allow=[*names, "numpy.matrix", "numpy.ma.core.MaskedArray", "numpy.record"])
    with pytest.raises(drt.CodecError, match="trust=True"):
        codec.loads(drt.codecs.Pickle().dumps(value))


@pytest.mark.parametrize("value", [2**8200, (((0,) * 20,) * 20, 1)], ids=["int", "key"])
def test_bounds_of_restricted_pickles_are_no_damage(value: Any) -> None:
    given = value if isinstance(value, int) else {value: 1}
    with pytest.raises(drt.CodecError, match="which is not read without trust; use trust=True") as refused:
        drt.codecs.Pickle(allow="numpy").loads(drt.codecs.Pickle().dumps(given))
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize("protocol", range(6))
def test_names_of_today_are_allowed_in_every_protocol(protocol: int) -> None:
    values = [ValueError("x"), range(3), OSError(2, "no"), functools.reduce]
    # Objects of the older ones also name what makes them.
    values += [collections.UserList([1])] if protocol > 1 else []
    allowed = ["builtins.ValueError", "builtins.range", "builtins.OSError", "builtins.FileNotFoundError"]
    allowed += ["collections.UserList", "functools.reduce", "_functools.reduce"]
    codec = drt.codecs.Pickle(protocol=protocol, allow=allowed)
    for value in values:
        assert repr(codec.loads(codec.dumps(value))) == repr(value)


@pytest.mark.parametrize("allow", ["x" * 10_000, ["x" * 10_000], [np.arange(9)], ["a\nb"]])
def test_a_refused_allow_list_is_told_in_one_short_line(allow: Any) -> None:
    with pytest.raises(drt.InvalidInputError) as refused:
        drt.codecs.Pickle(allow=allow)
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)
