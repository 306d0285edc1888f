"""Every error this library raises: one tree under `DatasetRTError`.

The class says what a caller can do, and also inherits the builtin exception a caller would catch; ``kind``
says exactly what happened and never changes its spelling; the message is one line with the values and the
cure in it. ``docs/errors.md`` lists every kind. This module imports nothing of the package, so that anything
may import it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

__all__ = [
    "CacheExistsError",
    "CacheNotFoundError",
    "CodecError",
    "CorruptionError",
    "DatasetRTError",
    "FormatError",
    "InstallationError",
    "InvalidInputError",
    "SampleIndexError",
    "StaleCacheError",
    "StateError",
    "StorageError",
]


class DatasetRTError(Exception):
    """Root of every error that datasetrt raises.

    Made from one string, which ``str(error)`` gives back exactly. Pickling and copying keep the class, the
    message, the attributes and the notes.

    Args:
        message: One line: what is wrong, with the values, and what to do about it.
        kind: Stable name of what happened, from ``docs/errors.md``; default: the class's own name in that
            style.
        path: File or folder concerned.
        shard: Number of the shard concerned, from 0.
        offset: Byte offset in that shard or payload.
        sample_id: Sample concerned, from 0 in its cache.

    Example:
        >>> import datasetrt as drt
        >>> error = drt.CorruptionError("checksum differs; rebuild it", kind="record-checksum", shard=3)
        >>> str(error), error.kind, error.shard, error.path
        ('checksum differs; rebuild it', 'record-checksum', 3, None)
    """

    default_kind: ClassVar[str] = "datasetrt-error"

    kind: str
    path: str | None
    shard: int | None
    offset: int | None
    sample_id: int | None

    def __init__(
        self,
        message: str = "",
        *,
        kind: str | None = None,
        path: str | None = None,
        shard: int | None = None,
        offset: int | None = None,
        sample_id: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = self.default_kind if kind is None else kind
        self.path = path
        self.shard = shard
        self.offset = offset
        self.sample_id = sample_id

    def __reduce__(self) -> tuple[Any, ...]:
        # BaseException's own version forgets `errno`, which OSError keeps outside `__dict__`.
        state = dict(self.__dict__)
        if isinstance(self, OSError) and self.errno is not None:
            state["errno"] = self.errno
        # The same holds for what ImportError keeps there.
        if isinstance(self, ImportError):
            state |= {"name": self.name, "path": self.path}
        return type(self), self.args, state


class CacheNotFoundError(DatasetRTError, FileNotFoundError):
    """There is no cache at the path."""

    default_kind = "cache-not-found-error"


class CacheExistsError(DatasetRTError, FileExistsError):
    """A cache, or something else, has the name already, or another writer is writing it."""

    default_kind = "cache-exists-error"


class StaleCacheError(DatasetRTError):
    """The cache is sound, but not the one that was asked for."""

    default_kind = "stale-cache-error"


class FormatError(DatasetRTError):
    """Not a cache, an unfinished one, or of a version this release cannot read."""

    default_kind = "format-error"


class CorruptionError(DatasetRTError):
    """The bytes on disk are not the bytes that were written."""

    default_kind = "corruption-error"


class InvalidInputError(DatasetRTError, ValueError):
    """An argument, a sample or a metadata table breaks a rule."""

    default_kind = "invalid-input-error"


class SampleIndexError(DatasetRTError, IndexError):
    """An index is out of range."""

    default_kind = "sample-index-error"


class StateError(DatasetRTError, ValueError):
    """A saved state is malformed or belongs to something else."""

    default_kind = "state-error"


class CodecError(DatasetRTError, ValueError):
    """An object cannot be packed, or a payload cannot be unpacked."""

    default_kind = "codec-error"


class StorageError(DatasetRTError, OSError):
    """The operating system refused an operation; ``errno`` is set where it gave one."""

    default_kind = "storage-error"


class InstallationError(DatasetRTError, ImportError):
    """A package is missing, broken, too old, or of another release; the message has the ``pip`` line.

    ``name`` is the module concerned, as with every ImportError.
    """

    default_kind = "installation-error"


# The kinds that only Python code raises; those of the engine are in crates/datasetrt-core/src/error.rs.
PYTHON_KINDS: Final[dict[str, type[DatasetRTError]]] = {
    "worker-died": DatasetRTError,
    "untrusted": CodecError,
    "refused-global": CodecError,
    "decode": CodecError,
    "encode": CodecError,
    "codec-mismatch": CodecError,
    "layout": CodecError,
    "missing-dependency": CodecError,
    "missing-adapter": InstallationError,
    "missing-package": InstallationError,
    "broken-package": InstallationError,
    "old-package": InstallationError,
    "release-mismatch": InstallationError,
}

# The engine's classes (`Class` in crates/datasetrt-core/src/error.rs) and what they are called here.
_CLASSES: Final[dict[str, type[DatasetRTError]]] = {
    "CacheNotFound": CacheNotFoundError,
    "CacheExists": CacheExistsError,
    "StaleCache": StaleCacheError,
    "Format": FormatError,
    "Corruption": CorruptionError,
    "InvalidInput": InvalidInputError,
    "SampleIndex": SampleIndexError,
    "State": StateError,
    "Storage": StorageError,
    "Internal": DatasetRTError,
}


def _build(
    class_name: str,
    kind: str,
    message: str,
    path: str | None,
    shard: int | None,
    offset: int | None,
    sample_id: int | None,
    errno: int | None,
) -> DatasetRTError:
    """Make the exception for an error of the engine; the native module calls this."""
    error = _CLASSES[class_name](
        message, kind=kind, path=path, shard=shard, offset=offset, sample_id=sample_id
    )
    if errno is not None and isinstance(error, OSError):
        error.errno = errno
    return error
