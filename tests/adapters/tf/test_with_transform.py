"""A dataset's own transform stands in for ``decode``, and nothing is transformed twice."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow")

import datasetrt as drt
import datasetrt_tf as drtf
from tests.adapters.tf.conftest import CODEC


def seen(sample: drt.CachedSample) -> dict[str, Any]:
    """Fails for what is no stored sample, such as its own result."""
    return {"row": sample.sample_id}


def other(sample: drt.CachedSample) -> dict[str, Any]:
    return {"row": -sample.sample_id}


@pytest.fixture
def ds(records: drt.CachedDataset) -> drt.CachedDataset[Any]:
    return records.with_transform(seen)[:4]


def test_pipelines(ds: drt.CachedDataset[Any]) -> None:
    def rows(**options: Any) -> Any:
        data = drtf.dataset(ds, 2, shuffle=False, num_epochs=2, **options)
        return [batch["row"].numpy().tolist() for batch in data]

    assert rows() == [[0, 1], [2, 3]] * 2
    assert rows(decode=other) == [[0, -1], [-2, -3]] * 2
    assert rows(decode=lambda sample, seed: {"row": 7}, seeded=True) == [[7, 7]] * 4


def test_it_takes_no_seed(ds: drt.CachedDataset[Any]) -> None:
    with pytest.raises(drt.InvalidInputError, match="seeded=True needs a transform"):
        drtf.dataset(ds, 2, seeded=True)


def test_raw_payloads_stay_raw(ds: drt.CachedDataset[Any]) -> None:
    (batch,) = drtf.raw(ds, 4, shuffle=False)
    stored = [bytes(payload) for payload in ds.take(range(4)).payloads]
    assert batch["payload"].numpy().tolist() == stored


def test_a_codec(records: drt.CachedDataset) -> None:
    (batch,) = drtf.dataset(records.with_transform(CODEC)[:4], 4, shuffle=False)
    assert batch["y"].numpy().tolist() == [0, 1, 2, 3]


def test_what_fit_takes(ds: drt.CachedDataset[Any]) -> None:
    args = drtf.fit_args(ds, 2, epochs=1, inputs="row", targets=None, shuffle=False)
    assert args["steps_per_epoch"] == 2


def test_the_replicas_of_a_strategy(ds: drt.CachedDataset[Any]) -> None:
    import tensorflow as tf

    data = drtf.distributed(tf.distribute.MirroredStrategy(["CPU:0"]), ds, 4, seed=7)
    (batch,) = data
    assert sorted(batch["row"].numpy().tolist()) == [0, 1, 2, 3]
