"""What is read for a step, and what becomes of it: the same for iterators and for random access."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

import datasetrt as drt
from datasetrt.wording import a_type, shown

from ._arrays import aligned
from ._decode import Columns, InColumns, check_decode, stored_column
from ._dtypes import DtypePolicy
from ._errors import invalid, whole
from ._plan import Place, Plan, Step, Tail, make_plan
from ._spec import Batch, ShapeDtype

#: A sample is padded to fewer numbers than that: more are a mistake, and no machine holds a batch of them.
MOST_PADDED = 2**40

OnCorrupt: TypeAlias = Literal["raise", "substitute"]

_WHOLE = drt.Shard(uneven="fill")


@dataclass(frozen=True)
class Feed:
    """Rows, their order, how it is cut, and what is made of each part; checked when it is made."""

    dataset: drt.CachedDataset
    sampler: drt.Sampler
    plan: Plan
    work: Columns
    mask_key: str
    prefetch: int = 2
    threads: int | None = None
    on_corrupt: OnCorrupt = "raise"
    substituted_key: str | None = None

    _state: drt.LoaderState = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_choice("dtype_policy", self.work.policy, get_args(DtypePolicy))
        check_decode(self.dataset, self.work.decode)
        _check_name("mask_key", self.mask_key)
        if self.substituted_key is not None:
            _check_name("substituted_key", self.substituted_key)
        _check_seeded(self.work)
        # The loader checks the rest: prefetch, threads, on_corrupt.
        loader = self._loader(self.plan.global_batch, _WHOLE)
        object.__setattr__(self, "_state", loader.state_dict())
        self._check_columns()

    def _check_columns(self) -> None:
        if not self.work.columns:
            return
        # Not the schema: with_metadata may have added columns.
        stored = self._first_sample().metadata
        for name in self.work.columns:
            self._check_delivered(name, stored)
            if stored_column(name, stored).dtype == object:
                raise invalid(
                    f"columns: {name!r} is text, which JAX does not take; give host_columns=[{name!r}]"
                )

    def _check_delivered(self, name: str, stored: Mapping[str, Any]) -> None:
        """Refuse a column of the active table whose type does not come with samples."""
        if name in stored or name in ("cache_id", "sample_id", "weight"):
            return
        dtype = self.dataset.metadata.schema.get(name)
        if dtype is not None:
            raise invalid(
                f"there is no column {name!r} to deliver: in ds.metadata it has the type {dtype}, which does "
                "not come with samples; cast it to numbers"
            )

    def _first_sample(self) -> drt.SampleBatch:
        # By the loader, which knows what to do about a sample that cannot be read.
        with iter(self._loader(1, ahead=0)) as stream:
            return next(stream)

    def state_at(self, place: Place) -> drt.LoaderState:
        """The state of datasetrt's loader where a place is next."""
        sampler = dict(self._state["sampler"])  # the caller's own
        return {**self._state, "sampler": sampler, "epoch": place.epoch, "position": place.position}

    def place_of(self, state: Mapping[str, Any]) -> Place:
        """The place that a state names.

        Raises:
            StateError: It is malformed, or belongs to other rows, other weights or another sampler.
        """
        loader = self._loader(self.plan.global_batch, _WHOLE)
        loader.load_state_dict(state)
        checked = loader.state_dict()
        return Place(checked["epoch"], checked["position"])

    def stream(self, place: Place, index: int, count: int) -> drt.LoaderIterator[drt.SampleBatch]:
        """This process's parts of the global batches from a place to the end of its epoch."""
        loader = self._part(index, count)
        loader.load_state_dict(self.state_at(place))
        return iter(loader)

    def read_step(self, place: Place, index: int, count: int) -> tuple[drt.SampleBatch, Step]:
        """This process's part of the global batch at a place, whatever was read before."""
        plan = self._part(index, count).plan(place.position)
        step = Step(place.epoch, plan.positions(0), plan.padding(0))
        rows = self.sampler.indices_at(self.dataset, step.positions, place.epoch)
        return self.dataset.take(cast(Sequence[int], rows)), step

    def finished(self, samples: drt.SampleBatch, step: Step) -> Batch:
        """The columns of what a process gets of a step."""
        seeds = None
        if self.work.seeded:
            seeds = self.sampler.transform_seeds(self.dataset, step.positions, step.epoch).tolist()
        batch = self.work(samples, seeds)
        for name, column in batch.items():
            if len(column) != len(samples):
                raise invalid(
                    f"column {name!r} has {len(column)} rows for {len(samples)} samples; let decode return "
                    "one value a sample"
                )
        if self.plan.tail == "pad":
            _add(batch, "mask_key", self.mask_key, ~step.padding)
        if self.substituted_key is not None:
            _add(batch, "substituted_key", self.substituted_key, samples.substituted)
        return batch

    def spec(self, local: int) -> dict[str, ShapeDtype]:
        """Shapes and dtypes of a batch of so many rows, found out from the first sample."""
        first = self._first_sample()
        one = self.finished(first, Step(first.epoch, first.positions, first.padding))
        return {name: ShapeDtype((local, *column.shape[1:]), column.dtype) for name, column in one.items()}

    def _part(self, index: int, count: int) -> drt.Loader[drt.SampleBatch]:
        """The loader of one process."""
        shard = drt.Shard(index, count, uneven="fill")
        return self._loader(self.plan.global_batch // count, shard, drop_last=self.plan.tail == "drop")

    def _loader(
        self, batch_size: int, shard: drt.Shard = _WHOLE, *, drop_last: bool = False, ahead: int | None = None
    ) -> drt.Loader[drt.SampleBatch]:
        decode = self.work.decode
        # Samples are decoded later; how they are to lie in memory has to be known when they are read.
        columns = InColumns(decode) if isinstance(decode, drt.codecs.BatchCodec) else None
        return self.dataset.loader(
            batch_size=batch_size,
            sampler=self.sampler,
            transform=columns,
            drop_last=drop_last,
            shard=shard,
            threads=self.threads,
            prefetch_batches=self.prefetch if ahead is None else ahead,
            on_corrupt=self.on_corrupt,
        )


def checked_plan(
    dataset: drt.CachedDataset, sampler: drt.Sampler, global_batch: object, tail: object
) -> Plan:
    """A plan, with its arguments checked."""
    return make_plan(
        dataset,
        sampler,
        check_count("global_batch", global_batch),
        cast(Tail, _check_choice("tail", tail, get_args(Tail))),
    )


def _add(batch: Batch, what: str, name: str, flags: npt.NDArray[np.bool_]) -> None:
    if name in batch:
        raise invalid(f"{what} = {name!r} is a column of the batch; give another {what}")
    batch[name] = aligned(flags)


def _check_seeded(work: Columns) -> None:
    if not isinstance(work.seeded, bool):
        raise invalid(f"seeded = {work.seeded!r} is {a_type(work.seeded)}; give True or False")
    if work.seeded and (work.decode is None or isinstance(work.decode, drt.codecs.Codec)):
        given = "decode=None" if work.decode is None else f"the codec {work.decode.name!r}"
        raise invalid(
            f"seeded=True needs a decode that takes a seed, and {given} does not; give a function of a "
            "sample and a seed"
        )


def names(what: str, value: Sequence[str]) -> tuple[str, ...]:
    """Names of columns; one text is no list of them."""
    listed = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise invalid(f"{what} = {value!r}: give a list of names of columns")
    return listed


def shapes(value: Mapping[str, tuple[int, ...]] | None) -> dict[str, tuple[int, ...]]:
    """Shapes by column, for ``pad_to``."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise invalid(f"pad_to = {value!r}: give a dict of column to shape")
    for name, shape in value.items():
        lengths = shape if isinstance(shape, Sequence) and not isinstance(shape, str) else (None,)
        if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 0 for n in lengths):
            raise invalid(f"pad_to[{name!r}] = {shown(shape)}: give the shape of a sample, such as (128,)")
        if math.prod(map(int, lengths)) >= MOST_PADDED:
            raise invalid(
                f"pad_to[{name!r}] = {shown(shape)} makes more than {MOST_PADDED} numbers of a sample; give "
                "a smaller shape"
            )
    return {name: tuple(map(int, shape)) for name, shape in value.items()}


def _check_name(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise invalid(f"{what} = {value!r} is {a_type(value)}; give the name of a column")


def check_count(what: str, value: object) -> int:
    """``value``, a whole number of at least 1."""
    return whole(what, value, 1)


def _check_choice(what: str, value: object, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise invalid(f"{what} = {value!r} is not known; use {' or '.join(map(repr, choices))}")
    return str(value)
