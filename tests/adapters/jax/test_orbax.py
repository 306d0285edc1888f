"""Checkpoints that hold a place in the data beside the model, with Orbax as it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import orbax.checkpoint.experimental.v1 as ocp1
import pytest

import datasetrt as drt
import datasetrt_jax as drtj

SHARDING = jax.sharding.SingleDeviceSharding(jax.devices()[0])
MODEL = {"w": np.arange(3.0, dtype=np.float32)}


@pytest.fixture(params=["batches", "device_batches"])
def build(request: pytest.FixtureRequest, ds: drt.CachedDataset, codec: Any) -> Any:
    """Makes iterators of either kind."""

    def make(**arguments: Any) -> Any:
        it = drtj.batches(ds, **{"global_batch": 8, "decode": codec, "tail": "pad", "seed": 2, **arguments})
        return it if request.param == "batches" else drtj.device_batches(it, SHARDING)

    return make


def rows(it: Any, steps: int) -> list[list[int]]:
    return [np.asarray(next(it)["y"]).tolist() for _ in range(steps)]


@pytest.mark.parametrize("background", [False, True])
def test_orbax_v1_takes_the_iterator_itself(build: Any, tmp_path: Path, background: bool) -> None:
    it = build()
    rows(it, 5)
    items = {"model": MODEL, "data": it}
    if background:
        saving = ocp1.save_checkpointables_async(tmp_path / "1", items)
        rest = rows(it, 9)  # training goes on; the state is that of the call
        saving.result()
    else:
        ocp1.save_checkpointables(tmp_path / "1", items)
        rest = rows(it, 9)
    assert [path.name for path in (tmp_path / "1" / "data").iterdir()] == ["datasetrt.json"]

    again = build()
    loaded = ocp1.load_checkpointables(tmp_path / "1", {"model": MODEL, "data": again})
    np.testing.assert_array_equal(loaded["model"]["w"], MODEL["w"])
    assert rows(again, 9) == rest
    # The data may be left out.
    assert ocp1.load_checkpointables(tmp_path / "1", {"model": MODEL}).keys() == {"model"}


def test_orbax_v1_refuses_a_checkpoint_of_other_data(build: Any, tmp_path: Path) -> None:
    ocp1.save_checkpointables(tmp_path / "1", {"data": build()})
    with pytest.raises(drt.StateError, match="seed differs"):
        ocp1.load_checkpointables(tmp_path / "1", {"data": build(seed=3)})


def test_the_checkpoint_manager_keeps_the_state_as_json(build: Any, tmp_path: Path) -> None:
    it = build()
    with ocp.CheckpointManager(tmp_path) as manager:
        for step in range(1, 6):
            rows(it, 1)
            saved = ocp.args.Composite(
                model=ocp.args.StandardSave(MODEL), data=ocp.args.JsonSave(it.get_state())
            )
            manager.save(step, args=saved)
        rest = rows(it, 9)
        manager.wait_until_finished()
        restored = manager.restore(
            5, args=ocp.args.Composite(model=ocp.args.StandardRestore(MODEL), data=ocp.args.JsonRestore())
        )
    again = build()
    again.set_state(restored["data"])
    assert rows(again, 9) == rest
