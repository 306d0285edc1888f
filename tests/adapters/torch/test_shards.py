"""Who gets which data: found out where that is clear, refused with the ways out where it is not."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.ranks import run_ranks
from tests.adapters.torch.records import RECORD, decode, joined


@contextmanager
def group(rank: int, world: int) -> Iterator[None]:
    """A process group whose other members do not exist."""
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def made(ds: drt.CachedDataset, **options: Any) -> list[Any]:
    """Everything that asks which data it gets."""
    data = drtt.TorchDataset(ds, decode=decode)
    return [
        drtt.EpochSampler(ds, **options),
        drtt.make_dataloader(data, 4, **options).sampler,
        drtt.NativeLoader(ds, 4, **options),
    ]


def shard_of(loader: Any) -> tuple[int, int]:
    return loader._sharding.shard.rank, loader._sharding.shard.world_size


@pytest.fixture(autouse=True)
def no_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def test_alone_one_process_gets_everything(
    records: drt.CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert [shard_of(loader) for loader in made(records)] == [(0, 1)] * 3


def test_a_process_group_is_found(records: drt.CachedDataset) -> None:
    with group(2, 4):
        assert [shard_of(loader) for loader in made(records)] == [(2, 4)] * 3
        assert [shard_of(loader) for loader in made(records, sharding="none")] == [(0, 1)] * 3
        spec = drtt.ShardSpec(1, 3)
        assert [shard_of(loader) for loader in made(records, sharding=spec)] == [(1, 3)] * 3


def test_an_announced_group_that_is_not_there_is_refused(
    records: drt.CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    data = drtt.TorchDataset(records, decode=decode)
    for make in (
        lambda: drtt.EpochSampler(records),
        lambda: drtt.make_dataloader(data, 4),
        lambda: drtt.NativeLoader(records, 4),
    ):
        with pytest.raises(drt.InvalidInputError, match="WORLD_SIZE is 4") as error:
            make()
        for cure in ("init_process_group()", "ShardSpec(rank, world_size)", "sharding='none'"):
            assert cure in str(error.value)
    made(records, sharding="none")


def test_accelerate_is_refused_with_both_fixes(
    records: drt.CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = types.SimpleNamespace(PartialState=types.SimpleNamespace(_shared_state={"num_processes": 2}))
    early = made(records)
    monkeypatch.setitem(sys.modules, "accelerate.state", state)  # type: ignore[arg-type]
    with pytest.raises(drt.InvalidInputError, match="Accelerate runs 2 processes") as error:
        made(records)
    assert "sharding='none' and pass the loader to prepare()" in str(error.value)
    assert "sharding=ShardSpec.from_distributed() and do not pass it" in str(error.value)
    assert [shard_of(loader) for loader in made(records, sharding="none")] == [(0, 1)] * 3
    # Those that were made before Accelerate started say so when they are used.
    for loader in early:
        with pytest.raises(drt.InvalidInputError, match="Accelerate runs 2 processes"):
            iter(loader)
    state.PartialState._shared_state["num_processes"] = 1
    assert [shard_of(loader) for loader in made(records)] == [(0, 1)] * 3


def test_a_loader_made_before_the_group_is_refused_when_it_is_used(records: drt.CachedDataset) -> None:
    early, told = made(records), made(records, sharding="none")
    with group(1, 2):
        for loader in early:
            with pytest.raises(drt.InvalidInputError, match=r"made for rank 0 of 1, .* now has rank 1 of 2"):
                iter(loader)
        assert all(next(iter(loader)) is not None for loader in told)
    assert all(next(iter(loader)) is not None for loader in early)


# ShardSpec


def test_a_spec_is_a_shard_of_the_core(records: drt.CachedDataset) -> None:
    spec = drtt.ShardSpec(1, 2, "keep")
    assert isinstance(spec, drt.Shard)
    core = records.loader(batch_size=4, shard=spec)
    assert next(iter(core)).indices.tolist() == [4, 5, 6, 7]
    with pytest.raises(drt.InvalidInputError, match="rank = 2 is out of range"):
        drtt.ShardSpec(2, 2)


def test_from_distributed() -> None:
    with pytest.raises(drt.InvalidInputError, match="not initialised; call init_process_group"):
        drtt.ShardSpec.from_distributed()
    with group(3, 4):
        assert drtt.ShardSpec.from_distributed(uneven="drop") == drtt.ShardSpec(3, 4, "drop")
        part = dist.new_group([1, 3])
        assert drtt.ShardSpec.from_distributed(part) == drtt.ShardSpec(1, 2)
        others = dist.new_group([0, 1])
        with pytest.raises(drt.InvalidInputError, match="not in the group"):
            drtt.ShardSpec.from_distributed(others)


def test_from_mesh() -> None:
    found = []
    for rank in range(8):
        with group(rank, 8):
            mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("replicate", "shard", "tensor"))
            found.append(
                (
                    drtt.ShardSpec.from_mesh(mesh, ("replicate", "shard")).rank,
                    drtt.ShardSpec.from_mesh(mesh, "tensor").rank,
                    drtt.ShardSpec.from_mesh(mesh, ["shard", "replicate"], uneven="keep").rank,
                )
            )
    # Ranks that differ only in the tensor dimension have the same data.
    assert [data for data, _, _ in found] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [tensor for _, tensor, _ in found] == [0, 1] * 4
    assert [data for _, _, data in found] == [0, 0, 2, 2, 1, 1, 3, 3]


def test_dimensions_have_to_be_there() -> None:
    with group(0, 4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        for dims in ("ep", (), ("dp", "dp")):
            with pytest.raises(drt.InvalidInputError, match=r"which has \['dp', 'tp'\]"):
                drtt.ShardSpec.from_mesh(mesh, dims)
        with pytest.raises(drt.InvalidInputError, match=r"which has \[\]"):
            drtt.ShardSpec.from_mesh(init_device_mesh("cpu", (4,)), "dp")


# Two processes for real


def evaluate(rank: int, world: int, folder: str) -> dict[str, Any]:
    """Each step is a collective operation, so that a rank with one step less would hang the other."""
    import torch

    dist.init_process_group("gloo", rank=rank, world_size=world)
    ds = drt.open_dataset(folder)[:41]  # six samples a step leave five, of which one rank gets two
    counts = {}
    data = drtt.TorchDataset(ds, decode=decode)
    loaders = {
        "native": drtt.NativeLoader(ds, 3, decode=RECORD, tail="short", seed=7),
        "native pad": drtt.NativeLoader(ds, 3, decode=RECORD, tail="pad", shuffle=False),
        "pad": drtt.make_dataloader(data, 3, shuffle=False, uneven="pad"),
        "drop": drtt.make_dataloader(data, 3, seed=7, uneven="drop"),
    }
    seen = {}
    for name, loader in loaders.items():
        ids = []
        for batch in loader:
            number = torch.tensor(len(batch["id"]))
            dist.all_reduce(number)
            ids += batch["id"][batch.get("mask", slice(None))].tolist()
        seen[name] = ids
        counts[name] = int(number)
    dist.destroy_process_group()
    return seen


def test_ranks_that_share_unevenly_do_not_hang(records: drt.CachedDataset) -> None:
    found = run_ranks(evaluate, 2, str(records.caches[0].path))
    together = {name: sorted(joined(seen[name] for seen in found)) for name in found[0]}
    assert together["native"] == together["native pad"] == list(range(41)), "the mask leaves each sample once"
    assert sorted(set(together["pad"])) == list(range(41))
    assert len(together["pad"]) == 42
    assert len(together["drop"]) == len(set(together["drop"])) == 40
