"""Records that pickle refuses: each reading carries the calibration function of the sensor that made it.

    python examples/dill_records.py [ROOT]

dill packs closures and classes of the running program by value. Its data is code: reading it takes
``trust=True``, and is only for caches you wrote yourself. Every claim is checked.
"""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

import datasetrt as drt

CODEC = drt.codecs.Dill(trust=True)


@dataclass
class Reading:
    """Raw counts of a sensor, and how that sensor turns counts into degrees."""

    counts: np.ndarray
    calibrate: Callable[[np.ndarray], np.ndarray]


def calibration(gain: float, offset: float) -> Callable[[np.ndarray], np.ndarray]:
    """The calibration of one sensor: a closure over its constants."""
    return lambda counts: counts * gain + offset


class ReadingSource:
    """A hundred readings of four sensors, with the mean in degrees as metadata."""

    name = "readings"
    fingerprint = "four simulated sensors, seed 0; version 1"
    codec = CODEC

    def __iter__(self) -> Iterator[drt.CacheInput]:
        random = np.random.default_rng(0)
        sensors = [calibration(gain=0.1 + sensor / 100, offset=-float(sensor)) for sensor in range(4)]
        for number in range(100):
            sensor = number % len(sensors)
            reading = Reading(random.integers(0, 1000, size=50), sensors[sensor])
            mean = float(reading.calibrate(reading.counts).mean())
            yield drt.CacheInput(CODEC.dumps(reading), {"sensor": sensor, "mean": mean})


# Run by a second interpreter that has neither the class nor the functions of this file.
STRANGER = """
import sys, datasetrt as drt
dataset = drt.open_dataset(sys.argv[1])
sample = dataset[7]
reading = drt.codecs.Dill(trust=True).loads(sample.data)
assert float(reading.calibrate(reading.counts).mean()) == sample.metadata["mean"]
print(f"another interpreter: sensor {sample.metadata['sensor']}, {sample.metadata['mean']:.2f} degrees")
"""


def main(root: Path) -> None:
    """Write or reuse the readings in ``root``, and read them back in three ways."""
    dataset = drt.cache(ReadingSource(), root)
    print(dataset.metadata.head(4))
    print(f"codec named by the cache: {dataset.codec}")

    check(not pickle_accepts(CODEC.loads(dataset[0].data)), "pickle refuses these records")

    warm = dataset.filter(pl.col("mean") > pl.col("mean").mean())
    loader = warm.loader(batch_size=16, sampler=drt.Shuffle(seed=1), transform=mean_of)
    pairs = [pair for batch in loader for pair in batch]
    print(f"{len(pairs)} of {len(dataset)} readings are warmer than the average")
    check(len(pairs) == len(warm), "every selected reading was delivered once")
    check(all(computed == stored for computed, stored in pairs), "the closures compute what was stored")

    subprocess.run([sys.executable, "-c", STRANGER, str(root / "readings")], check=True)


def mean_of(sample: drt.CachedSample) -> tuple[float, object]:
    """The mean computed by the record's own function, and the one in the metadata."""
    reading = CODEC.loads(sample.data)
    return float(reading.calibrate(reading.counts).mean()), sample.metadata["mean"]


def pickle_accepts(record: object) -> bool:
    """Whether the standard library can pack the record."""
    try:
        pickle.dumps(record)
    except (pickle.PicklingError, AttributeError):
        return False
    return True


def check(holds: bool, claim: str) -> None:
    """Say that a claim holds, or end the program."""
    if not holds:
        raise SystemExit(f"does not hold: {claim}")
    print(f"checked: {claim}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("cache"))
