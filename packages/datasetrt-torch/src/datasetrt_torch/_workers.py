"""What reaches a worker process: checked here, before one is started."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Mapping
from typing import Any

# A worker seeds NumPy's generator first of all. NumPy imports it when it is first used, and an import in a
# process that was just forked can fail: what the garbage collector runs meanwhile may import, too.
import numpy.random  # noqa: F401

from ._checks import invalid


def start_method(context: Any = None) -> str:
    """How a DataLoader's workers will be started; nothing is set by asking.

    Args:
        context: DataLoader's ``multiprocessing_context``: a name, a context or None.
    """
    if isinstance(context, str):
        return context
    if context is not None:
        return str(context.get_start_method())
    # The first one is the default, in use from the moment when the first process is started.
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def refuse_unpicklable(parts: Mapping[str, Any], method: str | None = None) -> None:
    """Refuse what cannot be sent to a worker, naming it.

    Args:
        parts: What is sent, by name.
        method: How the worker is started, for the message.

    Raises:
        InvalidInputError: A part does not pickle.
    """
    for name, part in parts.items():
        try:
            pickle.dumps(part)
        # What a user's __reduce__ raises may be anything.
        except Exception as error:
            started = f"with {method!r} " if method else "in a new interpreter "
            reason = " ".join(str(error).split())
            raise invalid(
                f"{name} = {_described(part)} cannot be sent to a worker that is started {started}"
                f"({type(error).__name__}: {reason}); make it a function or class at the top of a module, "
                "or use num_workers=0"
            ) from error


def _described(part: Any) -> str:
    code = getattr(part, "__code__", None)
    if code is None:
        return repr(part)
    return f"{part.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
