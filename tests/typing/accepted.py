"""Correct use of the public API, with the types that users get. Read by mypy, never run."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, assert_type

import numpy as np
import polars as pl
from pydantic import TypeAdapter
from typing_extensions import TypedDict

import datasetrt as drt


class Record(TypedDict):
    text: str


class Source:
    name = "records"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput(b"bytes", {"label": 1, "split": "train", "score": None})
        yield drt.CacheInput(np.zeros(3, np.float32), {"label": np.int64(1), "split": "val", "score": 0.5})
        yield drt.CacheInput(memoryview(b"view"), {})


@dataclass(frozen=True)
class Described:
    """A source whose attributes are read-only."""

    name: str
    fingerprint: str = "v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        return iter(())


def squares(number: int) -> drt.CacheInput | None:
    return drt.CacheInput(bytes(number), {"n": number}) if number else None


def writing(root: Path) -> None:
    config = drt.WriterConfig(compression="zstd", compression_level=3, progress=False)
    assert_type(drt.write_cache(Source(), root, config=config), drt.CacheReport)
    assert_type(drt.cache([Source(), Described("d")], "root", on_stale="rebuild"), drt.CachedDataset)
    drt.write_cache(drt.MapSource("squares", range(9), squares, schema={"n": int}), root)


def adapters(ds: drt.CachedDataset) -> None:
    from datasetrt import jax

    assert_type(drt.torch, ModuleType)
    drt.torch.NativeLoader(ds, 8)
    jax.batches(ds, global_batch=8)
    drt.tf.cursor(ds, 8, global_step=1)


def reading(ds: drt.CachedDataset) -> None:
    assert_type(ds[0], drt.CachedSample)
    assert_type(ds[1:3], drt.CachedDataset)
    assert_type(ds[0].data, bytes)
    assert_type(ds.take([1, 2]), drt.SampleBatch)
    assert_type(ds.take(np.arange(3)), drt.SampleBatch)
    assert_type(ds.metadata, pl.DataFrame)
    assert_type(ds.filter(pl.col("label") == 1).head(3), drt.CachedDataset)
    assert_type(ds.with_metadata(ds.metadata.reverse()), drt.CachedDataset)
    assert_type(ds.with_weights(1.0 / pl.len().over("label")), drt.CachedDataset)
    for sample in ds:
        assert_type(sample, drt.CachedSample)
    drt.open_dataset(["a", Path("b")], config=drt.ReaderConfig(max_open_shards=4))


def length(sample: drt.CachedSample) -> int:
    return len(sample.data)


def total(lengths: list[int]) -> int:
    return sum(lengths)


def loading(ds: drt.CachedDataset) -> None:
    def augmented(sample: drt.CachedSample, seed: int) -> float:
        return seed / len(sample.data)

    assert_type(ds.loader(batch_size=8, sampler=drt.Shuffle(seed=7)), drt.Loader[drt.SampleBatch])
    assert_type(ds.loader(batch_size=8, transform=length), drt.Loader[list[int]])
    assert_type(ds.loader(batch_size=8, transform=length, collate=total), drt.Loader[int])
    assert_type(ds.loader(batch_size=8, transform=augmented, seeded=True), drt.Loader[list[float]])
    assert_type(ds.loader(batch_size=None), drt.Loader[drt.CachedSample])
    assert_type(ds.loader(batch_size=None, transform=length), drt.Loader[int])
    loader = ds.loader(batch_size=8, shard=drt.Shard(rank=0, world_size=2, uneven="drop"))
    for batch in loader:
        assert_type(batch, drt.SampleBatch)
    loader.load_state_dict(loader.state_dict())


def transforming(ds: drt.CachedDataset) -> None:
    lengths = ds.with_transform(length)
    assert_type(lengths, drt.CachedDataset[int])
    assert_type(lengths[0], int)
    assert_type(lengths[1:].filter(pl.col("label") == 1).head(3), drt.CachedDataset[int])
    assert_type(lengths.with_weights([1.0]).with_metadata(ds.metadata), drt.CachedDataset[int])
    for number in lengths:
        assert_type(number, int)
    assert_type(lengths.loader(batch_size=8), drt.Loader[list[int]])
    assert_type(lengths.loader(batch_size=None), drt.Loader[int])
    assert_type(lengths.loader(collate=total), drt.Loader[int])
    assert_type(lengths.loader(transform=str), drt.Loader[list[str]])
    assert_type(lengths.take([0]), drt.SampleBatch)
    assert_type(lengths.with_transform(None), drt.CachedDataset)
    assert_type(lengths.with_transform(None).loader(), drt.Loader[drt.SampleBatch])
    assert_type(ds.with_transform(lambda sample: sample.sample_id), drt.CachedDataset[int])
    records = ds.with_transform(drt.codecs.Validated(drt.codecs.Json(), TypeAdapter(Record)))
    assert_type(records, drt.CachedDataset[Record])
    assert_type(records.loader(batch_size=8), drt.Loader[list[Record]])
    # What a codec makes of a whole batch, and a batch of a transform that gives samples, have no name here.
    assert_type(ds.with_transform(drt.codecs.Npy()), drt.CachedDataset[Any])
    assert_type(ds.with_transform(lambda sample: sample), drt.CachedDataset[Any])
    anything: drt.CachedDataset[Any] = lengths
    assert_type(anything.loader(batch_size=8), drt.Loader[Any])
    layout = drt.codecs.Record({"image": ("float32", (3, 8)), "label": ("int64", ())})
    assert_type(ds.with_transform(layout).loader(batch_size=8), drt.Loader[Any])
    assert_type(ds.with_transform(drt.codecs.Npy()).filter(split="val").loader(), drt.Loader[Any])
    assert_type(ds.with_transform(drt.codecs.Json()).loader(batch_size=8), drt.Loader[Any])
    for arrays in ds.with_transform(layout).loader(batch_size=8):
        assert arrays["image"].shape == (8, 3, 8)
    drt.Shuffle(seed=7).indices(lengths)


def unpacking(ds: drt.CachedDataset) -> None:
    codec = drt.codecs.Validated(drt.codecs.Pickle(allow="numpy"), TypeAdapter(Record))
    assert_type(codec.loads(ds[0].data), Record)
    for records in ds.loader(batch_size=8, transform=codec, collate=list):
        assert_type(records, list[Record])


def failing(path: Path) -> str | None:
    try:
        drt.open_dataset(path)
    except drt.CorruptionError as error:
        return f"{error.kind} {error.sample_id}"
    except FileNotFoundError:
        return None
    return ""
