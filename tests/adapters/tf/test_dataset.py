"""``dataset``: its spec, its order, its epochs, its checkpoints, and what becomes of what decode returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import tensorflow as tf

import datasetrt as drt
import datasetrt_tf as drtf
from tests.adapters.tf.conftest import CODEC, ROWS, joined

CHECKPOINT_BYTES = 16 * 1024


def _ys(batches: Any) -> list[list[int]]:
    return [batch["y"].numpy().tolist() for batch in batches]


def _order(ds: drt.CachedDataset, epochs: int, batch: int = 10, seed: int = 2) -> list[list[int]]:
    orders = [drt.Shuffle(seed).indices(ds, epoch=epoch).tolist() for epoch in range(epochs)]
    return [order[at : at + batch] for order in orders for at in range(0, len(order), batch)]


def test_it_is_a_pipeline_of_known_length_and_spec(records: drt.CachedDataset) -> None:
    data = drtf.dataset(records, 30, decode=CODEC, seed=2)
    assert isinstance(data, tf.data.Dataset)
    assert len(data) == 4
    assert data.element_spec == {
        "x": tf.TensorSpec((None, 8), tf.float32),
        "y": tf.TensorSpec((None,), tf.int64),
    }
    assert drtf.dataset(records, 30, decode=CODEC, tail="drop").element_spec["x"].shape == (30, 8)
    endless = drtf.dataset(records, 30, decode=CODEC, num_epochs=None)
    assert int(endless.cardinality()) == tf.data.INFINITE_CARDINALITY


def test_the_options_are_set(records: drt.CachedDataset) -> None:
    options = drtf.dataset(records, 30, decode=CODEC).options()
    assert options.deterministic
    off = tf.data.experimental.AutoShardPolicy.OFF
    assert options.experimental_distribute.auto_shard_policy == off


@pytest.mark.parametrize("calls", [None, 1, 4, tf.data.AUTOTUNE])
@pytest.mark.parametrize("prefetch", [0, 3])
def test_epochs_follow_each_other_in_the_sampler_order(
    records: drt.CachedDataset, calls: int | None, prefetch: int
) -> None:
    data = drtf.dataset(
        records, 30, decode=CODEC, seed=2, num_epochs=3, num_parallel_calls=calls, prefetch=prefetch
    )
    assert _ys(data) == _order(records, 3, 30)


def test_a_path_is_a_source(records: drt.CachedDataset) -> None:
    path = records.caches[0].path
    assert _ys(drtf.dataset(Path(path), 10, decode=CODEC, seed=2)) == _order(records, 1)


# Checkpoints


@pytest.mark.parametrize("epochs", [2, None])
def test_a_checkpoint_restores_at_every_step(
    records: drt.CachedDataset, tmp_path: Path, epochs: int | None
) -> None:
    def batches() -> Any:
        return iter(drtf.dataset(records, 30, decode=CODEC, seed=2, num_epochs=epochs, prefetch=4))

    want = _order(records, 4, 30)[: 8 if epochs else 16]
    straight = batches()
    for step in range(len(want)):
        saved = tf.train.Checkpoint(it=straight).write(str(tmp_path / f"step {step}"))
        restored = batches()
        tf.train.Checkpoint(it=restored).read(saved).assert_consumed()
        found = _ys(next(restored) for _ in range(min(5, len(want) - step)))
        assert found == want[step : step + 5], f"after step {step}"
        next(straight)


def test_a_checkpoint_does_not_hold_what_is_read_ahead(tmp_path: Path) -> None:
    codec = drt.codecs.Record({"image": ("uint8", (64, 64, 3))})
    image = codec.dumps({"image": np.zeros((64, 64, 3), np.uint8)})
    source = drt.MapSource("images", range(600), lambda _: drt.CacheInput(image, {}), codec=codec)
    ds = drt.cache(source, tmp_path, config=drt.WriterConfig(progress=False, workers=1))
    data = drtf.dataset(ds, 50, decode=codec, num_epochs=None, num_parallel_calls=4, prefetch=4)
    batches = iter(data.map(lambda batch: batch["image"] / 255, num_parallel_calls=2).prefetch(2))
    next(batches)
    tf.train.Checkpoint(it=batches).write(str(tmp_path / "ck"))
    assert sum(file.stat().st_size for file in tmp_path.glob("ck*")) < CHECKPOINT_BYTES


def test_a_chain_of_the_users_is_restored_too(records: drt.CachedDataset, tmp_path: Path) -> None:
    def batches() -> Any:
        data = drtf.dataset(records, 30, decode=CODEC, seed=2, num_epochs=2)
        return iter(data.map(lambda batch: batch["y"] * 2, num_parallel_calls=2).unbatch().batch(7))

    want = [batch.numpy().tolist() for batch in batches()]
    first = batches()
    head = [next(first).numpy().tolist() for _ in range(9)]
    saved = tf.train.Checkpoint(it=first).write(str(tmp_path / "ck"))
    second = batches()
    tf.train.Checkpoint(it=second).read(saved)
    assert head + [batch.numpy().tolist() for batch in second] == want


# Places


def test_a_cursor_goes_from_framework_to_framework(records: drt.CachedDataset) -> None:
    want = _order(records, 3)
    state = json.loads(json.dumps(drtf.cursor(records, 10, seed=2, global_step=13)))
    assert _ys(drtf.dataset(records, 10, decode=CODEC, seed=2, num_epochs=3, start=state)) == want[13:]
    loader = records.loader(batch_size=10, sampler=drt.Shuffle(2), transform=CODEC)
    loader.load_state_dict(state)
    assert [batch["y"].tolist() for batch in loader] == want[13:20]
    back = loader.state_dict()
    assert _ys(drtf.dataset(records, 10, decode=CODEC, seed=2, num_epochs=3, start=back)) == want[20:]


def test_a_cursor_counts_from_the_start_that_was_given(records: drt.CachedDataset) -> None:
    first = drtf.cursor(records, 30, seed=2, global_step=6)
    again = drtf.cursor(records, 30, seed=2, global_step=3, start=first)
    assert again == drtf.cursor(records, 30, seed=2, global_step=9)


def test_a_start_is_a_number_of_steps(records: drt.CachedDataset) -> None:
    data = drtf.dataset(records, 30, decode=CODEC, seed=2, num_epochs=2, start=5)
    assert len(data) == 3
    assert _ys(data) == _order(records, 2, 30)[5:]
    assert len(drtf.dataset(records, 30, decode=CODEC, num_epochs=2, start=8)) == 0


def test_ranks_share_each_global_batch(records: drt.CachedDataset) -> None:
    ranks = [
        list(drtf.dataset(records, 8, decode=CODEC, seed=2, shard=drt.Shard(rank, 3, "pad")))
        for rank in range(3)
    ]
    want = _order(records, 1, 24)
    for step, parts in enumerate(zip(*ranks, strict=True)):
        rows = [part["y"].numpy()[part["mask"].numpy()].tolist() for part in parts]
        assert joined(rows) == want[step]
        assert len({len(part["y"]) for part in parts}) == 1


# Tails


def test_short_drop_and_pad(records: drt.CachedDataset) -> None:
    want = _order(records, 1, 30)
    assert _ys(drtf.dataset(records, 30, decode=CODEC, seed=2, tail="drop")) == want[:3]
    padded = list(drtf.dataset(records, 30, decode=CODEC, seed=2, tail="pad", mask_key="real"))
    assert [batch["x"].shape for batch in padded] == [(30, 8)] * 4
    assert _ys(padded)[3] == want[3] + want[0][:20]  # 10 of 30 are left, and the start of the epoch
    assert padded[3]["real"].numpy().tolist() == [True] * 10 + [False] * 20
    assert padded[0]["real"].numpy().all()


def test_one_shape_is_one_trace(records: drt.CachedDataset) -> None:
    traces = []

    @tf.function
    def step(x: Any) -> Any:
        traces.append(x.shape)
        return tf.reduce_sum(x)

    for batch in drtf.dataset(records, 30, decode=CODEC, tail="pad", num_epochs=2):
        step(batch["x"])
    assert traces == [(30, 8)]


# What decode returns


def test_a_function_of_a_sample(records: drt.CachedDataset) -> None:
    def decode(sample: drt.CachedSample) -> dict[str, Any]:
        number = sample.metadata["third"]
        return {"third": number, "pair": np.full((2, 1), sample.sample_id, np.uint8), "text": f"é{number}"}

    data = drtf.dataset(records, 30, decode=decode, shuffle=False)
    assert data.element_spec["pair"] == tf.TensorSpec((None, 2, 1), tf.uint8)
    batch = list(data)[1]
    assert batch["third"].numpy().tolist() == [row % 3 for row in range(30, 60)]
    assert batch["pair"].numpy()[:, 1, 0].tolist() == list(range(30, 60))
    assert batch["text"].numpy()[1] == "é1".encode()


def test_a_tuple_and_a_single_value(records: drt.CachedDataset) -> None:
    pairs = drtf.dataset(records, 4, decode=lambda s: (s.sample_id, [1.0, 2.0]), shuffle=False)
    assert pairs.element_spec == (
        tf.TensorSpec((None,), tf.int64),
        tf.TensorSpec((None, 2), tf.float64),
    )
    assert next(iter(pairs))[0].numpy().tolist() == [0, 1, 2, 3]
    single = drtf.dataset(records, 4, decode=lambda sample: sample.sample_id, shuffle=False)
    assert next(iter(single)).numpy().tolist() == [0, 1, 2, 3]


def test_codecs_without_batches_and_codecs_of_objects(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    codecs: list[Any] = [drt.codecs.Json(), drt.codecs.Pickle(allow="numpy"), drt.codecs.Npy()]
    for codec in codecs:
        record = [1.5, 2.5] if codec.name == "json" else np.array([1.5, 2.5])
        rows = drt.MapSource(codec.name, range(5), _packed(codec, record), codec=codec)
        data = drtf.dataset(drt.cache(rows, tmp_path, config=quiet), 2, decode=codec, shuffle=False)
        assert [batch.numpy().tolist() for batch in data] == [[[1.5, 2.5]] * n for n in (2, 2, 1)]


def _packed(codec: Any, record: Any) -> Any:
    return lambda number: drt.CacheInput(codec.dumps(record), {})


def test_columns_of_the_metadata_beside_decoded_ones(records: drt.CachedDataset) -> None:
    names = ["y", "third", "name", "sample_id", "cache_id"]
    for decode in (CODEC, lambda sample: {"y": sample.sample_id, "x": 0}):
        batch = next(iter(drtf.dataset(records, 3, decode=decode, shuffle=False, columns=names)))
        assert list(batch) == names
        assert batch["third"].numpy().tolist() == [0, 1, 2]
        assert batch["name"].numpy().tolist() == [b"row 0", b"row 1", b"row 2"]
        assert batch["sample_id"].numpy().tolist() == batch["y"].numpy().tolist() == [0, 1, 2]
        assert batch["cache_id"].numpy().tolist() == [records.caches[0].cache_id.encode()] * 3


def test_without_decode_it_is_the_metadata_and_added_columns(records: drt.CachedDataset) -> None:
    view = records.with_metadata(records.metadata.with_columns(half=pl.col("third") / 2))
    data = drtf.dataset(view, 3, shuffle=False)
    assert {name: spec.dtype for name, spec in data.element_spec.items()} == {
        "third": tf.int64,
        "name": tf.string,
        "half": tf.float64,
    }
    assert next(iter(data))["half"].numpy().tolist() == [0.0, 0.5, 1.0]


def test_missing_metadata_is_filled_or_refused(records: drt.CachedDataset) -> None:
    known = pl.when(pl.col("third") > 0)
    gaps = records.metadata.with_columns(gap=known.then(pl.col("third")), note=known.then(pl.col("name")))
    view = records.with_metadata(gaps)
    for name in ("gap", "note"):
        with pytest.raises(drt.CodecError, match=f"column '{name}': the metadata has missing values"):
            drtf.dataset(view, 3, columns=[name])
    columns = ["gap", "note"]
    for decode in (None, lambda sample: {"y": 0}):
        batch = next(
            iter(
                drtf.dataset(
                    view, 3, decode=decode, shuffle=False, columns=columns, fill={"gap": -1, "note": "?"}
                )
            )
        )
        assert batch["gap"].numpy().tolist() == [-1, 1, 2]
        assert batch["note"].numpy().tolist() == [b"?", b"row 1", b"row 2"]


def test_ragged_columns(records: drt.CachedDataset) -> None:
    def decode(sample: drt.CachedSample) -> dict[str, Any]:
        return {
            "tokens": np.arange(sample.sample_id % 4, dtype=np.int32),
            "words": ["w"] * (1 + sample.sample_id % 2),
        }

    data = drtf.dataset(records, 5, decode=decode, shuffle=False, ragged=["tokens", "words"])
    spec = data.element_spec["tokens"]
    assert isinstance(spec, tf.RaggedTensorSpec)
    assert (spec.dtype, spec.shape.as_list()) == (tf.int32, [None, None])
    batch = next(iter(data))
    assert batch["tokens"].to_list() == [[], [0], [0, 1], [0, 1, 2], []]
    assert batch["words"].to_list() == [[b"w"], [b"w", b"w"], [b"w"], [b"w", b"w"], [b"w"]]
    dropped = drtf.dataset(records, 5, decode=decode, ragged=["tokens", "words"], tail="drop")
    assert next(iter(dropped))["tokens"].shape == (5, None)


def test_a_signature_declares_what_the_first_row_does_not_show(records: drt.CachedDataset) -> None:
    def decode(sample: drt.CachedSample) -> dict[str, Any]:
        return {"a": sample.sample_id / 2, "b": np.zeros(1 + sample.sample_id // 10)}

    signature = {"a": tf.TensorSpec((None,), tf.float32), "b": tf.TensorSpec((None, None), tf.float32)}
    data = drtf.dataset(records, 10, decode=decode, shuffle=False, signature=signature)
    assert data.element_spec["b"].shape.as_list() == [None, None]
    batches = list(data)
    assert batches[3]["b"].shape == (10, 4)
    assert batches[0]["a"].dtype == tf.float32
    ragged = {"b": tf.RaggedTensorSpec((None, None), tf.float32)}
    data = drtf.dataset(records, 20, decode=decode, shuffle=False, signature=ragged)
    assert next(iter(data))["b"].row_lengths().numpy().tolist() == [1] * 10 + [2] * 10


def test_inputs_and_targets_for_keras(records: drt.CachedDataset) -> None:
    data = drtf.dataset(records, 30, decode=CODEC, as_tuple=("x", ["y"]), shuffle=False)
    inputs, targets = next(iter(data))
    assert inputs.shape == (30, 8)
    assert targets["y"].numpy().tolist() == list(range(30))
    padded = drtf.dataset(records, 30, decode=CODEC, as_tuple=("x", "y"), shuffle=False, tail="pad")
    *_, (_, _, weights) = padded
    assert weights.numpy().tolist() == [1.0] * 10 + [0.0] * 20


def test_seeds_depend_on_the_place_alone(records: drt.CachedDataset) -> None:
    def decode(sample: drt.CachedSample, seed: int) -> dict[str, Any]:
        return {"y": sample.sample_id, "noise": seed}

    def noise(batches: Any) -> list[tuple[int, int]]:
        return [tuple(row) for b in batches for row in zip(b["y"].numpy(), b["noise"].numpy(), strict=True)]

    options: Any = {"decode": decode, "seeded": True, "seed": 5, "num_epochs": 2}
    straight = noise(drtf.dataset(records, 10, **options))
    assert noise(drtf.dataset(records, 10, start=13, **options)) == straight[130:]
    assert noise(drtf.dataset(records, 25, **options)) == straight
    core = records.loader(batch_size=10, sampler=drt.Shuffle(5), transform=decode, seeded=True)
    assert [(r["y"], r["noise"]) for batch in core for r in batch] == straight[:ROWS]


def test_weights_and_any_sampler(records: drt.CachedDataset) -> None:
    heavy = pl.when(pl.col("third") == 0).then(50.0).otherwise(1.0)
    view = records.with_weights(heavy)
    want = drt.Weighted(seed=4).indices(view).tolist()
    assert joined(_ys(drtf.dataset(view, 10, decode=CODEC, weights=True, seed=4))) == want
    assert joined(_ys(drtf.dataset(records, 10, decode=CODEC, weights=heavy, seed=4))) == want
    blocks = drt.BlockShuffle(seed=4, block_samples=5, window_blocks=2)
    found = joined(_ys(drtf.dataset(records, 10, decode=CODEC, sampler=blocks)))
    assert found == blocks.indices(records).tolist()


def test_damage_can_be_substituted(records: drt.CachedDataset, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "records"
    shutil.copytree(records.caches[0].path, folder)
    shard = folder / "shards" / "000000.bin"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    damaged = drt.open_dataset(folder)
    with pytest.raises(tf.errors.OpError, match="CorruptionError"):
        list(drtf.dataset(damaged, 10, decode=CODEC))
    options: Any = {"decode": CODEC, "shuffle": False, "on_corrupt": "substitute"}
    batches = list(drtf.dataset(damaged, 10, substituted_key="stand_in", **options))
    found = np.concatenate([batch["y"].numpy() for batch in batches])
    stand_in = np.concatenate([batch["stand_in"].numpy() for batch in batches])
    assert (len(found), stand_in.sum()) == (ROWS, 1)
    assert np.flatnonzero(found != np.arange(ROWS)).tolist() == np.flatnonzero(stand_in).tolist()
    with pytest.raises(drt.InvalidInputError, match="substituted_key = 'y' is the name of a column"):
        drtf.dataset(damaged, 10, substituted_key="y", **options)
