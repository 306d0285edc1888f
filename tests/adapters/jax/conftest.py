"""JAX on eight devices that are really one processor, for tests of layouts."""

from __future__ import annotations

import os

# Before JAX is imported by any test.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import datasetrt as drt

Make = Callable[..., "drt.CachedDataset"]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a cache of records, packed with a codec, and open it."""
    import datasetrt as drt

    def write(records: list[Any], codec: Any, metadata: list[dict[str, Any]] | None = None) -> Any:
        class Source:
            name = f"cache-{len(list(tmp_path.iterdir()))}"

            def __iter__(self) -> Any:
                for number, record in enumerate(records):
                    yield drt.CacheInput(codec.dumps(record), metadata[number] if metadata else {"n": number})

        Source.codec = codec  # type: ignore[attr-defined]
        return drt.cache(Source(), tmp_path, config=drt.WriterConfig(progress=False))

    return write


@pytest.fixture
def codec() -> Any:
    """A float vector and a number."""
    import datasetrt as drt

    return drt.codecs.Record({"x": ("float32", (3,)), "y": ("int32", ())})


@pytest.fixture
def ds(make: Make, codec: Any) -> drt.CachedDataset:
    """Fifty records that hold their number."""
    return make([{"x": np.full(3, n, np.float32), "y": np.int32(n)} for n in range(50)], codec)


@pytest.fixture
def damaged(ds: drt.CachedDataset, codec: Any) -> Callable[[int], drt.CachedDataset]:
    """Damages the payload of a row of ``ds``, and opens it again."""
    import datasetrt as drt

    def spoiled(row: int) -> drt.CachedDataset:
        (shard,) = (Path(ds.caches[0].path) / "shards").iterdir()
        content = bytearray(shard.read_bytes())
        first, second = (
            content.index(codec.dumps({"x": np.full(3, n, np.float32), "y": np.int32(n)})) for n in (1, 2)
        )
        content[first + (row - 1) * (second - first)] ^= 255
        shard.write_bytes(content)
        return drt.open_dataset(ds.caches[0].path)

    return spoiled
