"""Results of a function, computed a few ahead in a thread of its own."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Calls a function again and again, in order, in one thread, at most ``depth`` results ahead.

    The thread starts with the first :meth:`next` and ends with :meth:`close`, or when this is dropped. The
    function must not refer to this object, or to one that holds it.
    """

    def __init__(self, function: Callable[[], T], depth: int) -> None:
        self._function = function
        self._depth = depth
        self._waiting: deque[Future[T]] = deque()
        # In a list, so that what ends the thread can find it without keeping this object alive.
        self._pool: list[ThreadPoolExecutor] = []
        # Not __del__, which at the end of Python would run when modules are gone already.
        weakref.finalize(self, _end, self._pool, patient=False)

    def next(self) -> T:
        """The next result; what the function raised is raised here, in its turn."""
        if not self._pool:
            self._pool.append(ThreadPoolExecutor(1, thread_name_prefix="datasetrt-jax"))
        (pool,) = self._pool
        while len(self._waiting) < self._depth:
            self._waiting.append(pool.submit(self._function))
        # It leaves the queue only when it is there: Ctrl-C during the wait loses nothing.
        wait([self._waiting[0]])
        result = self._waiting.popleft()
        self._waiting.append(pool.submit(self._function))
        return result.result()

    def close(self) -> None:
        """End the thread, after the call that is under way, and drop what was computed ahead."""
        self._waiting.clear()
        _end(self._pool, patient=True)


def _end(pools: list[ThreadPoolExecutor], *, patient: bool) -> None:
    while pools:
        pools.pop().shutdown(wait=patient, cancel_futures=True)
