"""A dataset with a transform: what follows it, and what does not depend on it."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import datasetrt as drt
from tests.rows import RowSource

RECORD = drt.codecs.Record({"n": ("int64", ())})
BATCH_SIZES = [7, None]


@pytest.fixture
def packed(tmp_path: Path, quiet: drt.WriterConfig) -> drt.CachedDataset:
    """Ten records that name their codec."""
    rows: Any = [(RECORD.dumps({"n": number}), {"even": number % 2 == 0}) for number in range(10)]
    return drt.cache(RowSource("packed", rows, codec=RECORD), tmp_path, config=quiet)


def label_of(sample: drt.CachedSample) -> int:
    return sample.sample_id


def doubled(sample: drt.CachedSample) -> int:
    return 2 * label_of(sample)


def test_indexing_and_iterating_give_what_the_transform_makes(tiny: drt.CachedDataset) -> None:
    ds = tiny.with_transform(doubled)
    assert (ds[3], ds[-1], list(ds)) == (6, 198, list(range(0, 200, 2)))
    assert ds.transform is doubled
    assert tiny.transform is None
    assert tiny[3] == tiny.with_transform(None)[3] == ds.with_transform(None)[3]


def test_a_loader_without_a_transform_of_its_own_takes_that_of_the_dataset(tiny: drt.CachedDataset) -> None:
    ds = tiny.with_transform(doubled)[:10]
    assert list(ds.loader(batch_size=6)) == [[0, 2, 4, 6, 8, 10], [12, 14, 16, 18]]
    assert list(ds.loader(batch_size=None)) == list(range(0, 20, 2))
    assert list(ds.loader(batch_size=6, collate=sum)) == [30, 60]
    assert list(ds.loader(batch_size=6, transform=label_of)) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    assert list(ds.loader(batch_size=5, transform=lambda sample, seed: 1, seeded=True)) == [[1] * 5] * 2
    assert isinstance(next(iter(ds.with_transform(None).loader())), drt.SampleBatch)
    with pytest.raises(drt.InvalidInputError, match="seeded=True needs a transform"):
        ds.loader(seeded=True)  # type: ignore[call-overload]


def test_views_keep_it(tiny: drt.CachedDataset) -> None:
    ds = tiny.with_transform(doubled)
    views = [
        ds[5:8],
        ds.head(8)[5:],
        ds.filter(pl.col("sample_id").is_between(5, 7)),
        ds.with_metadata(ds.metadata[5:8]),
        ds[5:8].with_weights([1.0, 2.0, 3.0]),
    ]
    assert [list(view) for view in views] == [[10, 12, 14]] * len(views)
    # Another one takes its place.
    assert [view.with_transform(label_of)[0] for view in views] == [5] * len(views)


def test_what_is_stored_does_not_depend_on_it(tiny: drt.CachedDataset) -> None:
    ds = tiny.with_transform(doubled)
    assert list(ds.take([3, 5])) == list(tiny.take([3, 5]))
    assert ds.metadata.equals(tiny.metadata)
    assert (ds.fingerprint, ds.schema, len(ds), ds.reports) == (
        tiny.fingerprint,
        tiny.schema,
        len(tiny),
        tiny.reports,
    )
    assert ds.verify() == tiny.verify()
    order = drt.Shuffle(seed=7)
    assert order.indices(ds).tolist() == order.indices(tiny).tolist()
    state = ds.loader(sampler=order).state_dict()
    tiny.loader(sampler=order).load_state_dict(state)


def test_a_codec_is_a_transform(packed: drt.CachedDataset) -> None:
    ds = packed.with_transform(RECORD)
    assert [ds[3]["n"], *(record["n"] for record in ds)] == [3, *range(10)]
    # As with transform=: the codec is given the whole batch where there is no collate.
    assert [batch["n"].tolist() for batch in ds.loader(batch_size=6)] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    assert [record["n"] for record in ds.loader(batch_size=None)] == list(range(10))
    assert list(ds.loader(batch_size=6, collate=len)) == [6, 4]
    ds[3]["n"][...] = 7  # the arrays of a record are its own


def test_another_codec_is_refused_with_both_names(packed: drt.CachedDataset) -> None:
    with pytest.raises(drt.CodecError, match=r"'record\(n:int64\[\]\)'.*'npy'") as caught:
        packed.with_transform(drt.codecs.Npy())
    assert caught.value.kind == "codec-mismatch"


@pytest.mark.parametrize("transform", [3, "label", pickle])
def test_what_is_no_transform_is_refused(transform: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match="neither a function of a sample nor a codec"):
        tiny.with_transform(transform)


def fails(sample: drt.CachedSample) -> int:
    if label_of(sample) == 37:
        raise KeyError("box")
    return label_of(sample)


def stops(sample: drt.CachedSample) -> int:
    if label_of(sample) == 37:
        raise StopIteration
    return label_of(sample)


READERS: dict[str, Any] = {
    "index": lambda ds: ds[7],
    "negative": lambda ds: ds[7 - len(ds)],
    "iterate": list,
}


@pytest.mark.parametrize("reader", READERS)
def test_what_it_raises_names_the_sample_and_the_row(reader: str, tiny: drt.CachedDataset) -> None:
    ds = tiny.with_transform(fails)[30:]
    with pytest.raises(KeyError) as caught:
        READERS[reader](ds)
    place = f"while transforming sample 37 of cache {tiny.caches[0].cache_id}, row 7 of the dataset"
    assert caught.value.__notes__ == [place]
    with pytest.raises(RuntimeError, match=f"StopIteration was raised {place}"):
        READERS[reader](ds.with_transform(stops))


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
def test_what_it_raises_in_a_loader_names_the_position(batch_size: Any, tiny: drt.CachedDataset) -> None:
    with pytest.raises(KeyError) as caught:
        list(tiny.with_transform(fails)[30:].loader(batch_size=batch_size))
    (note,) = caught.value.__notes__
    assert note.endswith(", at position 7 of epoch 0")


def test_the_place_of_an_error_is_that_of_the_row_beyond_the_first_read(
    tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    rows: Any = [(b"", {"n": number}) for number in range(1000)]
    ds = drt.cache(RowSource("many", rows), tmp_path, config=quiet)

    def last(sample: drt.CachedSample) -> None:
        if sample.sample_id == 999:
            raise KeyError

    with pytest.raises(KeyError) as caught:
        list(ds.with_transform(last))
    assert caught.value.__notes__[0].endswith("row 999 of the dataset")


def test_it_travels_with_the_recipe(tiny: drt.CachedDataset) -> None:
    ds = tiny.with_transform(doubled)[3:]
    again = pickle.loads(pickle.dumps(ds))
    assert "not opened yet" in repr(again)
    # Nothing is opened to give it another one.
    other = again.with_transform(label_of)
    assert "not opened yet" in repr(other)
    assert (again[0], list(again), other[0], other.transform) == (6, list(ds), 3, label_of)
    assert copy.copy(ds).transform is copy.deepcopy(ds).transform is doubled
    loader = ds.loader(batch_size=4)
    first = next(iter(loader))
    assert (first, next(iter(pickle.loads(pickle.dumps(loader))))) == ([6, 8, 10, 12], [14, 16, 18, 20])


def test_what_does_not_pickle_is_named(tiny: drt.CachedDataset) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(tiny.with_transform(lambda sample: 1))


def test_a_dataset_is_generic_at_run_time(tiny: drt.CachedDataset) -> None:
    assert drt.CachedDataset[int].__origin__ is drt.CachedDataset  # type: ignore[attr-defined]
    assert not hasattr(tiny, "__dict__")


def test_repr_names_it(tiny: drt.CachedDataset) -> None:
    assert repr(tiny.with_transform(doubled)).endswith("}, transform doubled)")
    assert repr(tiny.with_transform(drt.codecs.Json())).endswith("}, transform Json())")


def test_weights_are_bound_once_for_all_transforms(tiny: drt.CachedDataset) -> None:
    ds = tiny.with_weights(np.arange(1.0, 101.0))
    order = drt.Weighted(seed=7)
    assert ds._order(order) is ds.with_transform(doubled)._order(order)


def test_a_codec_does_not_go_on_to_rows_that_another_one_packed(
    tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    other = drt.codecs.Record({"n": ("float64", ())})
    for name, codec, value in (("whole", RECORD, 7), ("float", other, 7.0)):
        rows: Any = [(codec.dumps({"n": value}), {}) for _ in range(2)]
        drt.write_cache(RowSource(name, rows, codec=codec), tmp_path, config=quiet)
    both = drt.open_dataset([tmp_path / "whole", tmp_path / "float"])
    whole = both[:2].with_transform(RECORD)
    for table in (both.metadata, both[2:].metadata):
        with pytest.raises(drt.CodecError, match=r"record\(n:float64\[\]\)") as caught:
            whole.with_metadata(table)
        assert caught.value.kind == "codec-mismatch"
    assert [int(record["n"]) for record in whole.with_metadata(both[:2].metadata)] == [7, 7]
    # A function looks at samples, whatever packed them.
    assert len(whole.with_transform(label_of).with_metadata(both.metadata)) == 4
