"""What becomes of samples that were read: decoded one by one, or a batch at once into tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

import datasetrt as drt
from datasetrt.wording import a_type, note

from ._checks import choice, column_name, column_names, decoder, flag, invalid, mapping
from ._collate import collate
from ._marked import UNMARKED, Marks
from ._tensors import Float64, as_tensor, as_tensors, narrowed, no_tensor

#: A codec, or a function of a sample, and of a seed where ``seeded``.
Decode: TypeAlias = drt.codecs.Codec[Any] | Callable[..., Any]
Source: TypeAlias = drt.CachedDataset[Any] | str | os.PathLike[str]

#: The name of undecoded payloads in a batch.
PAYLOAD = "data"


def opened(
    source: Source, decode: Decode | None, *, seeded: bool = False
) -> tuple[drt.CachedDataset, Decode | None]:
    """The dataset without its transform, which stands in for a ``decode`` without a seed."""
    dataset = source if isinstance(source, drt.CachedDataset) else drt.open_dataset(source)
    stands_in = decode is None and seeded is not True
    return dataset.with_transform(None), dataset.transform if stands_in else decode


@dataclass(frozen=True)
class Decoding:
    """How samples and batches are made of what a dataset reads; pickles if ``decode`` does.

    ``columns`` are metadata columns, ``include_index`` the name of the row number and ``mask_key`` that of
    the mask, all put beside what ``decode`` gives. ``seeded`` says whether ``decode`` takes a seed.
    """

    decode: Decode | None
    columns: tuple[str, ...]
    include_index: str | None
    float64: Float64
    fill: Mapping[str, Any]
    seeded: bool = False
    mask_key: str | None = None

    @property
    def adds(self) -> bool:
        """Whether something is put beside what ``decode`` gives."""
        return bool(self.columns) or self.include_index is not None or self.mask_key is not None

    @property
    def needs_marks(self) -> bool:
        """Whether rows alone do not say enough."""
        return self.seeded or self.mask_key is not None

    def sample(self, sample: drt.CachedSample, row: int, marks: Marks = UNMARKED) -> Any:
        """One sample, decoded; ``row`` is its number in the active table."""
        if self.decode is None:
            return sample
        if isinstance(self.decode, drt.codecs.Codec):
            # Arrays that a codec makes of it are writable then, as they are with batches.
            made = _made(self.decode.loads, bytearray(sample.data), sample.sample_id, sample.cache_id)
        else:
            made = _made(self._with_seed(marks, 0), sample, sample.sample_id, sample.cache_id)
        return self._beside(made, sample.metadata, row, marks, 0) if self.adds else made

    def samples(self, batch: drt.SampleBatch, marks: Marks = UNMARKED) -> list[Any]:
        """Every sample of a batch, decoded."""
        made = self._each(batch, marks)
        if not self.adds:
            return made
        columns = {name: batch.metadata[name].tolist() for name in self.columns}
        return [
            self._beside(one, {name: values[at] for name, values in columns.items()}, row, marks, at)
            for at, (one, row) in enumerate(zip(made, batch.indices.tolist(), strict=True))
        ]

    def batch(self, batch: drt.SampleBatch, marks: Marks = UNMARKED) -> Any:
        """A batch of tensors: a dict, or what ``decode`` makes of it."""
        made = self._tensors(batch, marks)
        if self.adds:
            added: dict[str, Any] = {name: batch.metadata[name] for name in self.columns}
            if self.include_index is not None:
                added[self.include_index] = batch.indices
            if self.mask_key is not None:
                added[self.mask_key] = marks.real
            made = _united(made, as_tensors(added, self.fill))
        return self._narrowed(made)

    def _tensors(self, batch: drt.SampleBatch, marks: Marks) -> Any:
        if self.decode is None:
            return as_tensors({PAYLOAD: _one_size(batch)})
        if not isinstance(self.decode, drt.codecs.BatchCodec):
            return collate(self._each(batch, marks))
        made = self.decode.loads_batch(batch)
        if isinstance(made, Mapping):
            return _of_rows(as_tensors(made), len(batch))
        if isinstance(made, np.ndarray | Tensor):
            (tensor,) = _of_rows(as_tensors({self.decode.name: made}), len(batch)).values()
            return tensor
        return collate(made)

    def _each(self, batch: drt.SampleBatch, marks: Marks) -> list[Any]:
        if self.decode is None:
            return list(batch)
        sample_ids, cache_ids = batch.sample_ids, batch.cache_ids
        if isinstance(self.decode, drt.codecs.Codec):
            loads, payloads = self.decode.loads, batch.payloads
            return [_made(loads, part, sample_ids[at], cache_ids[at]) for at, part in enumerate(payloads)]
        return [
            _made(self._with_seed(marks, at), part, sample_ids[at], cache_ids[at])
            for at, part in enumerate(batch)
        ]

    def _with_seed(self, marks: Marks, at: int) -> Callable[[Any], Any]:
        """``decode`` as a function of a sample, that at a place of its batch."""
        decode = self.decode
        assert callable(decode)
        if not self.seeded:
            return decode
        assert marks.seeds is not None
        seed = marks.seeds[at]
        return lambda sample: decode(sample, seed)

    def _beside(
        self, made: Any, metadata: Mapping[str, Any], row: int, marks: Marks, at: int
    ) -> dict[Any, Any]:
        added = {name: metadata[name] for name in self.columns}
        for name, stand_in in self.fill.items():
            if added[name] is None:
                added[name] = stand_in
        if self.include_index is not None:
            added[self.include_index] = row
        if self.mask_key is not None:
            assert marks.real is not None
            added[self.mask_key] = bool(marks.real[at])
        return _united(made, added)

    def _narrowed(self, made: Any) -> Any:
        if self.float64 == "keep":
            return made
        if isinstance(made, Mapping):
            return {name: narrowed(part) if isinstance(part, Tensor) else part for name, part in made.items()}
        return narrowed(made) if isinstance(made, Tensor) else made


def decoding(
    dataset: drt.CachedDataset,
    decode: Decode | None,
    columns: Sequence[str],
    include_index: str | None,
    float64: Float64,
    fill: Mapping[str, Any] | None,
    *,
    tensors: bool,
    seeded: bool = False,
    mask_key: str | None = None,
) -> Decoding:
    """Check what the user wants made of samples against the dataset.

    Args:
        tensors: Whether columns have to become tensors.
        seeded: Whether ``decode`` takes a seed.
        mask_key: The name of the mask, where single samples have one.

    Raises:
        InvalidInputError: Something cannot be called, there is no such column, or no tensor can hold it.
        CodecError: The payloads were packed by another codec.
    """
    choice("float64", float64, ("keep", "float32"))
    flag("seeded", seeded)
    mapping("fill", fill)
    column_name("include_index", include_index)
    column_name("mask_key", mask_key)
    decoder(dataset, decode)
    if seeded and (decode is None or isinstance(decode, drt.codecs.Codec)):
        given = "decode" if decode is None else f"the codec {decode.name!r}"
        raise invalid(
            f"seeded=True needs a decode that takes a seed, and {given} does not; give a function of a "
            "sample and a seed"
        )
    stored = column_names("columns", columns)
    added = [*stored, *(key for key in (include_index, mask_key) if key is not None)]
    if len(set(added)) != len(added):
        raise invalid(
            f"columns = {list(stored)}, include_index = {include_index!r} and mask_key = {mask_key!r} name "
            "something twice"
        )
    unknown = [key for key in fill or {} if key not in stored]
    if unknown:
        raise invalid(
            f"fill names {unknown}, which columns = {list(stored)} does not have; add them to columns"
        )
    _check_columns(dataset, stored, fill or {}, tensors)
    return Decoding(decode, stored, include_index, float64, dict(fill or {}), seeded, mask_key)


def _check_columns(
    dataset: drt.CachedDataset, names: tuple[str, ...], fill: Mapping[str, Any], tensors: bool
) -> None:
    """Refuse columns that are not there or hold no numbers, before the first batch."""
    if not names:
        return
    # One sample is read, because only batches know the columns that with_metadata added.
    found = dataset.take([0]).metadata
    for name in names:
        if name not in found:
            there = ", ".join(found) or "none"
            raise invalid(f"there is no column {name!r}; the dataset has {there}{_kept_back(dataset, name)}")
        if tensors and found[name].dtype == object:
            raise no_tensor(name, "holds strings; encode them as numbers, or leave the column out")
        if tensors:
            as_tensor(name, found[name], fill)


def _kept_back(dataset: drt.CachedDataset, name: str) -> str:
    """What a message adds about a column of the active table whose type is not delivered with samples."""
    dtype = dataset.metadata.schema.get(name)
    if dtype is None or name in ("cache_id", "sample_id", "weight"):
        return ""
    return f", and ds.metadata a {name!r} of type {dtype}, which is not delivered; cast it to numbers or text"


def _one_size(batch: drt.SampleBatch) -> Any:
    lengths = batch.lengths
    if lengths.min() != lengths.max():
        raise no_tensor(
            PAYLOAD, f"has payloads of {lengths.min()} to {lengths.max()} bytes; give decode= to unpack them"
        )
    return batch.as_array(np.uint8, (int(lengths[0]),))


def _of_rows(columns: dict[str, Tensor], rows: int) -> dict[str, Tensor]:
    """The columns, if each has a row for each sample."""
    for name, column in columns.items():
        if column.ndim == 0 or len(column) != rows:
            raise no_tensor(
                name, f"has the shape {tuple(column.shape)} for a batch of {rows} samples; give {rows} rows"
            )
    return columns


def _united(made: Any, added: Mapping[str, Any]) -> dict[Any, Any]:
    """What ``decode`` gave, and columns beside it."""
    if not isinstance(made, Mapping):
        raise invalid(f"decode gives {a_type(made)}, and columns go into a dict; let decode give a dict")
    twice = [name for name in added if name in made]
    if twice:
        raise invalid(f"decode gives {twice} already; rename it there, or leave it out of columns")
    return {**made, **added}


def _made(decode: Callable[[Any], Any], part: Any, sample_id: int, cache_id: str) -> Any:
    """What ``decode`` makes of a part; an error says which sample that was."""
    try:
        return decode(part)
    except StopIteration as error:
        # To the loop around us StopIteration would say that the epoch is over.
        place = f"while decoding sample {sample_id} of cache {cache_id}"
        raise RuntimeError(f"StopIteration was raised {place}") from error
    except Exception as error:
        note(error, f"while decoding sample {sample_id} of cache {cache_id}")
        raise
