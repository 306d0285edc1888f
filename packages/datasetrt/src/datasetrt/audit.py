"""Lists the globals that the pickled payloads of a dataset would import, executing nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from .codecs._oob import MAGIC, pickle_in
from .errors import CodecError, DatasetRTError, StaleCacheError
from .pickle_walk import Walk, walk
from .reports import AuditedGlobal, AuditReport, Problem

if TYPE_CHECKING:
    from ._core import View

#: Codecs of ours that write pickles, and those whose payloads are never unpickled.
_PICKLES: Final = frozenset({"pickle", "pickle-oob", "dill"})
_OTHERS: Final = frozenset({"json", "msgpack", "npy", "record"})

#: More different globals, or more problems, are counted and not listed.
MAX_GLOBALS: Final = 10_000
MAX_PROBLEMS: Final = 10_000

_PROTO: Final = 0x80


@dataclass(slots=True)
class _Use:
    samples: int
    cache_id: str
    sample_id: int


class _Tally:
    """What was found so far."""

    def __init__(self) -> None:
        self.globals: dict[str, _Use] = {}
        self.problems: list[Problem] = []
        self.pickles = 0
        #: Caches that another one has taken the place of.
        self.changed: set[str | None] = set()
        self._more_globals = 0
        self._more_problems = 0

    def names(self, names: dict[str, None], cache_id: str, sample_id: int) -> None:
        for name in names:
            use = self.globals.get(name)
            if use is not None:
                use.samples += 1
            elif len(self.globals) < MAX_GLOBALS:
                self.globals[name] = _Use(1, cache_id, sample_id)
            else:
                self._more_globals += 1

    def problem(self, found: Problem) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(found)
        else:
            self._more_problems += 1

    def report(self, samples: int) -> AuditReport:
        globals_ = tuple(
            AuditedGlobal(name, use.samples, use.cache_id, use.sample_id)
            for name, use in sorted(self.globals.items())
        )
        rest = []
        if self._more_globals:
            message = f"{self._more_globals:,} uses of more than {MAX_GLOBALS:,} globals are not listed"
            rest.append(Problem("decode", message, None, None, None, None))
        if self._more_problems:
            message = f"{self._more_problems:,} further payloads with a problem are not listed"
            rest.append(Problem("decode", message, None, None, None, None))
        return AuditReport(globals_, (*self.problems, *rest), samples, self.pickles)


def audit(
    view: View, samples_per_read: int, on_progress: Callable[[int, int], None] | None = None
) -> AuditReport:
    """Follow the opcodes of every pickled payload of a view. See ``CachedDataset.audit``."""
    caches = {cache["cache_id"]: cache for cache in view.caches}
    tally = _Tally()
    if all(_kind(cache["codec"]) in _OTHERS for cache in caches.values()):
        return tally.report(len(view))
    for done, (cache_id, sample_id, payload) in enumerate(_payloads(view, samples_per_read, tally), start=1):
        cache = caches[cache_id]
        if _kind(cache["codec"]) not in _OTHERS:
            problem = _look_into(payload, _kind(cache["codec"]), cache_id, sample_id, tally)
            if problem is not None:
                where = f"cache {cache['name']!r} sample {sample_id}"
                tally.problem(Problem("decode", f"{where}: {problem}", cache["path"], None, None, sample_id))
        if on_progress is not None and (done % samples_per_read == 0 or done == len(view)):
            on_progress(done, len(view))
    return tally.report(len(view))


def _kind(codec: str | None) -> str | None:
    """Which codec that is, without what its name says of itself in brackets, as that of a `Record` does."""
    return None if codec is None else codec.partition("(")[0]


def _payloads(view: View, samples_per_read: int, tally: _Tally) -> Iterator[tuple[str, int, bytes]]:
    """Identity and payload of each row; rows that cannot be read become problems."""
    for start in range(0, len(view), samples_per_read):
        rows = np.arange(start, min(start + samples_per_read, len(view)), dtype=np.int64)
        try:
            batch = view.take(rows)
        except DatasetRTError:
            # One of them is damaged: which, and what of the others?
            yield from _one_by_one(view, rows, tally)
        else:
            found = zip(batch.cache_ids, batch.sample_ids.tolist(), batch.payloads, strict=True)
            for cache_id, sample_id, payload in found:
                yield cache_id, sample_id, bytes(payload)


def _one_by_one(view: View, rows: np.ndarray, tally: _Tally) -> Iterator[tuple[str, int, bytes]]:
    for row in rows.tolist():
        try:
            sample = view.sample(row)
        except StaleCacheError as error:
            # Once is enough: the same can be said of every sample of that cache.
            if error.path not in tally.changed:
                tally.changed.add(error.path)
                tally.problem(Problem(error.kind, str(error), error.path, None, None, None))
        except DatasetRTError as error:
            place = (error.path, error.shard, error.offset, error.sample_id)
            tally.problem(Problem(error.kind, str(error), *place))
        else:
            yield sample.cache_id, sample.sample_id, sample.data


def _look_into(payload: bytes, codec: str | None, cache_id: str, sample_id: int, tally: _Tally) -> str | None:
    """Count one payload; what is wrong with it, if it is a pickle that cannot be followed."""
    declared = codec in _PICKLES
    if codec == "pickle-oob" or (not declared and payload.startswith(MAGIC)):
        try:
            payload = pickle_in(payload)
        except CodecError as error:
            return str(error) if declared else None
        declared = True
    found = walk(payload)
    if not declared and not _looks_pickled(payload, found):
        return None
    tally.pickles += 1
    tally.names(found.names, cache_id, sample_id)
    if found.problem is not None:
        return f"the pickle cannot be followed: {found.problem}"
    if found.end != len(payload):
        return f"{len(payload) - found.end:,} bytes follow the end of the pickle"
    return None


def _looks_pickled(payload: bytes, found: Walk) -> bool:
    """Whether a payload of no codec of ours is a pickle: it says so, ends like one, or names something."""
    says_so = len(payload) >= 2 and payload[0] == _PROTO and 2 <= payload[1] <= 5
    names = any(all(part.isidentifier() for part in name.split(".")) for name in found.names)
    return says_so or names or (found.problem is None and found.end == len(payload))
