"""``distributed``: replicas get the parts of each global batch; nothing is lost, repeated or resharded."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import datasetrt as drt
import datasetrt_tf as drtf
from tests.adapters.tf.conftest import CODEC, ROWS, joined


@pytest.fixture(scope="module")
def strategy() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def _parts(strategy: Any, data: Any) -> list[list[list[int]]]:
    """For each step the real rows of each replica."""
    steps = []
    for batch in data:
        rows = strategy.experimental_local_results(batch["y"])
        if "mask" in batch:
            masks = strategy.experimental_local_results(batch["mask"])
            rows = [part[mask] for part, mask in zip(rows, masks, strict=True)]
        steps.append([part.numpy().tolist() for part in rows])
    return steps


def test_each_replica_takes_its_part(strategy: Any, records: drt.CachedDataset) -> None:
    data = drtf.distributed(strategy, records, 24, decode=CODEC, seed=3, num_epochs=2)
    order = [drt.Shuffle(3).indices(records, epoch=epoch).tolist() for epoch in (0, 1)]
    want = [epoch[at : at + 24] for epoch in order for at in range(0, 100, 24)]
    found = _parts(strategy, data)
    assert [first + second for first, second in found] == want
    assert [len(first) for first, _ in found] == [12, 12, 12, 12, 2] * 2


def test_it_is_trained_on(strategy: Any, records: drt.CachedDataset) -> None:
    data = drtf.distributed(strategy, records, 20, decode=CODEC, seed=3)

    @tf.function
    def step(batch: Any) -> Any:
        totals = strategy.run(lambda part: tf.reduce_sum(part["y"]), args=(batch,))
        return strategy.reduce("SUM", totals, axis=None)

    assert sum(int(step(batch)) for batch in data) == sum(range(100))


def test_uneven_tails(strategy: Any, records: drt.CachedDataset) -> None:
    view = records.head(99)
    padded = drtf.distributed(strategy, view, 20, decode=CODEC, shuffle=False, uneven="pad")
    found = _parts(strategy, padded)
    assert joined(first + second for first, second in found) == list(range(99))
    dropped = drtf.distributed(strategy, view, 20, decode=CODEC, shuffle=False, uneven="drop")
    assert [len(first + second) for first, second in _parts(strategy, dropped)] == [20, 20, 20, 20, 18]
    with pytest.raises(drt.InvalidInputError, match="give uneven="):
        drtf.distributed(strategy, view, 20, decode=CODEC, shuffle=False)


def test_it_continues_on_another_number_of_replicas(strategy: Any, records: drt.CachedDataset) -> None:
    state = drtf.cursor(records, 10, seed=3, shard=drt.Shard(0, 2), global_step=3)
    want = drt.Shuffle(3).indices(records).tolist()[60:]
    alone = drtf.dataset(records, 20, decode=CODEC, seed=3, start=state)
    assert joined(batch["y"].numpy().tolist() for batch in alone) == want
    again = drtf.distributed(strategy, records, 20, decode=CODEC, seed=3, start=state)
    assert joined(first + second for first, second in _parts(strategy, again)) == want


def test_bad_arguments(strategy: Any, records: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="25 is no multiple of the 2 replicas; use 24"):
        drtf.distributed(strategy, records, 25, decode=CODEC)
    with pytest.raises(drt.InvalidInputError, match="uneven = 'keep' is not for replicas"):
        drtf.distributed(strategy, records, 24, decode=CODEC, uneven="keep")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'shard'"):
        drtf.distributed(strategy, records, 24, decode=CODEC, shard=drt.Shard())  # type: ignore[call-arg]
    with pytest.raises(drt.InvalidInputError, match=r"global_batch_size = 2\.5 is a float"):
        drtf.distributed(strategy, records, 2.5, decode=CODEC)  # type: ignore[arg-type]
    with pytest.raises(drt.InvalidInputError, match=r"strategy = 3 is an int; give a tf\.distribute"):
        drtf.distributed(3, records, 24, decode=CODEC)  # type: ignore[arg-type]
    wrong = {**records.loader(sampler=drt.Shuffle(0)).state_dict(), "position": ROWS + 1}
    with pytest.raises(drt.StateError, match="position is 101"):
        drtf.distributed(strategy, records, 24, decode=CODEC, start=wrong)
    with pytest.raises(drt.CodecError, match="column 'x' of sample 0: an object of type object"):
        drtf.distributed(strategy, records, 24, decode=lambda sample: {"x": object()})


def test_a_strategy_of_one(records: drt.CachedDataset) -> None:
    strategy = tf.distribute.get_strategy()
    data = drtf.distributed(strategy, records, 30, decode=CODEC, seed=3)
    rows = [row for batch in data for row in batch["y"].numpy().tolist()]
    assert rows == drt.Shuffle(3).indices(records).tolist()
