"""Words of messages and notes, for this package and for those of authors who build on it."""

from __future__ import annotations

import re
from contextlib import suppress

__all__ = ["a_type", "note", "reason", "shorten", "shown", "with_article"]

#: A value in a message takes about this many characters.
_SHOWN_CHARACTERS = 80
#: The text of a foreign exception, about this many.
_REASON_CHARACTERS = 300
#: Longer ints are told by their size: Python refuses to write out very long ones.
_SHOWN_BITS = 256

# By sound: "an int", "an ndarray" and "an Unknown", but "a uint8", "a Union" and "a UserDict".
_SPOKEN_WITH_A_VOWEL = re.compile(r"_*(?:[aeio]|u(?:[lmpr]|n(?!i))|nd|mmap)", re.IGNORECASE)


def with_article(name: str) -> str:
    """A name after its article, for the message of an error.

    Args:
        name: That of a type or another thing.

    Example:
        >>> from datasetrt import wording
        >>> wording.with_article("str"), wording.with_article("object"), wording.with_article("uint8")
        ('a str', 'an object', 'a uint8')
    """
    return f"{'an' if _SPOKEN_WITH_A_VOWEL.match(name) else 'a'} {name}"


def a_type(value: object) -> str:
    """The name of a value's type after its article, for the message of an error.

    Args:
        value: Anything.

    Example:
        >>> from datasetrt import wording
        >>> wording.a_type(7), wording.a_type(None)
        ('an int', 'a NoneType')
    """
    return with_article(shorten(type(value).__name__))


def shown(value: object, most: int = _SHOWN_CHARACTERS) -> str:
    """A value as a message has it: on one line, of bounded length, whatever its ``repr`` does.

    Args:
        value: Anything.
        most: About how many characters it takes.

    Example:
        >>> from datasetrt import wording
        >>> wording.shown("a\\nb"), wording.shown(10**5000)
        ("'a\\\\nb'", 'an int of 16,610 bits')
    """
    try:
        if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
            return f"an int of {value.bit_length():,} bits"
        if isinstance(value, str | bytes) and len(value) > most:
            return f"{value[:most]!r}… (of length {len(value):,})"
        text = repr(value)
    except Exception:  # noqa: BLE001 - the user's own class may fail in any way
        return f"<{shorten(type(value).__name__)}>"
    return shorten(text, most)


def shorten(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """Foreign text as a message has it: on one line, of bounded length, with nothing that cannot be printed.

    Args:
        text: Any text.
        most: About how many characters it takes.

    Example:
        >>> from datasetrt import wording
        >>> wording.shorten("a\\nb"), wording.shorten("abc", 2)
        ('a b', 'ab…')
    """
    text = " ".join(text[: 4 * most].encode(errors="backslashreplace").decode().split())
    text = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
    return text if len(text) <= most else f"{text[:most]}…"


def reason(error: BaseException) -> str:
    """A foreign exception on one line, such as ``KeyError: 'image'``.

    Args:
        error: Anything that was raised; its class may fail to say what it is.

    Example:
        >>> from datasetrt import wording
        >>> wording.reason(ValueError("no\\nlabel"))
        'ValueError: no label'
    """
    try:
        text = shorten(str(error), _REASON_CHARACTERS)
    except Exception:  # noqa: BLE001 - the user's own class may fail in any way
        text = ""
    name = shorten(type(error).__name__)
    return f"{name}: {text}" if text else name


def note(error: BaseException, text: str) -> None:
    """Add a note to an exception, or leave it as it is where its class takes none.

    Args:
        error: Anything that was raised.
        text: What to say beside it, such as the sample that was being processed.

    Example:
        >>> from datasetrt import wording
        >>> error = ValueError("no label")
        >>> wording.note(error, "while sample 3 was being read")
        >>> error.__notes__
        ['while sample 3 was being read']
    """
    try:
        error.add_note(text)
    except Exception:  # noqa: BLE001 - the user's own class may refuse in any way, as frozen dataclasses do
        with suppress(Exception):
            found = getattr(error, "__notes__", None)
            notes = list(found) if isinstance(found, list | tuple) else []
            BaseException.__setattr__(error, "__notes__", [*notes, text])
