"""What runs in a worker process: get items, run the function, send samples back in parts."""

from __future__ import annotations

import pickle
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from types import MemberDescriptorType
from typing import Any

import numpy as np

from .errors import InvalidInputError
from .interrupts import in_child
from .payload import Refused, refusal
from .source import CacheInput, outputs_of
from .wording import note, reason, shorten, shown

#: Samples of this many bytes are sent without waiting for the end of the chunk.
PART_BYTES = 1 << 20
#: So many exceptions of a chain of causes are sent, and so many within each other.
MOST_CAUSES = 8
MOST_NESTED = 4
#: What a sample without payload and metadata counts for, so that empty ones are bounded too.
SAMPLE_BYTES = 64

_PLAIN = {bool, int, float, str, type(None)}


@dataclass(frozen=True)
class Failure:
    """What ended a worker's chunk: the exception and its causes, and its traceback as text."""

    item: int | None
    #: The exception, its cause, and so on: of each what survives pickling.
    packed: list[bytes]
    #: One of Python's own classes, where those do not load in this process.
    spare: bytes
    text: str

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
class Part:
    """Some samples of a chunk, in order; the last part says how long the chunk took, or what failed."""

    samples: list[tuple[int, Any, Any]] = field(default_factory=list)
    payload_bytes: int = 0
    seconds: float | None = None
    failure: Failure | None = None

    def add(self, item: int, sample: CacheInput) -> None:
        data = _as_bytes(sample.data)
        self.samples.append((item, data, _as_dict(sample.metadata, item)))
        self.payload_bytes += SAMPLE_BYTES + (len(data) if isinstance(data, bytes) else 0)


def work(pipe: Connection, fn: object, inherited: list[Connection]) -> None:
    """The main function of a worker process; it ends when the other side closes the pipe.

    Args:
        pipe: Chunks come in, parts go out.
        fn: The function of the source, pickled unless this process was forked.
        inherited: What a forked process has of its parent and must not hold open.
    """
    for other in inherited:
        other.close()
    # A Ctrl-C reaches the whole process group: the parent alone answers it, and ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A forked worker would run the parent's handler.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    in_child()
    try:
        function = _loaded(fn, pipe)
        while function is not None:
            first, items = pickle.loads(pipe.recv_bytes())
            _run_chunk(pipe, function, first, items)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        # The parent is done or gone.
        return


def _loaded(fn: object, pipe: Connection) -> Callable[[Any], object] | None:
    """The function, once the parent knows that this process is up; None where it cannot be loaded."""
    try:
        function: Callable[[Any], object] = pickle.loads(fn) if isinstance(fn, bytes) else fn  # type: ignore[assignment]
    except BaseException as error:  # noqa: BLE001 - whatever it is belongs to the parent
        _send(pipe, Part(failure=_failure(None, error)))
        return None
    _send(pipe, None)
    return function


def _run_chunk(pipe: Connection, fn: Callable[[Any], object], first: int, items: list[bytes]) -> None:
    begin = time.monotonic()
    part = Part()
    for number, packed in enumerate(items, first):
        try:
            for sample in outputs_of(fn, pickle.loads(packed), number):
                part.add(number, sample)
                if part.payload_bytes >= PART_BYTES:
                    _send(pipe, part)
                    part = Part()
        except BaseException as error:  # noqa: BLE001 - whatever the function raises belongs to the parent
            part.failure = _failure(number, error)
            break
    part.seconds = time.monotonic() - begin
    _send(pipe, part)


def _send(pipe: Connection, part: Part | None) -> None:
    pipe.send_bytes(pickle.dumps(part, pickle.HIGHEST_PROTOCOL))


def _failure(item: int | None, error: BaseException) -> Failure:
    text = "".join(traceback.format_exception(error))
    packed: list[bytes] = []
    cause: BaseException | None = error
    while cause is not None and len(packed) < MOST_CAUSES:
        packed.append(_portable(cause))
        cause = cause.__cause__
    spare = pickle.dumps(_Bare(_builtin(type(error)), (reason(error),), {}))
    return Failure(item, packed, spare, text)


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
    kind = type(error)
    packed = _unchanged(error)
    if packed is None:
        args = tuple(_sendable(argument, depth) for argument in error.args)
        packed = _survives(_Bare(kind, args, _attributes(error)), kind) or _survives(error, kind)
    if packed is None:
        # The class itself is known in this process alone: the nearest one that is known elsewhere.
        bases = (base for base in kind.__mro__[1:] if issubclass(base, BaseException))
        known = next(base for base in bases if _survives(base, type) is not None)
        known = RuntimeError if known in (Exception, BaseException) else known
        packed = _survives(_Bare(known, (reason(error),), {}), known)
    return pickle.dumps(RuntimeError(reason(error))) if packed is None else packed


def _unchanged(error: BaseException) -> bytes | None:
    """The exception pickled, if that alone gives it back: its __init__ may take other arguments."""
    for argument in error.args:
        within = argument if isinstance(argument, list) else [argument]
        if any(isinstance(each, BaseException) for each in within):
            return None  # It may be changed by that.
    packed = _survives(error, type(error))
    if packed is None:
        return None
    again = pickle.loads(packed)
    same = _told(again) == _told(error) and vars(again).keys() >= vars(error).keys()
    return packed if same else None


def _told(error: BaseException) -> tuple[str, str]:
    return reason(error), shown(error.args, 1_000)


@dataclass(frozen=True)
class _Packed:
    """What a pickle gives, within another one."""

    packed: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self.packed,)


def _builtin(kind: type[BaseException]) -> type[BaseException]:
    """The nearest class of Python's own that is made from a text."""
    for base in kind.__mro__:
        if base.__module__ == "builtins" and base not in (Exception, BaseException):
            return base if _survives(_Bare(base, ("",), {}), base) is not None else RuntimeError
    return RuntimeError


def _attributes(error: BaseException) -> dict[str, Any]:
    """What an exception holds beside its arguments, as far as that can be sent."""
    found = dict(vars(error))
    for base in type(error).__mro__:
        for name, member in vars(base).items():
            # What is kept outside of the dict: errno and filename, names in __slots__.
            if isinstance(member, MemberDescriptorType) and not name.startswith("__"):
                found[name] = getattr(error, name, None)
    notes = found.pop("__notes__", None)
    kept = {name: value for name, value in found.items() if value is not None and _survives(value, object)}
    if isinstance(notes, list):
        kept["__notes__"] = [note for note in notes if isinstance(note, str)]
    return kept


def _sendable(value: object, depth: int) -> object:
    """An argument of an exception, or the text of one that cannot be sent."""
    if isinstance(value, BaseException) and depth < MOST_NESTED:
        return _Packed(_portable(value, depth + 1))
    if isinstance(value, list) and depth < MOST_NESTED:
        return [_sendable(item, depth + 1) for item in value]
    return value if _survives(value, object) is not None else shown(value, 200)


def _survives(value: object, kind: type) -> bytes | None:
    """The value pickled, if something of that class can be had from it again."""
    try:
        packed = pickle.dumps(value)
        return packed if isinstance(pickle.loads(packed), kind) else None
    except Exception:  # noqa: BLE001 - the user's own class may fail in any way
        return None


def _as_bytes(data: object) -> bytes | Refused:
    if type(data) is bytes:
        return data
    reason = None if isinstance(data, bytes) else refusal(data)
    # Also of a subclass of bytes, which need not unpickle as what it is.
    return memoryview(data).tobytes() if reason is None else Refused(reason)  # type: ignore[arg-type]


def _as_dict(metadata: object, item: int) -> object:
    """What is stored of the metadata, as the core reads them, in objects that unpickle as they are.

    What cannot be stored is refused where samples are numbered. What is sent of it is what the refusal tells.
    """
    if not isinstance(metadata, Mapping):
        return _StandIn.of(metadata)
    fields = metadata if isinstance(metadata, dict) else dict(metadata)
    plain: dict[object, object] = {}
    # All of them before any is looked at: an item() may change the dict.
    for name, value in list(dict.items(fields)):
        key = str.__str__(name) if isinstance(name, str) else _StandIn.of(name)
        if key in plain:
            raise InvalidInputError(
                f"field {shown(key)} of a sample of item {item} is given twice; give each field once",
                kind="invalid-metadata",
            )
        stored = value if type(value) in _PLAIN else _plain(value)
        plain[key] = stored if type(stored) in _PLAIN else _StandIn.of(stored)
    return plain


def _plain(value: object) -> object:
    if isinstance(value, np.generic) and not isinstance(value, int | float | str):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value


@dataclass(frozen=True)
class _StandIn:
    """What a refusal tells of an object: the name of its class, and its text."""

    name: str
    text: str

    @staticmethod
    def of(value: object) -> _StandIn:
        return _StandIn(shorten(type(value).__name__), shown(value))

    def __reduce__(self) -> tuple[Any, ...]:
        return _stand_in, (self.name, self.text)


def _stand_in(name: str, text: str) -> object:
    return type(name, (), {"__repr__": lambda _: text})()
