"""Arguments, checked: refusals of one line, with the value and the cure."""

from __future__ import annotations

import datasetrt as drt


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
        raise invalid(f"{what} = {value!r} is a {type(value).__name__}; give True or False")


def count(what: str, value: object) -> None:
    """Refuse anything but a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise invalid(f"{what} = {value!r} is refused; give a whole number of at least 1")
