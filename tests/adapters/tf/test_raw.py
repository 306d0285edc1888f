"""``raw``: every byte of a payload arrives in the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import datasetrt as drt
import datasetrt_tf as drtf
from tests.rows import RowSource

PAYLOADS = [b"\0ab\0\0" + bytes([row]) + b"\0" * row for row in range(20)] + [b"", bytes(range(256)) * 40]


@pytest.fixture
def nuls(tmp_path: Path, quiet: drt.WriterConfig) -> drt.CachedDataset:
    rows = [(payload, {"row": row}) for row, payload in enumerate(PAYLOADS)]
    return drt.cache(RowSource("nuls", rows), tmp_path, config=quiet)


def test_every_byte_arrives(nuls: drt.CachedDataset) -> None:
    data = drtf.raw(nuls, 4, shuffle=False, num_parallel_calls=4)
    assert data.element_spec == {
        "payload": tf.TensorSpec((None,), tf.string),
        "row": tf.TensorSpec((None,), tf.int64),
    }
    assert [payload for batch in data for payload in batch["payload"].numpy().tolist()] == PAYLOADS
    lengths = [n for batch in data for n in tf.strings.length(batch["payload"]).numpy().tolist()]
    assert lengths == list(map(len, PAYLOADS))


def test_the_order_is_the_samplers(nuls: drt.CachedDataset) -> None:
    found = [row for batch in drtf.raw(nuls, 4, seed=9) for row in batch["row"].numpy().tolist()]
    assert found == drt.Shuffle(9).indices(nuls).tolist()


def test_payloads_are_decoded_in_the_graph(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    arrays = np.arange(24, dtype=np.float32).reshape(6, 4)
    rows = [(row.tobytes(), {"row": number}) for number, row in enumerate(arrays)]
    ds = drt.cache(RowSource("floats", rows), tmp_path, config=quiet)
    data = drtf.raw(ds, 3, shuffle=False, payload_key="floats", columns=[], tail="drop").map(
        lambda batch: tf.io.decode_raw(batch["floats"], tf.float32, fixed_length=16)
    )
    assert np.concatenate([batch.numpy() for batch in data]).tobytes() == arrays.tobytes()


def test_a_cache_without_metadata_and_a_name_that_is_taken(
    nuls: drt.CachedDataset, tmp_path: Path, quiet: drt.WriterConfig
) -> None:
    bare = drt.cache(RowSource("bare", [(b"a", {}), (b"b", {})]), tmp_path / "bare", config=quiet)
    (batch,) = drtf.raw(bare, 2, shuffle=False)
    assert batch["payload"].numpy().tolist() == [b"a", b"b"]
    with pytest.raises(drt.InvalidInputError, match="there is no column: no metadata, and no decode"):
        drtf.dataset(bare, 2)
    with pytest.raises(drt.InvalidInputError, match="payload_key = 'row' is the name of a metadata column"):
        drtf.raw(nuls, 2, payload_key="row", columns=["row"])


def test_padding_and_resuming(nuls: drt.CachedDataset, tmp_path: Path) -> None:
    batches = list(drtf.raw(nuls, 8, seed=1, tail="pad"))
    assert [len(batch["payload"]) for batch in batches] == [8, 8, 8]
    assert sum(int(tf.reduce_sum(tf.cast(batch["mask"], tf.int32))) for batch in batches) == len(PAYLOADS)
    state = drtf.cursor(nuls, 8, seed=1, tail="pad", global_step=2)
    (rest,) = drtf.raw(nuls, 8, seed=1, tail="pad", start=state)
    assert rest["payload"].numpy().tolist() == batches[2]["payload"].numpy().tolist()
