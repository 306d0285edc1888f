"""Which values a text-like format brings back exactly as they were; shared by Json and Msgpack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from datasetrt.errors import CodecError
from datasetrt.wording import a_type, shown

# Types that a format has beside list and dict.
Scalars = frozenset[type]
# What is wrong with a value of these types, and the cure; None where nothing is.
Problem = Callable[[Any], tuple[str, str] | None]

# Lists and dicts within each other: what either format reads back whatever runs already on the stack.
_MAX_DEPTH = 500
_WHERE_CHARACTERS = 200

_CURES: dict[type, str] = {
    tuple: "give list(…)",
    set: "give sorted(…)",
}
_BYTES_CURES = {
    True: "give bytes(…)",
    False: "give a str, such as base64.b64encode(…).decode(), or pack with Msgpack",
}


def check_plain(
    value: object, scalars: Scalars, codec_name: str, problem: Problem | None = None, kind: str = "encode"
) -> None:
    """Refuse what would come back as another type: subclasses, tuples, keys that are not str.

    Args:
        value: What is about to be packed, or was unpacked.
        scalars: Types that the format has beside list and dict.
        codec_name: For the message, which also says where the value is, such as ``$.boxes[3]``.
        problem: What the format has against single values; without it their types alone are looked at.
        kind: Of the error.
    """
    # Not by recursion: the path is known without being written out, and no nesting exhausts the stack.
    open_: list[Iterator[tuple[Any, Any]]] = [iter([(None, value)])]
    places: list[Any] = []
    holders: dict[int, int] = {}
    while open_:
        for place, item in open_[-1]:
            kind_of_item = type(item)
            if kind_of_item in scalars:
                if problem is not None and (found := problem(item)) is not None:
                    raise _refused(codec_name, [*places, place], *found, kind=kind)
                continue
            places.append(place)
            _check_container(item, places, scalars, codec_name, problem, kind)
            if id(item) in holders:
                cure = "give a tree of plain values"
                raise _refused(codec_name, places, f"the {kind_of_item.__name__} contains itself", cure, kind)
            if len(places) > _MAX_DEPTH:
                what = f"values are nested more than {_MAX_DEPTH} deep"
                raise _refused(codec_name, places, what, "give flatter ones, or pack with Pickle", kind)
            holders[id(item)] = len(places)
            open_.append(enumerate(item) if kind_of_item is list else iter(item.items()))
            break
        else:
            open_.pop()
            if places:
                places.pop()
                holders.popitem()


def _check_container(
    value: Any, places: list[Any], scalars: Scalars, codec_name: str, problem: Problem | None, kind: str
) -> None:
    if type(value) is list:
        return
    if type(value) is not dict:
        what = f"the value is {a_type(value)}, which would not come back as it was"
        raise _refused(codec_name, places, what, _cure(value, bytes in scalars), kind)
    for key in value:
        if type(key) is not str:
            what = f"the key {shown(key)} is {a_type(key)}, which would not come back as it was"
            raise _refused(codec_name, places, what, "give a str", kind)
        if problem is not None and (found := problem(key)) is not None:
            raise _refused(codec_name, places, f"of a key, {found[0]}", found[1], kind)


def text_problem(value: str) -> tuple[str, str] | None:
    """What is wrong with a str: surrogates, which UTF-8 cannot hold."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        found = ascii(value[error.start])
        what = f"the str {shown(value)} has the lone surrogate {found} at character {error.start}"
        return what, "give valid Unicode, or pack bytes"
    return None


def _cure(value: object, has_bytes: bool) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return _BYTES_CURES[has_bytes]
    if isinstance(value, np.generic):
        return "give value.item()"
    if isinstance(value, np.ndarray):
        return "give value.tolist(), or pack with Npy or Record"
    return _CURES.get(type(value), "give a plain dict, list, str, number, bool or None")


def _refused(codec_name: str, places: list[Any], what: str, cure: str, kind: str) -> CodecError:
    # The first place is the value itself.
    where = "$" + "".join(map(_step, places[1 : _WHERE_CHARACTERS + 1]))
    if len(where) > _WHERE_CHARACTERS:
        where = where[:_WHERE_CHARACTERS] + "…"
    return CodecError(f"{codec_name}: at {where} {what}; {cure}", kind=kind)


def _step(place: object) -> str:
    if isinstance(place, int):
        return f"[{place}]"
    return f".{place}" if isinstance(place, str) and place.isidentifier() else f"[{shown(place)}]"
