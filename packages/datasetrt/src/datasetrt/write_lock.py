"""The lock of a write belongs to this process; a forked child must not hold it, perhaps longer than we live.

The system gives a child all descriptors, and drops a lock with the last of them. A worker of a MapSource,
or any process that a source forks, would so keep others from writing after its parent was killed.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

#: The descriptors that hold the locks of this process, with the device and the inode of their files.
_held: dict[int, tuple[int, int]] = {}


def left_by_children(descriptor: int | None, ends: ExitStack) -> None:
    """Have each child leave the lock that is forked until ``ends`` does."""
    if descriptor is None:
        return
    if file := _file(descriptor):
        _held[descriptor] = file
        ends.callback(_held.pop, descriptor, None)


def _file(descriptor: int) -> tuple[int, int] | None:
    """What tells an open file from others; None where the number is free."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _leave() -> None:
    """Put another file in the place of each lock: the number stays taken, because its owner will close it."""
    while _held:
        descriptor, file = _held.popitem()
        # Another thread may have ended its write just before the fork; the number is free or another file's.
        if _file(descriptor) == file:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, descriptor, inheritable=False)
            os.close(nothing)


os.register_at_fork(after_in_child=_leave)
