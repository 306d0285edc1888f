"""The arguments that the public functions share, and what they mean together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypedDict

import datasetrt as drt
from datasetrt.wording import a_type

from ._batches import Assembly, check_names
from ._decoding import Decode, Decoding, check_decode, layout_of
from ._order import Source, Weights, invalid, ordered
from ._plan import Cut, Plan, plan_of

Tail: TypeAlias = Literal["short", "drop", "pad"]
Start: TypeAlias = "Mapping[str, Any] | int"

_TAILS = ("short", "drop", "pad")
WHOLE = drt.Shard()


class OrderOptions(TypedDict, total=False):
    """Which samples come in which order."""

    shuffle: bool
    seed: int
    weights: Weights | None
    sampler: drt.Sampler | None


class BatchOptions(OrderOptions, total=False):
    """What a batch holds."""

    decode: Decode | None
    seeded: bool
    columns: Sequence[str] | None
    ragged: Sequence[str]
    fill: Mapping[str, Any] | None
    tail: Tail
    mask_key: str
    substituted_key: str | None
    on_corrupt: Literal["raise", "substitute"]


def check_known(user: str, options: Mapping[str, Any], kind: Any) -> None:
    """Refuse arguments that nobody would look at.

    Raises:
        TypeError: One is not known, as Python itself would say it.
    """
    unknown = [name for name in options if name not in kind.__optional_keys__]
    if unknown:
        raise TypeError(f"{user}() got an unexpected keyword argument {unknown[0]!r}")


def cut_of(
    source: Source, batch_size: int, shards: tuple[drt.Shard, ...], tail: Tail, order: OrderOptions
) -> tuple[drt.CachedDataset[Any], Cut]:
    """The dataset, and how its order is cut.

    Raises:
        InvalidInputError: An argument breaks a rule.
    """
    if tail not in _TAILS:
        raise invalid(f"tail = {tail!r} is not known; use {' or '.join(map(repr, _TAILS))}")
    for shard in shards:
        if not isinstance(shard, drt.Shard):
            raise invalid(f"shard = {shard!r} is {a_type(shard)}; give a datasetrt.Shard")
    if batch_size is None:
        raise invalid("batch_size = None; give a number, and unbatch() the pipeline to get samples")
    if tail == "pad":
        shards = tuple(_filled(shard) for shard in shards)
    opened, sampler = ordered(
        source,
        order.get("shuffle", True),
        order.get("seed", 0),
        order.get("weights"),
        order.get("sampler"),
    )
    return opened, Cut(sampler, batch_size, shards, drop_last=tail == "drop")


def assembled(
    source: Source,
    batch_size: int,
    *,
    user: str,
    shards: tuple[drt.Shard, ...] = (WHOLE,),
    start: Start = 0,
    num_epochs: int | None = 1,
    payload: str | None = None,
    options: BatchOptions,
) -> tuple[drt.CachedDataset, Assembly]:
    """The dataset without its transform, and all that makes batches of it. Reads and decodes one sample.

    Raises:
        InvalidInputError: An argument breaks a rule.
        StateError: ``start`` is a state that does not belong here.
        CodecError: The payloads were packed by another codec, or a column is no tensor; names it.
    """
    check_known(user, options, BatchOptions)
    tail = options.get("tail", "short")
    given, cut = cut_of(source, batch_size, shards, tail, options)
    decode, seeded = options.get("decode"), options.get("seeded", False)
    # Payloads are asked for as they are, and the dataset's transform takes no seed.
    if decode is None and payload is None and not seeded:
        decode = given.transform
    opened = given.with_transform(None)
    check_decode(opened, decode)
    _check_names(options)
    plan: Plan = plan_of(opened, cut, start, num_epochs)
    decoding = Decoding(decode, seeded)
    decoding.check(opened)
    layout = layout_of(
        opened,
        decoding,
        columns=options.get("columns"),
        ragged=options.get("ragged", ()),
        fill=options.get("fill"),
        payload=payload,
        on_corrupt=options.get("on_corrupt", "raise"),
    )
    mask = options.get("mask_key", "mask") if cut.pads else None
    substituted = options.get("substituted_key")
    check_names(layout, mask, substituted)
    # A batch size that is a NumPy integer is an int from here on.
    cut = replace(cut, batch_size=int(batch_size))
    assembly = Assembly(
        replace(plan, cut=cut), decoding, layout, mask, options.get("on_corrupt", "raise"), substituted
    )
    return opened, assembly


def _filled(shard: drt.Shard) -> drt.Shard:
    if shard.uneven in ("drop", "keep"):
        raise invalid(
            f"tail='pad' fills every batch up, and the shard's uneven={shard.uneven!r} says otherwise; "
            "leave one of them out"
        )
    return replace(shard, uneven="fill")


def _check_names(options: BatchOptions) -> None:
    """Refuse names that are none, and what stands for missing values where it is no dict."""
    for what in ("mask_key", "substituted_key"):
        value = options.get(what, "")
        if not isinstance(value, str) and not (value is None and what == "substituted_key"):
            raise invalid(f"{what} = {value!r} is {a_type(value)}; give the name of a column")
    fill = options.get("fill")
    if fill is not None and not isinstance(fill, Mapping):
        raise invalid(f"fill = {fill!r} is {a_type(fill)}; give a dict of column to value")
