"""Data sources for grain: samples by row, and whole batches by step. Neither imports grain."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

import datasetrt as drt
from datasetrt.wording import shown

from ._decode import Columns, Decode, check_decode, decoded_sample
from ._dtypes import DtypePolicy
from ._errors import any_int, invalid, whole
from ._feed import Feed, check_count, checked_plan, names, shapes
from ._order import Source, opened, ordered
from ._plan import Place, Tail
from ._processes import Processes, local_batch
from ._spec import Batch

if TYPE_CHECKING:
    from ._order import Weights


class GrainSource:
    """A source of grain: one sample for each row of the dataset, for pipelines whose order grain decides.

    Safe for grain's threads, picklable, and with a ``repr`` that names the data by its fingerprint, by which
    grain recognises it when it restores. A damaged sample is an error: what is read by its row has no
    substitute. :func:`datasetrt_jax.batches` can put others in their place, and mark them.

    Args:
        source: A dataset, or the folder of a cache.
        decode: A codec, or a function of a `CachedSample`; None takes the dataset's transform, and
            without either it gives the samples themselves.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> source = drtj.GrainSource(drt.testing.tiny_dataset(), decode=lambda it: it.metadata["label"])
        >>> len(source), source[3]
        (10, 3)
    """

    def __init__(self, source: Source, *, decode: Decode | None = None) -> None:
        self._dataset, decode = opened(source, decode)
        self._decode = decode
        check_decode(self._dataset, decode)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: SupportsIndex) -> Any:
        """One sample, unpacked.

        Args:
            index: Row of the dataset; negative ones count from the end.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> drtj.GrainSource(drt.testing.tiny_dataset())[3].data
            b'sample 3'
        """
        return self._unpacked(self._dataset[any_int("index", index)])

    def _getitems(self, indices: Sequence[int]) -> list[Any]:
        # grain's name for reading several at once.
        return [self._unpacked(sample) for sample in self._dataset.take(indices)]

    def _unpacked(self, sample: drt.CachedSample) -> Any:
        return sample if self._decode is None else decoded_sample(self._decode, sample)

    def __repr__(self) -> str:
        return f"GrainSource({len(self)} samples, fingerprint {self._dataset.fingerprint})"


class GrainBatchSource:
    """A source of grain: element ``i`` is the batch of step ``i``, across epochs, in the order of a sampler.

    The batches are those of :func:`datasetrt_jax.batches`. Nothing is left for grain to shuffle, shard,
    repeat or batch: its iterator's state is a step number, which belongs to any number of processes. Its
    reading defaults are meant for samples; a batch source wants few elements ahead:

        ``grain.MapDataset.source(source).to_iter_dataset(grain.ReadOptions(num_threads=2,
        prefetch_buffer_size=2))``

    Safe for grain's threads and picklable, if decode is. Do not use it with ``mp_prefetch``: native threads
    read and check the payloads already. A damaged sample is an error, as for `GrainSource`.

    Args:
        source: A dataset, or the folder of a cache.
        global_batch: Samples in a step of all processes; a multiple of their number.
        num_epochs: Epochs, which with the rows give the source its length.
        start: Where element 0 is: a state of a loader or of another iterator; None is the beginning.
        decode: As for :func:`datasetrt_jax.batches`, and so are all others.

    Raises:
        InvalidInputError: An argument breaks a rule.
        StateError: ``start`` belongs to something else.

    Example:
        >>> import datasetrt as drt, datasetrt_jax as drtj
        >>> ds = drt.testing.tiny_dataset()
        >>> source = drtj.GrainBatchSource(ds, global_batch=4, num_epochs=3, columns=["label"], shuffle=False)
        >>> len(source), source[1]["label"], source[2]["label"]
        (6, array([4, 5, 6, 7], dtype=int32), array([0, 1, 2, 3], dtype=int32))
    """

    def __init__(
        self,
        source: Source,
        *,
        global_batch: int,
        num_epochs: int,
        start: Mapping[str, Any] | None = None,
        decode: Decode | None = None,
        seeded: bool = False,
        columns: Sequence[str] = (),
        host_columns: Sequence[str] = (),
        sampler: drt.Sampler | None = None,
        shuffle: bool = True,
        seed: int = 0,
        weights: Weights | None = None,
        tail: Tail = "drop",
        mask_key: str = "mask",
        pad_to: Mapping[str, tuple[int, ...]] | None = None,
        dtype_policy: DtypePolicy = "jax",
        process_index: int | None = None,
        process_count: int | None = None,
    ) -> None:
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
        self._feed = Feed(dataset, order, plan, work, mask_key)
        self._processes = Processes(process_index, process_count)
        self._start = plan.settled(Place(0, 0) if start is None else self._feed.place_of(start))
        epochs_left = check_count("num_epochs", num_epochs) - self._start.epoch
        before_last = plan.steps() * max(0, epochs_left - 1)
        self._length = before_last + plan.steps(self._start.position) if epochs_left > 0 else 0
        if self._length > sys.maxsize:
            raise invalid(
                f"num_epochs = {num_epochs} makes more steps than the {sys.maxsize} that a length can be; "
                "give fewer"
            )

    def __len__(self) -> int:
        return self._length

    @property
    def steps_per_epoch(self) -> int:
        """Batches of a whole epoch, the same on every process.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> source = drtj.GrainBatchSource(drt.testing.tiny_dataset(), global_batch=4, num_epochs=3)
            >>> source.steps_per_epoch
            2
        """
        return self._feed.plan.steps()

    def __getitem__(self, step: SupportsIndex) -> Batch:
        """The batch of a step, on this process; asks JAX which one that is, if need be.

        Args:
            step: In ``[0, len(self))``.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> source = drtj.GrainBatchSource(drt.testing.tiny_dataset(), global_batch=4, num_epochs=3)
            >>> source[5]["data"].shape
            (4, 8)
        """
        place = self._place(step)
        index, count = self._processes.resolved()
        local_batch(self._feed.plan.global_batch, count)
        return self._feed.finished(*self._feed.read_step(place, index, count))

    def state_at(self, step: int) -> drt.LoaderState:
        """The state of datasetrt's loader before a step: how a run leaves grain for another loader.

        Args:
            step: In ``[0, len(self)]``; what grain's iterator would read next.

        Example:
            >>> import datasetrt as drt, datasetrt_jax as drtj
            >>> source = drtj.GrainBatchSource(drt.testing.tiny_dataset(), global_batch=4, num_epochs=3)
            >>> source.state_at(3)["epoch"], source.state_at(3)["position"]
            (1, 4)
        """
        step = whole("step", step, 0, self._length + 1)
        return self._feed.state_at(self._feed.plan.place_of(step, self._start))

    def _place(self, given: SupportsIndex) -> Place:
        step = any_int("step", given)
        if not 0 <= step < self._length:
            raise drt.SampleIndexError(
                f"step {shown(step)} is out of range: the source has {self._length} steps",
                kind="index-out-of-range",
            )
        return self._feed.plan.place_of(step, self._start)

    def __repr__(self) -> str:
        plan = self._feed.plan
        return (
            f"GrainBatchSource({self._feed.sampler}, global_batch={plan.global_batch}, tail={plan.tail!r}, "
            f"start={tuple(self._start)}, {self._length} steps, fingerprint {self._feed.dataset.fingerprint})"
        )
