"""Handlers of signals, kept out of what they must not interrupt.

What the handler of a signal raises while a process is forked can be lost, or lose the child: CPython runs
hooks of other modules in the midst of a fork and drops what is raised in them, and :mod:`multiprocessing`
knows its child some lines after the fork. Handlers run in the main thread alone, so another thread forks.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

#: A thread that was started runs within this time.
_BEGINS_WITHIN_SECONDS = 1.0


def without_handlers(work: Callable[[], None]) -> None:
    """Run ``work`` where no handler of a signal runs, to its end; then raise what it or a handler raised.

    Ctrl-C is put off for a child that is forked by ``work``, until that calls :func:`in_child`: it has not
    said yet what it does with it.
    """
    raised: list[BaseException] = []
    begun, done = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            work()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            raised.append(error)
        finally:
            done.set()

    try:
        threading.Thread(target=run, name="datasetrt-fork", daemon=True).start()
    except BaseException as error:
        # There can be no thread; or a handler raised, and there is one.
        if not begun.wait(_BEGINS_WITHIN_SECONDS):
            raise
        raised.append(error)
    ended = False
    while not ended:
        try:
            ended = done.wait()
        except BaseException as error:  # noqa: BLE001 - a handler's; raised again below
            raised.append(error)
    first = raised[0] if raised else None
    raised.clear()
    try:
        if first is not None:
            raise first
    finally:
        # This frame and the error would keep each other, and what they hold, until a later collection.
        del first


def in_child() -> None:
    """Let Ctrl-C through in a forked child; for when it has said what it does with it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def raised_by_handler(error: BaseException) -> bool:
    """Whether the handler of a signal raised it: a Ctrl-C, or what passed through a handler in Python."""
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
