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

from .checks import invalid
from .payload import refusal
from .source import CacheInput, outputs_of
from .wording import a_type, note

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
    packed = _survives(error)
    if packed is None:
        kept = {name: value for name, value in vars(error).items() if _survives(value) is not None}
        packed = _survives(_Bare(type(error), error.args, kept))
    return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}")) if packed is None else packed


def _survives(value: object) -> bytes | None:
    """The value pickled, if it can be had from that again."""
    try:
        packed = pickle.dumps(value)
        pickle.loads(packed)
    except Exception:  # noqa: BLE001 - the user's own class may fail in any way
        return None
    return packed


def _as_bytes(data: object, item: int) -> bytes:
    if isinstance(data, bytes):
        return data
    reason = refusal(data)
    if reason is not None:
        raise invalid(f"the payload of a sample of item {item} is {reason}")
    return memoryview(data).tobytes()  # type: ignore[arg-type]


def _as_dict(metadata: object, item: int) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise invalid(f"the metadata of a sample of item {item} is {a_type(metadata)}; give a dict")
    for name, value in metadata.items():
        if type(value) not in _PLAIN:
            _check_sendable(name, value, item)
    return dict(metadata)


def _check_sendable(name: object, value: object, item: int) -> None:
    """Values that cannot be stored are refused where samples are numbered; they must get there first."""
    try:
        pickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - the user's own class may refuse in any way
        raise invalid(
            f"field {name!r} of a sample of item {item} is {a_type(value)}, which cannot be sent "
            f"between processes ({error}); metadata holds bool, int, float, str and None"
        ) from None
