"""Signals that come while a process is forked.

CPython runs the hooks of other modules in the midst of a fork, such as that of :mod:`logging`, and drops what
is raised in them: a Ctrl-C would be lost. In the child nobody would wait for it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

#: A handler that raises for a signal of that very moment may come between; hardly more than once.
_TRIES = 3


@contextmanager
def signals_waiting() -> Generator[None]:
    """Python's handlers of signals run after the block; in a child forked within it, they never do."""
    if threading.current_thread() is not threading.main_thread():
        # Handlers run in the main thread alone.
        yield
        return
    arrived: list[int] = []
    replaced: dict[int, Any] = {}
    try:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                replaced[number] = handler
                signal.signal(number, lambda number, _: arrived.append(number))
        yield
    finally:
        _put_back(replaced)
        for missed in dict.fromkeys(arrived):
            signal.raise_signal(missed)


def _put_back(handlers: dict[int, Any]) -> None:
    """Put all back, and only then pass on what one of them raised."""
    raised: BaseException | None = None
    for number, handler in handlers.items():
        for _ in range(_TRIES):
            try:
                signal.signal(number, handler)
                break
            except BaseException as error:  # noqa: BLE001 - raised again below
                raised = raised or error
    if raised is not None:
        raise raised
