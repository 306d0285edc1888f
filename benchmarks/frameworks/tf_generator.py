"""from_generator, one element a record, over one pickle a file."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import records
import tensorflow as tf

SPEC = {
    "image": tf.TensorSpec(records.IMAGE, tf.uint8),
    "label": tf.TensorSpec((), tf.int64),
    "boxes": tf.TensorSpec(records.BOXES, tf.float32),
}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, record in enumerate(records.records()):
        (folder / f"{number:06d}.pkl").write_bytes(pickle.dumps(record, pickle.HIGHEST_PROTOCOL))


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    def elements() -> Iterator[dict[str, Any]]:
        numbers = list(range(records.COUNT))
        random.shuffle(numbers)
        for number in numbers:
            yield pickle.loads((folder / f"{number:06d}.pkl").read_bytes())

    dataset = tf.data.Dataset.from_generator(elements, output_signature=SPEC).batch(records.BATCH).prefetch(2)
    return lambda: dataset
