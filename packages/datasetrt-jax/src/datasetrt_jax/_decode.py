"""How the samples of a batch become columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

import datasetrt as drt
from datasetrt.wording import a_type, note

from ._arrays import aligned, aligned_empty
from ._dtypes import DtypePolicy, check_numeric, narrowed
from ._errors import StaticShapeError, invalid
from ._spec import Batch

#: A codec, or a function of a sample (and a seed, where ``seeded``) that returns a dict of arrays (or one
#: array, which is called "data").
Decode: TypeAlias = drt.codecs.Codec[Any] | Callable[..., Any]

#: The name of what has none: an array that decode returns, or payloads that are not decoded.
DATA = "data"


@dataclass(frozen=True)
class Columns:
    """Makes columns of samples.

    Args:
        decode: How a payload is unpacked; None gives its bytes.
        columns: Metadata columns that become part of the batch.
        host_columns: Columns, of metadata or from decode, that are not for devices and may hold anything.
        pad_to: Shapes to which arrays of a sample are filled up with zeros.
        policy: ``"jax"`` for 32 bits where values fit; ``"keep"`` for the dtypes as they are.
        seeded: Whether ``decode`` takes a seed.
    """

    decode: Decode | None
    columns: tuple[str, ...] = ()
    host_columns: tuple[str, ...] = ()
    pad_to: Mapping[str, tuple[int, ...]] | None = None
    policy: DtypePolicy = "jax"
    seeded: bool = False

    def __call__(self, batch: drt.SampleBatch, seeds: Sequence[int] | None = None) -> Batch:
        """The columns of a batch: numbers of one shape a column, aligned and writable."""
        found = self._decoded(batch, seeds)
        for name in self.pad_to or {}:
            if name not in found:
                raise invalid(
                    f"pad_to names {name!r}, which decode does not return; it returns {list(found)}"
                )
        for name in self.columns:
            if name in found:
                raise invalid(f"column {name!r} comes from decode and from the metadata; rename one of them")
            found[name] = _stored(name, batch)
        for name in self.host_columns:
            if name not in found:
                found[name] = stored_column(name, batch.metadata)
        return {name: self._settled(name, column, batch) for name, column in found.items()}

    def _decoded(self, batch: drt.SampleBatch, seeds: Sequence[int] | None) -> Batch:
        decode = self.decode
        if decode is None:
            return {DATA: _bytes_of(batch)}
        if isinstance(decode, drt.codecs.BatchCodec) and not self.pad_to:
            return self._whole(_explained(batch, decode.loads_batch), batch)
        if isinstance(decode, drt.codecs.Codec):
            return self._stacked(_each(decode.loads, batch.payloads, batch), batch)
        return self._stacked(_each(decode, batch, batch, seeds), batch)

    def _whole(self, made: Any, batch: drt.SampleBatch) -> Batch:
        """The columns of what a codec made of all samples at once, no two of which share memory."""
        if isinstance(made, list):
            return self._stacked(made, batch)
        columns: Batch = {}
        for name, values in (made if isinstance(made, Mapping) else {DATA: made}).items():
            held = _held(values) if name in self.host_columns else _array(name, values)
            if held.ndim == 0:
                raise invalid(
                    f"column {name!r} is {a_type(values)} for {len(batch)} samples; let the codec "
                    "give an array of one row a sample"
                )
            shared = any(np.may_share_memory(held, other) for other in columns.values())
            columns[name] = held.copy() if shared or not held.flags.writeable else held
        return columns

    def _stacked(self, values: Sequence[Any], batch: drt.SampleBatch) -> Batch:
        for row, value in enumerate(values):
            if isinstance(value, tuple):
                # NumPy would make one array of its parts.
                raise invalid(
                    f"decode returned a tuple of {len(value)} for {sample_name(batch, row)}; return a dict, "
                    'such as {"image": …, "label": …}, or one array'
                )
        records = [value if isinstance(value, Mapping) else {DATA: value} for value in values]
        for row, record in enumerate(records):
            if record.keys() != records[0].keys():
                raise StaticShapeError(
                    f"decode returned {list(record)} for {sample_name(batch, row)}, but "
                    f"{list(records[0])} for {sample_name(batch, 0)}; return the same keys for every sample"
                )
        return {name: self._column(name, [record[name] for record in records], batch) for name in records[0]}

    def _column(self, name: str, values: list[Any], batch: drt.SampleBatch) -> npt.NDArray[Any]:
        if name in self.host_columns:
            kept = np.empty(len(values), object)
            kept[:] = values
            return kept
        arrays = [_array(name, value) for value in values]
        shape = (self.pad_to or {}).get(name)
        if shape is not None:
            arrays = [_filled(name, array, shape, batch, row) for row, array in enumerate(arrays)]
        for row, array in enumerate(arrays):
            _check_alike(name, array, arrays[0], batch, row)
        check_numeric(name, arrays[0])
        return np.stack(arrays, out=aligned_empty((len(arrays), *arrays[0].shape), arrays[0].dtype))

    def _settled(self, name: str, column: npt.NDArray[Any], batch: drt.SampleBatch) -> npt.NDArray[Any]:
        if name in self.host_columns:
            return column
        check_numeric(name, column)
        if self.policy == "keep":
            return aligned(column)
        return narrowed(name, column, lambda row: sample_name(batch, row))


@dataclass(frozen=True)
class InColumns:
    """A codec to the core's loader, which then reads batches in the columns that ``codec`` cuts, and hands
    them out as they are.
    """

    codec: drt.codecs.BatchCodec[Any]

    @property
    def name(self) -> str:
        return self.codec.name

    @property
    def column_widths(self) -> Sequence[int] | None:
        return getattr(self.codec, "column_widths", None)

    def loads_batch(self, batch: drt.SampleBatch, /) -> drt.SampleBatch:
        return batch

    def loads(self, _buffer: object, /) -> NoReturn:
        raise AssertionError("batches are not taken apart")

    def dumps(self, _obj: object, /) -> NoReturn:
        raise AssertionError("nothing is written here")


def check_decode(dataset: drt.CachedDataset, decode: object) -> None:
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
        drt.codecs.check(dataset, decode)
    elif decode is not None and not callable(decode):
        raise invalid(f"decode = {decode!r} is neither a codec nor a function of a sample")


def sample_name(batch: drt.SampleBatch, row: int) -> str:
    """A sample as errors name it."""
    return f"sample {batch.sample_ids[row]} of cache {batch.cache_ids[row]}"


def decoded_sample(decode: Decode, sample: drt.CachedSample) -> Any:
    """One sample, unpacked; what decode raises says which sample that was."""
    try:
        if isinstance(decode, drt.codecs.Codec):
            # Arrays that the codec makes of it are writable then.
            return decode.loads(bytearray(sample.data))
        return decode(sample)
    except StopIteration as error:
        raise _stopped(f"sample {sample.sample_id} of cache {sample.cache_id}") from error
    except Exception as error:
        note(error, f"while decoding sample {sample.sample_id} of cache {sample.cache_id}")
        raise


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    """A value as an array.

    Raises:
        InvalidInputError: It has missing values, or is made of lists of different lengths; names the column.
    """
    if not isinstance(name, str):
        raise invalid(f"decode returned the key {name!r}, {a_type(name)}; name columns by str")
    if isinstance(value, np.ma.MaskedArray):
        raise invalid(f"column {name!r} has missing values; let decode give filled(...) arrays")
    try:
        return np.asarray(value)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise invalid(
            f"column {name!r} is {a_type(value)} that is no array ({reason}); let decode return one"
        ) from error


def _held(values: Any) -> npt.NDArray[Any]:
    """What stays on the host: arrays as they are, of anything else an array of objects."""
    if hasattr(values, "__array__"):
        return np.asarray(values)
    listed = list(values) if isinstance(values, Sequence) else [values]
    held = np.empty(len(listed), object)
    held[:] = listed
    return held


def _each(
    function: Callable[..., Any], items: Any, batch: drt.SampleBatch, seeds: Sequence[int] | None = None
) -> list[Any]:
    """Call a function of each sample (and its seed); what it raises says which sample that was."""
    results: list[Any] = []
    try:
        for at, item in enumerate(items):
            results.append(function(item) if seeds is None else function(item, seeds[at]))
    except StopIteration as error:
        raise _stopped(sample_name(batch, len(results))) from error
    except Exception as error:
        note(error, f"while decoding {sample_name(batch, len(results))}")
        raise
    return results


def _explained(batch: drt.SampleBatch, function: Callable[[drt.SampleBatch], Any]) -> Any:
    """Call a function of the batch; what it raises says which batch that was."""
    place = f"a batch of {len(batch)} samples, the first being {sample_name(batch, 0)}"
    try:
        return function(batch)
    except StopIteration as error:
        raise _stopped(place) from error
    except Exception as error:
        note(error, f"while decoding {place}")
        raise


def _stopped(what: str) -> RuntimeError:
    # To the loop around us StopIteration would say that the data is over.
    return RuntimeError(f"StopIteration was raised while decoding {what}")


def stored_column(name: str, stored: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """A metadata column.

    Raises:
        InvalidInputError: There is none of that name; lists those that are there.
    """
    column = stored.get(name)
    if column is None:
        raise invalid(f"the metadata has no column {name!r}; it has {', '.join(sorted(stored)) or 'none'}")
    return column


def _stored(name: str, batch: drt.SampleBatch) -> npt.NDArray[Any]:
    """A metadata column without missing values."""
    column = stored_column(name, batch.metadata)
    if isinstance(column, np.ma.MaskedArray):
        missing = np.flatnonzero(np.ma.getmaskarray(column))
        if len(missing):
            raise invalid(
                f"column {name!r} has no value in {sample_name(batch, int(missing[0]))}; filter such rows "
                "out, or let decode return a number for them"
            )
        return column.data
    return column


def _bytes_of(batch: drt.SampleBatch) -> npt.NDArray[np.uint8]:
    """Payloads of one size as rows of bytes, without a copy."""
    sizes = batch.lengths
    other = np.flatnonzero(sizes != sizes[0])
    if len(other):
        row = int(other[0])
        raise StaticShapeError(
            f"{sample_name(batch, row)} has {sizes[row]} bytes, but {sample_name(batch, 0)} has {sizes[0]}; "
            "give decode=, which makes arrays of one shape of them"
        )
    return batch.as_array(np.uint8, (int(sizes[0]),))


def _filled(
    name: str, array: npt.NDArray[Any], shape: tuple[int, ...], batch: drt.SampleBatch, row: int
) -> npt.NDArray[Any]:
    if array.ndim != len(shape) or any(have > room for have, room in zip(array.shape, shape, strict=True)):
        raise StaticShapeError(
            f"column {name!r} of {sample_name(batch, row)} has the shape {array.shape}, which does not fit "
            f"into pad_to={{{name!r}: {shape}}}; give a larger shape, or cut the array in decode"
        )
    filled = np.zeros(shape, array.dtype)
    filled[tuple(map(slice, array.shape))] = array
    return filled


def _check_alike(
    name: str, array: npt.NDArray[Any], first: npt.NDArray[Any], batch: drt.SampleBatch, row: int
) -> None:
    if array.shape == first.shape and array.dtype == first.dtype:
        return
    raise StaticShapeError(
        f"column {name!r} of {sample_name(batch, row)} is {array.dtype} of shape {array.shape}, but that of "
        f"{sample_name(batch, 0)} is {first.dtype} of shape {first.shape}; let decode return one of the two, "
        f"or give pad_to={{{name!r}: …}} for arrays of different lengths"
    )
