"""A dataset's own transform stands in for ``decode``, and nothing is transformed twice."""

from __future__ import annotations

from typing import Any

import pytest

import datasetrt as drt
import datasetrt_jax as drtj


def seen(sample: drt.CachedSample) -> dict[str, Any]:
    """Fails for what is no stored sample, such as its own result."""
    return {"row": sample.sample_id}


def other(sample: drt.CachedSample) -> dict[str, Any]:
    return {"row": -sample.sample_id}


@pytest.fixture
def transformed() -> drt.CachedDataset[Any]:
    return drt.testing.tiny_dataset(4).with_transform(seen)


@pytest.mark.parametrize("options", [{}, {"weights": [1.0] * 4, "seed": 2}])
def test_batches(options: dict[str, Any], transformed: drt.CachedDataset[Any]) -> None:
    given: dict[str, Any] = {"global_batch": 2, "num_epochs": 1, **(options or {"shuffle": False})}

    def rows(**decode: Any) -> Any:
        return [batch["row"].tolist() for batch in drtj.batches(transformed, **given, **decode)]

    sampler = drt.Weighted(2) if options else drt.Sequential()
    order = sampler.indices(transformed).tolist()
    assert rows() == [order[:2], order[2:]]
    assert rows(decode=other) == [[-row for row in part] for part in rows()]


def test_sources_for_grain(transformed: drt.CachedDataset[Any]) -> None:
    assert drtj.GrainSource(transformed)[3] == {"row": 3}
    assert drtj.GrainSource(transformed, decode=other)[3] == {"row": -3}
    source = drtj.GrainBatchSource(transformed, global_batch=4, num_epochs=1, shuffle=False)
    assert source[0]["row"].tolist() == [0, 1, 2, 3]


def test_a_codec() -> None:
    codec = drt.codecs.Record({"n": ("int32", ())})
    source = drt.MapSource("n", range(4), lambda n: drt.CacheInput(codec.dumps({"n": n}), {}), codec=codec)
    ds = drt.cache(source, drt.testing.tiny_dataset().caches[0].path.parent).with_transform(codec)
    (batch,) = drtj.batches(ds, global_batch=4, num_epochs=1, shuffle=False)
    assert batch["n"].tolist() == [0, 1, 2, 3]


def test_it_takes_no_seed(transformed: drt.CachedDataset[Any]) -> None:
    with pytest.raises(drt.InvalidInputError, match="seeded=True needs a decode that takes a seed"):
        drtj.batches(transformed, global_batch=2, seeded=True)
