"""TorchDataset: samples, batches of columns, and what may be done with it."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

import datasetrt as drt
import datasetrt_torch as drtt
from tests.adapters.torch.records import RECORD, decode, decode_failing, decode_stopping, ids_of, joined


def test_samples(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records, decode=decode)
    assert len(data) == 50
    assert data[3] == data[np.int64(3)] == data[torch.tensor(3)] == {"id": 3, "label": 3}
    assert data[-1] == {"id": 49, "label": 9}
    for beyond in (50, -51):
        with pytest.raises(IndexError, match="out of range"):
            data[beyond]


def test_batches(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records, decode=decode)
    expected = [data[5], data[3], data[3]]
    for indices in ([5, 3, 3], (5, 3, 3), np.array([5, 3, 3]), torch.tensor([5, 3, 3])):
        assert data[indices] == data.__getitems__(indices) == expected
    with pytest.raises(IndexError):
        data.__getitems__([0, 50])
    with pytest.raises(drt.InvalidInputError, match=r"wrap dataset.dataset\[2:4\]"):
        data[2:4]  # type: ignore[call-overload]


def test_without_decode_samples_are_those_of_the_core(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records)
    assert data[7] == records[7]
    assert data[[1, 2]] == [records[1], records[2]]


def test_a_path_will_do(records_folder: Path) -> None:
    assert drtt.TorchDataset(records_folder, decode=decode)[4]["id"] == 4
    assert drtt.TorchDataset(str(records_folder), decode=RECORD)[4]["id"] == 4


def test_a_codec_gives_writable_samples(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records, decode=RECORD)
    for sample in (data[4], data[[4]][0]):
        sample["x"][:] = 9
    assert data[4]["x"].tolist() == [4, 4, 4]


def test_columns_are_tensors_made_at_once(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(
        records, decode=RECORD, output="columns", columns=["label", "score", "even"], include_index="row"
    )
    batch = data[[5, 3]]
    assert {name: (part.dtype, tuple(part.shape)) for name, part in batch.items()} == {
        "x": (torch.float32, (2, 3)),
        "id": (torch.int64, (2,)),
        "weight": (torch.float64, (2,)),
        "label": (torch.int64, (2,)),
        "score": (torch.float64, (2,)),
        "even": (torch.bool, (2,)),
        "row": (torch.int64, (2,)),
    }
    assert batch["id"].tolist() == batch["row"].tolist() == [5, 3]
    assert batch["even"].tolist() == [False, False]


def test_samples_have_columns_too(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(
        records, decode=RECORD, columns=["split", "rank"], include_index="row", fill={"rank": -1}
    )
    for sample in (data[-1], data[[49]][0]):
        assert (sample["split"], sample["rank"], sample["row"]) == ("train", -1, 49)
    assert data[1]["rank"] == 1


def test_float64_can_be_narrowed(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records, decode=RECORD, output="columns", columns=["score"], float64="float32")
    batch = data[[8]]
    assert batch["weight"].dtype == batch["score"].dtype == torch.float32
    assert batch["weight"].tolist() == batch["score"].tolist() == [1.0]


def test_missing_values_are_refused_or_filled(records: drt.CachedDataset) -> None:
    with pytest.raises(
        drt.InvalidInputError, match=r"column 'rank' .* missing values; .* fill=\{'rank': …\}"
    ):
        drtt.TorchDataset(records, output="columns", columns=["rank"])
    data = drtt.TorchDataset(records, output="columns", columns=["rank"], fill={"rank": -1})
    assert data[[6, 7, 8]]["rank"].tolist() == [6, -1, 8]
    with pytest.raises(drt.InvalidInputError, match=r"which 0\.5 does not fit"):
        drtt.TorchDataset(records, output="columns", columns=["rank"], fill={"rank": 0.5})
    with pytest.raises(drt.InvalidInputError, match=r"which 9223372036854775808 does not fit"):
        drtt.TorchDataset(records, output="columns", columns=["rank"], fill={"rank": 2**63})
    with pytest.raises(drt.InvalidInputError, match="add them to columns"):
        drtt.TorchDataset(records, output="columns", fill={"rank": 0})


def test_columns_that_with_metadata_added(records: drt.CachedDataset) -> None:
    import polars as pl

    extended = records.with_metadata(records.metadata.with_columns(double=pl.col("label") * 2))
    data = drtt.TorchDataset(extended, output="columns", columns=["double"])
    assert data[[3, 4]]["double"].tolist() == [6, 8]


def test_undecoded_payloads_of_one_size(records: drt.CachedDataset, tiny: drt.CachedDataset) -> None:
    batch = drtt.TorchDataset(records, output="columns")[[1, 2]]
    assert batch["data"].shape == (2, RECORD.size)
    assert batch["data"].dtype == torch.uint8
    assert bytes(batch["data"][0].numpy()) == records[1].data
    with pytest.raises(
        drt.InvalidInputError, match=r"column 'data' .* payloads of 8 to 39 bytes; give decode="
    ):
        drtt.TorchDataset(tiny, output="columns")[[0, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "tensors"}, "'samples' or 'columns'"),
        ({"decode": 7}, "neither a codec nor a function"),
        ({"columns": "label"}, r"\['label'\]"),
        ({"columns": ["nothing"], "decode": decode}, "no column 'nothing'; the dataset has label, split"),
        ({"columns": ["split"], "output": "columns"}, "column 'split' cannot be a tensor: it holds strings"),
        ({"columns": ["label", "label"], "decode": decode}, "twice"),
        ({"columns": ["label"]}, "need decode="),
        ({"float64": "float16"}, "'keep' or 'float32'"),
    ],
)
def test_bad_arguments_are_refused(records: drt.CachedDataset, options: dict[str, Any], message: str) -> None:
    with pytest.raises(drt.InvalidInputError, match=message):
        drtt.TorchDataset(records, **options)


def test_a_column_of_a_type_that_is_not_delivered_is_refused_with_the_cure(
    records: drt.CachedDataset,
) -> None:
    import polars as pl

    dated = records.with_metadata(records.metadata.with_columns(day=pl.lit(date(2024, 2, 29))))
    with pytest.raises(drt.InvalidInputError, match=r"'day' of type Date, which is not delivered; cast it"):
        drtt.TorchDataset(dated, columns=["day"], decode=decode)
    with pytest.raises(drt.InvalidInputError, match=r"no column 'weight'; the dataset has [a-z, ]+$"):
        drtt.TorchDataset(records, columns=["weight"], decode=decode)


def test_another_codec_is_refused(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.CodecError, match="npy"):
        drtt.TorchDataset(records, decode=drt.codecs.Npy())


def test_columns_must_not_hide_what_decode_gives(records: drt.CachedDataset) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"decode gives \['label'\] already"):
        drtt.TorchDataset(records, decode=decode, columns=["label"])[0]
    data = drtt.TorchDataset(records, decode=lambda sample: sample.sample_id, columns=["label"])
    with pytest.raises(drt.InvalidInputError, match="decode gives an int"):
        data[0]


# Other people's code around it


def test_subset_random_split_and_concat_work_as_usual(records: drt.CachedDataset) -> None:
    samples = drtt.TorchDataset(records, decode=decode)
    columns = drtt.TorchDataset(records, decode=decode, output="columns")
    for data in (samples, columns):
        subset: Any = Subset(data, [4, 2])
        loader = DataLoader(subset, batch_size=2, collate_fn=drtt.collate)
        assert ids_of(loader) == [[4, 2]]
        parts = random_split(data, [40, 10])
        seen = [DataLoader(part, batch_size=4, collate_fn=drtt.collate) for part in parts]
        assert sorted(number for part in seen for ids in ids_of(part) for number in ids) == list(range(50))
        both: Any = ConcatDataset([data, data])
        assert len(both) == 100
        loader = DataLoader(both, batch_size=60, collate_fn=drtt.collate)
        assert joined(ids_of(loader)) == 2 * list(range(50))


def test_default_collate_and_batch_samplers_work(records: drt.CachedDataset) -> None:
    samples = drtt.TorchDataset(records, decode=decode)
    assert ids_of(DataLoader(samples, batch_size=25)) == [list(range(25)), list(range(25, 50))]
    columns = drtt.TorchDataset(records, decode=RECORD, output="columns")
    bulk: Any = DataLoader(columns, batch_size=None, sampler=[[3, 1], [2, 0]])  # type: ignore[arg-type]
    assert ids_of(bulk) == [[3, 1], [2, 0]]


# Errors of decode


def test_errors_name_the_sample(records: drt.CachedDataset) -> None:
    cache_id = records[0].cache_id
    for read in (lambda data: data[17], lambda data: data[[16, 17]]):
        with pytest.raises(KeyError) as failed:
            read(drtt.TorchDataset(records, decode=decode_failing))
        assert failed.value.__notes__ == [f"while decoding sample 17 of cache {cache_id}"]
        with pytest.raises(RuntimeError, match="StopIteration was raised while decoding sample 17 of cache"):
            read(drtt.TorchDataset(records, decode=decode_stopping))


def test_stop_iteration_does_not_end_an_epoch(records: drt.CachedDataset) -> None:
    data = drtt.TorchDataset(records, decode=decode_stopping)
    with pytest.raises(RuntimeError, match="sample 17"):
        list(DataLoader(data, batch_size=8))


# Pickles


def test_it_pickles_in_under_a_kilobyte_and_without_reading(
    records: drt.CachedDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data in (
        drtt.TorchDataset(records, decode=decode),
        drtt.TorchDataset(records, decode=RECORD, output="columns", columns=["label"], include_index="row"),
        drtt.TorchDataset(records[10:40:3], decode=decode),
    ):
        blob = pickle.dumps(data)
        assert len(blob) < 1024, len(blob)
        copy = pickle.loads(blob)
        assert "not opened yet" in repr(copy)
        assert type(copy[[0, 1]]) is type(data[[0, 1]])
        assert len(copy) == len(data)
        assert copy[1]["id"] == data[1]["id"]


def test_a_copy_of_another_cache_is_refused_when_it_is_used(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    def write(offset: int) -> drt.CachedDataset:
        source = drt.MapSource("c", range(3), lambda n: drt.CacheInput(bytes([n + offset]), {}))
        config = quiet
        drt.write_cache(source, tmp_path, config=config)
        return drt.open_dataset(tmp_path / "c")

    blob = pickle.dumps(drtt.TorchDataset(write(0)))
    import shutil

    shutil.rmtree(tmp_path / "c")
    write(1)
    with pytest.raises(drt.StaleCacheError):
        pickle.loads(blob)[0]
