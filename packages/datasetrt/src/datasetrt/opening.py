"""From the folders of caches to a dataset, or to what is wrong with one that cannot be opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from ._core import verify_folder
from .checks import invalid, path_of
from .config import ReaderConfig
from .dataset import CachedDataset
from .reports import Problem, VerifyReport
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


def verify_cache(
    path: str | os.PathLike[str], *, on_progress: Callable[[int, int], None] | None = None
) -> VerifyReport:
    """Read every byte of the cache in a folder and report everything that is wrong.

    As :meth:`CachedDataset.verify`, also where the cache cannot be opened: a problem in one file does not
    hide those in the others. While the index is damaged, shards are compared with their digests as a whole,
    and samples are not named. While the manifest is, shards are compared with the digests in their own
    trailers; the checksums of index and metadata are lost with it. Nothing is decoded. Of more than 10,000
    problems the last one says how many there are besides.

    Args:
        path: Folder of the cache, ``root/NAME``.
        on_progress: Called now and then with the bytes that were checked and those there are; what it
            raises ends the check.

    Raises:
        CacheNotFoundError: There is nothing at the path.
        FormatError: It is not a cache, or has a version that this release cannot read.
        StorageError: The system does not let the manifest be read.
        InvalidInputError: The path is none, or no valid UTF-8.
        Exception: Whatever ``on_progress`` raises.

    Example:
        >>> import datasetrt as drt, pathlib, tempfile
        >>> source = drt.MapSource("ones", range(3), lambda i: drt.CacheInput(b"1", {"i": i}))
        >>> with tempfile.TemporaryDirectory() as root:
        ...     folder = drt.write_cache(source, root).path
        ...     sound = drt.verify_cache(folder)
        ...     for file in ("index.bin", "metadata.arrow", "shards/000000.bin"):
        ...         (folder / file).unlink()
        ...     damaged = drt.verify_cache(folder)
        >>> print(sound)
        1 cache with 3 samples: no problem
        >>> [problem.kind for problem in damaged.problems]
        ['missing-file', 'missing-file', 'missing-file']
    """
    samples, problems = verify_folder(path_of("path", path), on_progress)
    return VerifyReport(tuple(Problem(**problem) for problem in problems), 1, samples)
