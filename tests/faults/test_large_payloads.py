"""Payloads around the sizes at which reading changes its way: the same bytes, and damage is told."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import datasetrt as drt
from tests.rows import Row, RowSource

# Above 8 KiB another implementation hashes, above 32 KiB `ds[i]` reads in place, above 128 KiB every
# payload comes in pieces.
EDGES = (0, 1, 240, 241, 8 << 10, 32 << 10, 128 << 10, 256 << 10)
SIZES = sorted({max(edge + step, 0) for edge in EDGES for step in (-1, 0, 1)} | {1_000_003})


def rows() -> list[Row]:
    return [(random.Random(size).randbytes(size), {"size": size, "none": None}) for size in SIZES]


def one_by_one(dataset: drt.CachedDataset) -> list[bytes]:
    return [dataset[row].data for row in range(len(dataset))]


def iterated(dataset: drt.CachedDataset) -> list[bytes]:
    return [sample.data for sample in dataset]


def taken(dataset: drt.CachedDataset) -> list[bytes]:
    return [bytes(payload) for payload in dataset.take(range(len(dataset))).payloads]


def loaded(dataset: drt.CachedDataset) -> list[bytes]:
    return [bytes(payload) for batch in dataset.loader(batch_size=4) for payload in batch.payloads]


WAYS: list[Callable[[drt.CachedDataset], list[bytes]]] = [one_by_one, iterated, taken, loaded]


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("way", WAYS)
def test_all_sizes_come_back(
    tmp_path: Path, way: Callable[[drt.CachedDataset], list[bytes]], compression: Any
) -> None:
    config = drt.WriterConfig(compression=compression)
    dataset = drt.cache(RowSource("sizes", rows()), tmp_path, config=config)
    assert way(dataset) == [data for data, _ in rows()]
    assert [dataset[row].metadata for row in range(len(SIZES))] == [metadata for _, metadata in rows()]


@pytest.mark.parametrize("size", [9 << 10, 33 << 10, 129 << 10, 1_000_003])
def test_a_flipped_bit_anywhere_is_told_in_every_way(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    drt.cache(RowSource("one", [(data, {})]), tmp_path)
    shard = tmp_path / "one" / "shards" / "000000.bin"
    content = bytearray(shard.read_bytes())
    begin = content.index(data)
    # The checksum, the tag, both ends of the payload, and the ends of each piece.
    places = {begin - 9, begin - 1, begin, begin + size - 1}
    places |= {begin + at for at in range(0, size, 128 << 10)} | {
        begin + at - 1 for at in range(128 << 10, size, 128 << 10)
    }
    for place in sorted(places):
        content[place] ^= 16
        shard.write_bytes(content)
        dataset = drt.open_dataset(tmp_path / "one")
        for way in WAYS:
            with pytest.raises(drt.CorruptionError, match=r"000000\.bin record of sample 0"):
                way(dataset)
        content[place] ^= 16
    shard.write_bytes(content)
    assert one_by_one(drt.open_dataset(tmp_path / "one")) == [data]


def image(number: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(number).integers(0, 256, (300, 701), np.uint8)


def test_columns_of_large_records(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "image": ("uint8", (300, 701)),
        "label": ("int64", ()),
        "mask": ("bool", (70_001,)),
    }
    codec = drt.codecs.Record(fields)

    def values(number: int) -> dict[str, Any]:
        return {"image": image(number), "label": number, "mask": np.arange(70_001) % 7 == number % 7}

    written = [(codec.dumps(values(number)), {}) for number in range(5)]
    drt.cache(RowSource("records", written, codec=codec), tmp_path)
    for batch in drt.open_dataset(tmp_path / "records").loader(batch_size=5, transform=codec):
        for number in range(5):
            for key, value in values(number).items():
                assert np.array_equal(batch[key][number], value), (number, key)
    shard = tmp_path / "records" / "shards" / "000000.bin"
    content = bytearray(shard.read_bytes())
    content[content.index(image(3).tobytes()) + 200_000] ^= 1
    shard.write_bytes(content)
    with pytest.raises(drt.CorruptionError, match="sample 3"):
        list(drt.open_dataset(tmp_path / "records").loader(batch_size=5, transform=codec))


def test_metadata_is_the_callers_own(tmp_path: Path) -> None:
    dataset = drt.cache(RowSource("few", rows()[:5]), tmp_path)
    extended = dataset.with_metadata(dataset.metadata.with_columns(size=dataset.metadata["size"], more=1))
    for samples in (dataset, list(dataset), extended, list(extended)):
        for number, sample in enumerate(samples):
            sample.metadata["size"] = -1
            assert sample.metadata["size"] == SIZES[number]
            assert sample.metadata is not sample.metadata
