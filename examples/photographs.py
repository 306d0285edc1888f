"""Photographs as they are: JPEG and PNG files become payloads, Pillow decodes them on reading.

    python examples/photographs.py [ROOT]

The pictures are the ones that scikit-image and scikit-learn install; nothing is downloaded. Every claim is
checked.
"""

import io
import sys
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

import datasetrt as drt

SIDE = 64  # pixels of a thumbnail
BUNDLED = {
    "scikit-learn": ("china.jpg", "flower.jpg"),
    "scikit-image": (
        *("astronaut.png", "brick.png", "camera.png", "cell.png", "chelsea.png", "coffee.png", "coins.png"),
        *("grass.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png", "moon.png"),
        *("motorcycle_left.png", "motorcycle_right.png", "retina.jpg", "rocket.jpg"),
    ),
}


def bundled_file(package: str, name: str) -> Traversable:
    """Where an installed package keeps a picture."""
    if package == "scikit-learn":
        return files("sklearn").joinpath("datasets", "images", name)
    return files("skimage").joinpath("data", name)


class PhotographSource:
    """The bytes of each file, unchanged; what the table needs to know is read from the header."""

    name = "photographs"
    fingerprint = "pictures of scikit-image and scikit-learn; version 1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for package, names in BUNDLED.items():
            for name in names:
                data = bundled_file(package, name).read_bytes()
                with Image.open(io.BytesIO(data)) as picture:
                    metadata = {
                        "file": name,
                        "source": package,
                        "format": picture.format,
                        "width": picture.width,
                        "height": picture.height,
                    }
                yield drt.CacheInput(data, metadata)

    def __len__(self) -> int:
        return sum(len(names) for names in BUNDLED.values())


def decode(sample: drt.CachedSample) -> Image.Image:
    """The whole picture in RGB."""
    return Image.open(io.BytesIO(sample.data)).convert("RGB")


def thumbnail(sample: drt.CachedSample) -> np.ndarray:
    """The picture shrunk to (SIDE, SIDE, 3) bytes."""
    return np.asarray(decode(sample).resize((SIDE, SIDE)))


def is_unchanged(sample: drt.CachedSample) -> bool:
    """Whether the payload is the file as it was installed."""
    original = bundled_file(str(sample.metadata["source"]), str(sample.metadata["file"]))
    return sample.data == original.read_bytes()


def has_its_size(sample: drt.CachedSample) -> bool:
    """Whether the decoded picture has the width and height of the table."""
    return bool(decode(sample).size == (sample.metadata["width"], sample.metadata["height"]))


def main(root: Path) -> None:
    """Write or reuse the photographs in ``root``, compare them with the files, and read them in batches."""
    dataset = drt.cache(PhotographSource(), root)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=120):
        print(dataset.metadata.drop("cache_id", "weight"))

    check(all(is_unchanged(sample) for sample in dataset), "every file came back byte for byte")
    check(all(has_its_size(sample) for sample in dataset), "every picture decodes to the size in the table")

    wide = dataset.filter(pl.col("width") > pl.col("height"))
    loader = wide.loader(batch_size=4, sampler=drt.Shuffle(seed=3), transform=thumbnail, collate=np.stack)
    batches = list(loader)
    print(f"{len(wide)} pictures are wider than high: {len(batches)} batches, the first {batches[0].shape}")
    check(sum(len(batch) for batch in batches) == len(wide), "every one of them was delivered once")


def check(holds: bool, claim: str) -> None:
    """Say that a claim holds, or end the program."""
    if not holds:
        raise SystemExit(f"does not hold: {claim}")
    print(f"checked: {claim}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("cache"))
