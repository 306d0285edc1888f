"""What a loader says of the batch that it handed out last: padding, substitutes, places in the order."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from tests.rows import RowSource, rows_of

SHUFFLE = drt.Shuffle(seed=5)


def number(sample: drt.CachedSample) -> int:
    return sample.sample_id


def seeded_number(sample: drt.CachedSample, seed: int) -> int:
    return sample.sample_id


class Numbers:
    """A codec that decodes whole batches: to the length of each payload."""

    name = "numbers"

    def dumps(self, obj: Any, /) -> bytes:
        return bytes(obj)

    def loads(self, buffer: Any, /) -> int:
        return len(buffer)

    def loads_batch(self, batch: drt.SampleBatch, /) -> Any:
        return batch.sample_ids.tolist()


WORK: dict[str, dict[str, Any]] = {
    "nothing": {},
    "transform": {"transform": number},
    "seeded": {"transform": seeded_number, "seeded": True},
    "collate": {"transform": number, "collate": list},
    "codec": {"transform": Numbers()},
}


@pytest.mark.parametrize("uneven", ["pad", "fill", "drop", "keep"])
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_each_batch_says_which_samples_are_padding(
    work: dict[str, Any], uneven: Any, tiny: drt.CachedDataset
) -> None:
    ds, counted = tiny[:93], []
    for rank in range(4):
        shard = drt.Shard(rank, 4, uneven)
        loader: Any = ds.loader(batch_size=5, sampler=SHUFFLE, shard=shard, **work)
        assert loader.last is None
        batches = iter(loader)
        assert batches.last is None
        for batch in batches:
            last = loader.last
            made = batch.sample_ids.tolist() if isinstance(batch, drt.SampleBatch) else batch
            assert made == ds.take(last.indices).sample_ids.tolist(), "it is about another batch"
            assert last.indices.tolist() == SHUFFLE.indices_at(ds, last.positions).tolist()
            assert (len(last), last.epoch, last.substituted.any()) == (len(made), 0, False)
            assert batches.last.positions.tolist() == last.positions.tolist()
            counted += last.positions[~last.padding].tolist()
            if uneven == "fill":
                assert len(made) == 5
            # Padding begins at the first position of the epoch.
            assert (last.positions[last.padding] < 20).all()
    assert sorted(counted) == list(range(92 if uneven == "drop" else 93))


@pytest.mark.parametrize("work", ["nothing", "transform", "seeded"])
def test_one_sample_says_whether_it_is_padding(work: str, tiny: drt.CachedDataset) -> None:
    found = []
    for rank in range(4):
        shard = drt.Shard(rank, 4, "pad")
        loader: Any = tiny[:93].loader(batch_size=None, sampler=SHUFFLE, shard=shard, **WORK[work])
        for sample in loader:
            (row,), (position,) = loader.last.indices, loader.last.positions
            assert row == (sample if isinstance(sample, int) else sample.sample_id)
            found.append((int(position), bool(loader.last.padding[0])))
    assert sorted(position for position, padding in found if not padding) == list(range(93))
    assert sorted(position for position, padding in found if padding) == [0, 1, 2]


def test_a_batch_that_failed_is_not_the_last_one(tiny: drt.CachedDataset) -> None:
    def picky(sample: drt.CachedSample) -> int:
        if sample.sample_id == 9:
            raise KeyError("nine")
        return sample.sample_id

    loader = tiny.loader(batch_size=8, transform=picky)
    batches = iter(loader)
    next(batches)
    with pytest.raises(KeyError):
        next(batches)
    assert loader.last is not None
    assert loader.last.positions.tolist() == list(range(8))


def test_a_loader_tells_of_its_newest_loop(tiny: drt.CachedDataset) -> None:
    loader = tiny.loader(batch_size=8, transform=number)
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    next(second)
    next(first)
    next(first)
    assert first.last is not None
    assert first.last.positions[0] == 16
    assert loader.last is not None
    assert (loader.last.epoch, loader.last.positions[0]) == (1, 8)
    assert pickle.loads(pickle.dumps(loader)).last is None


def test_an_info_keeps_no_bytes_and_does_not_pickle(tiny: drt.CachedDataset) -> None:
    batch = next(iter(tiny.loader(batch_size=8)))
    info = batch.info
    assert info.padding.tolist() == batch.padding.tolist()
    assert info.one(-1).positions.tolist() == [7]
    with pytest.raises(drt.SampleIndexError):
        info.one(8)
    with pytest.raises(pickle.PicklingError, match="send its arrays"):
        pickle.dumps(info)
    info.padding[:] = True
    assert not info.padding.any(), "the arrays are the caller's own"


@pytest.fixture
def damaged(tmp_path: Path, quiet: drt.WriterConfig) -> drt.CachedDataset:
    """A hundred rows, of which the fourth and the fiftieth cannot be read."""
    rows = rows_of(100)
    folder = drt.write_cache(RowSource("s", rows), tmp_path, config=quiet).path
    shard = folder / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    for row in (4, 50):
        data[data.find(rows[row][0]) + 3] ^= 1
    shard.write_bytes(data)
    return drt.open_dataset(folder)


def test_substitutes_are_marked(damaged: drt.CachedDataset) -> None:
    for work in ({}, {"transform": number}):
        loader: Any = damaged.loader(batch_size=8, on_corrupt="substitute", **work)
        marked = []
        for batch in loader:
            last = loader.last
            marked += last.positions[last.substituted].tolist()
            assert (last.indices != last.positions).tolist() == last.substituted.tolist()
            if not work:
                assert batch.substituted.tolist() == last.substituted.tolist()
        assert marked == [4, 50]
    single = damaged.loader(batch_size=None, on_corrupt="substitute")
    assert [
        step for step, _ in enumerate(single) if single.last is not None and single.last.substituted[0]
    ] == [
        4,
        50,
    ]
    assert not damaged.take([1, 2]).substituted.any()


def test_a_repeated_position_has_the_same_substitute(damaged: drt.CachedDataset) -> None:
    # Positions 0 to 9 are there three times over in one batch.
    shard = drt.Shard(uneven="fill")
    loader = damaged[:10].loader(batch_size=30, on_corrupt="substitute", shard=shard)
    (batch,) = loader
    indices = batch.indices
    np.testing.assert_array_equal(indices[:10], indices[10:20])
    np.testing.assert_array_equal(indices[:10], indices[20:])
    assert np.flatnonzero(batch.substituted).tolist() == [4, 14, 24]
    assert np.flatnonzero(batch.padding).tolist() == list(range(10, 30))
