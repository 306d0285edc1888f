"""Arguments, checked: refusals of one line, with the value and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

import datasetrt as drt
from datasetrt.wording import a_type, shown


def invalid(message: str) -> drt.InvalidInputError:
    """The refusal of an argument."""
    return drt.InvalidInputError(message, kind="invalid-argument")


def choice(what: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices.

    Raises:
        InvalidInputError: Names the choices.
    """
    if not isinstance(value, str) or value not in choices:
        raise invalid(f"{what} = {value!r} is not known; use {' or '.join(map(repr, choices))}")


def flag(what: str, value: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise invalid(f"{what} = {value!r} is {a_type(value)}; give True or False")


def count(what: str, value: object) -> int:
    """``value`` as an int; refuses anything but a whole number from 1 to the largest batch of the core."""
    return _whole(what, value, 1, 2**24, "give a whole number of at least 1, and at most 2**24")


def workers(what: str, value: object) -> int:
    """``value`` as an int; refuses anything but a whole number from 0."""
    return _whole(what, value, 0, 2**63 - 1, "give a whole number, 0 to read in this process")


def within(what: str, value: object, most: int, cure: str) -> int:
    """``value`` as an int; refuses anything but a whole number from 0 to ``most``."""
    return _whole(what, value, 0, most, cure)


def _whole(what: str, value: object, least: int, most: int, cure: str) -> int:
    # An integer of NumPy is a number like any other; True is none.
    number = (
        value.__index__() if isinstance(value, int | np.integer) and not isinstance(value, bool) else None
    )
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise invalid(f"{what} = {shown(value)} is refused; {cure}")
    return number


def column_name(what: str, value: object) -> None:
    """Refuse what is no name of a column; None is none."""
    if value is not None and not isinstance(value, str):
        raise invalid(f"{what} = {value!r} is {a_type(value)}; give the name of a column")


def column_names(what: str, value: object) -> tuple[str, ...]:
    """Names of columns; one text is no list of them."""
    if isinstance(value, str):
        raise invalid(f"{what} = {value!r} is a str; give a list of names: [{value!r}]")
    if not isinstance(value, Iterable):
        raise invalid(f"{what} = {value!r} is {a_type(value)}; give a list of names")
    listed = tuple(value)
    for each in listed:
        if not isinstance(each, str):
            raise invalid(f"{what} has {each!r}, {a_type(each)}; give a list of names")
    return listed


def mapping(what: str, value: object) -> None:
    """Refuse what is no mapping; None is none."""
    if value is not None and not isinstance(value, Mapping):
        raise invalid(f"{what} = {value!r} is {a_type(value)}; give a dict of column to value")


def decoder(dataset: drt.CachedDataset, decode: object) -> None:
    """Refuse what cannot decode a dataset.

    Raises:
        InvalidInputError: It cannot be called, or is the class of a codec where an instance is wanted.
        CodecError: The payloads were packed by another codec; names both.
    """
    if isinstance(decode, type) and callable(getattr(decode, "loads", None)) and hasattr(decode, "dumps"):
        # To call it would make a codec of every sample.
        raise invalid(
            f"decode = {decode!r} is the class of a codec; give an instance, such as {decode.__name__}()"
        )
    if isinstance(decode, drt.codecs.Codec):
        drt.codecs.check(dataset, decode)
    elif decode is not None and not callable(decode):
        raise invalid(f"decode = {decode!r} is neither a codec nor a function of a sample")
