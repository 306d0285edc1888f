"""Batches of NumPy arrays, endless or for some epochs, resumable at every step."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import datasetrt as drt

from ._decode import Columns, Decode
from ._dtypes import DtypePolicy
from ._errors import closed
from ._feed import Feed, OnCorrupt, check_count, checked_plan, names, shapes
from ._orbax import load_state, save_state
from ._order import Source, opened, ordered
from ._plan import Place, Step, Tail
from ._processes import Processes, local_batch
from ._spec import Batch, ShapeDtype, check_spec

if TYPE_CHECKING:
    from ._order import Weights


def batches(
    source: Source,
    *,
    global_batch: int,
    decode: Decode | None = None,
    seeded: bool = False,
    columns: Sequence[str] = (),
    host_columns: Sequence[str] = (),
    sampler: drt.Sampler | None = None,
    shuffle: bool = True,
    seed: int = 0,
    weights: Weights | None = None,
    num_epochs: int | None = None,
    tail: Tail = "drop",
    mask_key: str = "mask",
    substituted_key: str | None = None,
    pad_to: Mapping[str, tuple[int, ...]] | None = None,
    dtype_policy: DtypePolicy = "jax",
    process_index: int | None = None,
    process_count: int | None = None,
    prefetch: int = 2,
    threads: int | None = None,
    on_corrupt: OnCorrupt = "raise",
) -> BatchIterator:
    """Batches of NumPy arrays for this process, in the order of a sampler, epoch after epoch.

    A global batch is a slice of the order, and each process gets a contiguous part of it, so that row ``k``
    of step ``s`` is the same sample for any number of processes. All batches have the same shapes. Arrays are
    fresh, writable and 64-byte aligned, and not used again while anything refers to them.

    Needs no JAX. Where ``process_index`` is not given, JAX is asked at the first step, if the program has
    imported it.

    Args:
        source: A dataset, or the folder of a cache.
        global_batch: Samples in a step of all processes; a multiple of their number.
        decode: A codec, or a function of a `CachedSample`; gives a dict of arrays, or one array, which is
            then called ``"data"``. A codec that unpacks whole batches, such as `Record`, costs no
            Python call a sample. None takes the dataset's transform; without either, ``"data"`` is the
            payloads' bytes, uint8 of shape ``(n, size)``.
        seeded: Call ``decode(sample, seed)``, with the seeds of the core's loader: functions of the sampler's
            seed, the epoch and the position alone, whatever the number of processes.
        columns: Metadata columns to add, of numbers and without missing values.
        host_columns: Columns that stay on the host and may hold text or objects.
        sampler: The order; excludes the next three.
        shuffle: `Shuffle` if True, `Sequential` if False.
        seed: Seed of the order.
        weights: Draw by these with `Weighted`: True for the weight column; or what
            `CachedDataset.with_weights` takes.
        num_epochs: Epochs from epoch 0 on, also after a state is set; None never ends.
        tail: ``"drop"`` leaves out a last global batch that is not full; ``"pad"`` fills it up with samples
            from the start of the epoch, and adds a bool column that is False for padding.
        mask_key: Name of that column.
        substituted_key: Name of a bool column that is True where a sample stands in for a damaged one; None
            leaves it out.
        pad_to: Column to shape: arrays of samples are filled up to it with zeros.
        dtype_policy: ``"jax"`` makes 64-bit numbers 32-bit, as JAX does, but refuses values that do not fit;
            ``"keep"`` leaves them, for JAX with x64.
        process_index: This process; None asks JAX.
        process_count: Processes that share the data; None asks JAX.
        prefetch: Batches that native threads read ahead.
        threads: Native threads; None takes what the process may use.
        on_corrupt: As for `CachedDataset.loader`.

    Raises:
        InvalidInputError: An argument breaks a rule, or arguments contradict each other.
        CodecError: The payloads were packed by another codec; names both.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> ds = drt.testing.tiny_dataset()
        >>> it = drtj.batches(ds, global_batch=4, columns=["label"], shuffle=False, tail="pad", num_epochs=1)
        >>> for batch in it:
        ...     print(batch["label"], batch["mask"])
        [0 1 2 3] [ True  True  True  True]
        [4 5 6 7] [ True  True  True  True]
        [8 9 0 1] [ True  True False False]
    """
    rows, decode = opened(source, decode, seeded=seeded)
    dataset, order = ordered(rows, sampler, shuffle, seed, weights)
    work = Columns(
        decode,
        names("columns", columns),
        names("host_columns", host_columns),
        shapes(pad_to),
        dtype_policy,
        seeded,
    )
    plan = checked_plan(dataset, order, global_batch, tail)
    feed = Feed(dataset, order, plan, work, mask_key, prefetch, threads, on_corrupt, substituted_key)
    epochs = None if num_epochs is None else check_count("num_epochs", num_epochs)
    return BatchIterator(feed, Processes(process_index, process_count), epochs)


class BatchIterator(Iterator[Batch]):
    """Batches of one process, across epochs; made by :func:`batches`.

    The state counts what was handed out, not what was read ahead. It is that of datasetrt's loader: the same
    on all processes, and for any number of them, any batch size and any prefetch.

    An exception of decode leaves the iterator at the same batch, which the next call tries again. Not for
    use by several threads at once. Dropping it ends its native threads, as does :meth:`close`.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, columns=["label"], seed=7)
        >>> before = [next(it)["label"].tolist() for _ in range(2)]
        >>> state = it.get_state()
        >>> again = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, columns=["label"], seed=7)
        >>> again.set_state(state)
        >>> next(again)["label"].tolist() == next(it)["label"].tolist()
        True
    """

    def __init__(self, feed: Feed, processes: Processes, num_epochs: int | None) -> None:
        self._feed = feed
        self._processes = processes
        self._num_epochs = num_epochs
        self._place = Place(0, 0)
        self._last = Place(0, 0)
        self._spec: dict[str, ShapeDtype] | None = None
        self._stream: drt.LoaderIterator[drt.SampleBatch] | None = None
        # What is being handed out; it stays until that succeeds.
        self._pending: drt.SampleBatch | None = None
        self._shares: tuple[int, int] | None = None
        self._closed = False
        if processes.count is not None:
            local_batch(feed.plan.global_batch, processes.count)

    def __next__(self) -> Batch:
        if self._closed:
            raise closed()
        place = self._feed.plan.settled(self._place)
        if self._num_epochs is not None and place.epoch >= self._num_epochs:
            self._stop_reading()
            raise StopIteration
        if self._pending is None:
            self._pending = self._read(place)
        samples = self._pending
        batch = self._feed.finished(samples, Step(samples.epoch, samples.positions, samples.padding))
        check_spec(batch, self._known_spec(batch), f"at position {place.position} of epoch {place.epoch}")
        self._pending = None
        self._last = place
        self._place = self._feed.plan.after(place)
        if self._place.epoch != place.epoch:
            self._stop_reading()
        return batch

    def __iter__(self) -> Self:
        return self

    @property
    def global_batch(self) -> int:
        """Samples in a step of all processes.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> ds = drt.testing.tiny_dataset()
            >>> it = drtj.batches(ds, global_batch=4, process_index=0, process_count=2)
            >>> it.global_batch
            4
        """
        return self._feed.plan.global_batch

    @property
    def local_batch(self) -> int:
        """Samples in a batch of this process; asks JAX for their number if need be.

        Raises:
            ShardingError: The processes cannot share a global batch evenly.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> ds = drt.testing.tiny_dataset()
            >>> it = drtj.batches(ds, global_batch=4, process_index=0, process_count=2)
            >>> it.local_batch, len(next(it)["data"])
            (2, 2)
        """
        return local_batch(self.global_batch, self.share[1])

    @property
    def share(self) -> tuple[int, int]:
        """Which of how many contiguous parts of a global batch this is; asks JAX if need be.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> ds = drt.testing.tiny_dataset()
            >>> it = drtj.batches(ds, global_batch=4, process_index=0, process_count=2)
            >>> it.share
            (0, 2)
        """
        if self._shares is None:
            shares = self._processes.resolved()
            local_batch(self.global_batch, shares[1])
            self._shares = shares
        return self._shares

    @property
    def steps_per_epoch(self) -> int:
        """Batches of a whole epoch, the same on every process.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> ds = drt.testing.tiny_dataset()
            >>> it = drtj.batches(ds, global_batch=4, process_index=0, process_count=2)
            >>> it.steps_per_epoch
            2
        """
        return self._feed.plan.steps()

    @property
    def host_columns(self) -> tuple[str, ...]:
        """Columns that are not for devices.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, host_columns=["split"])
            >>> it.host_columns, next(it)["split"].dtype
            (('split',), dtype('O'))
        """
        return self._feed.work.host_columns

    @property
    def element_spec(self) -> dict[str, ShapeDtype]:
        """Shapes and dtypes of the batches of this process, without host columns; decodes one sample.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, columns=["label"])
            >>> it.element_spec["label"]
            ShapeDtype(shape=(4,), dtype=dtype('int32'))
        """
        if self._spec is None:
            self._spec = self._feed.spec(self.local_batch)
        return {name: spec for name, spec in self._spec.items() if name not in self.host_columns}

    @property
    def epoch(self) -> int:
        """Epoch of the batch that was handed out last.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, num_epochs=2)
            >>> [it.epoch for _ in it]
            [0, 0, 1, 1]
        """
        return self._last.epoch

    @property
    def step(self) -> int:
        """Step of that epoch, from 0, of the batch that was handed out last.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> it = drtj.batches(drt.testing.tiny_dataset(), global_batch=4, num_epochs=2)
            >>> [it.step for _ in it]
            [0, 1, 0, 1]
        """
        return self._last.position // self.global_batch

    def get_state(self) -> drt.LoaderState:
        """Where the run is, as JSON: the state of `Loader.state_dict`, which any loader of the data takes.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> ds = drt.testing.tiny_dataset()
            >>> it = drtj.batches(ds, global_batch=4, process_index=0, process_count=2)
            >>> batch = next(it)
            >>> it.get_state()["position"]
            4
        """
        return self._feed.state_at(self._place)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to the place that a state names; what was read ahead is dropped.

        Everything is checked before anything changes.

        Args:
            state: What :meth:`get_state` or `Loader.state_dict` gave, of any process, for any number of them.

        Raises:
            StateError: It is malformed, or belongs to other rows, other weights or another sampler.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> ds = drt.testing.tiny_dataset()
            >>> it = drtj.batches(ds, global_batch=2, columns=["label"], shuffle=False)
            >>> it.set_state({**ds.loader().state_dict(), "epoch": 3, "position": 8})
            >>> next(it)["label"].tolist(), it.epoch
            ([8, 9], 3)
        """
        place = self._feed.place_of(state)
        self._stop_reading()
        self._pending = None
        self._place = self._last = place

    async def save(self, directory: Any) -> Awaitable[None]:
        """Save the state with Orbax v1; process 0 writes one small file.

        The state is that of the call, also where Orbax writes in the background.

        Args:
            directory: The folder that Orbax gives.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, pathlib
            >>> import orbax.checkpoint.experimental.v1 as ocp
            >>> make = lambda: drtj.batches(drt.testing.tiny_dataset(), global_batch=4, seed=7)
            >>> it = make()
            >>> batch = next(it)
            >>> ocp.save_checkpointables(pathlib.Path("1").absolute(), {"data": it})
            >>> pathlib.Path("1/data/datasetrt.json").exists()
            True
        """
        return await save_state(self.get_state(), directory)

    async def load(self, directory: Any) -> Awaitable[None]:
        """Go to the place that Orbax v1 saved; on any number of processes.

        Args:
            directory: The folder that Orbax gives.

        Raises:
            StateError: It belongs to something else.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj, pathlib
            >>> import orbax.checkpoint.experimental.v1 as ocp
            >>> make = lambda: drtj.batches(drt.testing.tiny_dataset(), global_batch=4, seed=7)
            >>> it = make()
            >>> batch = next(it)
            >>> ocp.save_checkpointables(pathlib.Path("2").absolute(), {"data": it})
            >>> again = make()
            >>> found = ocp.load_checkpointables(pathlib.Path("2").absolute(), {"data": again})
            >>> again.get_state()["position"]
            4
        """
        return await load_state(self.set_state, directory)

    def close(self) -> None:
        """End the native threads; ``next`` raises :class:`ClosedError` from then on. Harmless when repeated.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> ds = drt.testing.tiny_dataset()
            >>> it = drtj.batches(ds, global_batch=4, process_index=0, process_count=2)
            >>> it.close()
            >>> next(it)
            Traceback (most recent call last):
            datasetrt_jax._errors.ClosedError: the iterator is closed; make another one
        """
        self._closed = True
        self._pending = None
        self._stop_reading()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"BatchIterator({self._feed.sampler}, global_batch={self.global_batch}, "
            f"epoch {self._place.epoch}, position {self._place.position})"
        )

    def _read(self, place: Place) -> drt.SampleBatch:
        if self._stream is None:
            self._stream = self._feed.stream(place, *self.share)
        return next(self._stream)

    def _known_spec(self, batch: Batch) -> dict[str, ShapeDtype]:
        # The first batch is as good as the first sample, and has been decoded already.
        if self._spec is None:
            self._spec = {name: ShapeDtype(column.shape, column.dtype) for name, column in batch.items()}
        return self._spec

    def _stop_reading(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
