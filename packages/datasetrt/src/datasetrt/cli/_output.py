"""What commands write: text in which nothing can steer a terminal, JSON, and a progress line.

Names, fingerprints and globals come from files that anybody may have written. Control characters,
bidirectional overrides and bytes that are no valid UTF-8 are shown as escapes such as ``\\x1b``.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_SECONDS_BETWEEN_LINES = 0.1
# Controls, formatting (which can reorder a line), surrogates, and the separators that end one.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class OutputError(Exception):
    """Standard output cannot be written."""


class ReaderGoneError(OutputError):
    """Whoever read standard output has stopped, as ``head`` does."""


def printable(text: str) -> str:
    """The text on one line, with everything escaped that a terminal might act on."""
    return "".join(_escaped(c) if unicodedata.category(c) in _UNSAFE else c for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def write_line(text: str = "") -> None:
    """One line on standard output.

    Raises:
        ReaderGoneError: Nobody reads it any more.
        OutputError: It cannot be written for another reason.
    """
    _to_stdout(printable(text) + "\n")


def write_json(document: dict[str, Any]) -> None:
    """One JSON document on standard output, in ASCII."""
    _to_stdout(json.dumps(document, indent=2) + "\n")


def complain(text: str) -> None:
    """One line on standard error, where there is one that can be written."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(_encodable(sys.stderr, f"datasetrt: {printable(' '.join(text.split()))}\n"))
        sys.stderr.flush()
    except (OSError, ValueError):
        # There is nowhere left to say so; the exit status tells.
        _point_at_nothing(sys.stderr)


def _to_stdout(text: str) -> None:
    check_open()
    try:
        sys.stdout.write(_encodable(sys.stdout, text))
        # Not at the end alone: a command that has nothing to say does not fail where nothing can be said.
        sys.stdout.flush()
    except BrokenPipeError as error:
        _point_at_nothing(sys.stdout)
        raise ReaderGoneError from error
    except (OSError, ValueError) as error:
        raise cannot_write(error) from error


def cannot_write(error: Exception) -> OutputError:
    """What to raise where standard output refused something, whoever wrote it."""
    if sys.stdout is not None:
        _point_at_nothing(sys.stdout)
    return OutputError(f"standard output cannot be written: {error}")


def check_open() -> None:
    """Refuse to go on without standard output.

    Raises:
        OutputError: It is closed.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed")


def _encodable(stream: TextIO, text: str) -> str:
    encoding = getattr(stream, "encoding", None) or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _point_at_nothing(stream: TextIO) -> None:
    """Let the interpreter's own flush at exit succeed: it would complain about the same failure again."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


@contextmanager
def progress(what: str, unit: Callable[[int], str]) -> Iterator[Callable[[int, int], None] | None]:
    """A function to report to, which draws a line on a terminal; None where standard error is none."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    line = _Line(sys.stderr, what, unit)
    try:
        yield line.show
    finally:
        line.clear()


class _Line:
    """One line that is written over and over, and away at the end."""

    def __init__(self, stream: TextIO, what: str, unit: Callable[[int], str]) -> None:
        self._stream = stream
        self._what = printable(what)
        self._unit = unit
        self._shown = 0
        self._last = 0.0

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_LINES and done < total:
            return
        self._last = now
        part = f"{done / total:.0%} " if total else ""
        line = f"{self._what}: {part}{self._unit(done)} of {self._unit(total)}"
        self._draw("\r" + line.ljust(self._shown))
        self._shown = len(line)

    def clear(self) -> None:
        if self._shown:
            self._draw("\r" + " " * self._shown + "\r")

    def _draw(self, text: str) -> None:
        try:
            self._stream.write(_encodable(self._stream, text))
            self._stream.flush()
        except OSError:
            # A terminal that went away is no reason to end the check.
            _point_at_nothing(self._stream)


def size(count: int) -> str:
    """A number of bytes for a reader, exact below 10 kB."""
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        if count < 10_000:
            break
        value /= 1000
        if value < 1000 or unit == "TB":
            return f"{value:,.1f} {unit}"
    return f"{count:,} bytes"
