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
    """There is no cache at the path.

    Example:
        >>> import datasetrt as drt
        >>> try:
        ...     drt.open_dataset("nowhere")
        ... except FileNotFoundError as error:
        ...     print(type(error).__name__, error.kind)
        CacheNotFoundError not-found
    """

    default_kind = "cache-not-found-error"


class CacheExistsError(DatasetRTError, FileExistsError):
    """A cache, or something else, has the name already, or another writer is writing it.

    Example:
        >>> import datasetrt as drt
        >>> path = drt.testing.tiny_dataset().caches[0].path
        >>> source = drt.MapSource("tiny", [0], lambda i: drt.CacheInput(b"", {}))
        >>> try:
        ...     drt.write_cache(source, path.parent)
        ... except drt.CacheExistsError as error:
        ...     print(error.kind, error.path == str(path))
        already-exists True
    """

    default_kind = "cache-exists-error"


class StaleCacheError(DatasetRTError):
    """The cache is sound, but not the one that was asked for.

    Example:
        >>> import datasetrt as drt
        >>> root = drt.testing.tiny_dataset().caches[0].path.parent
        >>> source = drt.MapSource("tiny", [0], lambda i: drt.CacheInput(b"", {}), fingerprint="v2")
        >>> try:
        ...     drt.cache(source, root)
        ... except drt.StaleCacheError as error:
        ...     print(error.kind)
        stale
    """

    default_kind = "stale-cache-error"


class FormatError(DatasetRTError):
    """Not a cache, an unfinished one, or of a version this release cannot read.

    Example:
        >>> import datasetrt as drt
        >>> path = drt.testing.tiny_dataset().caches[0].path
        >>> try:
        ...     drt.open_dataset(path.parent)
        ... except drt.FormatError as error:
        ...     print(error.kind)
        not-a-cache
    """

    default_kind = "format-error"


class CorruptionError(DatasetRTError):
    """The bytes on disk are not the bytes that were written.

    Example:
        >>> import datasetrt as drt
        >>> ds = drt.testing.tiny_dataset()
        >>> shard = ds.caches[0].path / "shards" / "000000.bin"
        >>> _ = shard.write_bytes(shard.read_bytes().replace(b"sample 3", b"sample ?"))
        >>> try:
        ...     ds[3]
        ... except drt.CorruptionError as error:
        ...     print(error.kind, error.shard, error.sample_id)
        record-checksum 0 3
    """

    default_kind = "corruption-error"


class InvalidInputError(DatasetRTError, ValueError):
    """An argument, a sample or a metadata table breaks a rule.

    Example:
        >>> import datasetrt as drt
        >>> try:
        ...     drt.Shuffle(seed=-1)
        ... except ValueError as error:
        ...     print(type(error).__name__, error.kind)
        InvalidInputError invalid-argument
    """

    default_kind = "invalid-input-error"


class SampleIndexError(DatasetRTError, IndexError):
    """An index is out of range.

    Example:
        >>> import datasetrt as drt
        >>> try:
        ...     drt.testing.tiny_dataset()[10]
        ... except IndexError as error:
        ...     print(error.kind)
        index-out-of-range
    """

    default_kind = "sample-index-error"


class StateError(DatasetRTError, ValueError):
    """A saved state is malformed or belongs to something else.

    Example:
        >>> import datasetrt as drt
        >>> ds = drt.testing.tiny_dataset()
        >>> state = ds[5:].loader().state_dict()
        >>> try:
        ...     ds.loader().load_state_dict(state)
        ... except drt.StateError as error:
        ...     print(error.kind)
        state-mismatch
    """

    default_kind = "state-error"


class CodecError(DatasetRTError, ValueError):
    """An object cannot be packed, or a payload cannot be unpacked.

    Example:
        >>> import datasetrt as drt
        >>> try:
        ...     drt.codecs.Json().loads(b"not JSON")
        ... except drt.CodecError as error:
        ...     print(error.kind)
        decode
    """

    default_kind = "codec-error"


class StorageError(DatasetRTError, OSError):
    """The operating system refused an operation; ``errno`` is set where it gave one.

    Example:
        >>> import datasetrt as drt
        >>> import pathlib
        >>> _ = pathlib.Path("file").write_bytes(b"")
        >>> source = drt.MapSource("tiny", [0], lambda i: drt.CacheInput(b"", {}))
        >>> try:
        ...     drt.write_cache(source, "file")
        ... except OSError as error:
        ...     print(type(error).__name__, error.kind)
        StorageError ...
    """

    default_kind = "storage-error"


class InstallationError(DatasetRTError, ImportError):
    """A package is missing, broken, too old, or of another release; the message has the ``pip`` line.

    ``name`` is the module concerned, as with every ImportError.

    Example:
        >>> import datasetrt as drt
        >>> issubclass(drt.InstallationError, ImportError)
        True
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
