"""The worker processes of a MapSource: items go out, samples come back in the order of the items.

This process runs no thread and holds no lock for it: it asks for the next sample, and while that is not
there it waits on the pipes of all workers and on their deaths. Items travel in chunks that take a worker
about ``CHUNK_SECONDS``; a worker sends its samples back in parts while it goes on. What is ahead of the next
sample is bounded in items, and in bytes: a worker whose samples nobody reads stops at its full pipe.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from .config import WriterConfig
from .errors import DatasetRTError
from .interrupts import without_handlers
from .preflight import packed_function, packed_item
from .source import CacheInput, MapSource, item_count
from .worker import Part, work

#: A chunk of items is as long as keeps a worker busy for this time …
CHUNK_SECONDS = 0.05
#: … and never longer than this …
CHUNK_ITEMS = 1024
#: … or, unless it is a single item, larger than this when pickled.
CHUNK_BYTES = 1 << 20
#: Items per worker that may be out, or back and not yet asked for: while one takes long, others go on.
ITEMS_AHEAD = 4 * CHUNK_ITEMS
#: A busy worker gets its next chunk only if it is smaller than this: it must fit in the pipe, because a
#: worker that waits for us to read its samples reads nothing, and two that both send wait for ever.
SMALL_CHUNK_BYTES = 16 * 1024
#: How long workers have to end after the last item, and after they were told to stop.
LAST_SECONDS = 2.0
STOP_SECONDS = 0.5


def map_in_workers(
    source: MapSource[Any], config: WriterConfig, start_item: int
) -> Generator[tuple[int, CacheInput]]:
    """The samples of a MapSource from ``start_item`` on, each with the number of its item, made by workers.

    Closing the generator ends the workers at once, whatever they do.

    Raises:
        InvalidInputError: The function or an item cannot be sent to another process.
        DatasetRTError: A worker died; its kind is ``worker-died``.
    """
    pool = _Pool(source, config, start_item)
    done = False
    try:
        pool.start()
        yield from pool.samples()
        done = True
    finally:
        pool.stop(LAST_SECONDS if done else 0.0)


@dataclass(eq=False)
class _Chunk:
    """Consecutive items that one worker was given."""

    items: range
    worker: _Worker
    parts: deque[Part] = field(default_factory=deque)
    finished: bool = False


@dataclass(eq=False)
class _Worker:
    """One process, and what it was given and has not finished; its messages belong to the first."""

    process: BaseProcess
    pipe: Connection
    chunks: deque[_Chunk] = field(default_factory=deque)
    ready: bool = False

    def accepts(self, chunk_bytes: int) -> bool:
        return not self.chunks or (len(self.chunks) == 1 and chunk_bytes <= SMALL_CHUNK_BYTES)


class _Pool:
    def __init__(self, source: MapSource[Any], config: WriterConfig, start_item: int) -> None:
        self._source = source
        self._method = config.worker_start_method
        self._most = min(config.workers, max(item_count(source) - start_item, 0))
        self._workers: list[_Worker] = []
        #: All chunks whose samples were not all handed out, in the order of the items.
        self._chunks: deque[_Chunk] = deque()
        self._next_item = start_item
        self._items_out = 0
        self._chunk_items = 1
        #: The next chunk, pickled, while no worker accepts it.
        self._packed: tuple[range, bytes] | None = None
        #: What the lookup of the next item raised; told once all samples before it were handed out.
        self._failure: Exception | None = None
        self._waiting_bytes = 0
        self._most_waiting_bytes = config.queue_bytes

    def start(self) -> None:
        context = multiprocessing.get_context(self._method)
        fn = packed_function(self._source, self._method)
        for number in range(self._most):
            ours, theirs = context.Pipe()
            # A forked child has our ends of all pipes so far, and would keep them open when we close them.
            inherited = [ours, *(each.pipe for each in self._workers)] if self._method == "fork" else []
            process = context.Process(  # type: ignore[attr-defined]  # typeshed forgot it in BaseContext
                target=work, args=(theirs, fn, inherited), name=f"datasetrt-worker-{number}", daemon=True
            )
            self._workers.append(_Worker(process, ours))
            if self._method == "fork":
                without_handlers(process.start)
            else:
                process.start()
            # Ours alone may stay open: the end of the worker is then the end of what it sent.
            theirs.close()

    def samples(self) -> Generator[tuple[int, CacheInput]]:
        while True:
            self._send_chunks()
            if not self._chunks:
                if self._failure is not None:
                    raise self._failure
                return
            chunk = self._chunks[0]
            while chunk.parts:
                part = chunk.parts.popleft()
                self._waiting_bytes -= part.payload_bytes
                for item, data, metadata in part.samples:
                    yield item, CacheInput(data, metadata)
                if part.failure is not None:
                    raise part.failure.restored(self._source.name)
            if chunk.finished:
                self._chunks.popleft()
                self._items_out -= len(chunk.items)
            else:
                self._receive(chunk.worker)

    def _send_chunks(self) -> None:
        """Give items to the workers that can take them."""
        for worker in sorted(self._workers, key=lambda each: len(each.chunks)):
            if self._items_out >= ITEMS_AHEAD * self._most:
                return
            self._packed = self._packed or self._pack_chunk()
            if self._packed is None:
                return
            items, message = self._packed
            if worker.accepts(len(message)):
                self._send(worker, items, message)
                self._packed = None

    def _pack_chunk(self) -> tuple[range, bytes] | None:
        first = self._next_item
        left = item_count(self._source) - first
        if left <= 0 or self._failure is not None:
            return None
        # The last items are shared out evenly, so that no worker ends long after the others.
        most = min(self._chunk_items, -(-left // self._most))
        packed: list[bytes] = []
        size = 0
        while len(packed) < most and size < CHUNK_BYTES:
            try:
                packed.append(packed_item(self._source, first + len(packed)))
            except Exception as error:  # noqa: BLE001 - whatever the user's sequence raises, in its turn
                self._failure = error
                break
            size += len(packed[-1])
        if not packed:
            return None
        self._next_item = first + len(packed)
        return range(first, self._next_item), pickle.dumps((first, packed), pickle.HIGHEST_PROTOCOL)

    def _send(self, worker: _Worker, items: range, message: bytes) -> None:
        chunk = _Chunk(items, worker)
        worker.chunks.append(chunk)
        self._chunks.append(chunk)
        self._items_out += len(items)
        try:
            worker.pipe.send_bytes(message)
        except OSError:
            while worker.pipe.poll():  # It may have said why.
                self._read(worker)
            raise self._died(worker) from None

    def _receive(self, wanted: _Worker) -> None:
        """Wait until the worker that has the next sample, or another one, sends something."""
        full = self._waiting_bytes >= self._most_waiting_bytes
        pipes = {each.pipe: each for each in self._workers if each is wanted or not full}
        sentinels = {each.process.sentinel: each for each in self._workers}
        ready = wait([*pipes, *sentinels])
        for thing in ready:
            if thing in pipes:
                self._read(pipes[thing])
        for thing in ready:
            if thing in sentinels:
                raise self._died(sentinels[thing])

    def _read(self, worker: _Worker) -> None:
        try:
            part: Part | None = pickle.loads(worker.pipe.recv_bytes())
        except (EOFError, OSError):
            raise self._died(worker) from None
        if part is None:
            worker.ready = True
            return
        if part.failure is not None and part.failure.item is None:  # It could not load the function.
            raise part.failure.restored(self._source.name)
        chunk = worker.chunks[0]
        chunk.parts.append(part)
        self._waiting_bytes += part.payload_bytes
        if part.seconds is not None:
            chunk.finished = True
            worker.chunks.popleft()
            self._adapt(len(chunk.items), part.seconds)

    def _adapt(self, items: int, seconds: float) -> None:
        fitting = items * CHUNK_SECONDS / max(seconds, 1e-6)
        # At most twice as many: one lucky chunk of cheap items says little about the next ones.
        self._chunk_items = max(1, min(int(fitting), 2 * items, CHUNK_ITEMS))

    def _died(self, worker: _Worker) -> DatasetRTError:
        worker.process.join(STOP_SECONDS)
        end = _ending(worker.process.exitcode)
        name = self._source.name
        if not worker.ready:
            message = (
                f"a worker process of source {name!r} {end} before it began; with worker_start_method="
                f"{self._method!r} it imports the main script, so put what starts the write under "
                'if __name__ == "__main__":'
            )
        else:
            doing = "while it waited for items"
            if worker.chunks:
                items = worker.chunks[0].items
                doing = (
                    f"at item {items[0]}" if len(items) == 1 else f"at one of items {items[0]} to {items[-1]}"
                )
            message = (
                f"a worker process of source {name!r} {end} {doing}; "
                "use fewer workers if memory ran out, or workers=1 to see what the function does"
            )
        return DatasetRTError(message, kind="worker-died")

    def stop(self, patience_seconds: float) -> None:
        """End all workers; those that do not end by themselves in time are killed."""
        try:
            self._stop(patience_seconds)
        except BaseException:
            # A second Ctrl-C, say: they end all the same.
            self._stop(0.0)
            raise
        finally:
            # Chunks and workers name each other, and a failure may keep both: what multiprocessing does when
            # it lets go of a process would run in a later collection, which drops what a handler raises then.
            for worker in self._workers:
                worker.chunks.clear()
            self._workers.clear()
            self._chunks.clear()

    def _stop(self, patience_seconds: float) -> None:
        for worker in self._workers:
            worker.pipe.close()
        processes = [each.process for each in self._workers if _is_started(each.process)]
        _join(processes, patience_seconds)
        for process in processes:
            process.terminate()
        _join(processes, STOP_SECONDS)
        for process in processes:
            process.kill()
            process.join()
            process.close()


def _is_started(process: BaseProcess) -> bool:
    """Whether there is a process to be ended: neither one that was never started, nor one that is closed."""
    try:
        return process.pid is not None
    except ValueError:
        return False


def _join(processes: list[BaseProcess], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0.0))


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "closed its pipe"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
