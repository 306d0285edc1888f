"""What runs in a worker process: get items, run the function, send samples back in parts."""

from __future__ import annotations

import pickle
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .errors import InvalidInputError
from .failure import Failure
from .interrupts import in_child
from .payload import Refused, refusal
from .source import CacheInput, outputs_of
from .wording import shorten, shown

#: Samples of this many bytes are sent without waiting for the end of the chunk.
PART_BYTES = 1 << 20
#: What a sample without payload and metadata counts for, so that empty ones are bounded too.
SAMPLE_BYTES = 64

_PLAIN = {bool, int, float, str, type(None)}


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
        _send(pipe, Part(failure=Failure.of(None, error)))
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
            part.failure = Failure.of(number, error)
            break
    part.seconds = time.monotonic() - begin
    _send(pipe, part)


def _send(pipe: Connection, part: Part | None) -> None:
    pipe.send_bytes(pickle.dumps(part, pickle.HIGHEST_PROTOCOL))


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
