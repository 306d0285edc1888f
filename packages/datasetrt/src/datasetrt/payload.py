"""Payloads that cannot be stored as the bytes that they are, in the words of the refusal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .wording import a_type

# Addresses, in a buffer's format: that of the struct module, with NumPy's extensions.
_POINTERS = frozenset("OP&X")


@dataclass(frozen=True)
class Refused:
    """What a worker process sends in place of a payload that cannot be stored: the words of the refusal."""

    reason: str


def refusal(data: object) -> str | None:
    """What a payload is and what to give instead; None for one whose bytes are all there is to it.

    Args:
        data: What a source gave as a payload.
    """
    if isinstance(data, Refused):
        return data.reason
    if isinstance(data, np.ma.MaskedArray):
        return (
            f"{a_type(data)}, whose mask would be lost; give data.filled(value), "
            "or numpy.asarray(data) if no value is masked"
        )
    try:
        view = memoryview(data)  # type: ignore[arg-type]  # that it may be none is what is asked
    except (TypeError, ValueError, BufferError):
        return _no_buffer(data)
    # Names of fields stand between colons.
    if not _POINTERS.isdisjoint("".join(view.format.split(":")[::2])):
        return (
            "a buffer of Python objects or pointers, whose bytes mean nothing in another process; "
            "pack the record first, for example with pickle.dumps"
        )
    if not view.c_contiguous:
        return "a buffer that is not C-contiguous; give numpy.ascontiguousarray(data)"
    return None


def _no_buffer(data: object) -> str:
    if isinstance(data, np.ndarray):
        what = f"an array of {data.dtype}, a dtype that Python's buffers do not have"
        if data.dtype.kind in "mM":
            return f"{what}; give data.view('i8')"
        return f"{what}; pack it first, for example with pickle.dumps"
    return (
        f"an object of type {type(data).__name__}, expected bytes or another C-contiguous buffer; "
        "pack the record first, for example with pickle.dumps"
    )
