"""What a user gives to be written: named iterables of samples, and a function mapped over items."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from ._core import check_source
from .checks import COUNTABLE, invalid, nameable, unicode_text
from .errors import DatasetRTError, InvalidInputError
from .wording import a_type, note, shown

if TYPE_CHECKING:
    import polars as pl
    from typing_extensions import Buffer

    # NumPy declares the buffer protocol for Python 3.12 and later only.
    Data: TypeAlias = Buffer | np.ndarray[Any, np.dtype[Any]]
    ColumnType: TypeAlias = type[bool | int | float | str | pl.DataType] | pl.DataType
else:
    # Python 3.11 has no name for "any buffer", and importing Polars for an annotation would be slow.
    Data = ColumnType = Any

#: What a metadata field holds. NumPy scalars are stored as the Python value they equal.
MetadataValue: TypeAlias = (
    bool | int | float | str | np.bool_ | np.integer[Any] | np.floating[Any] | np.str_ | None
)

_log = logging.getLogger("datasetrt")

ItemT = TypeVar("ItemT")
ItemT_co = TypeVar("ItemT_co", covariant=True)

_PYTHON_TYPES: dict[object, str] = {bool: "bool", int: "int64", float: "float64", str: "string"}
_POLARS_TYPES = {"Boolean": "bool", "Int64": "int64", "Float64": "float64", "String": "string"}


class CacheInput(NamedTuple):
    """One sample to be stored: packed bytes, and the values of its metadata columns.

    Args:
        data: The payload: bytes, bytearray, memoryview or any C-contiguous buffer, such as a NumPy
            array. It is copied before the source is asked for the next sample. May be empty.
        metadata: Column name to value. Every sample of a source has the same names; None where a
            sample has no value. May be empty, if it is for all samples.

    Example:
        >>> CacheInput(b"packed", {"label": 3, "split": "train"}).metadata["label"]
        3
    """

    data: Data
    metadata: Mapping[str, MetadataValue]


class CacheSource(Protocol):
    """A named iterable of samples: what :func:`datasetrt.cache` writes.

    Optional attributes: ``fingerprint`` (str of at most 4096 bytes in UTF-8: what made this data, or a
    digest of it; a cache with another one is stale,
    and an unfinished write resumes only where it agrees), ``schema`` (column name to bool, int, float,
    str or the Polars type of that meaning; without it types are inferred from the first samples),
    ``codec`` (what packed the payloads; its name is recorded), ``__len__`` (gives progress a total) and
    ``iter_from(start)`` (an iterator that begins at sample ``start``; used to resume an interrupted
    write without making the samples that are stored already).

    Example:
        >>> class Squares:
        ...     name = "squares"
        ...
        ...     def __iter__(self):
        ...         for i in range(3):
        ...             yield CacheInput((i * i).to_bytes(8, "little"), {"i": i})
        >>> [sample.metadata["i"] for sample in Squares()]
        [0, 1, 2]
    """

    @property
    def name(self) -> str:
        """Name of the cache: one plain path segment, of at most 200 bytes in UTF-8."""

    def __iter__(self) -> Iterator[CacheInput]:
        """Begin with the first sample; the same samples in the same order each time."""


class Items(Protocol[ItemT_co]):
    """What :class:`MapSource` maps over: a list, a range, an array, or anything with these two methods."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> ItemT_co: ...


class HasName(Protocol):
    """A codec, as far as writing is concerned."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, eq=False, repr=False)
class MapSource(Generic[ItemT]):
    """A source that maps ``fn`` over ``items``, in ``WriterConfig.workers`` processes.

    The cache is byte for byte the same, whatever the number of workers: samples are stored in the
    order of the items. Iterating a MapSource yourself runs ``fn`` in this process.

    With more than one worker, items and ``fn`` are pickled: ``fn`` is a function of a module or of a
    script with a file, not a lambda. Samples come back as bytes. Workers ignore Ctrl-C; this process
    ends them at once.

    Args:
        name: Name of the cache: one plain path segment.
        items: A sequence, of which one item at a time is sent to a worker.
        fn: Turns an item into a CacheInput, an iterable of them, or None to skip the item.
        fingerprint: What made this data, for example ``"v3"`` or a digest of the inputs.
        schema: Column name to bool, int, float, str or the Polars type of that meaning.
        codec: What packed the payloads; its name is recorded in the cache.

    Raises:
        InvalidInputError: ``items`` is no sequence, or ``fn`` cannot be called.

    Example:
        >>> def load(number):
        ...     return CacheInput(bytes(number), {"n": number}) if number else None
        >>> [len(sample.data) for sample in MapSource("zeros", range(4), load)]
        [1, 2, 3]
    """

    name: str
    items: Items[ItemT]
    fn: Callable[[ItemT], CacheInput | Iterable[CacheInput] | None]
    fingerprint: str | None = field(default=None, kw_only=True)
    schema: Mapping[str, ColumnType] | None = field(default=None, kw_only=True)
    codec: HasName | str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.items, str | bytes | Mapping) or not (
            hasattr(self.items, "__len__") and hasattr(self.items, "__getitem__")
        ):
            raise invalid(
                f"MapSource items is {a_type(self.items)}, which is not a sequence of items; "
                "give a list, such as list(items)"
            )
        if not callable(self.fn):
            raise invalid(
                f"MapSource fn is {shown(self.fn)}, which cannot be called; give a function of one item"
            )

    def __iter__(self) -> Iterator[CacheInput]:
        """Run ``fn`` over all items in this process.

        Example:
            >>> source = MapSource("ones", range(2), lambda i: CacheInput(b"1", {"i": i}))
            >>> [sample.metadata for sample in source]
            [{'i': 0}, {'i': 1}]
        """
        for _, sample in map_here(self, 0):
            yield sample

    def __repr__(self) -> str:
        try:
            items = f"{item_count(self)} items"
        except InvalidInputError:
            items = "items without a length"
        return f"MapSource({self.name!r}, {items}, {getattr(self.fn, '__qualname__', self.fn)})"


@dataclass(frozen=True)
class Description:
    """What a source says about itself, read and checked once."""

    name: str
    fingerprint: str | None
    codec: str | None
    schema: list[tuple[str, str]] | None
    total: int | None

    @staticmethod
    def of(source: CacheSource) -> Description:
        """Read the attributes of a source.

        Raises:
            InvalidInputError: One of them has the wrong type.
        """
        if isinstance(source, type):
            raise invalid(f"{source.__name__} is a class; give a source, such as {source.__name__}()")
        name = getattr(source, "name", None)
        if not isinstance(name, str):
            raise invalid(
                f"{type(source).__name__} has no name; a source is a named iterable of CacheInput"
                if name is None
                else f"the name of a source is {shown(name)}; give a str"
            )
        name = nameable("the name of a source", unicode_text("the name of a source", name))
        fingerprint = _text(name, "fingerprint", getattr(source, "fingerprint", None))
        codec = _codec_name(name, getattr(source, "codec", None))
        check_source(name, fingerprint=fingerprint, codec=codec)
        if not callable(getattr(source, "__iter__", None)):
            raise invalid(f"source {shown(name)} cannot be iterated; give it an __iter__ method")
        return Description(
            name=name,
            fingerprint=fingerprint,
            codec=codec,
            schema=_columns(name, getattr(source, "schema", None)),
            total=None if isinstance(source, MapSource) else _length(source),
        )


def _length(source: object) -> int | None:
    """What ``len`` says, for progress alone: one that fails, or tells nonsense, is no reason not to write."""
    try:
        length = operator.length_hint(source, -1)
    except Exception:  # noqa: BLE001 - the user's own class may fail in any way
        _log.warning("the length of a %s cannot be told, so progress has no total", type(source).__name__)
        return None
    return None if length < 0 else length


def _text(source: str, attribute: str, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return unicode_text(f"source {shown(source)}: {attribute}", value)
    raise invalid(
        f"source {shown(source)}: {attribute} is {shown(value)}, {a_type(value)}; give a str or None"
    )


def _codec_name(source: str, codec: object) -> str | None:
    if codec is None:
        return None
    name = codec if isinstance(codec, str) else getattr(codec, "name", None)
    if isinstance(name, str):
        return unicode_text(f"source {shown(source)}: codec", name)
    raise invalid(
        f"source {shown(source)}: codec is {shown(codec)}, which has no name; "
        "give a codec of datasetrt.codecs"
    )


def _columns(source: str, schema: object) -> list[tuple[str, str]] | None:
    if schema is None:
        return None
    if not isinstance(schema, Mapping):
        raise invalid(
            f"source {shown(source)}: schema is {a_type(schema)}; give a dict, such as {{'label': int}}"
        )
    return [(_column_name(source, name), _column_type(source, name, kind)) for name, kind in schema.items()]


def _column_name(source: str, name: object) -> str:
    if isinstance(name, str):
        return unicode_text(f"source {shown(source)}: schema key", name)
    raise invalid(f"source {shown(source)}: schema has the key {shown(name)}; column names are str")


def _column_type(source: str, name: str, kind: object) -> str:
    if isinstance(kind, type) and kind in _PYTHON_TYPES:
        return _PYTHON_TYPES[kind]
    cls = kind if isinstance(kind, type) else type(kind)
    if cls.__module__.partition(".")[0] == "polars" and cls.__name__ in _POLARS_TYPES:
        return _POLARS_TYPES[cls.__name__]
    raise invalid(
        f"source {shown(source)}: schema declares column {shown(name)} as {shown(kind)}; "
        "use bool, int, float, str or pl.Boolean, pl.Int64, pl.Float64, pl.String"
    )


def map_here(source: MapSource[Any], start_item: int) -> Generator[tuple[int, CacheInput]]:
    """The samples from ``start_item`` on, each with the number of its item, made in this process."""
    for index in range(start_item, item_count(source)):
        item = item_at(source, index)
        try:
            for sample in outputs_of(source.fn, item, index):
                yield index, sample
        except GeneratorExit:
            raise
        except BaseException as error:
            note(error, f"while item {index} of source {source.name!r} was being processed")
            raise


def item_count(source: MapSource[Any]) -> int:
    """How many items there are; what the sequence's own code raises comes back unchanged.

    Raises:
        InvalidInputError: It has no length, or one that is no number from 0 to 2**63 - 1.
    """
    try:
        return len(source.items)
    except StopIteration as error:
        raise RuntimeError("the length of MapSource items raised StopIteration") from error
    except (TypeError, ValueError, OverflowError) as error:
        # Python's own refusal of a length that is none; one from within __len__ has a frame of its own.
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise
        raise invalid(
            f"MapSource items is {a_type(source.items)} whose length cannot be told ({error}); give a list, "
            f"or a sequence of fewer than {COUNTABLE} items"
        ) from error


def item_at(source: MapSource[Any], index: int) -> object:
    """An item; what the sequence raises for it comes back with a note that names it."""
    try:
        return source.items[index]
    except BaseException as error:
        note(error, f"while item {index} of source {source.name!r} was being looked up")
        raise


def outputs_of(fn: Callable[[Any], object], item: object, index: int) -> Generator[CacheInput]:
    """The samples that ``fn`` makes of one item, checked for being samples.

    Raises:
        InvalidInputError: ``fn`` gave something else than samples; names the item.
    """
    try:
        result = fn(item)
    except StopIteration as error:
        # Inside a generator it would turn into an error without the item; outside it would end the data.
        raise RuntimeError(f"the function of the source raised StopIteration for item {index}") from error
    if result is None:
        return
    if isinstance(result, CacheInput):
        yield result
        return
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise _not_a_sample(result, index)
    for sample in result:
        if not isinstance(sample, CacheInput):
            raise _not_a_sample(sample, index)
        yield sample


def _not_a_sample(value: object, index: int) -> InvalidInputError:
    return invalid(
        f"the function of the source gave {a_type(value)} for item {index}; "
        "return CacheInput(data, metadata), an iterable of them, or None"
    )


def while_reading(error: BaseException, sample: int) -> BaseException:
    """What is raised where a sample's own code, such as that of a mapping, raised while it was read."""
    if isinstance(error, DatasetRTError):
        return error
    note(error, f"while sample {sample} was being read")
    if not isinstance(error, StopIteration):
        return error
    # To the loop around us it would say that the source is over.
    stopped = RuntimeError(f"StopIteration was raised by what sample {sample} is made of")
    stopped.__cause__ = error
    return stopped
