"""A dataset's own transform stands in for ``decode``, and nothing is transformed twice."""

from __future__ import annotations

from typing import Any

import pytest

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.records import RECORD


def seen(sample: drt.CachedSample) -> dict[str, Any]:
    """Fails for what is no stored sample, such as its own result."""
    return {"row": sample.sample_id}


def other(sample: drt.CachedSample) -> dict[str, Any]:
    return {"row": -sample.sample_id}


@pytest.fixture
def ds(records: drt.CachedDataset) -> drt.CachedDataset[Any]:
    return records.with_transform(seen)[:4]


def test_a_map_style_dataset(ds: drt.CachedDataset[Any]) -> None:
    data = drtt.TorchDataset(ds)
    assert data.decode is seen
    assert (data[1], data[[2, 3]]) == ({"row": 1}, [{"row": 2}, {"row": 3}])
    assert drtt.TorchDataset(ds, decode=other)[1] == {"row": -1}
    assert drtt.TorchDataset(ds, include_index="at")[1] == {"row": 1, "at": 1}
    loader = drtt.make_dataloader(drtt.TorchDataset(ds), batch_size=4, shuffle=False)
    assert [batch["row"].tolist() for batch in loader] == [[0, 1, 2, 3]]


def test_native_batches(ds: drt.CachedDataset[Any]) -> None:
    def rows(**options: Any) -> Any:
        return [batch["row"].tolist() for batch in drtt.NativeLoader(ds, 2, shuffle=False, **options)]

    assert rows() == [[0, 1], [2, 3]]
    assert rows(decode=other) == [[0, -1], [-2, -3]]
    assert len(list(drtt.NativeLoader(ds, 2, weights=[1.0, 1.0, 1.0, 1.0]))) == 2


def test_a_codec(records: drt.CachedDataset) -> None:
    ids = [
        batch["id"].tolist()
        for batch in drtt.NativeLoader(records.with_transform(RECORD)[:4], 2, shuffle=False)
    ]
    assert ids == [[0, 1], [2, 3]]


def test_an_order_does_not_depend_on_it(ds: drt.CachedDataset[Any]) -> None:
    assert list(drtt.EpochSampler(ds, seed=7)) == list(drtt.EpochSampler(ds.with_transform(None), seed=7))


def test_it_takes_no_seed(ds: drt.CachedDataset[Any]) -> None:
    with pytest.raises(drt.InvalidInputError, match="seeded=True needs a decode that takes a seed"):
        drtt.NativeLoader(ds, 2, seeded=True)
    with pytest.raises(drt.InvalidInputError, match="seeded=True needs a decode that takes a seed"):
        drtt.TorchDataset(ds, seeded=True)
