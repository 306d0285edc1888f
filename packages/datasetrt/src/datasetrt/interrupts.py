"""What the handlers of signals raise while a process is forked.

CPython runs the hooks of other modules in the midst of a fork, such as that of :mod:`logging`. What is raised
in them goes to :func:`sys.unraisablehook` and no further, also what the handler of a signal raises that comes
just then: a Ctrl-C would be lost.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple


class _Outside(NamedTuple):
    """What holds outside of the block."""

    hook: Callable[[Any], Any]
    blocked: set[signal.Signals | int]


# For a child, which gets a copy of all this and never comes to the end of the block.
_outside: _Outside | None = None


@contextmanager
def forking() -> Generator[None]:
    """Within the block a child may be forked; what a handler raised in a hook of the fork is raised after it.

    Handlers stay as they are. Signals that have one are not for a child that has not said yet what it does
    with them, and not for a parent that does not know its child yet: they are put off for this thread, and
    the child calls :func:`in_child`.
    """
    global _outside
    if threading.current_thread() is not threading.main_thread():
        # Handlers run in the main thread alone.
        yield
        return
    lost: list[BaseException] = []
    outside = _Outside(sys.unraisablehook, set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))

    def hook(told: Any) -> None:
        if raised_by_handler(told.exc_value):
            lost.append(told.exc_value)
        else:
            outside.hook(told)

    try:
        _outside = outside
        sys.unraisablehook = hook
        handled = {number for number in signal.valid_signals() if callable(signal.getsignal(number))}
        signal.pthread_sigmask(signal.SIG_BLOCK, handled)
        yield
    finally:
        sys.unraisablehook = outside.hook
        _outside = None
        signal.pthread_sigmask(signal.SIG_SETMASK, outside.blocked)
    if lost:
        raise lost[0]


def in_child() -> None:
    """Give a forked child what its parent has outside of the block; for when its handlers are set."""
    global _outside
    if _outside is not None:
        sys.unraisablehook = _outside.hook
        signal.pthread_sigmask(signal.SIG_SETMASK, _outside.blocked)
        _outside = None


def raised_by_handler(error: BaseException | None) -> bool:
    """Whether the handler of a signal raised it: a Ctrl-C, or what passed through a handler in Python."""
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    trace = None if error is None else error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
