"""Arguments, checked: refusals of one line, with the value and the cure."""

from __future__ import annotations

import operator
import os
from typing import SupportsIndex

from .errors import InvalidInputError

#: Seeds and epochs are words of the random generator.
WORD = 2**64
#: Rows, bytes and everything that is counted stay below this.
COUNTABLE = 2**63


def invalid(message: str) -> InvalidInputError:
    """The refusal of an argument."""
    return InvalidInputError(message, kind="invalid-argument")


def as_index(value: object) -> int | None:
    """``value`` as an int, or None: NumPy integers are numbers too, True and arrays are none."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # An array has the method, and refuses when it is called.
        return None


def whole(what: str, value: object, low: int, high: int | None = None) -> int:
    """``value`` as an int of ``[low, high)``.

    Raises:
        InvalidInputError: It is no whole number, or outside.
    """
    number = as_index(value)
    if number is None:
        raise invalid(f"{what} = {value!r} is a {type(value).__name__}; give a whole number")
    if number < low or (high is not None and number >= high):
        limits = f"of at least {low}" if high is None else f"from {low} to {high - 1}"
        raise invalid(f"{what} = {number} is out of range; give a whole number {limits}")
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
        raise invalid(f"{what} = {value!r} is a {type(value).__name__}; give True or False")
    return value


def choice(what: str, value: object, choices: tuple[str, ...]) -> str:
    """``value``, which must be one of ``choices``.

    Raises:
        InvalidInputError: It is something else; names the choices.
    """
    if not isinstance(value, str) or value not in choices:
        raise invalid(f"{what} = {value!r} is not known; use {' or '.join(map(repr, choices))}")
    return value


def path_of(what: str, value: object) -> str:
    """``value`` as the text of a path.

    Raises:
        InvalidInputError: It is no path.
    """
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return path
    raise invalid(f"{what} = {value!r} is a {type(value).__name__}; give a str or a pathlib.Path")
