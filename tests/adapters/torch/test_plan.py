"""The arithmetic of index samplers is that of the core's loader."""

from __future__ import annotations

import itertools

import pytest

import datasetrt as drt
from datasetrt_torch._plan import Plan
from tests.adapters.torch.records import joined

LENGTHS = (1, 2, 7, 12, 31, 100)
BATCHES = (1, 3, 4)
WORLDS = (1, 2, 3, 5)


def positions(plan: Plan) -> list[int]:
    return [position for first, end in plan.spans() for position in range(first, end)]


@pytest.mark.parametrize("uneven", ["pad", "drop", "keep"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_get_what_the_core_gives_them(tiny: drt.CachedDataset, uneven: str, drop_last: bool) -> None:
    for length, batch, world in itertools.product(LENGTHS, BATCHES, WORLDS):
        for start in {0, length // 3, length - 1}:
            for rank in range(world):
                core = tiny[:length].loader(
                    batch_size=batch,
                    drop_last=drop_last,
                    shard=drt.Shard(rank, world, uneven),  # type: ignore[arg-type]
                )
                core.load_state_dict({**core.state_dict(), "position": start})
                plan = Plan(length, start, batch, rank, world, uneven, drop_last)
                place = f"{plan}"
                expected, after = [], []
                for found in core:
                    expected.append(found.positions.tolist())
                    after.append(core.state_dict())
                assert positions(plan) == joined(expected), place
                assert plan.samples == len(joined(expected)), place
                assert plan.steps == len(expected), place
                for step, state in enumerate(after, start=1):
                    position = plan.position_after(step)
                    found = (1, 0) if position == length else (0, position)
                    assert found == (state["epoch"], state["position"]), f"{place} after {step}"


def test_spans_of_one_process_are_long() -> None:
    plan = Plan(length=100_000, start=5, batch=1, rank=0, world=1, uneven="pad", drop_last=False)
    assert len(list(plan.spans())) < 30
    assert positions(plan) == list(range(5, 100_000))
