"""Arguments, checked: refusals of one line, with the value and the cure."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

import numpy as np

from .errors import InvalidInputError
from .wording import a_type, shown

#: Seeds and epochs are words of the random generator; a loader, which counts on, stays below COUNTABLE.
WORD = 2**64
#: Rows, bytes and everything that is counted stay below this.
COUNTABLE = 2**63
#: The most samples in a batch, and the most native threads, that the engine takes.
BATCH_SAMPLES = 2**24
THREADS = 1024
#: The most columns that it cuts payloads into.
MOST_COLUMNS = 256


def invalid(message: str) -> InvalidInputError:
    """The refusal of an argument."""
    return InvalidInputError(message, kind="invalid-argument")


def as_index(value: object) -> int | None:
    """``value`` as an int, or None: NumPy integers are numbers too, True and arrays are none."""
    if type(value) is int:  # The usual one, without asking a protocol, which is slow.
        return value
    # NumPy's own True is no number either; before NumPy 2 it counted as one, with a warning.
    if isinstance(value, bool | np.bool_) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # An array has the method, and refuses when it is called.
        return None


def whole_numbers(
    what: str, values: Iterable[Any], low: int, high: int, outside: Callable[[int], Exception]
) -> list[int]:
    """``values`` as ints of ``[low, high)``: NumPy would make numbers of bools, and floats of large numbers.

    Raises:
        InvalidInputError: One is no whole number.
        Exception: What ``outside`` makes of the first that is not within.
    """
    numbers = []
    for place, value in enumerate(values):
        # The usual case is told by its type alone.
        number = value if type(value) is int else as_index(value)
        if number is None:
            raise invalid(
                f"{what} have {shown(value)}, {a_type(value)}, at place {place}; give whole numbers"
            )
        if not low <= number < high:
            raise outside(number)
        numbers.append(number)
    return numbers


def any_int(what: str, value: object) -> int:
    """``value`` as an int, of any size.

    Raises:
        InvalidInputError: It is no whole number.
    """
    number = as_index(value)
    if number is None:
        raise invalid(f"{what} = {shown(value)} is {a_type(value)}; give a whole number")
    return number


def whole(what: str, value: object, low: int, high: int | None = None) -> int:
    """``value`` as an int of ``[low, high)``.

    Raises:
        InvalidInputError: It is no whole number, or outside.
    """
    number = any_int(what, value)
    if number < low or (high is not None and number >= high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high - 1}"
        raise invalid(f"{what} = {shown(number)} is out of range; give a whole number {limits}")
    return number


def count(what: str, value: object) -> int:
    """``value`` as an int of at least 1."""
    return whole(what, value, 1, COUNTABLE)


def flag(what: str, value: object) -> bool:
    """``value``, which must be True or False.

    Raises:
        InvalidInputError: It is something else.
    """
    if not isinstance(value, bool):
        raise invalid(f"{what} = {shown(value)} is {a_type(value)}; give True or False")
    return value


def choice(what: str, value: object, choices: tuple[str, ...]) -> str:
    """``value``, which must be one of ``choices``.

    Raises:
        InvalidInputError: It is something else; names the choices.
    """
    if not isinstance(value, str) or value not in choices:
        raise invalid(f"{what} = {shown(value)} is not known; use {' or '.join(map(repr, choices))}")
    return value


def path_of(what: str, value: object) -> str:
    """``value`` as the text of a path.

    Raises:
        InvalidInputError: It is no path, or an empty one, or no valid Unicode.
    """
    path = _path_text(value)
    if path is None:
        raise invalid(f"{what} = {shown(value)} is {a_type(value)}; give a str or a pathlib.Path")
    if not path:
        raise invalid(f"{what} is empty; give the path of a folder, which is '.' for the current one")
    if "\0" in path:
        raise invalid(f"{what} = {shown(path)} has a NUL character, which no path may have; leave it out")
    return nameable(what, path)


def nameable(what: str, path: str) -> str:
    """``path``, which must be valid Unicode that Python can pass to the system.

    Raises:
        InvalidInputError: Bytes of it are no valid UTF-8; or the locale's encoding lacks a character.
    """
    encoding = sys.getfilesystemencoding()
    cure = "rename the folder, so that its name is valid UTF-8"
    if encoding != "utf-8":
        # The C locale without UTF-8 mode: names beyond ASCII come as surrogates, and cannot be given.
        cure = f"Python's encoding of paths is {encoding} here, which lacks the character; set PYTHONUTF8=1"
    try:
        path.encode()
        os.fsencode(path)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        found = "the lone surrogate " if "\ud800" <= character <= "\udfff" else ""
        raise invalid(
            f"{what} = {shown(path)} has {found}{character!a} at character {error.start}, "
            f"and cannot be passed to the system; {cure}"
        ) from None
    return path


def _path_text(value: object) -> str | None:
    if not isinstance(value, str | os.PathLike):
        return None
    try:
        path = os.fspath(value)
    except TypeError:  # Its __fspath__ gave something else than a path.
        return None
    # A plain one: pathlib and others take the text of a subclass, such as an Enum's, which may be another.
    return str.__str__(path) if isinstance(path, str) else None


def refuse_masked(what: str, values: object) -> None:
    """Refuse masked values: converted, an array tells the numbers that its mask hides, and a list has NaN.

    Raises:
        InvalidInputError: There are some.
    """
    if has_masked(values):
        count = f"{np.ma.getmaskarray(values).sum()} " if isinstance(values, np.ma.MaskedArray) else ""
        raise invalid(f"{what} have {count}masked values; leave them out, or fill them")


def has_masked(values: object, depth: int = 64) -> bool:
    """Whether values are masked: some of an array, or of lists as deep as NumPy takes them."""
    if "numpy.ma" not in sys.modules:
        # Nobody has made one, and to load it for the answer takes 30 ms.
        return False
    if isinstance(values, np.ma.MaskedArray):
        return bool(np.ma.is_masked(values))
    if not isinstance(values, list | tuple) or not depth:
        return False
    return any(type(value) not in (int, float) and has_masked(value, depth - 1) for value in values)


def has_nulls(values: object) -> bool:
    """Whether a column of another library, no table, lacks values, which NumPy would make numbers of."""
    if not _is_arrow(values):
        return False
    count = getattr(values, "null_count", 0)
    # An attribute in pyarrow, a method in Polars.
    if count() if callable(count) else count:
        return True
    # Within lists, dictionaries and runs it counts none.
    kind: Any = getattr(values, "type", getattr(values, "dtype", None))
    if hasattr(kind, "value_type") or (hasattr(kind, "is_nested") and kind.is_nested()):
        listed: Callable[[], object] = getattr(values, "to_pylist", getattr(values, "to_list", list))
        return _has_none(listed())
    return False


def is_table(values: object) -> bool:
    """Whether it is a table of another library, which NumPy would make one array of."""
    return _is_arrow(values) and hasattr(values, "schema") and hasattr(values, "columns")


def _is_arrow(values: object) -> bool:
    return hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")


def _has_none(listed: object) -> bool:
    return listed is None or (isinstance(listed, list) and any(map(_has_none, listed)))


def slice_of(part: slice, length: int) -> tuple[int, int, int]:
    """Start, stop and step of a slice of ``length`` things, within what the engine's integers hold.

    Raises:
        InvalidInputError: A part of it is no whole number, or the step is 0.
    """
    parts = []
    for name in ("start", "stop", "step"):
        value = getattr(part, name)
        number = None if value is None else as_index(value)
        if number is None and value is not None:
            raise invalid(f"slice {name} = {shown(value)} is {a_type(value)}; give a whole number")
        parts.append(number)
    if parts[2] == 0:
        raise invalid("slice step = 0 leads nowhere; give another whole number, or none for 1")
    start, stop, step = slice(*parts).indices(length)
    # A longer step takes one row at most, as the longest that the native module knows.
    return start, stop, max(-COUNTABLE + 1, min(step, COUNTABLE - 1))


def unicode_text(what: str, value: str) -> str:
    """``value``, which must be text that UTF-8 can hold.

    Raises:
        InvalidInputError: It has surrogates, which Python puts where bytes are no valid UTF-8.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        found = ascii(value[error.start])
        raise invalid(
            f"{what} = {shown(value)} has the lone surrogate {found} at character {error.start}, which UTF-8 "
            "cannot hold; give valid Unicode"
        ) from None
    # A plain one: the text of a subclass, such as an Enum's, need not be what it is made of.
    return str.__str__(value)
