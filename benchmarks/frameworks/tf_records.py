"""TFRecordDataset and parse_single_example, parallel maps, a shuffle buffer of 2,000 records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import records
import tensorflow as tf


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / "data.tfrecord")) as writer:
        for record in records.records():
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[record["image"].tobytes()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(record["label"])])),
                "boxes": tf.train.Feature(float_list=tf.train.FloatList(value=record["boxes"].ravel())),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


SPEC = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "boxes": tf.io.FixedLenFeature(records.BOXES, tf.float32),
}


def parse(data: Any) -> dict[str, Any]:
    found: dict[str, Any] = tf.io.parse_single_example(data, SPEC)
    found["image"] = tf.reshape(tf.io.decode_raw(found["image"], tf.uint8), records.IMAGE)
    return found


def epochs(folder: Path) -> Callable[[], Iterable[dict[str, Any]]]:
    dataset = (
        tf.data.TFRecordDataset(str(folder / "data.tfrecord"))
        .shuffle(2000)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(records.BATCH)
        .prefetch(2)
    )
    return lambda: dataset
