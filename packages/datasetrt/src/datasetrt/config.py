"""How to write and how to read: frozen options, checked when they are made."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from .checks import COUNTABLE, THREADS, as_index, invalid
from .errors import InvalidInputError
from .progress import Progress
from .wording import shown


def _whole(value: object) -> object:
    number = as_index(value)
    if number is None:
        raise ValueError("it should be a whole number")
    if number >= COUNTABLE:
        # Not by a bound of pydantic, which tells such a one with its last digits rounded.
        raise ValueError(f"it should be less than {COUNTABLE}")
    return number


_Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
_Threads = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=THREADS)]
_Level = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=22)]


class _Config(BaseModel):
    """A pydantic model whose constructor raises our error, one line long."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise invalid(_explain(type(self), error)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise self._frozen(name, f" = {shown(value)}", f"{shown(name)}: {shown(value)}")

    def __delattr__(self, name: str) -> None:
        raise self._frozen(name, " cannot be deleted", "…")

    def _frozen(self, name: str, what: str, update: str) -> InvalidInputError:
        field = name if name.isidentifier() else shown(name)
        return invalid(
            f"{type(self).__name__}.{field}{what}: it is frozen; make another one, such as "
            f"config.model_copy(update={{{update}}})"
        )

    def _checked(self) -> Self:
        """The same, checked again: ``model_construct`` and ``model_copy`` check nothing."""
        return type(self)(**self.__dict__)


def _explain(model: type[_Config], error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(field, model.model_fields, n=1, cutoff=0.8)
        cure = f"did you mean {close[0]}?" if close else f"it has {', '.join(model.model_fields)}"
        return f"{model.__name__} has no field {shown(field)}; {cure}"
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
    if field == "progress":
        # One error for each type that it may have.
        message = "it should be True, False or a function of a Progress"
    place = f"{model.__name__}.{field} = {shown(first['input'])}" if field else model.__name__
    return " ".join(f"{place} is refused: {message}".split())


class WriterConfig(_Config):
    """How a cache is written. Frozen; nothing here but compression and shard size changes what is stored.

    Args:
        compression: ``"none"``, ``"lz4"``, ``"zstd"`` or ``"zstd-dictionary"``, for each payload on its own.
            A payload that does not become smaller is stored as it is. With a dictionary, which the write
            learns from its first 4 MiB of payloads and stores in the cache (64 KiB), small payloads with
            much in common become much smaller.
        compression_level: 1 to 22, for zstd with a dictionary or without; None is zstd's own default, 3.
        max_shard_bytes: Largest shard file. A sample larger than that gets a shard of its own. An
            interrupted write resumes from its last whole shard, so smaller shards lose less.
        threads: Native threads that compress and checksum, at most 1024; None takes what the process may use.
        queue_bytes: Payload bytes that may wait between the source and the disk.
        workers: Processes that run the function of a MapSource; other sources run in this process.
        worker_start_method: How these processes start. ``"fork"`` copies this process with whatever
            locks its threads hold: after Polars or another thread pool has run, a forked worker that
            uses it waits for ever. The default, ``"forkserver"``, and ``"spawn"`` start clean ones.
        progress: True draws a line where standard error is a terminal, False nothing; a function
            receives :class:`Progress` about ten times a second, and what it raises ends the write.

    Raises:
        InvalidInputError: A value breaks a rule, or there is no such field.

    Example:
        >>> WriterConfig(compression="zstd", compression_level=3).max_shard_bytes
        268435456
    """

    compression: Literal["none", "lz4", "zstd", "zstd-dictionary"] = "none"
    compression_level: _Level | None = None
    max_shard_bytes: _Count = 256 * 1024 * 1024
    threads: _Threads | None = None
    queue_bytes: _Count = 64 * 1024 * 1024
    workers: _Count = 1
    worker_start_method: Literal["forkserver", "spawn", "fork"] = "forkserver"
    progress: StrictBool | Callable[[Progress], None] = True

    @model_validator(mode="after")
    def _level_needs_zstd(self) -> WriterConfig:
        if self.compression_level is not None and self.compression in ("none", "lz4"):
            raise ValueError(
                f"compression_level = {self.compression_level} goes with compression='zstd' or "
                f"'zstd-dictionary', not {self.compression!r}; leave it out"
            )
        return self


class ReaderConfig(_Config):
    """How caches are opened. Frozen.

    Args:
        max_open_shards: Shard files kept open at a time; others are opened again when they are read.

    Raises:
        InvalidInputError: A value breaks a rule, or there is no such field.

    Example:
        >>> ReaderConfig(max_open_shards=16).max_open_shards
        16
    """

    max_open_shards: _Count = 128
