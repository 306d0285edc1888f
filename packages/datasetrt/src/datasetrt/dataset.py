"""An immutable view of the rows of some caches: which, in which order, with which weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from ._core import BatchPlan, CachedSample, Kept, Order, SampleBatch, Stream, View
from .audit import audit
from .checks import as_index, invalid, slice_of, whole
from .config import ReaderConfig
from .errors import DatasetRTError, InvalidInputError
from .loader import PREFETCH_BYTES
from .loading import Loadable, T_co
from .reports import AuditReport, CacheInfo, CacheReport, Problem, VerifyReport
from .sampler import Sampler, Sequential
from .table import exportable, row_numbers, weights_of
from .transform import Assembly, Drawn, assembly
from .wording import a_type, shorten, shown

if TYPE_CHECKING:
    import polars as pl
    from polars._typing import IntoExprColumn

    from .codecs import BatchCodec, Codec
    from .table import ArrowStream, IntoWeights

U = TypeVar("U")

_SEQUENTIAL = Sequential()

_PYTHON_TYPES: dict[str, type[bool | int | float | str]] = {
    "bool": bool,
    "int64": int,
    "float64": float,
    "string": str,
}

#: Samples are read in groups of about this many bytes, and of at most so many samples.
_READ_BYTES = 4 * 1024 * 1024
_READ_SAMPLES = 256

#: Orders that a view keeps: that of the training loader, and a few more.
_KEPT_ORDERS = 4


class CachedDataset(Loadable[T_co]):
    """Rows of one or several caches. Made by :func:`datasetrt.open_dataset` and :func:`datasetrt.cache`.

    ``CachedDataset[T]`` gives a ``T`` for each row: a :class:`CachedSample`, or what the transform of
    :meth:`with_transform` makes of it.

    Immutable: what selects, reorders or reweights rows gives a new view, which shares the open files. Safe
    to read from several threads, and in a forked child. Pickles as a recipe: paths and rows, no payload; the
    copy opens its files when it is first used, and refuses if a cache is not the same any more.

    Example:
        >>> import datasetrt as drt
        >>> ds = drt.testing.tiny_dataset()
        >>> len(ds), ds[0].data, ds[-1].metadata
        (10, b'sample 0', {'label': 9, 'split': 'train'})
        >>> [sample.sample_id for sample in ds[7:]]
        [7, 8, 9]
    """

    __slots__ = (
        *("__weakref__", "_config", "_frame", "_opened", "_orders", "_paths", "_recipe", "_reports"),
        *("_transform", "_work"),
    )

    def __init__(
        self,
        paths: Sequence[str],
        config: ReaderConfig,
        reports: tuple[CacheReport, ...],
        view: View | None = None,
        recipe: bytes | None = None,
        transform: Callable[[CachedSample], Any] | Codec[Any] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._config = config
        self._reports = reports
        self._opened = view
        self._recipe = recipe
        # The table, and what it shares its memory with: metadata is read from there, too, while this is here.
        self._frame: tuple[pl.DataFrame, Kept] | None = None
        self._orders: dict[Sampler, Order] = {}
        self._transform = transform
        self._work = None if transform is None else Assembly.of(transform)

    @staticmethod
    def _open(
        paths: Sequence[str], config: ReaderConfig, reports: tuple[CacheReport, ...]
    ) -> CachedDataset[CachedSample]:
        """All rows of the caches at these paths."""
        view = View.open(list(paths), max_open_shards=config.max_open_shards)
        return CachedDataset(paths, config, reports, view)

    @property
    def _view(self) -> View:
        if self._opened is None:
            assert self._recipe is not None
            self._opened = View.from_recipe(self._recipe)
        return self._opened

    def _derived(self, view: View) -> CachedDataset[T_co]:
        return CachedDataset(self._paths, self._config, self._reports, view, transform=self._transform)

    def _order(self, sampler: Sampler) -> Order:
        """The order of a sampler over these rows; a few are kept, because weights take time to bind."""
        order = self._orders.get(sampler)
        if order is None:
            order = sampler._bound(self._view)
            while len(self._orders) >= _KEPT_ORDERS:
                # Another thread may have dropped it already.
                self._orders.pop(next(iter(self._orders)), None)
            self._orders[sampler] = order
        return order

    # Samples

    def __len__(self) -> int:
        return len(self._view)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> CachedDataset[T_co]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T_co | CachedDataset[T_co]:
        """One sample, or what the transform makes of it; or a view of a slice.

        Args:
            index: Row of the active table; negative ones count from the end. Or a slice, with any step; one
                that takes no row gives an empty view, whose loaders have no batches.

        Raises:
            SampleIndexError: There is no such row.
            CorruptionError: The payload does not match its checksum; names shard, offset and sample.
            InvalidInputError: The index is no whole number, or a part of the slice is none, or its step is 0.
            Exception: Whatever the transform raises, the same object with a note that names sample and row.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> ds[3].data, ds[-1].data
            (b'sample 3', b'sample 9')
            >>> [sample.sample_id for sample in ds[::-4]]
            [9, 5, 1]
        """
        opened = self._opened
        if type(index) is int and self._work is None and opened is not None:
            # The usual case, in which the checks below cost more than reading a small sample.
            return opened.sample(index)  # type: ignore[return-value]
        if isinstance(index, slice):
            return self._derived(self._view.slice(*slice_of(index, len(self))))
        number = as_index(index)
        if number is None:
            raise invalid(
                f"index {shown(index)} is {a_type(index)}; give a whole number or a slice, "
                "or use take() for several rows and filter() for a condition"
            )
        sample = self._view.sample(number)
        return self._made(sample, number if number >= 0 else number + len(self))

    def _made(self, sample: CachedSample, row: int) -> T_co:
        """What a row gives: the sample, or what the transform makes of it."""
        made = sample if self._work is None else self._work.sample(Drawn(sample, None, row, 0))
        return cast(T_co, made)

    def __iter__(self) -> Iterator[T_co]:
        """What indexing gives for each row, in the order of the active table, read ahead by native threads.

        Example:
            >>> import datasetrt as drt
            >>> [sample.metadata["label"] for sample in drt.testing.tiny_dataset()[2:5]]
            [2, 3, 4]
        """
        stream = Stream(
            self._view,
            self._order(_SEQUENTIAL),
            BatchPlan(len(self), 0, 1, 0, 1, "keep", drop_last=False),
            epoch=0,
            steps_per_read=self._samples_per_read,
            threads=None,
            prefetch_batches=2,
            prefetch_bytes=PREFETCH_BYTES,
            on_corrupt="raise",
        )
        try:
            rows = count()
            while (found := stream.next_samples()) is not None:
                yield from map(self._made, found[0], rows)
        finally:
            stream.close()

    @property
    def _samples_per_read(self) -> int:
        caches = self._view.caches
        payload_bytes = sum(cache["payload_bytes"] for cache in caches)
        mean = payload_bytes // sum(cache["sample_count"] for cache in caches)
        return max(1, min(_READ_SAMPLES, _READ_BYTES // max(mean, 1)))

    def take(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> SampleBatch:
        """Read samples in the order given, as they are stored, whatever the transform.

        Args:
            indices: Rows of the active table, in any order and repeated as you like; negative ones count from
                the end. A sequence or a one-dimensional array of whole numbers: as many as the dataset has
                rows, or 2**24 if that is more.

        Returns:
            Batch with a payload and a metadata row for each index.

        Raises:
            SampleIndexError: A row does not exist; nothing is read.
            CorruptionError: A payload does not match its checksum; names shard, offset and sample.
            InvalidInputError: The indices are no whole numbers, or too many at once.

        Example:
            >>> import datasetrt as drt
            >>> batch = drt.testing.tiny_dataset().take([5, 3, 3])
            >>> [bytes(payload) for payload in batch.payloads], batch.metadata["label"].tolist()
            ([b'sample 5', b'sample 3', b'sample 3'], [5, 3, 3])
        """
        return self._view.take(row_numbers(indices, len(self)))

    # The active table

    @property
    def metadata(self) -> pl.DataFrame:
        """The active table: ``cache_id``, ``sample_id``, the stored columns, ``weight``, extra columns.

        Built when first asked for, without opening a shard. The frame is the caller's own, to be edited in
        place or not; the dataset stays as it is. Polars' threads do not survive ``fork``: use this in the
        process that edits the table, not in forked workers.

        Example:
            >>> import datasetrt as drt
            >>> drt.testing.tiny_dataset().metadata.columns
            ['cache_id', 'sample_id', 'label', 'split', 'weight']
        """
        if self._frame is None:
            import polars as pl

            stream, kept = self._view.table()
            try:
                self._frame = pl.DataFrame(stream), kept
            except pl.exceptions.PolarsError:
                kept.check()
                raise
        # A clone shares the columns, and polars copies a column before it changes it in place.
        return self._frame[0].clone()

    def with_metadata(self, frame: pl.DataFrame | ArrowStream) -> CachedDataset[T_co]:
        """A view with the rows of an edited table: left out, reordered, repeated or reweighted.

        Args:
            frame: :attr:`metadata`, edited, of at least one row: also that of an empty view, such as
                ``ds[:0]``, is refused (kind ``empty``), because a table without rows is a mistake in most
                cases. ``cache_id``, ``sample_id`` and all stored columns are there with
                their types and values; ``weight`` is finite and above 0, or absent for 1.0; other columns
                are kept, and delivered with samples if they hold bools, numbers or text. Those of other types
                (such as Date, Datetime, Duration, Decimal, List, Struct or Binary) stay in :attr:`metadata`
                alone: cast to numbers or text what samples shall have. A column of the type Null, which has
                no value, becomes one of String, or of its stored type; one of Arrow's dictionaries, but for
                text, one of their values. Polars' Int128, UInt128, Object, and Null within other types are
                refused, and so are unsigned integers above 2**63 - 1 and Arrow types that Polars lacks or
                misreads in a stream: decimals but Decimal128, intervals, unions, list views and run ends. A
                table of another library is taken through its Arrow stream, which Arrow cannot always read
                where nested columns are slices: give those as ``pl.DataFrame(table)``. Whether Polars knows
                its time zones, Polars says when :attr:`metadata` is asked for.

        Raises:
            InvalidInputError: It is no table, breaks a rule, or has no row; names row, column and value.
            CodecError: It brings rows of a cache whose codec is not that of :attr:`transform`; names both.
            Exception: Whatever the table's own ``__arrow_c_stream__`` raises.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> import polars as pl
            >>> hard = ds.with_metadata(ds.metadata.reverse().with_columns(note=pl.lit("hard")))
            >>> hard[0].metadata["label"], hard.metadata.columns[-1]
            (9, 'note')
        """
        stream = exportable(frame, self._view.schema)
        try:
            derived = self._derived(self._view.with_table(stream))
        except DatasetRTError:
            raise
        except (TypeError, ValueError) as error:
            # No code of the user runs in there: these say that Arrow cannot take the table.
            reason = shorten(str(error), 300)
            raise invalid(
                f"the metadata table, {a_type(frame)}, cannot be read as an Arrow table ({reason}); "
                "give a Polars DataFrame"
            ) from error
        if self._transform is not None:
            # Rows of other caches may have come in.
            assembly(derived, self._transform, None, seeded=False)
        return derived

    def filter(
        self,
        *predicates: IntoExprColumn | Iterable[IntoExprColumn] | bool | list[bool] | npt.NDArray[np.bool_],
        **constraints: Any,
    ) -> CachedDataset[T_co]:
        """A view of the rows for which everything holds, at least one. Opens no shard.

        Args:
            predicates: As for ``polars.DataFrame.filter``, on the columns of :attr:`metadata`.
            constraints: Column names and the value they shall have.

        Raises:
            InvalidInputError: No row is left.
            Exception: Whatever Polars, or a function in an expression, raises.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> import polars as pl
            >>> len(ds.filter(pl.col("label") < 4)), len(ds.filter(split="val"))
            (4, 2)
        """
        import polars as pl

        # Polars itself filters the very table that users see: what an expression may mean, it means here.
        table = self.metadata
        rows = table.lazy()
        # Taken twice, where the first time fails.
        given = [list(some) if isinstance(some, Iterator) else some for some in predicates]
        # No condition keeps every row; Polars 1.22 refuses it.
        if predicates or constraints:
            rows = rows.filter(*given, **constraints)
        # What follows from a row's place need not be handed back; lazily, Polars does not even copy it.
        implied = set(self._view.implied_columns)
        try:
            kept = rows.select([name for name in table.columns if name not in implied]).collect()
        except pl.exceptions.PolarsError:
            # Without a word on the selection, which is none of the caller's.
            table.filter(*given, **constraints)
            raise
        if kept.is_empty():
            raise InvalidInputError(
                f"the filter leaves none of {len(self)} rows; loosen it, or look at ds.metadata", kind="empty"
            )
        return self._derived(self._view.with_rows(kept))

    def head(self, n: int = 5) -> CachedDataset[T_co]:
        """A view of the first ``n`` rows, or of all if there are fewer.

        Args:
            n: How many; 0 or more. The view of 0 rows is empty, and its loaders have no batches.

        Example:
            >>> import datasetrt as drt
            >>> len(drt.testing.tiny_dataset().head(3)), len(drt.testing.tiny_dataset().head(300))
            (3, 10)
        """
        return self[: whole("n", n, 0)]

    def with_weights(self, weights: IntoWeights) -> CachedDataset[T_co]:
        """A view of the same rows with these weights, for :class:`Weighted`.

        Args:
            weights: A Polars expression on :attr:`metadata` or the name of a column; or one number a row, as
                a series, an array or a list, but no iterator. Finite and above 0.

        Raises:
            InvalidInputError: A weight is missing, not finite or not above 0, or their number is wrong.
            Exception: Whatever Polars, or a function in an expression, raises.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> import polars as pl
            >>> rare = pl.when(pl.col("split") == "val").then(4.0).otherwise(1.0)
            >>> ds.with_weights(rare).metadata["weight"].to_list()[:3]
            [4.0, 1.0, 1.0]
        """
        return self._derived(self._view.with_weights(weights_of(self, weights)))

    # What a row gives

    @overload
    def with_transform(self, transform: None) -> CachedDataset[CachedSample]: ...
    # What a codec makes of a whole batch is its own choice.
    @overload
    def with_transform(self, transform: BatchCodec[Any]) -> CachedDataset[Any]: ...
    # Its loader gives lists, and that of a CachedDataset[CachedSample] gives SampleBatch.
    @overload
    def with_transform(self, transform: Callable[[CachedSample], CachedSample]) -> CachedDataset[Any]: ...
    @overload
    def with_transform(self, transform: Callable[[CachedSample], U] | Codec[U]) -> CachedDataset[U]: ...
    def with_transform(
        self, transform: Callable[[CachedSample], Any] | Codec[Any] | None
    ) -> CachedDataset[Any]:
        """A view of the same rows that gives ``transform(sample)`` for each.

        Indexing, iterating, and loaders without a transform of their own give it; views of the view keep it,
        and it pickles with them if it can be pickled itself. All else is as it was: rows, weights, metadata,
        fingerprint, saved states, :meth:`take` and :meth:`verify`.

        Args:
            transform: A function of a :class:`CachedSample`, called in the thread that asks; or a codec,
                which decodes the payload. It takes the place of one that is there; None removes it.

        Raises:
            InvalidInputError: It is neither a function nor a codec.
            CodecError: The payloads were packed by another codec; names both.

        Example:
            >>> import datasetrt as drt
            >>> labels = drt.testing.tiny_dataset().with_transform(lambda sample: sample.metadata["label"])
            >>> labels[3], list(labels[:3]), list(labels.filter(split="val").loader(batch_size=2))
            (3, [0, 1, 2], [[0, 5]])
            >>> labels.with_transform(None)[3].data
            b'sample 3'
        """
        if transform is self._transform:
            return self
        if transform is not None:
            assembly(self, transform, None, seeded=False)
        recipe = self._recipe if self._opened is None else None
        derived: CachedDataset[Any] = CachedDataset(
            self._paths, self._config, self._reports, self._opened, recipe, transform
        )
        # Rows and weights are the same, and both take time to make.
        derived._orders, derived._frame = self._orders, self._frame
        return derived

    @property
    def transform(self) -> Callable[[CachedSample], T_co] | Codec[T_co] | None:
        """What :meth:`with_transform` was given: a function of a sample, or a codec; None without one.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> ds.transform is None, ds.with_transform(drt.codecs.Json())[:3].transform
            (True, Json())
        """
        return self._transform

    # Provenance

    @property
    def caches(self) -> tuple[CacheInfo, ...]:
        """The caches that were opened, as their manifests describe them; a view may have no row of some.

        Example:
            >>> import datasetrt as drt
            >>> [(cache.name, cache.sample_count) for cache in drt.testing.tiny_dataset().caches]
            [('tiny', 10)]
        """
        return tuple(map(CacheInfo._of, self._view.caches))

    @property
    def schema(self) -> dict[str, type[bool | int | float | str]]:
        """The stored columns and their types, as a source declares them.

        Example:
            >>> import datasetrt as drt
            >>> drt.testing.tiny_dataset().schema
            {'label': <class 'int'>, 'split': <class 'str'>}
        """
        return {name: _PYTHON_TYPES[kind] for name, kind in self._view.schema}

    @property
    def fingerprint(self) -> str:
        """A digest of what is delivered, to which a saved state belongs.

        It covers the content, the rows and their order, the weights, and added columns of the types that are
        delivered with samples.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> ds.fingerprint == ds[:].fingerprint, ds.fingerprint == ds[::-1].fingerprint
            (True, False)
        """
        return self._view.fingerprint

    @property
    def codec(self) -> str | None:
        """Name of the codec that packed the payloads of these rows, if their sources named one and the same.

        Example:
            >>> import datasetrt as drt
            >>> drt.testing.tiny_dataset().codec is None
            True
        """
        packed = self._view.codecs
        return packed[0] if len(packed) == 1 else None

    @property
    def _codecs(self) -> list[str]:
        """Every codec that packed rows of this view."""
        return [name for name in self._view.codecs if name is not None]

    @property
    def config(self) -> ReaderConfig:
        """How the caches were opened.

        Example:
            >>> import datasetrt as drt
            >>> drt.testing.tiny_dataset().config
            ReaderConfig(max_open_shards=128)
        """
        return self._config

    @property
    def reports(self) -> tuple[CacheReport, ...]:
        """What :func:`datasetrt.cache` did for each source; empty for :func:`datasetrt.open_dataset`.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> [(report.name, report.reused) for report in ds.reports]
            [('tiny', False)]
            >>> drt.open_dataset(ds.caches[0].path).reports
            ()
        """
        return self._reports

    def verify(self, *, on_progress: Callable[[int, int], None] | None = None) -> VerifyReport:
        """Read every byte of the caches and report everything that is wrong.

        Whole caches are read, whichever rows this view has. Nothing is decoded. Of a cache with more than
        10,000 problems the last one says how many there are besides.

        Args:
            on_progress: Called now and then with the bytes that were checked and those there are; what it
                raises ends the check.

        Raises:
            Exception: Whatever ``on_progress`` raises.

        Example:
            >>> import datasetrt as drt
            >>> drt.testing.tiny_dataset().verify().ok
            True
        """
        problems = tuple(Problem(**problem) for problem in self._view.verify(on_progress))
        caches = self._view.caches
        return VerifyReport(problems, len(caches), sum(cache["sample_count"] for cache in caches))

    def audit(self, *, on_progress: Callable[[int, int], None] | None = None) -> AuditReport:
        """List the globals that the pickled payloads would import, executing nothing.

        Reads each row of this view and follows its opcodes; a pickle of more than 5,000,000 opcodes is a
        problem, not a wait. Payloads of `Pickle`, `PickleOOB` and `Dill` are pickles, and those of a cache
        that names no codec of ours where they look like one. A pickle inside a byte string is not looked
        into: what loads it, such as ``pickle.loads``, is among the globals. What code objects in dill's
        payloads would import is not listed either.

        Args:
            on_progress: Called now and then with the samples that were looked at and those there are; what it
                raises ends the audit.

        Raises:
            Exception: Whatever ``on_progress`` raises.

        Example:
            >>> import collections, datasetrt as drt, tempfile
            >>> codec = drt.codecs.Pickle(trust=True)
            >>> pack = lambda i: drt.CacheInput(codec.dumps(collections.Counter([i])), {})
            >>> with tempfile.TemporaryDirectory() as root:
            ...     ds = drt.cache(drt.MapSource("counters", range(3), pack, codec=codec), root)
            ...     print(ds.audit())
            3 of 3 samples are pickles: they name 1 global
              collections.Counter: 3 samples, such as 0
        """
        return audit(self._view, self._samples_per_read, on_progress)

    def __reduce__(self) -> tuple[Any, ...]:
        recipe = self._recipe if self._opened is None else self._opened.recipe()
        return CachedDataset, (self._paths, self._config, self._reports, None, recipe, self._transform)

    def __copy__(self) -> CachedDataset[T_co]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedDataset[T_co]:
        return self

    def __repr__(self) -> str:
        places = ", ".join(repr(Path(path).name) for path in self._paths)
        if self._opened is None:
            return f"CachedDataset(of {places}, not opened yet)"
        columns = ", ".join(f"{name}: {kind.__name__}" for name, kind in self.schema.items())
        name = getattr(self._transform, "__qualname__", None) or shown(self._transform)
        ending = "" if self._transform is None else f", transform {name}"
        return f"CachedDataset({len(self):,} samples of {places}, columns {{{columns}}}{ending})"
