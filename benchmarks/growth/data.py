"""The datasets that are measured: one thing grows, all else stays small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import datasetrt as drt

#: Also the shuffled loader's batch; larger payloads have smaller batches, so that one fits in memory.
BATCH = 256
_BATCH_BYTES = 64 << 20


@dataclass(frozen=True)
class Shape:
    """What a dataset holds.

    Args:
        samples: How many.
        shards: In how many files, about equally many in each.
        columns: Metadata columns; the first is ``label``, all are whole numbers.
        payload: Bytes of each payload.
    """

    samples: int = 10_000
    shards: int = 1
    columns: int = 1
    payload: int = 8

    @property
    def name(self) -> str:
        """Folder of the cache."""
        return f"n{self.samples}-s{self.shards}-c{self.columns}-p{self.payload}"

    @property
    def batch(self) -> int:
        """Samples in a batch of at most 64 MiB."""
        return max(1, min(BATCH, self.samples, _BATCH_BYTES // max(self.payload, 1)))

    @property
    def config(self) -> drt.WriterConfig:
        """What gives so many shards: records carry a frame of some bytes besides their payload."""
        if self.shards == 1:
            return drt.WriterConfig(progress=False, max_shard_bytes=1 << 40)
        each = -(-self.samples // self.shards)
        stored = self.payload + _FRAME_BYTES
        return drt.WriterConfig(progress=False, max_shard_bytes=_SHARD_BYTES + each * stored)


#: A record's frame and a shard's own bytes, as docs/format/v1.md gives them.
_FRAME_BYTES = 9
_SHARD_BYTES = 128


class Source:
    """The samples of a shape."""

    def __init__(self, shape: Shape) -> None:
        self.name = shape.name
        self._shape = shape

    def __iter__(self) -> Iterator[drt.CacheInput]:
        payload = bytearray(self._shape.payload)
        rest = {f"column_{i}": i for i in range(1, self._shape.columns)}
        for i in range(self._shape.samples):
            payload[:8] = i.to_bytes(8, "little")[: len(payload)]
            yield drt.CacheInput(bytes(payload), {"label": i % 100, **rest})


def write(shape: Shape, root: Path) -> Path:
    """Write a shape's cache, or find it finished; its folder."""
    drt.write_cache(Source(shape), root, config=shape.config)
    return root / shape.name
