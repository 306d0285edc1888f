"""In which order rows are read: a pure function of dataset, seed, epoch and position.

The orders are computed by the native module; ``docs/sampling.md`` defines them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ._core import Order
from .checks import COUNTABLE, WORD, choice, count, flag, invalid, refuse_masked, whole, whole_numbers
from .errors import SampleIndexError
from .wording import a_type, shown

if TYPE_CHECKING:
    from ._core import View
    from .dataset import CachedDataset

SamplerState: TypeAlias = dict[str, str | int | bool | None]

Uneven: TypeAlias = Literal["pad", "drop", "keep", "fill"]

# A block is read in one go, so it has to be worth a seek: 256 samples of 12 KiB are 3 MiB. A window is what
# is mixed at a time: 64 blocks make 16,384 samples, far more than a batch, read at 64 places of the disk.
_BLOCK_SAMPLES = 256
_WINDOW_BLOCKS = 64


class Sampler(ABC):
    """An order of the rows of a dataset. Frozen, compares by value, works with any dataset.

    One of :class:`Sequential`, :class:`Shuffle`, :class:`BlockShuffle` and :class:`Weighted`.

    Example:
        >>> import datasetrt as drt
        >>> isinstance(drt.Shuffle(seed=7), drt.Sampler), drt.Shuffle(seed=7) == drt.Shuffle(seed=7)
        (True, True)
    """

    def indices(
        self, ds: CachedDataset[Any], epoch: int = 0, start: int = 0, stop: int | None = None
    ) -> npt.NDArray[np.int64]:
        """The rows at positions ``start`` to ``stop`` of an epoch.

        Costs as much as the positions asked for, whatever lies before them.

        Args:
            ds: The dataset.
            epoch: Epoch, in ``[0, 2**64)``.
            start: First position.
            stop: Position after the last one; None is the end of the epoch.

        Returns:
            Numbers of rows of the active table, int64, of length ``stop - start``.

        Raises:
            InvalidInputError: Not ``0 <= start <= stop <= length of the epoch``, or the sampler does not
                fit the dataset.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> order = drt.Shuffle(seed=7).indices(ds, epoch=3)
            >>> drt.Shuffle(seed=7).indices(ds, epoch=3, start=4, stop=6).tolist() == order[4:6].tolist()
            True
        """
        order = _order_of(ds, self)
        length = len(order)
        end = length if stop is None else whole("stop", stop, 0, length + 1)
        return order.indices(whole("epoch", epoch, 0, WORD), whole("start", start, 0, end + 1), end)

    def indices_at(
        self, ds: CachedDataset[Any], positions: npt.ArrayLike, epoch: int = 0
    ) -> npt.NDArray[np.int64]:
        """The rows at any positions of an epoch, such as those of :meth:`Loader.plan`.

        Args:
            ds: The dataset.
            positions: Integers, shape ``(n,)``, in any order.
            epoch: Epoch, in ``[0, 2**64)``.

        Returns:
            Numbers of rows of the active table, int64, shape ``(n,)``.

        Raises:
            InvalidInputError: These are no positions, or the sampler does not fit the dataset.
            SampleIndexError: The epoch has no such position.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> order = drt.Shuffle(seed=7).indices(ds)
            >>> drt.Shuffle(seed=7).indices_at(ds, [5, 0]).tolist() == [order[5], order[0]]
            True
        """
        order = _order_of(ds, self)
        return order.indices_at(whole("epoch", epoch, 0, WORD), _positions(positions, len(order)))

    def transform_seeds(
        self, ds: CachedDataset[Any], positions: npt.ArrayLike, epoch: int = 0
    ) -> npt.NDArray[np.uint64]:
        """The seeds that a loader with ``seeded=True`` gives to the transform at these positions.

        A seed is a function of (seed, epoch, position): ``docs/sampling.md`` defines it. For code that reads
        by other ways than a loader and wants the same random draws.

        Args:
            ds: The dataset.
            positions: Integers, shape ``(n,)``, in any order.
            epoch: Epoch, in ``[0, 2**64)``.

        Returns:
            uint64, shape ``(n,)``, each in ``[0, 2**63)``.

        Raises:
            InvalidInputError: These are no positions, or the sampler does not fit the dataset.
            SampleIndexError: The epoch has no such position.

        Example:
            >>> import datasetrt as drt
            >>> ds, order = drt.testing.tiny_dataset(), drt.Shuffle(seed=7)
            >>> loader = ds.loader(batch_size=10, sampler=order, seeded=True, transform=lambda _, seed: seed)
            >>> next(iter(loader)) == order.transform_seeds(ds, range(10)).tolist()
            True
        """
        order = _order_of(ds, self)
        return order.transform_seeds(whole("epoch", epoch, 0, WORD), _positions(positions, len(order)))

    def position_of(self, ds: CachedDataset[Any], row: int, epoch: int = 0) -> int:
        """The position of an epoch at which a row is read: the inverse of :meth:`indices`.

        Args:
            ds: The dataset.
            row: Number of a row of the active table.
            epoch: Epoch, in ``[0, 2**64)``.

        Raises:
            InvalidInputError: The order is no permutation (:class:`Weighted`), or there is no such row.

        Example:
            >>> import datasetrt as drt
            >>> ds = drt.testing.tiny_dataset()
            >>> order = drt.Shuffle(seed=7).indices(ds)
            >>> drt.Shuffle(seed=7).position_of(ds, row=int(order[5]))
            5
        """
        order = _order_of(ds, self)
        if not len(ds):
            raise invalid(
                f"row = {shown(row)} is not there, because the dataset has no rows; select some first"
            )
        return order.position_of(whole("row", row, 0, len(ds)), whole("epoch", epoch, 0, WORD))

    @abstractmethod
    def _state(self) -> SamplerState:
        """What a saved loader state says about the sampler: JSON, complete."""

    @abstractmethod
    def _bound(self, view: View) -> Order:
        """The order of a view's rows; called by the dataset, which keeps it."""


def _order_of(ds: CachedDataset[Any], sampler: Sampler) -> Order:
    # The class itself cannot be imported here: its module imports this one.
    if not hasattr(ds, "_order"):
        raise invalid(f"ds = {shown(ds)} is {a_type(ds)}; give a CachedDataset")
    return ds._order(sampler)


def _positions(positions: npt.ArrayLike, length: int) -> npt.NDArray[np.int64]:
    refuse_masked("positions", positions)
    if isinstance(positions, list | tuple):
        positions = whole_numbers("positions", positions, 0, length, partial(_no_position, length=length))
    try:
        found = np.asarray(positions)
    except ValueError as error:  # lists of different lengths
        raise invalid(f"positions are no array ({error}); give whole numbers, of shape (n,)") from error
    if found.ndim == 1 and found.size == 0:
        return np.empty(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise invalid(
            f"positions are {found.dtype} of shape {found.shape}; give whole numbers, of shape (n,)"
        )
    if found.min() < 0 or found.max() >= length:
        raise _no_position(int(found.min() if found.min() < 0 else found.max()), length)
    return found.astype(np.int64)


def _no_position(wrong: int, length: int) -> SampleIndexError:
    return SampleIndexError(
        f"position {shown(wrong)} is not among the {length} positions of an epoch; "
        f"{f'give whole numbers from 0 to {length - 1}' if length else 'the dataset has no rows'}",
        kind="index-out-of-range",
    )


@dataclass(frozen=True)
class Sequential(Sampler):
    """Rows as they are in the active table, the same in every epoch.

    Example:
        >>> import datasetrt as drt
        >>> drt.Sequential().indices(drt.testing.tiny_dataset(), stop=3).tolist()
        [0, 1, 2]
    """

    def _state(self) -> SamplerState:
        return {"kind": "sequential"}

    def _bound(self, view: View) -> Order:
        return Order.sequential(view)


@dataclass(frozen=True)
class Shuffle(Sampler):
    """Every row once an epoch, in random order; constant memory at any size.

    Args:
        seed: In ``[0, 2**64)``; chooses the orders of all epochs. Seed and epoch are never added, so that
            epoch 1 of seed 0 has nothing in common with epoch 0 of seed 1.

    Raises:
        InvalidInputError: The seed is out of range or no whole number.

    Example:
        >>> import datasetrt as drt
        >>> ds = drt.testing.tiny_dataset()
        >>> sorted(drt.Shuffle(seed=7).indices(ds)) == list(range(len(ds)))
        True
    """

    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", whole("seed", self.seed, 0, WORD))

    def _state(self) -> SamplerState:
        return {"kind": "shuffle", "seed": self.seed}

    def _bound(self, view: View) -> Order:
        return Order.shuffle(view, self.seed)


@dataclass(frozen=True)
class BlockShuffle(Sampler):
    """Every row once an epoch; rows that are neighbours on disk are read at about the same time.

    Blocks of consecutive rows come in random order, and samples are shuffled within windows of blocks. For
    cold disks and network storage, where :class:`Shuffle` would wait for each sample on its own.

    Args:
        seed: In ``[0, 2**64)``; chooses the orders of all epochs.
        block_samples: Consecutive rows in a block; larger blocks read more in one go.
        window_blocks: Blocks whose samples are shuffled together; larger windows mix better.

    Raises:
        InvalidInputError: A value is out of range or no whole number.

    Example:
        >>> import datasetrt as drt
        >>> ds = drt.testing.tiny_dataset()
        >>> order = drt.BlockShuffle(seed=7, block_samples=5, window_blocks=1).indices(ds)
        >>> sorted(order) == list(range(len(ds))), int(order[:5].max() - order[:5].min())
        (True, 4)
    """

    seed: int
    block_samples: int = _BLOCK_SAMPLES
    window_blocks: int = _WINDOW_BLOCKS

    def __init__(
        self, seed: int, *, block_samples: int = _BLOCK_SAMPLES, window_blocks: int = _WINDOW_BLOCKS
    ) -> None:
        object.__setattr__(self, "seed", whole("seed", seed, 0, WORD))
        object.__setattr__(self, "block_samples", whole("block_samples", block_samples, 1, WORD))
        object.__setattr__(self, "window_blocks", whole("window_blocks", window_blocks, 1, WORD))

    def _state(self) -> SamplerState:
        return {
            "kind": "block-shuffle",
            "seed": self.seed,
            "block_samples": self.block_samples,
            "window_blocks": self.window_blocks,
        }

    def _bound(self, view: View) -> Order:
        return Order.block_shuffle(view, self.seed, self.block_samples, self.window_blocks)


@dataclass(frozen=True)
class Weighted(Sampler):
    """Rows drawn at random, in proportion to the ``weight`` column of the dataset.

    Args:
        seed: In ``[0, 2**64)``; chooses the draws of all epochs.
        num_samples: Draws in an epoch; None is as many as there are rows.
        replacement: True draws each time from all rows. False takes each row at most once: the next one is
            always drawn by weight among those that are left.

    Raises:
        InvalidInputError: A value is out of range or of a wrong type; or, when it is used with a dataset,
            there are fewer rows than draws without replacement.

    Example:
        >>> import datasetrt as drt
        >>> ds = drt.testing.tiny_dataset().with_weights([1e-9] * 9 + [1.0])
        >>> drt.Weighted(seed=7, num_samples=3).indices(ds).tolist()
        [9, 9, 9]
    """

    seed: int
    num_samples: int | None = None
    replacement: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", whole("seed", self.seed, 0, WORD))
        if self.num_samples is not None:
            object.__setattr__(self, "num_samples", whole("num_samples", self.num_samples, 1, COUNTABLE))
        flag("replacement", self.replacement)

    def _state(self) -> SamplerState:
        return {
            "kind": "weighted",
            "seed": self.seed,
            "num_samples": self.num_samples,
            "replacement": self.replacement,
        }

    def _bound(self, view: View) -> Order:
        return Order.weighted(view, self.seed, self.num_samples, self.replacement)


@dataclass(frozen=True)
class Shard:
    """Which part of each global batch one of several processes takes.

    A global batch is ``world_size`` batches that lie next to each other in the order; rank ``r`` takes the
    ``r``-th. So a run saved on 8 ranks continues on 4 with no sample lost or repeated.

    Args:
        rank: This process, in ``[0, world_size)``.
        world_size: How many processes share the data.
        uneven: What becomes of a last global batch that the ranks cannot share evenly: ``"pad"`` repeats
            samples from the start of the epoch, so that all ranks get equally many; ``"fill"`` repeats so
            many that every batch is full, on one rank too, and all batches have one shape; ``"drop"`` leaves
            out the few that are too many; ``"keep"`` gives some ranks fewer, and perhaps one batch less. The
            default is ``"pad"``. With :class:`Sequential` and more than one rank, as in evaluation, it must
            be given. :attr:`SampleBatch.padding` and :attr:`Loader.last` say which samples are repeated.

    Raises:
        InvalidInputError: A value is out of range or not known.

    Example:
        >>> import datasetrt as drt
        >>> drt.Shard(rank=1, world_size=4).uneven is None
        True
    """

    rank: int = 0
    world_size: int = 1
    uneven: Uneven | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "world_size", count("world_size", self.world_size))
        object.__setattr__(self, "rank", whole("rank", self.rank, 0, self.world_size))
        if self.uneven is not None:
            choice("uneven", self.uneven, get_args(Uneven))

    def _uneven_for(self, sampler: Sampler) -> Uneven:
        """What to do with an uneven last batch in this order.

        Raises:
            InvalidInputError: It is left open where it matters.
        """
        if self.uneven is not None:
            return self.uneven
        if self.world_size > 1 and isinstance(sampler, Sequential):
            raise invalid(
                f"Shard(world_size={self.world_size}) with Sequential does not say what to do when the ranks "
                "cannot share the last batch evenly; give uneven='pad', 'fill', 'drop' or 'keep'"
            )
        return "pad"
