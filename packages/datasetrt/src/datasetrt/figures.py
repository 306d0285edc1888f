"""Where the time of a loop went, as numbers and in a sentence."""

from __future__ import annotations

from typing import TypedDict

#: A loop that waits for a smaller part of its time than this gains nothing from faster reading.
_TRIVIAL_WAIT = 0.05
#: A transform that takes this part of a loop's time is worth a look.
_MUCH_TRANSFORM = 0.5


class StreamStats(TypedDict):
    """What the native stream tells of it."""

    samples: int
    bytes: int
    read_seconds: float
    verify_seconds: float
    decompress_seconds: float
    gather_seconds: float
    reader_wait_seconds: float
    consumer_wait_seconds: float
    hand_over_seconds: float


class LoaderStats(StreamStats):
    """Where the time of a loop over a loader went: seconds, counts, and what they mean.

    What the readers did is summed over threads. How it is divided is looked at in one read of sixteen, the
    first one included, and goes for all of them. :meth:`Loader.stats` tells what each figure is.

    Example:
        >>> import datasetrt as drt
        >>> loader = drt.testing.tiny_dataset().loader(batch_size=4)
        >>> batches = list(loader)
        >>> stats = loader.stats()
        >>> stats["samples"], stats["bytes"]
        (10, 80)
    """

    transform_seconds: float
    consumer_seconds: float
    input_bound: bool
    advice: str


#: Before the first loop.
NOTHING = StreamStats(
    samples=0,
    bytes=0,
    read_seconds=0.0,
    verify_seconds=0.0,
    decompress_seconds=0.0,
    gather_seconds=0.0,
    reader_wait_seconds=0.0,
    consumer_wait_seconds=0.0,
    hand_over_seconds=0.0,
)

_CURES = {
    "read_seconds": "reading files: give more threads or a faster disk, or use BlockShuffle for data that "
    "the memory does not hold",
    "verify_seconds": "comparing checksums: give more threads",
    "decompress_seconds": "decompressing: give more threads, or write the cache with compression='lz4' or "
    "'none'",
    "gather_seconds": "looking up metadata: give more threads, or store fewer columns",
}


def of_loop(stream: StreamStats, transform_seconds: float, lasted_seconds: float) -> LoaderStats:
    """All figures of a loop that lasted so long."""
    waited = stream["consumer_wait_seconds"]
    away = waited + stream["hand_over_seconds"] + transform_seconds
    input_bound = waited > stream["reader_wait_seconds"] and waited >= _TRIVIAL_WAIT * lasted_seconds
    return LoaderStats(
        **stream,
        transform_seconds=transform_seconds,
        consumer_seconds=max(lasted_seconds - away, 0.0),
        input_bound=input_bound,
        advice=_advice(stream, transform_seconds, lasted_seconds, input_bound),
    )


def _advice(stream: StreamStats, transform_seconds: float, lasted_seconds: float, input_bound: bool) -> str:
    if not stream["samples"] or lasted_seconds <= 0:
        return "nothing was read yet"
    waited = stream["consumer_wait_seconds"] / lasted_seconds
    transformed = transform_seconds / lasted_seconds
    if input_bound:
        found: dict[str, float] = {name: stream[name] for name in _CURES}  # type: ignore[literal-required]
        most = max(found, key=found.__getitem__)
        return (
            f"input-bound: the loop waited {waited:.0%} of its time for data, and readers spent most of "
            f"theirs {_CURES[most]}"
        )
    if transformed >= _MUCH_TRANSFORM:
        return (
            f"not input-bound, but transform and collate took {transformed:.0%} of the loop's time: decode "
            "whole batches with a codec such as Record, or do that work when the cache is written"
        )
    waited = min(waited, 1.0)
    return f"not input-bound: the loop waited {waited:.0%} of its time for data; reading is fast enough"
