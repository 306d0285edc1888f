"""Which process this is among those that share the data: given, or found out where that is clear."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch.distributed as dist

import datasetrt as drt

from ._checks import choice, invalid

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

Uneven: TypeAlias = Literal["pad", "fill", "drop", "keep"]
Sharding: TypeAlias = Literal["auto", "none"] | drt.Shard


@dataclass(frozen=True)
class ShardSpec(drt.Shard):
    """A `datasetrt.Shard` that can be read off a process group or a device mesh.

    ``rank`` of ``world_size`` processes takes the ``rank``-th of equal parts of each global batch. Anything
    that takes a `datasetrt.Shard` takes this, and the reverse.

    Example:
        >>> import datasetrt_torch as drtt
        >>> drtt.ShardSpec(rank=1, world_size=4)
        ShardSpec(rank=1, world_size=4, uneven=None)
    """

    @classmethod
    def from_distributed(
        cls, group: ProcessGroup | None = None, *, uneven: Uneven | None = None
    ) -> ShardSpec:
        """This process's rank in a process group.

        Args:
            group: Those who share the data; None is everybody.
            uneven: What becomes of a last global batch that the ranks cannot share evenly, as in
                `datasetrt.Shard`.

        Raises:
            InvalidInputError: ``torch.distributed`` is not initialised, or this process is not in the group.

        Example:
            >>> import datasetrt_torch as drtt
            >>> drtt.ShardSpec.from_distributed()
            Traceback (most recent call last):
            datasetrt.errors.InvalidInputError: torch.distributed is not initialised; call...
        """
        if not _distributed():
            raise invalid(
                "torch.distributed is not initialised; call init_process_group() first, "
                "or give the numbers: ShardSpec(rank, world_size)"
            )
        rank, world_size = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise invalid("this process is not in the group; give the group of those who share the data")
        return cls(rank, world_size, uneven)

    @classmethod
    def from_mesh(
        cls, mesh: DeviceMesh, dims: str | Sequence[str], *, uneven: Uneven | None = None
    ) -> ShardSpec:
        """This process's place along some dimensions of a device mesh.

        Processes that differ only in other dimensions, such as those of tensor or pipeline parallelism, get
        the same data.

        Args:
            mesh: A mesh with names.
            dims: Name of the dimension along which data differs, or several, the slowest first, such as
                ``("dp_replicate", "dp_shard")``.
            uneven: As in `datasetrt.Shard`.

        Raises:
            InvalidInputError: The mesh has no such dimension, or this process is not in it.

        Example:
            >>> from torch.distributed.device_mesh import init_device_mesh
            >>> def of_this_process():
            ...     mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))
            ...     return ShardSpec.from_mesh(mesh, "dp")
        """
        names = (dims,) if isinstance(dims, str) else tuple(dims)
        known = mesh.mesh_dim_names or ()
        unknown = [name for name in names if name not in known]
        if unknown or not names or len(set(names)) != len(names):
            raise invalid(f"dims = {dims!r} does not name dimensions of the mesh, which has {list(known)}")
        if mesh.get_coordinate() is None:
            raise invalid("this process is not in the mesh; give the mesh of those who share the data")
        rank, world_size = 0, 1
        for name in names:
            size = mesh.size(known.index(name))
            rank = rank * size + mesh.get_local_rank(name)
            world_size *= size
        return cls(rank, world_size, uneven)


@dataclass(frozen=True)
class Resolved:
    """A shard, and whether it was found out rather than given."""

    shard: drt.Shard
    found_out: bool

    def recheck(self) -> None:
        """Refuse to go on where somebody else has begun to share the data since.

        A loader that was made before ``init_process_group`` would give every rank everything, and one that
        Accelerate shards again would lose samples.

        Raises:
            InvalidInputError: What was found out then is not true now.
        """
        if not self.found_out:
            return
        _refuse_accelerate()
        shard = self.shard
        if _distributed() and (dist.get_rank(), dist.get_world_size()) != (shard.rank, shard.world_size):
            raise invalid(
                f"this loader was made for rank {shard.rank} of {shard.world_size}, but torch.distributed "
                f"now has rank {dist.get_rank()} of {dist.get_world_size()}; make it after "
                "init_process_group() (with Lightning: in train_dataloader()), or give a ShardSpec or 'none'"
            )


def resolve(sharding: Sharding, uneven: Uneven | None = None) -> Resolved:
    """The shard of this process.

    Args:
        sharding: A shard; ``"none"``, one process gets everything; or ``"auto"``, that of
            ``torch.distributed``.
        uneven: What to do with an uneven last batch; may also be said by the shard.

    Raises:
        InvalidInputError: It cannot be known: Accelerate may shard the loader again, or the process group is
            not there yet.
    """
    if uneven is not None:
        choice("uneven", uneven, ("pad", "fill", "drop", "keep"))
    if isinstance(sharding, drt.Shard):
        if uneven is not None and sharding.uneven not in (None, uneven):
            raise invalid(f"uneven = {uneven!r}, but the shard says {sharding.uneven!r}; say it once")
        shard = drt.Shard(sharding.rank, sharding.world_size, uneven or sharding.uneven)
        return Resolved(shard, found_out=False)
    choice("sharding", sharding, ("auto", "none"))
    if sharding == "none":
        return Resolved(drt.Shard(uneven=uneven), found_out=False)
    rank, world_size = _find_out()
    return Resolved(drt.Shard(rank, world_size, uneven), found_out=True)


def _find_out() -> tuple[int, int]:
    _refuse_accelerate()
    if _distributed():
        return dist.get_rank(), dist.get_world_size()
    announced = os.environ.get("WORLD_SIZE", "1")
    if announced.strip() not in ("", "1"):
        raise invalid(
            f"WORLD_SIZE is {announced} in the environment, but torch.distributed is not initialised, so "
            "every process would get all the data; call init_process_group() first, or say "
            "sharding=ShardSpec(rank, world_size), or sharding='none'"
        )
    return 0, 1


def _refuse_accelerate() -> None:
    processes = _accelerate_processes()
    if processes > 1:
        raise invalid(
            f"Accelerate runs {processes} processes and shards what is passed to prepare(); say "
            "sharding='none' and pass the loader to prepare(), or say sharding=ShardSpec.from_distributed() "
            "and do not pass it"
        )


def _accelerate_processes() -> int:
    """How many processes Accelerate knows of; it is not imported, and its state is not created, to ask."""
    module = sys.modules.get("accelerate.state")
    shared = getattr(getattr(module, "PartialState", None), "_shared_state", {})
    return int(shared.get("num_processes", 1))


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
