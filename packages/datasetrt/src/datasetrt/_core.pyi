# The native module. Integers are Python ints, paths are str; errors are the classes of datasetrt.errors.

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypedDict, final, overload

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from .columns import BatchMetadata
from .figures import StreamStats
from .source import CacheInput
from .table import ArrowStream

__all__ = [
    "BatchInfo",
    "BatchPlan",
    "CachedSample",
    "Handout",
    "Kept",
    "Memory",
    "Order",
    "PayloadBuffer",
    "SampleBatch",
    "Steps",
    "Stream",
    "View",
    "Writer",
    "check_source",
    "clean_root",
    "verify_folder",
    "version",
]

version: str

# Removes leftovers of interrupted writes; ``reason`` is None for those that went.
def clean_root(root: str, dry_run: bool) -> list[_Leftover]: ...

# Refuses what a writer would refuse, before anything is looked for under that name.
def check_source(name: str, *, fingerprint: str | None, codec: str | None) -> None: ...

# The samples that the manifest states, where there is one, and everything that is wrong.
def verify_folder(
    path: str, on_progress: Callable[[int, int], None] | None = None
) -> tuple[int | None, list[_Problem]]: ...

class _Written(TypedDict):
    path: str
    name: str
    sample_count: int
    payload_bytes: int
    stored_bytes: int
    fingerprint: str | None
    resumed_at: int | None

class _Cache(TypedDict):
    path: str
    name: str
    cache_id: str
    sample_count: int
    payload_bytes: int
    stored_bytes: int
    fingerprint: str | None
    codec: str | None
    compression: str

class _Problem(TypedDict):
    kind: str
    message: str
    path: str | None
    shard: int | None
    offset: int | None
    sample_id: int | None

class _Leftover(TypedDict):
    path: str
    files: int
    bytes: int
    reason: str | None
    failed: bool

class _Substitution(TypedDict):
    position: int
    row: int
    cache_id: str
    sample_id: int
    replacement_row: int
    message: str

@final
class Handout:
    # What a loop has read and not handed out yet, and how many steps it has made.

    steps: int

    def __new__(cls) -> Handout: ...
    # Let go of what was read; what was handed out last stays known.
    def clear(self) -> None: ...
    # How long it took to make objects of samples.
    @property
    def hand_over_seconds(self) -> float: ...

    # What is known of the sample that was handed out last.
    @property
    def last(self) -> BatchInfo | None: ...

@final
class Kept:
    # Tables that would not stay in memory by themselves, and why their stream ended early, if it did.
    def check(self) -> None: ...

@disjoint_base
class Steps:
    # The base of an iterator: it gives samples that are ready at once, and asks `_advance` for the rest.

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self: ...
    # From now on, take samples from there. Once.
    def _hand_out(self, handout: Handout) -> None: ...
    def __next__(self) -> Any: ...

@final
class Writer:
    # Writes one cache: takes its lock, adopts an unfinished write, publishes at the end or not at all.

    def __new__(
        cls,
        root: str,
        name: str,
        *,
        fingerprint: str | None,
        codec: str | None,
        schema: list[tuple[str, str]] | None,
        compression: str,
        compression_level: int | None,
        max_shard_bytes: int,
        threads: int | None,
        queue_bytes: int,
        by_item: bool,
        replace: bool,
    ) -> Writer: ...
    # The descriptor that held the lock when the writer was made.
    @property
    def lock_descriptor(self) -> int | None: ...

    # Samples that are durable already.
    @property
    def resume_samples(self) -> int: ...

    # The source's item that the next sample comes from.
    @property
    def resume_item(self) -> int: ...

    # Samples of that item that are durable already.
    @property
    def resume_item_samples(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def payload_bytes(self) -> int: ...
    # Pull the iterator to its end on this thread; each sample is an item of its own.
    def write_all(
        self,
        samples: Iterator[CacheInput],
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None: ...
    def push(self, sample: CacheInput, item: int) -> None: ...
    def finish(self) -> _Written: ...
    def abort(self) -> None: ...

@final
class View:
    # An immutable active table over one or more caches.

    @staticmethod
    def open(paths: list[str], *, max_open_shards: int) -> View: ...
    @staticmethod
    def from_recipe(blob: bytes) -> View: ...
    def recipe(self) -> bytes: ...
    def __len__(self) -> int: ...
    def sample(self, index: int) -> CachedSample: ...
    def take(self, indices: npt.NDArray[np.int64]) -> SampleBatch: ...
    def slice(self, start: int, stop: int, step: int) -> View: ...
    def select(self, rows: npt.NDArray[np.int64]) -> View: ...
    def with_table(self, stream: ArrowStream) -> View: ...
    @property
    def implied_columns(self) -> list[str]: ...
    def with_rows(self, stream: ArrowStream) -> View: ...
    def with_weights(self, weights: npt.NDArray[np.float64]) -> View: ...
    # The table as a stream, and what keeps its memory: while somebody has both, metadata is read from there.
    def table(self) -> tuple[ArrowStream, Kept]: ...
    def verify(self, on_progress: Callable[[int, int], None] | None = None) -> list[_Problem]: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def codecs(self) -> list[str | None]: ...
    @property
    def caches(self) -> list[_Cache]: ...
    @property
    def schema(self) -> list[tuple[str, str]]: ...

@final
class CachedSample:
    # One sample, as it was stored: immutable, compares by value, unpacks to its four parts, pickles.

    def __new__(
        cls, data: bytes, metadata: dict[str, bool | int | float | str | None], cache_id: str, sample_id: int
    ) -> CachedSample: ...
    @property
    def data(self) -> bytes: ...
    @property
    def metadata(self) -> dict[str, bool | int | float | str | None]: ...
    @property
    def cache_id(self) -> str: ...
    @property
    def sample_id(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class PayloadBuffer:
    # The memory of a batch, which memoryviews of it keep alive.

    def __len__(self) -> int: ...

@final
class SampleBatch:
    # Samples that were read together, in order.
    #
    # Payloads lie in one fresh, writable buffer, not used for another batch while anything refers to it: back
    # to back where all have one size, else each on a 64-byte boundary.

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[CachedSample]: ...
    @overload
    def __getitem__(self, index: int, /) -> CachedSample: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[CachedSample]: ...
    # A writable view of each payload.
    @property
    def payloads(self) -> list[memoryview]: ...

    # The stored columns, and those added by with_metadata.
    @property
    def metadata(self) -> BatchMetadata: ...

    # Rows of the active table.
    @property
    def indices(self) -> npt.NDArray[np.int64]: ...

    # Positions in the epoch.
    @property
    def positions(self) -> npt.NDArray[np.int64]: ...
    @property
    def epoch(self) -> int: ...
    # Which samples repeat others, so that all ranks have equally many.
    @property
    def padding(self) -> npt.NDArray[np.bool_]: ...
    # Which samples stand in for damaged ones.
    @property
    def substituted(self) -> npt.NDArray[np.bool_]: ...

    # The same without the bytes.
    @property
    def info(self) -> BatchInfo: ...
    @property
    def buffer(self) -> memoryview: ...
    # Where each payload begins in ``buffer``.
    @property
    def offsets(self) -> npt.NDArray[np.int64]: ...

    # Bytes of each payload.
    @property
    def lengths(self) -> npt.NDArray[np.int64]: ...
    @property
    def sample_ids(self) -> npt.NDArray[np.int64]: ...
    @property
    def cache_ids(self) -> list[str]: ...
    # All payloads as one array of shape ``(len(batch), *shape)``; no copy where they have one size.
    def as_array(self, dtype: npt.DTypeLike, shape: tuple[int, ...] | None = None) -> npt.NDArray[Any]: ...
    # Payloads of one size cut into columns, a view a width.
    def split(self, widths: Sequence[int]) -> list[memoryview]: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class BatchInfo:
    # Which samples a batch is made of, without their bytes; arrays have one entry a sample.

    def __len__(self) -> int: ...
    # The same of one sample.
    def one(self, at: int) -> BatchInfo: ...
    @property
    def epoch(self) -> int: ...
    @property
    def indices(self) -> npt.NDArray[np.int64]: ...
    @property
    def positions(self) -> npt.NDArray[np.int64]: ...
    @property
    def padding(self) -> npt.NDArray[np.bool_]: ...
    @property
    def substituted(self) -> npt.NDArray[np.bool_]: ...

@final
class BatchPlan:
    # The positions of each step of one rank, from a place of an epoch on; pickles, compares by value.

    def __new__(
        cls,
        length: int,
        start: int,
        batch_size: int,
        rank: int,
        world_size: int,
        uneven: str,
        drop_last: bool,
    ) -> BatchPlan: ...
    # Steps of this rank.
    def __len__(self) -> int: ...

    # Positions of an epoch.
    @property
    def length(self) -> int: ...

    # Samples of all steps, padding included.
    @property
    def samples(self) -> int: ...
    # Of one step, or of those from ``step`` to ``stop``.
    def positions(self, step: int, stop: int | None = None) -> npt.NDArray[np.int64]: ...
    def padding(self, step: int, stop: int | None = None) -> npt.NDArray[np.bool_]: ...
    def position_after(self, steps: int) -> int: ...

@final
class Order:
    # A sampler bound to the rows and weights of a view.

    @staticmethod
    def sequential(view: View) -> Order: ...
    @staticmethod
    def shuffle(view: View, seed: int) -> Order: ...
    @staticmethod
    def block_shuffle(view: View, seed: int, block_samples: int, window_blocks: int) -> Order: ...
    @staticmethod
    def weighted(view: View, seed: int, num_samples: int | None, replacement: bool) -> Order: ...
    def __len__(self) -> int: ...
    def indices(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]: ...
    def position_of(self, row: int, epoch: int) -> int: ...
    def indices_at(self, epoch: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...
    def transform_seeds(self, epoch: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]: ...

@final
class Memory:
    # Memory that the streams of one loader use one after the other.

    def __new__(cls, *, prefetch_batches: int, prefetch_bytes: int) -> Memory: ...

@final
class Stream:
    # The batches of one rank through one epoch, from a position on.

    def __new__(
        cls,
        view: View,
        order: Order,
        plan: BatchPlan,
        *,
        epoch: int,
        steps_per_read: int,
        threads: int | None,
        prefetch_batches: int,
        prefetch_bytes: int,
        on_corrupt: str,
        split: list[int] | None = None,
        memory: Memory | None = None,
    ) -> Stream: ...
    # Steps of this rank.
    def __len__(self) -> int: ...
    def position_after(self, steps: int) -> int: ...
    def next(self) -> SampleBatch | None: ...
    # The samples of the next read and what is known of them; None at the end.
    def next_samples(self) -> tuple[list[CachedSample], BatchInfo] | None: ...
    # Has the next read handed out from there; False at the end.
    def fill(self, handout: Handout) -> bool: ...
    def substitutions(self) -> list[_Substitution]: ...
    def stats(self) -> StreamStats: ...
    def close(self) -> None: ...
