"""Batches of tensors from native threads of this process: no workers, no copies between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeAlias

import datasetrt as drt

from ._checks import choice, column_name, count, flag, invalid
from ._decode import Decode, Decoding, Source, decoding, opened
from ._finish import Finish
from ._marked import UNMARKED, Marks
from ._order import Weights, ordered
from ._pinning import can_pin
from ._shards import Resolved, Sharding, resolve
from ._tensors import Float64

if TYPE_CHECKING:
    from typing_extensions import Buffer

Tail: TypeAlias = Literal["drop", "pad", "short"]

_PREFETCH_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class _Assembler:
    """Looks like a codec to the core's loader, which then hands it whole batches and keeps the books:
    a batch counts once this is done with it, and is tried again after an error.
    """

    name: str
    dataset: drt.CachedDataset
    order: drt.Sampler
    decoding: Decoding
    finish: Finish

    @property
    def column_widths(self) -> Sequence[int] | None:
        """Those of the codec: the core reads batches in the columns that it cuts."""
        return getattr(self.decoding.decode, "column_widths", None)

    def loads_batch(self, batch: drt.SampleBatch, /) -> Any:
        marks = UNMARKED
        if self.decoding.seeded:
            marks = Marks(self.order.transform_seeds(self.dataset, batch.positions, batch.epoch).tolist())
        return self.finish(self.decoding.batch(batch, marks), batch)

    def loads(self, _buffer: Buffer, /) -> NoReturn:
        raise AssertionError("batches are decoded at once")

    def dumps(self, _obj: object, /) -> NoReturn:
        raise AssertionError("nothing is written here")


class NativeLoader:
    """Batches of tensors, epoch after epoch, read ahead by native threads of this process.

    The fast way where decoding is cheap: with a codec that decodes batches, such as
    `datasetrt.codecs.Record`, or with payloads of one size, no Python runs for single samples, and tensors
    share the memory that the codec made, without a copy. Each batch has its own, writable memory.

    Each loop over it is the next epoch, also after a loop that was left early, and all ranks get equally
    many batches. The state is that of the core's loader: it counts what the loop was given, is the same on
    all ranks, and may be loaded with another world size or by another framework.

    Args:
        source: A dataset, or the path of a cache.
        batch_size: Samples in a batch of this rank.
        decode: A codec, or a function of a `CachedSample`, called in the loop's thread; None takes the
            dataset's transform. Without either, a batch has the payloads as ``"data"``, uint8 of shape
            (n, bytes), if all have one size.
        seeded: Call ``decode(sample, seed)``, with the seeds of the core's loader: functions of the sampler's
            seed, the epoch and the position alone.
        columns: Metadata columns to put into each batch as tensors: int64, float64 or bool, of shape (n,).
        include_index: The name under which the row numbers are put there too.
        sampler: The order, one of `datasetrt`'s; in place of the next three.
        shuffle: True is ``Shuffle(seed)``, False is ``Sequential()``.
        seed: In ``[0, 2**64)``.
        weights: Draw by weight, ``Weighted(seed)``: True for the weight column; or one number a row, or what
            else ``dataset.with_weights`` takes.
        sharding: Which part of the data this process gets: ``"auto"`` asks ``torch.distributed``, ``"none"``
            is all of it, or a `ShardSpec`.
        tail: What becomes of a last global batch that is not full. ``"drop"`` leaves it out. ``"pad"`` fills
            it up with samples from the start of the epoch, so that all batches have one shape; a rank may get
            nothing else, so divide losses by the real samples of all ranks. ``"short"`` shares it: all ranks
            get equally many samples, the last ones again from the start of the epoch. None is ``"drop"`` for
            a random order, where other samples are left out in each epoch, and ``"short"`` for
            ``Sequential``.
        mask_key: The name of the mask, bool of shape (n,), which is False where a row only repeats another.
            In every batch with ``"pad"``, and with ``"short"`` on several ranks.
        substituted_key: The name of a bool column that is True where a sample stands in for a damaged one;
            None leaves it out.
        prefetch_batches: Batches read ahead; 0 reads each when it is asked for.
        prefetch_bytes: Threads begin no further batch while so many bytes are ready, whatever the number of
            batches; the batch that each is at comes on top.
        threads: Native threads that read; None takes what the process may use.
        pin_memory: Put tensors into page-locked memory; a warning where there is no accelerator.
        as_tensordict: Give each batch as a ``TensorDict``; needs tensordict.
        float64: ``"float32"`` narrows float64 tensors.
        fill: What stands for missing values, by column.
        on_corrupt: As in ``dataset.loader``.

    Raises:
        InvalidInputError: An argument breaks a rule; a column is not there or cannot be a tensor; an epoch
            has no batch; or who gets which data is ambiguous.
        CodecError: The payloads were packed by another codec.
        InstallationError: ``as_tensordict=True`` without tensordict, or with one that is broken or too old.

    Example:
        >>> import datasetrt as drt, datasetrt_torch as drtt
        >>> ds = drt.testing.tiny_dataset()
        >>> loader = drtt.NativeLoader(ds, batch_size=4, columns=["label"], shuffle=False)
        >>> for batch in loader:
        ...     print(batch["data"].shape, batch["label"])
        torch.Size([4, 8]) tensor([0, 1, 2, 3])
        torch.Size([4, 8]) tensor([4, 5, 6, 7])
        torch.Size([2, 8]) tensor([8, 9])
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        *,
        decode: Decode | None = None,
        seeded: bool = False,
        columns: Sequence[str] = (),
        include_index: str | None = None,
        sampler: drt.Sampler | None = None,
        shuffle: bool = True,
        seed: int = 0,
        weights: Weights | None = None,
        sharding: Sharding = "auto",
        tail: Tail | None = None,
        mask_key: str = "mask",
        substituted_key: str | None = None,
        prefetch_batches: int = 2,
        prefetch_bytes: int = _PREFETCH_BYTES,
        threads: int | None = None,
        pin_memory: bool = False,
        as_tensordict: bool = False,
        float64: Float64 = "keep",
        fill: Mapping[str, Any] | None = None,
        on_corrupt: Literal["raise", "substitute"] = "raise",
    ) -> None:
        batch_size = count("batch_size", batch_size)
        flag("pin_memory", pin_memory)
        flag("as_tensordict", as_tensordict)
        column_name("mask_key", mask_key)
        column_name("substituted_key", substituted_key)
        if as_tensordict:
            drt.installation.import_package(
                "tensordict", user="NativeLoader(as_tensordict=True)", at_least="0.7"
            )
        rows, decode = opened(source, decode, seeded=seeded)
        dataset, order = ordered(rows, sampler=sampler, shuffle=shuffle, seed=seed, weights=weights)
        tail = _tail_for(tail, order)
        self._sharding = _equal(resolve(sharding), tail)
        world_size = self._sharding.shard.world_size
        finish = Finish(
            mask_key=mask_key if tail == "pad" or (tail == "short" and world_size > 1) else None,
            substituted_key=substituted_key,
            as_tensordict=as_tensordict,
            pin_memory=pin_memory and can_pin(),
        )
        made = decoding(dataset, decode, columns, include_index, float64, fill, tensors=True, seeded=seeded)
        self._loader: drt.Loader[Any] = dataset.loader(
            batch_size=batch_size,
            sampler=order,
            transform=_Assembler(dataset.codec or "datasetrt-torch", dataset, order, made, finish),
            drop_last=tail == "drop",
            shard=self._sharding.shard,
            threads=threads,
            prefetch_batches=prefetch_batches,
            prefetch_bytes=prefetch_bytes,
            on_corrupt=on_corrupt,
        )
        if len(self._loader) == 0:
            raise invalid(
                f"an epoch has no batch: {len(order.indices(dataset))} samples do not fill one of "
                f"{batch_size} on {world_size} ranks, and tail='drop'; use tail='short' or 'pad'"
            )

    @property
    def dataset(self) -> drt.CachedDataset:
        """The rows that are read, without a transform.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> loader.dataset.schema
            {'label': <class 'int'>, 'split': <class 'str'>}
        """
        return self._loader.dataset

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch of this rank.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> loader.batch_size
            4
        """
        return self._loader.batch_size

    @property
    def order(self) -> drt.Sampler:
        """The order, as a sampler of the core.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> loader.order
            Shuffle(seed=7)
        """
        return self._loader.sampler

    @property
    def sampler(self) -> NativeLoader:
        """The loader itself: Lightning and others look for ``loader.sampler.set_epoch``.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> loader.sampler.set_epoch(3)
            >>> loader.epoch
            3
        """
        return self

    @property
    def batch_sampler(self) -> None:
        """None: Lightning asks whatever has a ``sampler`` for it.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> loader.batch_sampler is None
            True
        """

    @property
    def epoch(self) -> int:
        """The epoch that the state is in.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> before, batches = loader.epoch, list(loader)
            >>> before, loader.epoch
            (0, 1)
        """
        return self._loader.epoch

    @property
    def last(self) -> drt.BatchInfo | None:
        """What the batch is made of that the newest loop was handed last, as `datasetrt.Loader.last`.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, shuffle=False)
            >>> batch = next(iter(loader))
            >>> loader.last.indices.tolist()
            [0, 1, 2, 3]
        """
        return self._loader.last

    def __len__(self) -> int:
        """Batches of a whole epoch: as many on every rank, however far the run is.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> ds = drt.testing.tiny_dataset()
            >>> len(drtt.NativeLoader(ds, batch_size=4)), len(drtt.NativeLoader(ds, batch_size=4, tail="pad"))
            (2, 3)
        """
        return len(self._loader)

    def __iter__(self) -> drt.LoaderIterator[Any]:
        """Begin the next epoch, or finish the one that a loaded state is in, with the first ``next``.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> [batch["data"].shape for batch in loader]
            [torch.Size([4, 8]), torch.Size([4, 8])]
        """
        self._sharding.recheck()
        return iter(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop be this epoch.

        A loaded state that is in this epoch keeps its position; otherwise the epoch begins from its start.
        A loop that runs is not disturbed.

        Args:
            epoch: In ``[0, 2**63)``.

        Raises:
            InvalidInputError: Out of range, or no whole number.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> loader.set_epoch(3)
            >>> loader.state_dict()["epoch"]
            3
        """
        self._loader.set_epoch(epoch)

    def state_dict(self) -> drt.LoaderState:
        """Where the run is: a small dict for JSON, as of the core's loader.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4)
            >>> first = next(iter(loader))
            >>> loader.state_dict()["position"]
            4
        """
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the place that a state names: the next loop finishes its epoch.

        Everything is checked before anything changes.

        Args:
            state: That of a `NativeLoader`, an `EpochSampler` or a core loader, of any rank and world size.

        Raises:
            StateError: It is malformed, or belongs to other rows, other weights or another order.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> ds = drt.testing.tiny_dataset()
            >>> loader = drtt.NativeLoader(ds, batch_size=4, columns=["label"], shuffle=False)
            >>> loader.load_state_dict({**ds.loader().state_dict(), "position": 8})
            >>> [batch["label"].tolist() for batch in loader]
            [[8, 9]]
        """
        self._loader.load_state_dict(state)

    def stats(self) -> drt.LoaderStats:
        """Where the time of the newest loop went, as the core's loader tells it.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> batches = list(loader)
            >>> loader.stats()["samples"]
            8
        """
        return self._loader.stats()

    def close(self) -> None:
        """End the loop that runs, with its native threads; the state stays, and the next loop may begin.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> loader = drtt.NativeLoader(drt.testing.tiny_dataset(), batch_size=4, seed=7)
            >>> batches = iter(loader)
            >>> batch = next(batches)
            >>> loader.close()
            >>> list(batches), loader.state_dict()["position"]
            ([], 4)
        """
        self._loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"NativeLoader({self._loader!r})"


def _tail_for(tail: Tail | None, order: drt.Sampler) -> Tail:
    if tail is None:
        return "short" if isinstance(order, drt.Sequential) else "drop"
    choice("tail", tail, ("drop", "pad", "short"))
    return tail


def _equal(resolved: Resolved, tail: Tail) -> Resolved:
    """The same shard, with equally many batches on all ranks."""
    shard = resolved.shard
    uneven: Literal["fill", "pad"] = "fill" if tail == "pad" else "pad"
    if shard.uneven not in (None, uneven):
        raise invalid(
            f"the shard says uneven={shard.uneven!r}, but a NativeLoader gives all ranks equally many "
            "batches; leave it out, and choose tail="
        )
    return Resolved(replace(shard, uneven=uneven), resolved.found_out)
