"""Decoding through the core's loader: its order, its seeds, its naming of samples; here become columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

import datasetrt as drt
from datasetrt.wording import a_type

from ._columns import Array, Column, Ragged, column_of, stacked, whole_batch
from ._order import invalid

Decode: TypeAlias = "drt.codecs.Codec[Any] | Callable[..., Any]"
Form: TypeAlias = Literal["mapping", "tuple", "single"]

#: Names that are no metadata columns and may be asked for all the same.
_IDENTITY = ("sample_id", "cache_id")


class Decoded(NamedTuple):
    """What decode gave for a batch: a result a sample, or one for the whole batch; None without decode."""

    results: Any
    each: bool
    batch: Any  # SampleBatch, or the list of the CachedSamples
    sample_ids: Sequence[int]


@dataclass(frozen=True)
class _PerSample:
    """A transform that keeps the sample beside its result."""

    decode: Callable[..., Any]

    def __call__(self, sample: drt.CachedSample, *seed: int) -> tuple[drt.CachedSample, Any]:
        return sample, self.decode(sample, *seed)


@dataclass(frozen=True)
class _Loads:
    """A codec as a function of a sample."""

    codec: drt.codecs.Codec[Any]

    def __call__(self, sample: drt.CachedSample) -> Any:
        # Of a copy, so that arrays which the codec makes of it are writable.
        return self.codec.loads(bytearray(sample.data))


@dataclass(frozen=True)
class _PerBatch:
    """A codec that keeps the batch beside what it decoded."""

    codec: drt.codecs.BatchCodec[Any]

    @property
    def name(self) -> str:
        return self.codec.name

    def dumps(self, obj: Any, /) -> bytes:
        return self.codec.dumps(obj)

    def loads(self, buffer: Any, /) -> Any:
        return self.codec.loads(buffer)

    @property
    def column_widths(self) -> Sequence[int] | None:
        """Those of the codec: the core reads batches in the columns that it cuts."""
        return getattr(self.codec, "column_widths", None)

    def loads_batch(self, batch: Any, /) -> tuple[Any, Any]:
        return batch, self.codec.loads_batch(batch)


@dataclass(frozen=True)
class Decoding:
    """What is done with the samples of a batch, as arguments for the core's loader.

    Args:
        decode: A codec, a function of a sample (and a seed), or None for metadata and payloads alone.
        seeded: Whether the function takes a seed.
    """

    decode: Decode | None
    seeded: bool

    @cached_property
    def per_batch(self) -> bool:
        """Whether the codec unpacks a whole batch; looked at once, because Python takes its time to tell."""
        return isinstance(self.decode, drt.codecs.BatchCodec)

    def check(self, source: drt.CachedDataset) -> None:
        """Refuse what cannot decode this dataset.

        Raises:
            InvalidInputError: It cannot be called, or a seed is given to what takes none.
            CodecError: The payloads were packed by another codec; names both.
        """
        source.loader(transform=self.decode, seeded=self.seeded)  # type: ignore[call-overload]

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The core's loader hands out what :meth:`decoded` takes."""
        if self.decode is None:
            return {}
        if isinstance(self.decode, drt.codecs.BatchCodec):
            return {"transform": _PerBatch(self.decode)}
        decode = _Loads(self.decode) if isinstance(self.decode, drt.codecs.Codec) else self.decode
        return {"transform": _PerSample(decode), "seeded": self.seeded, "collate": list}

    def decoded(self, item: Any) -> Decoded:
        """What one batch of that loader holds."""
        if self.decode is None:
            return Decoded(None, False, item, item.sample_ids)
        if self.per_batch:
            batch, results = item
            return Decoded(results, isinstance(results, list), batch, batch.sample_ids)
        samples = [sample for sample, _ in item]
        return Decoded([result for _, result in item], True, samples, [s.sample_id for s in samples])


@dataclass(frozen=True)
class Layout:
    """The columns of every batch, in order, and where each comes from."""

    form: Form
    columns: tuple[Column, ...]
    metadata: frozenset[str] = frozenset()
    payload: str | None = None
    fill: Mapping[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> Column | None:
        """The column of that name, if there is one."""
        return next((column for column in self.columns if column.name == name), None)

    def arrays(self, decoded: Decoded) -> dict[str, Array | Ragged]:
        """The columns of one batch.

        Raises:
            CodecError: A column is missing, or its values have another shape or dtype; names it.
        """
        return {column.name: self._array(column, decoded) for column in self.columns}

    def _array(self, column: Column, decoded: Decoded) -> Array | Ragged:
        if column.name == self.payload:
            return _objects([bytes(payload) for payload in decoded.batch.payloads])
        if column.name in self.metadata:
            return _metadata(column, decoded, self.fill.get(column.name))
        if decoded.each:
            each = zip(decoded.results, decoded.sample_ids, strict=True)
            values = [_part(self.form, column, result, sample_id) for result, sample_id in each]
            return stacked(column, values, decoded.sample_ids)
        return whole_batch(column, _part(self.form, column, decoded.results), len(decoded.sample_ids))


def check_decode(source: drt.CachedDataset, decode: object) -> None:
    """Refuse what cannot decode a dataset.

    Raises:
        InvalidInputError: It cannot be called, or is the class of a codec where an instance is wanted.
        CodecError: The payloads were packed by another codec; names both.
    """
    if isinstance(decode, type) and callable(getattr(decode, "loads", None)) and hasattr(decode, "dumps"):
        # To call it would make a codec of every sample.
        raise invalid(
            f"decode = {decode!r} is the class of a codec; give an instance, such as {decode.__name__}()"
        )
    if isinstance(decode, drt.codecs.Codec):
        drt.codecs.check(source, decode)
    elif decode is not None and not callable(decode):
        raise invalid(f"decode = {decode!r} is neither a codec nor a function of a sample")


def layout_of(
    source: drt.CachedDataset,
    decoding: Decoding,
    *,
    columns: Sequence[str] | None,
    ragged: Sequence[str],
    fill: Mapping[str, Any] | None,
    payload: str | None,
    on_corrupt: str,
) -> Layout:
    """The layout, as the first row of the dataset shows it: that row is read and decoded.

    Raises:
        InvalidInputError: A column is not known, or there is none.
        CodecError: A column is no tensor; names it.
    """
    batch = _first_batch(source, on_corrupt)
    form, found = _decoded_columns(source, decoding, frozenset(_names("ragged", ragged)), on_corrupt)
    names = _default_names(batch, found, payload) if columns is None else _names("columns", columns)
    if payload is not None and payload in names:
        raise invalid(f"payload_key = {payload!r} is the name of a metadata column; give another one")
    if form != "mapping" and columns is not None:
        raise invalid("columns= needs a decode that returns a dict; it returns a tuple or a single value")
    for name in ragged:
        if name not in found:
            raise invalid(f"ragged names {name!r}, which decode does not return; it returns {list(found)}")
    chosen, stored = [], set()
    if payload is not None:
        chosen.append(Column(payload, np.dtype(object), ()))
    for name in names:
        if name not in found:
            stored.add(name)
        chosen.append(found[name] if name in found else _stored_column(name, batch, found, fill))
    unknown = [name for name in fill or {} if name not in stored]
    if unknown:
        raise invalid(
            f"fill names {unknown}, which are no metadata columns of the batch; add them to columns"
        )
    if not chosen:
        raise invalid("there is no column: no metadata, and no decode; give decode=, or use raw()")
    return Layout(form, tuple(chosen), frozenset(stored), payload, dict(fill or {}))


def _decoded_columns(
    source: drt.CachedDataset, decoding: Decoding, ragged: frozenset[str], on_corrupt: str
) -> tuple[Form, dict[str, Column]]:
    """What decode gives for the first row."""
    if decoding.decode is None:
        return "mapping", {}
    decoded = decoding.decoded(_first_batch(source, on_corrupt, **decoding.arguments))
    result = decoded.results[0] if decoded.each else decoded.results
    form, first = _form(result), int(decoded.sample_ids[0])
    return form, {
        name: column_of(name, value if decoded.each else _first(name, value), first, ragged=name in ragged)
        for name, value in _parts(form, result).items()
    }


def _first_batch(source: drt.CachedDataset, on_corrupt: str, **arguments: Any) -> Any:
    loader: Any = source.loader(  # type: ignore[call-overload]
        batch_size=1, threads=1, prefetch_batches=0, on_corrupt=on_corrupt, **arguments
    )
    with iter(loader) as batches:
        return next(batches)


def _first(name: str, value: Any) -> Any:
    try:
        return value[0]
    except (TypeError, IndexError, KeyError) as error:
        raise Column(name, np.dtype(object), ()).bad(
            f"decode gives {a_type(value)} for a batch, where an array of rows is wanted"
        ) from error


def _form(result: Any) -> Form:
    if isinstance(result, Mapping):
        return "mapping"
    return "tuple" if isinstance(result, tuple) else "single"


def _parts(form: Form, result: Any) -> dict[str, Any]:
    """The parts of a result by name; those of a tuple are called by their number."""
    if form == "mapping":
        for name in result:
            if not isinstance(name, str):
                raise invalid(f"decode returns a dict with the key {name!r}; columns are named by str")
        return dict(result)
    if form == "tuple":
        return {str(number): part for number, part in enumerate(result)}
    return {"0": result}


def _part(form: Form, column: Column, result: Any, sample_id: int | None = None) -> Any:
    if form == "single":
        return result
    if _form(result) != form:
        raise column.bad(f"decode returns {a_type(result)}, and a {form} for the first row", sample_id)
    parts = result if form == "mapping" else _parts(form, result)
    if column.name not in parts:
        raise column.bad(f"decode does not return it; it returns {list(parts)}", sample_id)
    return parts[column.name]


def _default_names(batch: drt.SampleBatch, found: Mapping[str, Column], payload: str | None) -> list[str]:
    """The decoded columns; without decode, those of the metadata."""
    return list(found) or [name for name in batch.metadata if name != payload]


def _stored_column(
    name: str, batch: drt.SampleBatch, found: Mapping[str, Column], fill: Mapping[str, Any] | None
) -> Column:
    if name in _IDENTITY:
        return Column(name, np.dtype(np.int64 if name == "sample_id" else object), ())
    if name not in batch.metadata:
        known = [*found, *batch.metadata, *_IDENTITY]
        raise invalid(f"there is no column {name!r}; there are {', '.join(map(repr, known))}")
    values = batch.metadata[name]
    column = Column(name, values.dtype, ())
    # A text column does not show whether values are missing elsewhere; they are found when they are read.
    missing = isinstance(values, np.ma.MaskedArray) or (values.dtype == object and values[0] is None)
    if missing and name not in (fill or {}):
        raise column.bad(
            f"the metadata has missing values, which no tensor has; give fill={{{name!r}: value}}, "
            "filter them out, or leave the column out with columns="
        )
    return column


def _metadata(column: Column, decoded: Decoded, fill: object) -> Array:
    """A metadata column, with ``fill`` for what is missing."""
    values = _stored_values(column.name, decoded)
    if isinstance(values, np.ndarray) and not column.is_text and fill is None:
        return whole_batch(column, values, len(decoded.sample_ids))
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    filled = [fill if value is None else value for value in listed]
    rows = stacked(column, filled, decoded.sample_ids)
    assert not isinstance(rows, Ragged)  # only decoded columns can be
    return rows


def _stored_values(name: str, decoded: Decoded) -> Array | list[Any]:
    batch = decoded.batch
    if name == "sample_id":
        return np.array(decoded.sample_ids, np.int64)
    if name == "cache_id":
        return [sample.cache_id for sample in batch] if isinstance(batch, list) else list(batch.cache_ids)
    if isinstance(batch, list):
        return [sample.metadata[name] for sample in batch]
    stored: Array = batch.metadata[name]
    return stored


def _objects(values: list[bytes]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _names(what: str, names: object) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Sequence | set | frozenset):
        raise invalid(f"{what} = {names!r} is {a_type(names)}; give a list of names")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str):
            raise invalid(f"{what} has {name!r}, {a_type(name)}; give a list of names")
    if len(set(listed)) < len(listed):
        raise invalid(f"{what} = {listed!r} names a column twice")
    return listed
