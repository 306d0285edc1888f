"""From the folders of caches to a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable

from .checks import invalid, path_of
from .config import ReaderConfig
from .dataset import CachedDataset
from .wording import a_type, shown

_DEFAULTS = ReaderConfig()


def open_dataset(
    path_or_paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    config: ReaderConfig = _DEFAULTS,
) -> CachedDataset:
    """Open one or several caches as one dataset.

    Takes milliseconds and reads no payload; needs no lock and no write permission. Rows are those of the
    first cache, then those of the second, and so on.

    Args:
        path_or_paths: Folders of caches, ``root/NAME``. Columns of the same name have the same type in all.
            Paths are valid UTF-8; in the C locale without UTF-8 mode (``PYTHONUTF8=1``), ASCII.
        config: How files are opened.

    Raises:
        CacheNotFoundError: There is nothing at a path.
        FormatError: It is not a cache, is unfinished, or has a version that this release cannot read.
        CorruptionError: Manifest, index or metadata are damaged.
        InvalidInputError: No path is given, or one that is no valid UTF-8, or the caches do not go together.

    Example:
        >>> import datasetrt as drt
        >>> path = drt.testing.tiny_dataset().caches[0].path
        >>> len(drt.open_dataset(path)), len(drt.open_dataset([path]))
        (10, 10)
    """
    if isinstance(path_or_paths, str | bytes | bytearray | os.PathLike):
        paths = [path_of("path_or_paths", path_or_paths)]
    elif isinstance(path_or_paths, Iterable):
        paths = [path_of("a path", path) for path in path_or_paths]
    else:
        raise invalid(
            f"path_or_paths = {shown(path_or_paths)} is no path; give the folder of a cache, or several"
        )
    if not paths:
        raise invalid("path_or_paths is empty; give the folder of at least one cache")
    if not isinstance(config, ReaderConfig):
        raise invalid(f"config is {a_type(config)}; give a ReaderConfig")
    return CachedDataset._open(paths, config._checked(), ())
