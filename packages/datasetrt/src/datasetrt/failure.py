"""What a worker process tells of an exception: as much of it as survives the way to its parent."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, takewhile
from types import MemberDescriptorType
from typing import Any

from .pickle_walk import walk
from .wording import note, reason, shown

#: So many exceptions of a chain of causes are sent, and so many within each other.
MOST_CAUSES = 8
MOST_NESTED = 4


@dataclass(frozen=True)
class Failure:
    """What ended a worker's chunk: the exception and its causes, and its traceback as text."""

    item: int | None
    #: The exception, its cause, and so on: of each what survives pickling.
    packed: list[bytes]
    #: The exception as one of Python's own, with values of Python's own types, where those do not load here.
    spare: bytes
    text: str

    @staticmethod
    def of(item: int | None, error: BaseException) -> Failure:
        """What is sent of an exception; ``item`` is None where no item is to blame."""
        packed: list[bytes] = []
        cause: BaseException | None = error
        while cause is not None and len(packed) < MOST_CAUSES:
            packed.append(_portable(cause))
            cause = cause.__cause__
        return Failure(item, packed, _spare(error), "".join(traceback.format_exception(error)))

    def restored(self, source: str) -> BaseException:
        """The exception as it was raised, with notes that say where."""
        error = self._loaded()
        if self.item is not None:
            note(error, f"while item {self.item} of source {source!r} was being processed")
        note(error, f"in a worker process:\n{self.text}")
        return error

    def _loaded(self) -> BaseException:
        try:
            errors: list[BaseException] = [pickle.loads(packed) for packed in self.packed]
        except Exception:  # noqa: BLE001 - a class that only the worker could import, or that fails in any way
            errors = [pickle.loads(self.spare)]
        for error, cause in pairwise(errors):
            BaseException.__setattr__(error, "__cause__", cause)
        return errors[0]


@dataclass
class _Bare:
    """An exception with this class, arguments and attributes, made without code of its own."""

    cls: type[BaseException]
    args: tuple[Any, ...]
    attributes: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return _bare, (self.cls, self.args, self.attributes)


def _bare(cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    origin = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    error: BaseException = origin.__new__(cls, *args)
    for name, value in {"args": args, **attributes}.items():
        # Some are there already, and cannot be set: what an ExceptionGroup holds.
        with suppress(AttributeError, TypeError):
            # Past a __setattr__ that refuses, such as that of a frozen dataclass.
            BaseException.__setattr__(error, name, value)
    return error


def _portable(error: BaseException, depth: int = 0) -> bytes:
    """The exception pickled; where it does not survive that, what of it does.

    ``depth`` counts the exceptions around it, which may lead back to themselves.
    """
    packed = _unchanged(error)
    if packed is None:
        kind = type(error)
        args = tuple(_sendable(argument, depth) for argument in error.args)
        attributes = _attributes(error)
        packed = _survives(_Bare(kind, args, attributes), kind) or _survives(error, kind)
        # Or the class itself is known in this process alone.
        packed = packed or _as_base(error, kind.__mro__[1:], args, attributes)
    return packed


def _spare(error: BaseException) -> bytes:
    """The exception as one of Python's own classes, of which the parent needs no module to unpickle it."""
    kinds = [base for base in type(error).__mro__ if base.__module__ == "builtins"]
    args = tuple(value if _is_plain(value) else shown(value, 200) for value in error.args)
    attributes = {name: value for name, value in _attributes(error).items() if _is_plain(value)}
    return _as_base(error, kinds, args, attributes)


def _unchanged(error: BaseException) -> bytes | None:
    """The exception pickled, if that alone gives it back: its __init__ may take other arguments."""
    for argument in error.args:
        within = argument if isinstance(argument, list) else [argument]
        if any(isinstance(each, BaseException) for each in within):
            return None  # It may be changed by that.
    found = _round_trip(error)
    if found is None:
        return None
    packed, again = found
    same = type(again) is type(error) and _told(again) == _told(error)
    return packed if same and vars(again).keys() >= vars(error).keys() else None


def _told(error: BaseException) -> tuple[str, ...]:
    """What can be compared of two exceptions: values need not be equal to what they are unpickled as."""
    beside = (f"{name}={shown(value)}" for name, value in _beside_dict(error).items())
    return reason(error), shown(error.args, 1_000), *beside


def _beside_dict(error: BaseException) -> dict[str, Any]:
    """What an exception holds outside of its dict: errno and filename, names in ``__slots__``."""
    found: dict[str, Any] = {}
    for base in type(error).__mro__:
        for name, member in vars(base).items():
            slot = isinstance(member, MemberDescriptorType) and not name.startswith("__")
            # The object without the attribute, or with the name, may be as large as all data.
            if slot and not (name == "obj" and base in (AttributeError, NameError)):
                value = getattr(error, name, None)
                if value is not None:
                    found[name] = value
    return found


def _as_base(
    error: BaseException, kinds: Iterable[type], args: tuple[Any, ...], attributes: dict[str, Any]
) -> bytes:
    """The exception in the first of these classes that can be sent and say what it is, or in a RuntimeError.

    With these arguments, if it says the same then; or with its text as the only one. A class may say what it
    is by its attributes alone.
    """
    own, told = _text(error), reason(error)
    for kind in takewhile(lambda kind: kind not in (Exception, BaseException), kinds):
        forms = [_in_class(kind, form, attributes) for form in (args, (told,))]
        sent = [(packed, text) for packed, text in filter(None, forms) if text is not None]
        if sent:
            return next((packed for packed, text in sent if text == own or told in text), sent[0][0])
    return pickle.dumps(_Bare(RuntimeError, (told,), attributes))


def _in_class(
    kind: type, args: tuple[Any, ...], attributes: dict[str, Any]
) -> tuple[bytes, str | None] | None:
    """An exception of this class, pickled, and what it says once it is unpickled; None where it cannot be."""
    if not issubclass(kind, BaseException):
        return None
    found = _round_trip(_Bare(kind, args, attributes))
    return (found[0], _text(found[1])) if found is not None and isinstance(found[1], kind) else None


def _text(error: BaseException) -> str | None:
    """What an exception says; None where its class fails to."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it may fail in any way, above all where attributes are missing
        return None


def _is_plain(value: object) -> bool:
    """Whether a value can be unpickled without importing anything."""
    found = _round_trip(value)
    if found is None:
        return False
    walked = walk(found[0])
    return walked.problem is None and not walked.names


@dataclass(frozen=True)
class _Packed:
    """What a pickle gives, within another one."""

    packed: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.packed,)


def _attributes(error: BaseException) -> dict[str, Any]:
    """What an exception holds beside its arguments, as far as that can be sent."""
    found = vars(error) | _beside_dict(error)
    notes = found.pop("__notes__", None)
    kept = {name: value for name, value in found.items() if _round_trip(value) is not None}
    if isinstance(notes, list):
        kept["__notes__"] = [text for text in notes if isinstance(text, str)]
    return kept


def _sendable(value: object, depth: int) -> object:
    """An argument of an exception, or the text of one that cannot be sent."""
    if isinstance(value, BaseException) and depth < MOST_NESTED:
        return _Packed(_portable(value, depth + 1))
    if isinstance(value, list) and depth < MOST_NESTED:
        return [_sendable(item, depth + 1) for item in value]
    return value if _round_trip(value) is not None else shown(value, 200)


def _survives(value: object, kind: type) -> bytes | None:
    """The value pickled, if something of that class can be had from it again."""
    found = _round_trip(value)
    return found[0] if found is not None and isinstance(found[1], kind) else None


def _round_trip(value: object) -> tuple[bytes, Any] | None:
    """The value pickled, and what that gives again; None where it cannot be."""
    try:
        packed = pickle.dumps(value)
        return packed, pickle.loads(packed)
    except Exception:  # noqa: BLE001 - the user's own class may fail in any way
        return None
