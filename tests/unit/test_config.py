"""Options are checked when they are made, and say in one line what is wrong."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasetrt as drt


def test_defaults_are_those_of_the_contract() -> None:
    config = drt.WriterConfig()
    assert (config.compression, config.compression_level, config.threads, config.workers) == (
        "none",
        None,
        None,
        1,
    )
    assert (config.max_shard_bytes, config.queue_bytes) == (256 << 20, 64 << 20)
    assert (config.worker_start_method, config.progress) == ("forkserver", True)
    assert drt.ReaderConfig().max_open_shards == 128


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"compression": "gzip"}, ["WriterConfig.compression", "'gzip'", "'zstd'"]),
        ({"workers": 0}, ["WriterConfig.workers", "0", "greater than or equal to 1"]),
        ({"max_shard_bytes": 2**63}, ["max_shard_bytes", "less than"]),
        ({"workers": True}, ["workers", "True", "whole number"]),
        ({"workers": 1.0}, ["workers", "1.0", "whole number"]),
        ({"workers": "2"}, ["workers", "'2'", "whole number"]),
        ({"threads": 0}, ["threads", "0"]),
        ({"max_shard_bytes": 0}, ["max_shard_bytes", "0"]),
        ({"queue_bytes": -1}, ["queue_bytes", "-1"]),
        ({"compression_level": 3}, ["compression_level", "3", "zstd"]),
        ({"compression": "zstd", "compression_level": 23}, ["compression_level", "23", "22"]),
        ({"worker_start_method": "thread"}, ["worker_start_method", "'thread'", "'spawn'"]),
        ({"progress": 1}, ["progress", "1"]),
        ({"progress": "yes"}, ["progress", "'yes'"]),
        ({"worker": 2}, ["worker", "did you mean workers?"]),
        ({"shards": 2}, ["'shards'", "max_shard_bytes"]),
    ],
)
def test_a_refused_value_is_named_with_its_cure(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(drt.InvalidInputError) as refusal:
        drt.WriterConfig(**values)
    for word in words:
        assert word in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert refusal.value.kind == "invalid-argument"


def test_numpy_integers_are_numbers() -> None:
    assert drt.WriterConfig(workers=np.int64(3)).workers == 3  # type: ignore[arg-type]


def test_configs_are_frozen_and_compare_and_pickle() -> None:
    config = drt.WriterConfig(compression="zstd", compression_level=7)
    with pytest.raises(ValueError, match="frozen"):
        config.workers = 2
    assert pickle.loads(pickle.dumps(config)) == config != drt.WriterConfig()


def test_reader_config_is_checked_too() -> None:
    with pytest.raises(drt.InvalidInputError, match=r"ReaderConfig\.max_open_shards = 0"):
        drt.ReaderConfig(max_open_shards=0)


def test_the_engine_takes_so_many_threads() -> None:
    assert drt.WriterConfig(threads=1024).threads == 1024
    with pytest.raises(drt.InvalidInputError, match=r"WriterConfig\.threads = 1025"):
        drt.WriterConfig(threads=1025)


@pytest.mark.parametrize(
    "config",
    [
        drt.WriterConfig.model_construct(threads=0),
        drt.WriterConfig.model_construct(queue_bytes=-1),
        drt.WriterConfig().model_copy(update={"compression": "gzip"}),
    ],
    ids=["constructed", "negative", "copied"],
)
def test_a_config_that_was_not_checked_is_checked_when_it_is_used(
    config: drt.WriterConfig, tmp_path: Path
) -> None:
    source = drt.MapSource("s", range(3), lambda n: drt.CacheInput(b"x", {"n": n}))
    for write in (drt.write_cache, drt.cache):
        with pytest.raises(drt.InvalidInputError, match=r"WriterConfig\."):
            write(source, tmp_path, config=config)
    assert not list(tmp_path.iterdir())


def test_a_reader_config_that_was_not_checked_is_checked_when_it_is_used(tiny_folder: Path) -> None:
    with pytest.raises(drt.InvalidInputError, match=r"ReaderConfig\.max_open_shards = -5"):
        drt.open_dataset(tiny_folder, config=drt.ReaderConfig.model_construct(max_open_shards=-5))


@pytest.mark.parametrize("config", [drt.WriterConfig(), drt.ReaderConfig()], ids=lambda c: type(c).__name__)
def test_a_config_is_frozen_and_says_so_in_one_line(config: Any) -> None:
    field = next(iter(type(config).model_fields))
    before = config.model_copy()
    for change in (lambda: setattr(config, field, 7), lambda: setattr(config, "extra\n", 7)):
        with pytest.raises(drt.InvalidInputError) as refused:
            change()
        for words in (type(config).__name__, "7", "frozen", "model_copy"):
            assert words in str(refused.value)
        assert "\n" not in str(refused.value)
    with pytest.raises(drt.InvalidInputError, match="frozen"):
        delattr(config, field)
    assert config == before


def test_limits_are_told_with_all_their_digits() -> None:
    with pytest.raises(drt.InvalidInputError, match=f"less than {2**63}"):
        drt.WriterConfig(queue_bytes=2**63)


def test_progress_may_be_a_function() -> None:
    with pytest.raises(drt.InvalidInputError, match="True, False or a function"):
        drt.WriterConfig(progress=3)  # type: ignore[arg-type]
