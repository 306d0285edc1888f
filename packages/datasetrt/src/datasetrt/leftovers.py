"""Removes what interrupted writes left beside the caches of a folder."""

from __future__ import annotations

import os
from pathlib import Path

from ._core import clean_root
from .checks import flag, path_of
from .reports import CleanReport, Leftover


def clean(root: str | os.PathLike[str], *, dry_run: bool = False) -> CleanReport:
    """Remove the leftovers of interrupted writes from a folder of caches.

    An unfinished write is a leftover too, also one that would be resumed: its work is lost. Caches stay, and
    so does what a running writer uses, and everything that a writer would not have made: each leftover is
    known by its name, by the names in it and by how each file in it begins. No link is followed.

    Args:
        root: The folder that holds the caches; folders in it are not searched.
        dry_run: Only tell what would be removed.

    Raises:
        StorageError: The folder cannot be listed. What cannot be removed is told in the report.
        InvalidInputError: The root is no path.

    Example:
        >>> import datasetrt as drt, tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     print(drt.clean(root))
        removed 0 leftovers, 0 bytes
    """
    found = clean_root(path_of("root", root), flag("dry_run", dry_run))
    leftovers = (
        Leftover(
            path=Path(each["path"]),
            files=each["files"],
            bytes=each["bytes"],
            removed=each["reason"] is None,
            reason=each["reason"],
            failed=each["failed"],
        )
        for each in found
    )
    return CleanReport(tuple(leftovers), dry_run)
