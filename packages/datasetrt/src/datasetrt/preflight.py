"""Can this function, can this item be sent to another process? Said in this process, with the cure."""

from __future__ import annotations

import multiprocessing
import pickle
import pickletools
import sys
from pathlib import Path
from typing import Any

from .checks import invalid
from .config import WriterConfig
from .interrupts import raised_by_handler
from .source import MapSource, item_at, item_count
from .wording import reason, shorten, shown


def check_workers(source: MapSource[Any], config: WriterConfig) -> None:
    """Refuse what could not run in worker processes, before anything is started.

    Raises:
        InvalidInputError: Names the culprit, the function or the first item, and the cure.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # This is a worker that imports the main script, which would start the same write again.
        raise invalid(
            f"source {source.name!r} is being written while a new process imports the main script; "
            'put what starts the write under if __name__ == "__main__":'
        )
    if multiprocessing.current_process().daemon:
        raise invalid(
            f"workers = {config.workers} needs child processes, and a daemonic process may have none; "
            "write the cache in the main process, or use workers=1"
        )
    if config.worker_start_method != "fork":
        _check_main(source, config.worker_start_method)
    packed_function(source, config.worker_start_method)
    if item_count(source):
        _check_origin(source, config.worker_start_method, "item 0", packed_item(source, 0))


def packed_function(source: MapSource[Any], start_method: str) -> object:
    """The function as a worker gets it: pickled, except that a forked child has it already."""
    if start_method == "fork":
        return source.fn
    name = getattr(source.fn, "__qualname__", None)
    name = f"the function {shorten(name) if isinstance(name, str) else shown(source.fn)}"
    packed = _pickled(source, name, source.fn, "define it at the top level of a module or script")
    _check_origin(source, start_method, name, packed)
    return packed


def packed_item(source: MapSource[Any], index: int) -> bytes:
    """An item, pickled.

    Raises:
        InvalidInputError: It cannot be pickled; names its index.
    """
    item = item_at(source, index)
    return _pickled(source, f"item {index}", item, "give items that pickle, such as paths or numbers")


def _pickled(source: MapSource[Any], what: str, value: object, cure: str) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        if raised_by_handler(error):
            raise
        raise invalid(
            f"{what} of source {source.name!r} cannot be sent to a worker process ({reason(error)}); "
            f"{cure}, or use workers=1"
        ) from error


def _check_origin(source: MapSource[Any], start_method: str, what: str, packed: bytes) -> None:
    """A pickle that names something of an interactive session cannot be loaded in a new process."""
    if start_method == "fork" or not _is_interactive() or not _names_main(packed):
        return
    raise invalid(
        f"{what} of source {source.name!r} is defined in an interactive session, which a process started by "
        f"{start_method!r} cannot import; move it to a module, or use workers=1"
    )


def _check_main(source: MapSource[Any], start_method: str) -> None:
    """A new process imports the main script first; one that was piped into Python is not there."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is not None and getattr(main, "__spec__", None) is None and not Path(file).exists():
        raise invalid(
            f"source {source.name!r} cannot be mapped in processes started by {start_method!r}, because they "
            f"import the main script and {file} is no file; save it as one, or use workers=1"
        )


def _is_interactive() -> bool:
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is None and getattr(main, "__file__", None) is None


def _names_main(packed: bytes) -> bool:
    return any(argument == "__main__" for _, argument, _ in pickletools.genops(packed))
