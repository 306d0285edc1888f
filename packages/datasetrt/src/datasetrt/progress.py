"""How far a write is: a line on a terminal, or a call of the user's function.

Written by hand, in few lines, because the core package depends on little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TextIO, TypeAlias

#: Seconds between two reports.
INTERVAL_SECONDS = 0.1

_WIDTH = 20


@dataclass(frozen=True)
class Progress:
    """How far the write of one source is.

    Args:
        name: The source.
        samples: Samples stored so far, those of a resumed write included.
        total: Samples of the source, where it has a length.
        payload_bytes: Payload bytes stored so far, before compression.
        seconds: Time since this write began.
        fraction: Part of the source that is done, in [0, 1]; of the items, where the source is a
            MapSource; None where its length is unknown.

    Example:
        >>> Progress("train", samples=50, total=200, payload_bytes=5_000, seconds=1.0, fraction=0.25).fraction
        0.25
    """

    name: str
    samples: int
    total: int | None
    payload_bytes: int
    seconds: float
    fraction: float | None = None


#: Receives samples and payload bytes so far and, where it is not samples / total, the part that is done.
Report: TypeAlias = Callable[[int, int, float | None], None]


def watching(
    progress: bool | Callable[[Progress], None], name: str, total: int | None, ends: ExitStack
) -> Report | None:
    """A function to report to while a source is written, until ``ends`` does; None where nobody looks.

    Reports go to ``progress`` where it is a function, to a line on standard error where it is True and
    standard error is a terminal, and nowhere else. What the function raises ends the write.
    """
    if callable(progress):
        return _reporter(progress, name, total)
    if progress and sys.stderr is not None and sys.stderr.isatty():
        bar = _Bar(sys.stderr)
        ends.callback(bar.end)
        return _reporter(bar.show, name, total)
    return None


def _reporter(receive: Callable[[Progress], None], name: str, total: int | None) -> Report:
    begin = time.monotonic()

    def report(samples: int, payload_bytes: int, fraction: float | None) -> None:
        if fraction is None and total:
            fraction = min(samples / total, 1.0)
        receive(Progress(name, samples, total, payload_bytes, time.monotonic() - begin, fraction))

    return report


class _Bar:
    """One line that is written over and over."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._first: Progress | None = None
        self._shown = 0

    def show(self, now: Progress) -> None:
        # A resumed write begins with samples that it did not make: rates count from the first report.
        self._first = self._first or now
        line = render(now, self._first)
        self._stream.write("\r" + line.ljust(self._shown))
        self._stream.flush()
        self._shown = len(line)

    def end(self) -> None:
        if self._shown:
            self._stream.write("\n")
            self._stream.flush()


def render(now: Progress, first: Progress) -> str:
    """The line for a terminal; rates count from ``first``, the report before the first new sample."""
    seconds = now.seconds - first.seconds
    samples = now.samples - first.samples
    parts = [f"{now.name}: {_bar(now.fraction)}{now.samples:,} samples"]
    if seconds > 0:
        megabytes = (now.payload_bytes - first.payload_bytes) / 1e6
        parts.append(f"{samples / seconds:,.0f} samples/s, {megabytes / seconds:,.1f} MB/s")
    left = _seconds_left(now, first, seconds)
    if left is not None:
        parts.append(f"{_clock(left)} left")
    return ", ".join(parts)


def _bar(fraction: float | None) -> str:
    if fraction is None:
        return ""
    full = round(fraction * _WIDTH)
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {fraction:.0%} "


def _seconds_left(now: Progress, first: Progress, seconds: float) -> float | None:
    if now.fraction is None:
        return None
    done = now.fraction - (first.fraction or 0.0)
    return seconds * (1 - now.fraction) / done if done > 0 else None


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
