"""A state as Orbax v1 keeps it: one small file, whatever the number of processes.

Orbax takes any object with these two coroutines; nothing of it is imported.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ._processes import is_first_process

_FILE = "datasetrt.json"


async def save_state(state: Mapping[str, Any], directory: Any) -> Awaitable[None]:
    """Begin to write a state; what is returned ends it, perhaps in the background."""
    text = json.dumps(state)

    async def write() -> None:
        # Orbax makes the folder meanwhile.
        folder = await directory.await_creation()
        if is_first_process():
            (folder / _FILE).write_text(text)

    return write()


async def load_state(set_state: Callable[[Mapping[str, Any]], None], directory: Any) -> Awaitable[None]:
    """Read a state and set it, at once."""
    set_state(json.loads((directory / _FILE).read_text()))

    async def nothing_left() -> None:
        return None

    return nothing_left()
