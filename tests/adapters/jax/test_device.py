"""Global arrays on eight devices of one process: layout, content, errors, state and threads."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import datasetrt as drt
import datasetrt_jax as drtj


def layout(*axes: Any, **sizes: int) -> NamedSharding:
    """A sharding over a mesh of all devices."""
    sizes = sizes or {"data": 8}
    return NamedSharding(jax.make_mesh(tuple(sizes.values()), tuple(sizes)), P(*axes))


LAYOUTS = [
    layout("data"),
    layout(),
    layout("data", data=4, model=2),
    layout(("data", "model"), data=2, model=4),
    SingleDeviceSharding(jax.devices()[3]),
]


@pytest.mark.parametrize("sharding", LAYOUTS, ids=["cut", "copied", "both", "cut by two axes", "one device"])
def test_arrays_are_the_batches_laid_out(ds: drt.CachedDataset, codec: Any, sharding: Any) -> None:
    def make() -> drtj.BatchIterator:
        return drtj.batches(ds, global_batch=16, decode=codec, tail="pad", columns=["n"], num_epochs=2)

    with drtj.device_batches(make(), sharding) as it:
        for found, expected in zip(it, make(), strict=True):
            assert found.keys() == expected.keys()
            for name, array in found.items():
                assert array.sharding == sharding
                assert array.shape == (16, *expected[name].shape[1:])
                np.testing.assert_array_equal(np.asarray(array), expected[name])


def test_each_column_may_have_its_own_layout(ds: drt.CachedDataset, codec: Any) -> None:
    shardings = {"x": layout("data"), "y": layout()}
    batch = next(drtj.device_batches(drtj.batches(ds, global_batch=16, decode=codec), shardings))
    assert {name: array.sharding for name, array in batch.items()} == shardings
    with pytest.raises(drt.InvalidInputError, match="the sharding of column 'y' is None"):
        drtj.device_batches(drtj.batches(ds, global_batch=16, decode=codec), {"x": layout("data")})


def test_host_columns_stay_on_the_host(ds: drt.CachedDataset, codec: Any) -> None:
    it = drtj.batches(ds, global_batch=8, decode=codec, host_columns=["n"], shuffle=False)
    batch = next(drtj.device_batches(it, layout("data")))
    assert isinstance(batch["n"], np.ndarray)
    assert batch["n"].tolist() == batch["y"].tolist()


# Errors come before the first step


def test_a_batch_that_devices_cannot_share_is_refused(ds: drt.CachedDataset, codec: Any) -> None:
    with pytest.raises(drtj.ShardingError, match=r"column 'x' of global shape \(12, 3\) cannot be laid out"):
        drtj.device_batches(drtj.batches(ds, global_batch=12, decode=codec), layout("data"))


def test_a_layout_of_more_dimensions_than_a_column_is_refused(ds: drt.CachedDataset) -> None:
    for model in (1, 2):
        sharding = layout("data", "model", data=8 // model, model=model)
        it = drtj.batches(ds, global_batch=8, decode=lambda _: {"y": 1})
        with pytest.raises(drtj.ShardingError, match=r"column 'y' of global shape \(8,\) has fewer"):
            drtj.device_batches(it, sharding)


@pytest.mark.parametrize("index", [0, 1])
def test_rows_that_the_devices_do_not_hold_are_refused(ds: drt.CachedDataset, codec: Any, index: int) -> None:
    it = drtj.batches(ds, global_batch=16, decode=codec, process_index=index, process_count=2)
    with pytest.raises(drtj.ShardingError, match=rf"reads rows {8 * index} to .* as process {index} of 2"):
        drtj.device_batches(it, layout("data"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 0}, "depth = 0"),
        ({"transform": 3}, "transform = 3"),
        ({"sharding": "data"}, "NamedSharding"),
    ],
)
def test_wrong_arguments_are_refused(
    ds: drt.CachedDataset, codec: Any, arguments: dict[str, Any], message: str
) -> None:
    it = drtj.batches(ds, global_batch=8, decode=codec)
    with pytest.raises(drt.InvalidInputError, match=message):
        drtj.device_batches(it, **{"sharding": layout("data"), **arguments})
    with pytest.raises(drt.InvalidInputError, match=r"give what datasetrt_jax.batches\(\) returned"):
        drtj.device_batches([], layout("data"))  # type: ignore[arg-type]


def test_64_bits_are_checked_on_the_way_to_the_device(ds: drt.CachedDataset) -> None:
    def make(value: int) -> drtj.DeviceIterator:
        it = drtj.batches(ds, global_batch=8, decode=lambda s: {"id": np.int64(value)}, dtype_policy="keep")
        return drtj.device_batches(it, layout("data"))

    assert next(make(2**31 - 1))["id"].dtype == np.int32
    with pytest.raises(drtj.NarrowingError, match=f"column 'id' has {2**40 + 5} in row 0"):
        next(make(2**40 + 5))


def test_x64_keeps_64_bits() -> None:
    code = """
import jax; jax.config.update("jax_enable_x64", True)
import numpy as np, datasetrt as drt, datasetrt_jax as drtj
it = drtj.batches(drt.testing.tiny_dataset(), global_batch=2, dtype_policy="keep",
                  decode=lambda s: {"id": np.int64(2**40 + 5), "f": 0.1})
batch = next(drtj.device_batches(it, jax.sharding.SingleDeviceSharding(jax.devices()[0])))
assert batch["id"].tolist() == [2**40 + 5] * 2 and batch["f"].dtype == np.float64
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# Transform


def test_transform_works_on_the_numpy_batch(ds: drt.CachedDataset, codec: Any) -> None:
    def transform(batch: Any) -> Any:
        return {"twice": batch["y"] * 2, "id": batch["y"].astype(np.int64)}

    it = drtj.batches(ds, global_batch=8, decode=codec, shuffle=False)
    batch = next(drtj.device_batches(it, layout("data"), transform=transform))
    assert batch["twice"].tolist() == list(range(0, 16, 2))
    assert batch["id"].dtype == np.int32


@pytest.mark.parametrize("kind", [KeyError, StopIteration])
def test_an_error_of_transform_names_the_step(ds: drt.CachedDataset, codec: Any, kind: Any) -> None:
    def transform(batch: Any) -> Any:
        if 20 in batch["y"]:
            raise kind("gone")
        return batch

    it = drtj.batches(ds, global_batch=8, decode=codec, shuffle=False)
    arrays = drtj.device_batches(it, layout("data"), transform=transform)
    assert [next(arrays)["y"].tolist()[0] for _ in range(2)] == [0, 8]
    with pytest.raises((KeyError, RuntimeError)) as caught:
        next(arrays)
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "transforming the batch of step 2 of epoch 0" in text


def test_what_transform_makes_is_checked(ds: drt.CachedDataset, codec: Any) -> None:
    def arrays(made: Any) -> drtj.DeviceIterator:
        it = drtj.batches(ds, global_batch=8, decode=codec)
        return drtj.device_batches(it, layout("data"), transform=lambda batch: {"made": made})

    assert next(arrays([1.5] * 8))["made"].dtype == np.float32
    with pytest.raises(drt.InvalidInputError, match="column 'made' is <U1"):
        next(arrays(["a"] * 8))
    with pytest.raises(drtj.NarrowingError, match="column 'made'"):
        next(arrays([2**40] * 8))


def test_rows_that_transform_loses_are_missed(ds: drt.CachedDataset, codec: Any) -> None:
    it = drtj.batches(ds, global_batch=8, decode=codec)
    arrays = drtj.device_batches(it, layout("data"), transform=lambda batch: {"y": batch["y"][:4]})
    with pytest.raises(drt.InvalidInputError, match=r"'y' has the shape \(4,\); let transform keep 8 rows"):
        next(arrays)


# State


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_state_counts_what_was_taken(ds: drt.CachedDataset, codec: Any, depth: int) -> None:
    def make() -> drtj.DeviceIterator:
        it = drtj.batches(ds, global_batch=16, decode=codec, tail="pad", num_epochs=2)
        return drtj.device_batches(it, layout("data"), depth=depth)

    it = make()
    states, rows = [it.get_state()], []
    for batch in it:
        rows.append(batch["y"].tolist())
        states.append(it.get_state())
        assert (it.epoch, it.step) == divmod(len(rows) - 1, it.steps_per_epoch)
    for step, state in enumerate(states):
        again = make()
        again.set_state(state)
        assert [batch["y"].tolist() for batch in again] == rows[step:]
        # In the middle of a run, too.
        it.set_state(state)
        assert [batch["y"].tolist() for batch in it] == rows[step:]


def test_a_refused_state_changes_nothing(ds: drt.CachedDataset, codec: Any) -> None:
    it = drtj.device_batches(
        drtj.batches(ds, global_batch=8, decode=codec, shuffle=False), layout("data"), depth=3
    )
    next(it)
    with pytest.raises(drt.StateError):
        it.set_state({**it.get_state(), "position": 1000})
    assert it.get_state()["position"] == 8
    assert next(it)["y"].tolist()[0] == 8


# Threads


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("datasetrt-jax")]


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_loop_that_is_left_leaves_no_thread(ds: drt.CachedDataset, codec: Any, end: str) -> None:
    it = drtj.device_batches(drtj.batches(ds, global_batch=8, decode=codec), layout("data"))
    next(it)
    assert ours()
    if end == "close":
        it.close()
        it.close()
        with pytest.raises(ValueError, match="closed"):
            next(it)
    del it
    gc.collect()
    deadline = time.monotonic() + 10
    while ours() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ours() == []


def test_python_ends_quietly_in_the_middle_of_an_epoch() -> None:
    code = """
import jax, datasetrt as drt, datasetrt_jax as drtj
it = drtj.batches(drt.testing.tiny_dataset(), global_batch=2, columns=["label"])
arrays = drtj.device_batches(it, jax.sharding.SingleDeviceSharding(jax.devices()[0]))
next(arrays)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_a_batch_on_the_devices_is_nobodys_memory(ds: drt.CachedDataset, codec: Any) -> None:
    """On CPU, JAX arrays may share NumPy's memory: no later batch may write to it."""
    it = drtj.device_batches(drtj.batches(ds, global_batch=8, decode=codec, shuffle=False), layout(), depth=3)
    kept = [next(it) for _ in range(20)]
    rows = [batch["y"].tolist() for batch in kept]
    assert rows == [list(range(start, start + 8)) for _ in range(4) for start in range(0, 48, 8)][:20]
