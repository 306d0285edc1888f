"""What the library tells about caches: a write, a cache on disk, what verification found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._core import _Cache


@dataclass(frozen=True)
class CacheReport:
    """What became of one source.

    Args:
        path: Folder of the cache.
        name: The source.
        sample_count: Samples in the cache.
        payload_bytes: Sum of their payloads' lengths, before compression.
        stored_bytes: Size of the shard files; index, metadata and manifest come on top.
        seconds: Time spent on it, waiting for another writer included.
        fingerprint: That of the source, as recorded.
        reused: Whether a complete cache was there already.
        resumed_at: The sample at which an interrupted write was continued; None for a write from the start.

    Example:
        >>> import datasetrt as drt, tempfile
        >>> source = drt.MapSource("ones", range(3), lambda i: drt.CacheInput(b"1", {"i": i}))
        >>> with tempfile.TemporaryDirectory() as root:
        ...     report = drt.write_cache(source, root)
        >>> report.name, report.sample_count, report.payload_bytes, report.reused, report.resumed_at
        ('ones', 3, 3, False, None)
    """

    path: Path
    name: str
    sample_count: int
    payload_bytes: int
    stored_bytes: int
    seconds: float
    fingerprint: str | None
    reused: bool
    resumed_at: int | None


@dataclass(frozen=True)
class CacheInfo:
    """One cache of a dataset, as its manifest describes it.

    Args:
        path: Folder of the cache.
        name: The source.
        cache_id: Names the content, not the folder; the first column of the metadata table.
        sample_count: Samples in the cache; a view may hold fewer or more rows.
        payload_bytes: Sum of their payloads' lengths, before compression.
        stored_bytes: Size of the shard files; index, metadata and manifest come on top.
        fingerprint: That of the source, if it had one.
        codec: Name of the codec that packed the payloads, if the source named one.
        compression: ``"none"``, ``"lz4"``, ``"zstd"`` or ``"zstd-dictionary"``.

    Example:
        >>> import datasetrt as drt
        >>> (cache,) = drt.testing.tiny_dataset().caches
        >>> cache.name, cache.sample_count, len(cache.cache_id)
        ('tiny', 10, 16)
    """

    path: Path
    name: str
    cache_id: str
    sample_count: int
    payload_bytes: int
    stored_bytes: int
    fingerprint: str | None
    codec: str | None
    compression: str

    @classmethod
    def _of(cls, found: _Cache) -> CacheInfo:
        """The same, as the native module tells it."""
        return cls(
            path=Path(found["path"]),
            name=found["name"],
            cache_id=found["cache_id"],
            sample_count=found["sample_count"],
            payload_bytes=found["payload_bytes"],
            stored_bytes=found["stored_bytes"],
            fingerprint=found["fingerprint"],
            codec=found["codec"],
            compression=found["compression"],
        )


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a cache.

    Args:
        kind: Stable name of what happened, from ``docs/errors.md``.
        message: One line with the values.
        path: File concerned.
        shard: Number of the shard concerned.
        offset: Byte offset in it.
        sample_id: Sample that cannot be read.

    Example:
        >>> problem = Problem("record-checksum", "shard 0 record 3: checksum differs", None, 0, 99, 3)
        >>> print(problem)
        record-checksum: shard 0 record 3: checksum differs
    """

    kind: str
    message: str
    path: str | None
    shard: int | None
    offset: int | None
    sample_id: int | None

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class VerifyReport:
    """What reading every byte of caches found.

    Args:
        problems: Everything wrong, in the order of caches, files and offsets.
        caches: Caches that were read.
        samples: Samples that their manifests state; None where there is no sound manifest.

    Example:
        >>> print(VerifyReport((), caches=1, samples=1_000))
        1 cache with 1,000 samples: no problem
    """

    problems: tuple[Problem, ...]
    caches: int
    samples: int | None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong.

        Example:
            >>> VerifyReport((), caches=1, samples=10).ok
            True
            >>> problem = Problem("record-checksum", "checksum differs", None, 0, 99, 3)
            >>> VerifyReport((problem,), caches=1, samples=10).ok
            False
        """
        return not self.problems

    def __str__(self) -> str:
        held = "an unknown number of" if self.samples is None else f"{self.samples:,}"
        read = f"{self.caches:,} cache{'s' * (self.caches != 1)} with {held} samples"
        if self.ok:
            return f"{read}: no problem"
        found = len(self.problems)
        lines = [f"{read}: {found:,} problem{'s' * (found != 1)}", *map(str, self.problems)]
        return "\n  ".join(lines)


@dataclass(frozen=True)
class AuditedGlobal:
    """A global that pickled payloads name: loading them imports its module and may call it.

    Args:
        name: ``module.qualname``. ``<computed>`` stands for a part that the pickle makes up while it is
            loaded, ``<too long>`` for one of more than 1,000 bytes, ``<extension N>`` for what the loading
            process has registered with `copyreg` under N.
        samples: How many samples name it.
        cache_id: Cache of the first of them.
        sample_id: The first of them.

    Example:
        >>> print(AuditedGlobal("os.system", samples=2, cache_id="0123456789abcdef", sample_id=7))
        os.system: 2 samples, such as 7
    """

    name: str
    samples: int
    cache_id: str
    sample_id: int

    def __str__(self) -> str:
        return f"{self.name}: {self.samples:,} sample{'s' * (self.samples != 1)}, such as {self.sample_id}"


@dataclass(frozen=True)
class AuditReport:
    """What following the opcodes of a dataset's pickled payloads found.

    Args:
        globals: What they name, sorted by name.
        problems: Payloads that cannot be read, or not be followed to their end. What such a payload names
            before that point is among the globals.
        samples: Rows of the dataset.
        pickles: Samples that are pickles; the others are never unpickled.

    Example:
        >>> print(AuditReport((), (), samples=1_000, pickles=0))
        0 of 1,000 samples are pickles: they name no global
    """

    globals: tuple[AuditedGlobal, ...]
    problems: tuple[Problem, ...]
    samples: int
    pickles: int

    @property
    def ok(self) -> bool:
        """Whether every pickle could be followed to its end, so that the list of globals is complete.

        Example:
            >>> AuditReport((), (), samples=1_000, pickles=0).ok
            True
        """
        return not self.problems

    def __str__(self) -> str:
        count, wrong = len(self.globals), len(self.problems)
        named = f"{count:,} global{'s' * (count != 1)}" if count else "no global"
        head = f"{self.pickles:,} of {self.samples:,} samples are pickles: they name {named}"
        lines = [head, *map(str, self.globals)]
        if wrong:
            lines += [f"{wrong:,} problem{'s' * (wrong != 1)}", *map(str, self.problems)]
        return "\n  ".join(lines)


@dataclass(frozen=True)
class Leftover:
    """Something beside the caches of a folder that has the name of an unfinished write's.

    Args:
        path: A folder ``.NAME.partial``, ``.NAME.journal`` or ``.NAME.replaced``, or a file ``.NAME.lock``.
        files: Files in it; 0 for a folder with something in it that datasetrt did not make.
        bytes: Sum of their sizes.
        removed: Whether it was removed; in a dry run, whether it would be.
        reason: Why it stays; None if it was removed.
        failed: Whether it stays because the system refused.

    Example:
        >>> held = Leftover(Path(".a.lock"), 1, 22, removed=False, reason="in use", failed=False)
        >>> held.bytes
        22
    """

    path: Path
    files: int
    bytes: int
    removed: bool
    reason: str | None
    failed: bool


@dataclass(frozen=True)
class CleanReport:
    """What :func:`datasetrt.clean` found in a folder.

    Args:
        leftovers: Everything that has a leftover's name, sorted by the cache's name.
        dry_run: Whether they were only looked at.

    Example:
        >>> print(CleanReport((), dry_run=False))
        removed 0 leftovers, 0 bytes
    """

    leftovers: tuple[Leftover, ...]
    dry_run: bool

    @property
    def removed(self) -> tuple[Leftover, ...]:
        """Those that were removed; in a dry run, those that would be.

        Example:
            >>> CleanReport((), dry_run=True).removed
            ()
        """
        return tuple(leftover for leftover in self.leftovers if leftover.removed)

    @property
    def removed_bytes(self) -> int:
        """Sum of the sizes of the files that were removed, in bytes.

        Example:
            >>> CleanReport((), dry_run=True).removed_bytes
            0
        """
        return sum(leftover.bytes for leftover in self.removed)

    @property
    def ok(self) -> bool:
        """Whether the system refused nothing.

        Example:
            >>> CleanReport((), dry_run=False).ok
            True
        """
        return not any(leftover.failed for leftover in self.leftovers)

    def __str__(self) -> str:
        count = len(self.removed)
        verb = "would remove" if self.dry_run else "removed"
        return f"{verb} {count:,} leftover{'s' * (count != 1)}, {self.removed_bytes:,} bytes"
