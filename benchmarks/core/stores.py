"""How each contender stores the samples, and how its users open them again."""

from __future__ import annotations

import array
import os
import pickle
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasetrt as drt

from . import data
from .case import Case, files_of

# What LMDB's users write by hand: the metadata in front of the payload.
_HEAD = struct.Struct("<qdB")
_KEY = struct.Struct(">Q").pack


class Source:
    """The samples as a source of datasetrt."""

    codec = None

    def __init__(self, workload: data.Workload) -> None:
        self.name = "samples"
        self._workload = workload

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for payload, metadata in data.samples(self._workload):
            yield drt.CacheInput(payload, metadata)


class Encoded:
    """The records as a source, packed by a codec."""

    def __init__(self, workload: data.Workload, codec: Any) -> None:
        self.name, self.codec = "samples", codec
        self._workload = workload

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for i in range(self._workload.count):
            yield drt.CacheInput(self.codec.dumps(data.record(i)), data.metadata(i))


def oob() -> drt.codecs.PickleOOB:
    """What packs arrays out of band; as trusting as ``pickle.loads``, which it is compared with."""
    return drt.codecs.PickleOOB(trust=True)


def columns() -> drt.codecs.Record:
    """The fixed layout of a record."""
    return drt.codecs.Record(
        {"image": ("uint8", data.IMAGE), "label": ("int64", ()), "boxes": ("float32", data.BOXES)}
    )


def write(case: Case, store: str) -> None:
    """Write one store of a case, and leave nothing of it waiting for the disk."""
    folder = case.folder(store)
    if store == "sums":
        write_sums(case)
    elif store == "ours":
        write_ours(Source(case.workload), folder)
    elif store in ("ours-zstd", "ours-zstd-dictionary"):
        write_ours(Source(case.workload), folder, compression=store.removeprefix("ours-"))
    elif store == "ours-oob":
        write_ours(Encoded(case.workload, oob()), folder)
    elif store == "ours-record":
        write_ours(Encoded(case.workload, columns()), folder)
    else:
        {"dataset-rt": write_dataset_rt, "lmdb": write_lmdb, "raw": write_raw}[store](case, folder)
    for path in files_of(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def write_sums(case: Case) -> None:
    """What an epoch that touches every byte has to add up to."""
    words = sum(case.floor.touch(payload) for payload, _ in data.samples(case.workload)) % 2**64
    case.folder("sums").write_text(f"{data.labels_sum(case.workload.count)} {words}")


# datasetrt


def write_ours(source: drt.CacheSource, folder: Path, **options: Any) -> None:
    """Written into ``folder/samples`` with the defaults, but for options."""
    drt.write_cache(source, folder, config=drt.WriterConfig(progress=False, **options))


def ours(case: Case, store: str = "ours") -> drt.CachedDataset:
    """The dataset, opened."""
    return drt.open_dataset(case.folder(store) / "samples")


# dataset-rt from PyPI


class RivalSource:
    """A source of dataset-rt."""

    name = "samples"

    def __init__(self, samples: Iterator[tuple[bytes, data.Metadata]]) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[Any]:
        from dataset_rt import CacheInput

        for payload, metadata in self._samples:
            yield CacheInput(payload, metadata)


def write_dataset_rt(case: Case, folder: Path) -> None:
    """Written by two workers, without a progress bar."""
    rival_write(data.samples(case.workload), folder)


def rival_write(samples: Iterator[tuple[bytes, data.Metadata]], folder: Path) -> None:
    """Write samples into ``folder/samples``."""
    from dataset_rt import CacheWriteSuccess, DatasetRuntime, WriterConfig

    runtime = DatasetRuntime(num_workers=2)
    [result] = runtime.write_cache(
        RivalSource(samples), folder, writer_config=WriterConfig(show_progress=False)
    )
    if not isinstance(result, CacheWriteSuccess):
        raise RuntimeError(f"dataset-rt wrote nothing: {result}")


def rival(case: Case, shuffle: bool) -> Any:
    """The dataset of dataset-rt with two workers, and its default queue."""
    from dataset_rt import DatasetRuntime, ReaderConfig

    config = ReaderConfig(seed=1, shuffle=shuffle)
    folder = case.folder("dataset-rt") / "samples"
    return DatasetRuntime(num_workers=2).cached_dataset([folder], reader_config=config)


# LMDB


def write_lmdb(case: Case, folder: Path) -> None:
    """One key a sample, in order, a thousand a transaction."""
    import lmdb

    folder.mkdir(parents=True)
    environment = lmdb.open(str(folder), map_size=16 << 30)
    transaction = environment.begin(write=True)
    for i, (payload, metadata) in enumerate(data.samples(case.workload)):
        head = _HEAD.pack(metadata["label"], metadata["score"], data.SPLITS.index(metadata["split"]))
        transaction.put(_KEY(i), head + payload, append=True)
        if i % 1000 == 999:
            transaction.commit()
            transaction = environment.begin(write=True)
    transaction.commit()
    environment.close()


class Lmdb:
    """Reads without a copy: values are views of the mapping."""

    def __init__(self, case: Case) -> None:
        import lmdb

        self._environment = lmdb.open(str(case.folder("lmdb")), readonly=True, lock=False, readahead=False)
        self._get = self._environment.begin(buffers=True).get

    def get(self, i: int) -> tuple[memoryview, data.Metadata]:
        """A payload and its metadata."""
        value = self._get(_KEY(i))
        label, score, split = _HEAD.unpack_from(value)
        return value[_HEAD.size :], {"label": label, "split": data.SPLITS[split], "score": score}


# Plain files: the payloads end to end, and an array a column


class Raw(NamedTuple):
    """The columns in memory and the path of the payloads."""

    path: str
    offsets: array.array[int]
    label: array.array[int]
    score: array.array[float]
    split: bytes

    def metadata(self, i: int) -> data.Metadata:
        """The metadata of a sample."""
        return {"label": self.label[i], "split": data.SPLITS[self.split[i]], "score": self.score[i]}


def write_raw(case: Case, folder: Path) -> None:
    """``payloads`` and ``columns``."""
    folder.mkdir(parents=True)
    offsets, label, score = array.array("Q", [0]), array.array("q"), array.array("d")
    split = bytearray()
    with (folder / "payloads").open("wb") as file:
        for payload, metadata in data.samples(case.workload):
            file.write(payload)
            offsets.append(offsets[-1] + len(payload))
            label.append(metadata["label"])
            score.append(metadata["score"])
            split.append(data.SPLITS.index(metadata["split"]))
    (folder / "columns").write_bytes(pickle.dumps((offsets, label, score, bytes(split)), protocol=5))


def raw(case: Case) -> Raw:
    """The plain files, their columns loaded."""
    folder = case.folder("raw")
    return Raw(str(folder / "payloads"), *pickle.loads((folder / "columns").read_bytes()))


def floor_samples(case: Case, order: Sequence[int]) -> Any:
    """The C iterator of ``(bytes, dict)`` in an order, an array of int64."""
    plain = raw(case)
    columns = (plain.offsets, plain.label, plain.score, plain.split)
    return case.floor.Samples(plain.path, *columns, data.SPLITS, order)
