"""Wrong use of the public API: each marked line must be an error with this code. Read by mypy, never run."""

from collections.abc import Iterator

import datasetrt as drt


class Nameless:
    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput("text", {})  # error: arg-type
        yield drt.CacheInput(b"", {"label": [1]})  # error: dict-item


def seeded(sample: drt.CachedSample, seed: int) -> int:
    return seed


def len_of(sample: drt.CachedSample) -> int:
    return len(sample.data)


def wants_numbers(ds: drt.CachedDataset[int]) -> None: ...


def misuse(ds: drt.CachedDataset) -> None:
    drt.cache(Nameless(), "root")  # error: arg-type
    drt.cache([], "root", on_stale="ignore")  # error: arg-type
    drt.WriterConfig(compresion="zstd")  # error: call-arg
    ds[0].data = b""  # error: misc
    ds["label"]  # error: call-overload
    ds.take("12")  # error: arg-type
    ds.loader(8)  # error: call-overload
    ds.loader(batch_size=8, transform=seeded)  # error: arg-type
    ds.loader(batch_size=8, on_corrupt="skip")  # error: call-overload
    ds.with_transform(seeded)  # error: arg-type
    ds.with_transform(3)  # error: call-overload
    wants_numbers(ds)  # error: arg-type
    ds.with_transform(len_of)[0].strip()  # error: attr-defined
    drt.Shuffle()  # error: call-arg
    drt.keras()  # error: attr-defined
    drt.Shard(0, 1, uneven="wrap")  # error: arg-type
