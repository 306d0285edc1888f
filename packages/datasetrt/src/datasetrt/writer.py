"""I have sources; make them caches, or use the ones that are there."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal, cast

from ._core import View, Writer
from .checks import choice, invalid, path_of
from .config import ReaderConfig, WriterConfig
from .dataset import CachedDataset
from .errors import (
    CacheExistsError,
    CacheNotFoundError,
    CorruptionError,
    DatasetRTError,
    FormatError,
    InvalidInputError,
    StaleCacheError,
)
from .pool import map_in_workers
from .preflight import check_workers
from .progress import INTERVAL_SECONDS, Report, watching
from .reports import CacheReport
from .source import CacheInput, CacheSource, Description, MapSource, item_count, map_here
from .wording import a_type, note, shown
from .write_lock import left_by_children

_log = logging.getLogger("datasetrt")

_DEFAULTS = WriterConfig()

#: How often a wait for another writer looks again: soon at first, then each second.
_FIRST_LOOK_SECONDS = 0.1
_LAST_LOOK_SECONDS = 1.0


def write_cache(
    source: CacheSource, root: str | os.PathLike[str], *, config: WriterConfig = _DEFAULTS
) -> CacheReport:
    """Write the samples of a source to ``root/<source.name>``.

    The cache appears whole, in one step, or not at all. A source with a fingerprint continues a write
    that was interrupted, if fingerprint and config are the same, and both sources or neither are a
    MapSource: samples that are durable already are taken from the source and dropped, or skipped where it
    has ``iter_from`` or is a MapSource. The same samples give the same bytes, whatever the threads,
    workers or interruptions.

    Args:
        source: A named iterable of CacheInput, or a MapSource.
        root: Folder that holds caches; made if missing. Valid UTF-8; in the C locale without UTF-8 mode
            (``PYTHONUTF8=1``), ASCII.
        config: Compression, shard size, workers, progress.

    Raises:
        CacheExistsError: A complete cache has that name, or another writer is at it (kind ``being-written``).
        InvalidInputError: The source has no samples, or one of them breaks a rule; names sample and field.
        StorageError: The operating system refused to write.
        Exception: Whatever the source raises, the same object with a note that names the sample.

    Example:
        >>> import datasetrt as drt, tempfile
        >>> source = drt.MapSource("squares", range(4), lambda i: drt.CacheInput(bytes(i * i), {"i": i}))
        >>> with tempfile.TemporaryDirectory() as root:
        ...     drt.write_cache(source, root).payload_bytes
        14
    """
    description = Description.of(source)
    config = _checked_config(config)
    begin = time.monotonic()
    folder = _absolute(path_of("root", root))
    writer = _begin(source, description, folder, config, replace=False)
    return _run(writer, source, description, folder, config, begin)


def cache(
    source_or_sources: CacheSource | Iterable[CacheSource],
    root: str | os.PathLike[str],
    *,
    config: WriterConfig = _DEFAULTS,
    on_stale: Literal["error", "rebuild", "reuse"] = "error",
) -> CachedDataset:
    """Open the caches of these sources, and write those that are missing.

    A complete cache is used without running its source. It is stale where the source has another
    fingerprint than the manifest, or declares another codec or schema; a source without them claims
    nothing. While another process writes the same cache, this one waits for it. Of several sources all
    are tried, and what succeeds is published.

    Args:
        source_or_sources: One source, or several with different names.
        root: Folder that holds caches; made if missing. Valid UTF-8; in the C locale without UTF-8 mode
            (``PYTHONUTF8=1``), ASCII.
        config: How missing caches are written.
        on_stale: ``"error"``; ``"rebuild"`` to write it again, with the old one readable until the new
            one takes its place; ``"reuse"`` to open it as it is. ``"rebuild"`` writes a cache that cannot
            be opened again, too.

    Returns:
        The samples of all sources, in their order. Its ``reports`` say what became of each source.

    Raises:
        StaleCacheError: A cache was made from something else; names both values.
        FormatError: A cache is unfinished, or something that is no cache has its name.
        CorruptionError: A cache cannot be opened, because it is damaged; ``on_stale="rebuild"`` writes it
            again. Payloads are not looked at: :meth:`CachedDataset.verify` does that.
        CacheExistsError: A source asks for the cache that is being made of it (kind ``being-written``).
        ExceptionGroup: One or more of several sources failed; holds each exception.
        InvalidInputError: An argument, or a sample of a source, breaks a rule.
        Exception: Whatever a single source raises, the same object with a note that names the sample.

    Example:
        >>> import datasetrt as drt, tempfile
        >>> source = drt.MapSource("squares", range(4), lambda i: drt.CacheInput(bytes(i * i), {"i": i}))
        >>> with tempfile.TemporaryDirectory() as root:
        ...     first = drt.cache(source, root)
        ...     again = drt.cache(source, root)
        >>> len(again), first.reports[0].reused, again.reports[0].reused
        (4, False, True)
    """
    choice("on_stale", on_stale, ("error", "rebuild", "reuse"))
    config = _checked_config(config)
    folder = _absolute(path_of("root", root))
    sources = _listed(source_or_sources)
    descriptions = [Description.of(source) for source in sources]
    _refuse_duplicates(descriptions)
    reports: list[CacheReport] = []
    failures: list[Exception] = []
    for source, description in zip(sources, descriptions, strict=True):
        try:
            reports.append(_ensure(source, description, folder, config, on_stale))
        except Exception as error:
            if len(sources) == 1:
                raise
            note(error, f"source {description.name!r}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(sources)} sources failed", failures)
    return CachedDataset._open([str(report.path) for report in reports], ReaderConfig(), tuple(reports))


def _absolute(root: str) -> str:
    """The same folder, whatever becomes the working directory: a source may change it."""
    try:
        return str(Path.cwd() / root)
    except OSError:
        # There is no working directory any more; whoever looks for the folder says so.
        return root


def _listed(given: CacheSource | Iterable[CacheSource]) -> list[CacheSource]:
    if isinstance(given, type):
        raise invalid(f"{given.__name__} is a class; give a source, such as {given.__name__}()")
    if hasattr(given, "name"):
        return [cast(CacheSource, given)]
    if isinstance(given, str | bytes | os.PathLike | CacheInput) or not isinstance(given, Iterable):
        raise invalid(
            f"{shown(given)} is no source; give an iterable of CacheInput with a name, or several of them"
        )
    sources: list[CacheSource] = []
    for source in given:
        if isinstance(source, CacheInput):
            # Looked at one by one: a source without a name may have no end.
            raise invalid(
                f"{type(given).__name__} gives samples, but has no name; "
                "a source is a named iterable of CacheInput"
            )
        sources.append(source)
    if not sources:
        raise invalid("there are no sources; give at least one")
    return sources


def _refuse_duplicates(descriptions: list[Description]) -> None:
    counts = Counter(each.name for each in descriptions)
    twice = [name for name, number in counts.items() if number > 1]
    if twice:
        raise invalid(f"several sources are named {', '.join(map(shown, twice))}; give each its own name")


def _checked_config(config: object) -> WriterConfig:
    if not isinstance(config, WriterConfig):
        raise invalid(f"config is {a_type(config)}; give a WriterConfig")
    return config._checked()


def _ensure(
    source: CacheSource, description: Description, root: str, config: WriterConfig, on_stale: str
) -> CacheReport:
    """Reuse the cache of one source, or write it, or wait for who does."""
    begin = time.monotonic()
    pause, told = _FIRST_LOOK_SECONDS, False
    while True:
        try:
            view, broken = _published(root, description.name), False
        except (FormatError, CorruptionError):
            if on_stale != "rebuild":
                raise
            # The writer refuses to replace what is no cache.
            view, broken = None, True
        if view is not None:
            differences = _differences(view, description)
            if not differences or on_stale == "reuse":
                return _reused(view, begin)
            if on_stale == "error":
                raise _stale(view, differences)
        try:
            writer = _begin(source, description, root, config, replace=broken or view is not None)
        except CacheExistsError as error:
            # It was published since we looked, or another process is writing it: look again.
            if error.kind not in {"already-exists", "being-written"}:
                raise
            if error.kind == "being-written":
                _refuse_own(root, description.name)
            if error.kind == "being-written" and not told:
                _log.warning("waiting for another writer of %s", Path(root, description.name))
                told = True
            time.sleep(pause)
            pause = min(pause * 1.5, _LAST_LOOK_SECONDS)
            continue
        current = _rebuilt_meanwhile(root, description) if broken or view is not None else None
        if current is not None:
            writer.abort()
            return _reused(current, begin)
        return _run(writer, source, description, root, config, begin)


def _rebuilt_meanwhile(root: str, description: Description) -> View | None:
    """What another process has published between our look and our lock, if it is what we would write."""
    try:
        view = _published(root, description.name)
    except (FormatError, CorruptionError):
        return None
    return None if view is None or _differences(view, description) else view


#: The writes of each thread, which must not wait for them.
_own = threading.local()


def _note_write(root: str, name: str, ends: ExitStack) -> None:
    """Note that this thread is writing the cache until ``ends`` does."""
    if not hasattr(_own, "writes"):
        _own.writes = []
    _own.writes.append(_write_key(root, name))
    ends.callback(_own.writes.pop)


def _write_key(root: str, name: str) -> tuple[int, Path]:
    # A forked child is another process, though its first thread has a copy of what its parent noted.
    return os.getpid(), Path(root).resolve() / name


def _refuse_own(root: str, name: str) -> None:
    if _write_key(root, name) in getattr(_own, "writes", ()):
        path = str(Path(root, name))
        raise CacheExistsError(
            f"cache {path} is being written by this very thread, whose source asks for it; "
            "give the cache that the source needs another name",
            kind="being-written",
            path=path,
        )


def _published(root: str, name: str) -> View | None:
    """The complete cache of that name, if there is one."""
    try:
        return View.open([str(Path(root, name))], max_open_shards=ReaderConfig().max_open_shards)
    except CacheNotFoundError:
        return None


def _differences(view: View, description: Description) -> list[str]:
    """What the source claims and the cache does not have, as text."""
    found = view.caches[0]
    pairs: list[tuple[str, object, object]] = []
    if description.fingerprint is not None:
        pairs.append(("fingerprint", found["fingerprint"], description.fingerprint))
    if description.codec is not None:
        pairs.append(("codec", found["codec"], description.codec))
    if description.schema is not None:
        pairs.append(("schema", dict(view.schema), dict(description.schema)))
    return [
        f"{what} {shown(ours, 200)} in the cache but {shown(theirs, 200)} in the source"
        for what, ours, theirs in pairs
        if ours != theirs
    ]


def _stale(view: View, differences: list[str]) -> StaleCacheError:
    path = view.caches[0]["path"]
    return StaleCacheError(
        f"cache {path} is stale: {', '.join(differences)}; pass on_stale='rebuild' to write it again "
        f"or on_stale='reuse' to take it as it is",
        kind="stale",
        path=path,
    )


def _reused(view: View, begin: float) -> CacheReport:
    found = view.caches[0]
    return CacheReport(
        path=Path(found["path"]),
        name=found["name"],
        sample_count=found["sample_count"],
        payload_bytes=found["payload_bytes"],
        stored_bytes=found["stored_bytes"],
        seconds=time.monotonic() - begin,
        fingerprint=found["fingerprint"],
        reused=True,
        resumed_at=None,
    )


def _begin(
    source: CacheSource, description: Description, root: str, config: WriterConfig, *, replace: bool
) -> Writer:
    """Take the cache's lock, or say why that cannot be."""
    if isinstance(source, MapSource) and config.workers > 1:
        check_workers(source, config)
    return Writer(
        root,
        description.name,
        fingerprint=description.fingerprint,
        codec=description.codec,
        schema=description.schema,
        compression=config.compression,
        compression_level=config.compression_level,
        max_shard_bytes=config.max_shard_bytes,
        threads=config.threads,
        queue_bytes=config.queue_bytes,
        by_item=isinstance(source, MapSource),
        replace=replace,
    )


def _run(
    writer: Writer,
    source: CacheSource,
    description: Description,
    root: str,
    config: WriterConfig,
    begin: float,
) -> CacheReport:
    """Write everything and publish, or nothing."""
    try:
        # Not by generators as context managers, which cannot pass on an exception that takes no change.
        with ExitStack() as ends:
            left_by_children(writer.lock_descriptor, ends)
            _note_write(root, description.name, ends)
            report = watching(config.progress, description.name, description.total, ends)
            if report is not None:
                report(writer.samples, writer.payload_bytes, None)
            if isinstance(source, MapSource):
                _feed_items(writer, source, config, report)
            else:
                _feed_samples(writer, source, description.name, report)
            if report is not None:
                report(writer.samples, writer.payload_bytes, 1.0)
        done = writer.finish()
    except BaseException:
        # Ctrl-C included, which may come after the cache was published: all of it, or nothing.
        writer.abort()
        raise
    return CacheReport(
        path=Path(done["path"]),
        name=done["name"],
        sample_count=done["sample_count"],
        payload_bytes=done["payload_bytes"],
        stored_bytes=done["stored_bytes"],
        seconds=time.monotonic() - begin,
        fingerprint=done["fingerprint"],
        reused=False,
        resumed_at=done["resumed_at"],
    )


def _feed_samples(writer: Writer, source: CacheSource, name: str, report: Report | None) -> None:
    iterator = _begun(source, name, writer.resume_samples)
    with closing(_counted(iterator, name, writer.resume_samples)) as samples:
        writer.write_all(samples, _two_figures(report))


def _counted(iterator: Iterator[CacheInput], name: str, first: int) -> Generator[CacheInput]:
    """The same samples; an exception gets a note with the number of the sample, and a generator an end."""
    number = first
    try:
        for sample in iterator:
            yield sample
            number += 1
    except GeneratorExit:
        raise
    except BaseException as error:
        note(error, f"while sample {number} of source {name!r} was being produced")
        raise
    finally:
        if isinstance(iterator, Generator):
            iterator.close()


def _two_figures(report: Report | None) -> Callable[[int, int], None] | None:
    if report is None:
        return None
    return lambda samples, payload_bytes: report(samples, payload_bytes, None)


def _begun(source: CacheSource, name: str, stored: int) -> Iterator[CacheInput]:
    """An iterator of the source whose next sample is the first that is not stored yet."""
    number = 0
    try:
        iter_from = getattr(source, "iter_from", None)
        if stored and callable(iter_from):
            number = stored
            return cast(Iterator[CacheInput], iter(iter_from(stored)))
        iterator = iter(source)
        over = object()
        for number in range(stored):
            if next(iterator, over) is over:
                raise _shorter(name, f"{number} samples", f"{stored} of them")
        return iterator
    except GeneratorExit:
        raise
    except StopIteration as error:
        # Of iter() itself: to whoever called us it would say that a loop is over.
        raise RuntimeError(f"source {name!r} raised StopIteration instead of an iterator") from error
    except BaseException as error:
        note(error, f"while sample {number} of source {name!r} was being produced")
        raise


def _feed_items(writer: Writer, source: MapSource[Any], config: WriterConfig, report: Report | None) -> None:
    make = _made_in_workers if config.workers > 1 else _made_here
    total = item_count(source)
    reported = time.monotonic()
    with closing(_noted(make(source, config, writer.resume_item), source.name, writer)) as results:
        _drop_stored(results, source.name, writer.resume_item, writer.resume_item_samples)
        for item, sample in results:
            try:
                writer.push(sample, item)
            except Exception as error:
                # What the sample itself is to blame for, and what its own code raised.
                if isinstance(error, InvalidInputError) or not isinstance(error, DatasetRTError):
                    note(error, f"it was made of item {item} of source {source.name!r}")
                raise
            if report is not None and time.monotonic() - reported >= INTERVAL_SECONDS:
                reported = time.monotonic()
                report(writer.samples, writer.payload_bytes, item / total)


_Made = Generator[tuple[int, CacheInput]]


def _made_in_workers(source: MapSource[Any], config: WriterConfig, start_item: int) -> _Made:
    return map_in_workers(source, config, start_item)


def _made_here(source: MapSource[Any], _: WriterConfig, start_item: int) -> _Made:
    return map_here(source, start_item)


def _noted(results: _Made, name: str, writer: Writer) -> _Made:
    """The same samples; an exception gets a note that names the sample which is missing because of it."""
    try:
        yield from results
    except GeneratorExit:
        raise
    except BaseException as error:
        # A dead worker was ahead of the samples that are stored; its message says with which items.
        if not (isinstance(error, DatasetRTError) and error.kind == "worker-died"):
            note(error, f"while sample {writer.samples} of source {name!r} was being produced")
        raise


def _drop_stored(results: _Made, name: str, item: int, stored: int) -> None:
    """Drop the samples of the first item that an interrupted write has stored already."""
    for number in range(stored):
        found = next(results, None)
        if found is None or found[0] != item:
            raise _shorter(name, f"{number} samples of item {item}", f"{stored} of them")


def _shorter(name: str, now: str, before: str) -> StaleCacheError:
    return StaleCacheError(
        f"source {name!r} gave {now}, but an interrupted write of it has stored {before}; "
        "give a source that changed another fingerprint",
        kind="stale",
    )
