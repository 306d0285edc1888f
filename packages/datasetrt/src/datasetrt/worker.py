"""What runs in a worker process: get items, run the function, send samples back in parts."""

from __future__ import annotations

import pickle
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .checks import invalid
from .errors import InvalidInputError
from .payload import refusal
from .source import CacheInput, outputs_of
from .wording import a_type, note, reason, shown

#: Samples of this many bytes are sent without waiting for the end of the chunk.
PART_BYTES = 1 << 20
#: What a sample without payload and metadata counts for, so that empty ones are bounded too.
SAMPLE_BYTES = 64

_PLAIN = {bool, int, float, str, type(None)}


@dataclass(frozen=True)
class Failure:
    """What ended a worker's chunk: the exception, and its traceback as text."""

    item: int | None
    packed: bytes
    text: str

    def restored(self, source: str) -> BaseException:
        """The exception as it was raised, with notes that say where."""
        error: BaseException = pickle.loads(self.packed)
        if self.item is not None:
            note(error, f"while item {self.item} of source {source!r} was being processed")
        note(error, f"in a worker process:\n{self.text}")
        return error


@dataclass
class Part:
    """Some samples of a chunk, in order; the last part says how long the chunk took, or what failed."""

    samples: list[tuple[int, bytes, dict[str, Any]]] = field(default_factory=list)
    payload_bytes: int = 0
    seconds: float | None = None
    failure: Failure | None = None

    def add(self, item: int, sample: CacheInput) -> None:
        data = _as_bytes(sample.data, item)
        self.samples.append((item, data, _as_dict(sample.metadata, item)))
        self.payload_bytes += len(data) + SAMPLE_BYTES


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
    return Failure(item, _portable(error), "".join(traceback.format_exception(error)))


@dataclass
class _Bare:
    """An exception with this class, arguments and attributes, made without calling its ``__init__``."""

    cls: type[BaseException]
    args: tuple[Any, ...]
    attributes: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        return _bare, (self.cls, self.args, self.attributes)


def _bare(cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    error.args = args
    vars(error).update(attributes)
    return error


def _portable(error: BaseException) -> bytes:
    """The exception pickled; where it does not survive that, what of it does, else its text."""
    # An exception whose __init__ takes other arguments than its args fails only when it is unpickled.
    kind = type(error)
    packed = _survives(error, kind)
    if packed is None:
        kept = {name: value for name, value in vars(error).items() if _survives(value, object) is not None}
        packed = _survives(_Bare(kind, error.args, kept), kind)
    return pickle.dumps(RuntimeError(reason(error))) if packed is None else packed


def _survives(value: object, kind: type) -> bytes | None:
    """The value pickled, if something of that class can be had from it again."""
    try:
        packed = pickle.dumps(value)
        return packed if isinstance(pickle.loads(packed), kind) else None
    except Exception:  # noqa: BLE001 - the user's own class may fail in any way
        return None


def _as_bytes(data: object, item: int) -> bytes:
    if type(data) is bytes:
        return data
    reason = None if isinstance(data, bytes) else refusal(data)
    if reason is not None:
        raise invalid(f"the payload of a sample of item {item} is {reason}")
    # Also of a subclass of bytes, which need not unpickle as what it is.
    return memoryview(data).tobytes()  # type: ignore[arg-type]


def _as_dict(metadata: object, item: int) -> dict[str, Any]:
    """What is stored of the metadata, as the core reads them, in objects that unpickle as they are."""
    if not isinstance(metadata, Mapping):
        raise InvalidInputError(
            f"the metadata of a sample of item {item} is {a_type(metadata)}; give a dict of names and values",
            kind="invalid-metadata",
        )
    fields = metadata if isinstance(metadata, dict) else dict(metadata)
    plain = {}
    # All of them before any is looked at: an item() may change the dict.
    for name, value in list(dict.items(fields)):
        stored = value if type(value) in _PLAIN else _plain(value)
        if type(stored) not in _PLAIN:
            _check_sendable(name, stored, item)
        plain[str.__str__(name) if isinstance(name, str) else name] = stored
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


def _check_sendable(name: object, value: object, item: int) -> None:
    """Values that cannot be stored are refused where samples are numbered; they must get there first."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception as error:  # noqa: BLE001 - the user's own class may refuse in any way
        raise invalid(
            f"field {shown(name)} of a sample of item {item} is {a_type(value)}, which cannot be sent "
            f"between processes ({reason(error)}); metadata holds bool, int, float, str and None"
        ) from None
