"""TensorFlow for the tests: two logical CPUs, and a dataset of records and one of rows with metadata.

Some files here run without TensorFlow too: what Keras takes on another backend needs none of it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import datasetrt as drt

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROWS = 100
CODEC = drt.codecs.Record({"x": ("float32", (8,)), "y": ("int64", ())})

if importlib.util.find_spec("tensorflow") is not None:
    import tensorflow as tf

    # Before TensorFlow looks at its devices: a strategy of two replicas needs two.
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def joined(parts: Iterable[list[int]]) -> list[int]:
    """The rows of all parts, one after the other."""
    return [row for part in parts for row in part]


class Records:
    """Row ``i`` has ``x`` full of ``i``, and ``y = i``."""

    name = "records"
    codec = CODEC

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for row in range(ROWS):
            record = {"x": np.full(8, row, np.float32), "y": row}
            yield drt.CacheInput(CODEC.dumps(record), {"third": row % 3, "name": f"row {row}"})


@pytest.fixture(scope="session")
def records_folder(tmp_path_factory: pytest.TempPathFactory, quiet: drt.WriterConfig) -> Path:
    """The folder of a cache of :class:`Records`, written once a run."""
    return Path(drt.write_cache(Records(), tmp_path_factory.mktemp("records"), config=quiet).path)


@pytest.fixture
def records(records_folder: Path) -> drt.CachedDataset:
    """A freshly opened dataset of :class:`Records`."""
    return drt.open_dataset(records_folder)
