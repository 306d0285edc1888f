"""Writes v1.json, the golden vectors of sampling version 1. Run once; frozen since.

From the repository's root: ``python -m testdata.sampler.build``. A run must leave v1.json as it is; a new
algorithm gets a new file and a new builder.

A case has the sampler and its arguments, rows, epoch, start and the expected ``indices`` from there. Weights
are null (none), a list, or the name of a formula for the weight of row i, which is computed in double:
``harmonic`` is 1 / (i + 1), ``cycle`` is 1 + i mod 7.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

from tests.sampler_twin import exponential, order, philox, substitute, transform_seed

BIG = 2**64 - 1
FORMULAS = {"harmonic": lambda i: 1 / (i + 1), "cycle": lambda i: 1.0 + i % 7}


def weights_of(description: str | list[float] | None, rows: int) -> list[float] | None:
    if isinstance(description, str):
        return [FORMULAS[description](row) for row in range(rows)]
    return description


def case(sampler, rows, *, weights=None, epoch=0, start=0, count=32):
    this = order(sampler, rows, weights_of(weights, rows), epoch)
    indices = this.indices(start, min(start + count, this.length))
    return {
        "sampler": sampler, "rows": rows, "weights": weights, "epoch": epoch, "start": start,
        "length": this.length, "indices": indices,
    }  # fmt: skip


def shuffle(seed):
    return {"name": "Shuffle", "seed": seed}


def block_shuffle(seed, block_samples, window_blocks):
    return {
        "name": "BlockShuffle", "seed": seed, "block_samples": block_samples, "window_blocks": window_blocks
    }  # fmt: skip


def weighted(seed, num_samples=None, replacement=True):
    return {"name": "Weighted", "seed": seed, "num_samples": num_samples, "replacement": replacement}


def shuffles():
    for rows in (1, 2, 3, 4, 5, 8, 17):
        for seed in (0, 1, BIG):
            yield case(shuffle(seed), rows, epoch=seed % 3)
    for rows in (100, 1000, 1023, 1024, 1025, 1026, 1056, 1057, 1089, 4096, 65537, 2**20):
        yield case(shuffle(7), rows, epoch=1, start=0)
        yield case(shuffle(7), rows, epoch=2, start=rows - 20, count=20)
    for rows in (2**20, 2**31 - 1, 2**32, 2**32 + 1, 10**12, 2**40, 2**53 + 1, 2**62, 2**63 - 1):
        yield case(shuffle(2**63 + 12345), rows, epoch=0, start=rows // 2, count=16)
        yield case(shuffle(3), rows, epoch=BIG, start=rows - 16, count=16)
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0)):
        yield case(shuffle(seed), 1000, epoch=epoch, count=16)
        yield case(shuffle(seed), 5000, epoch=epoch, count=16)


def block_shuffles():
    tiny = ((1, 1, 1), (1, 5, 5), (2, 1, 2), (7, 3, 1), (10, 3, 2), (10, 3, 9), (10, 20, 1))
    for rows, size, window in tiny:
        for epoch in (0, 1):
            yield case(block_shuffle(5, size, window), rows, epoch=epoch)
    for rows, size, window in ((1000, 10, 4), (1001, 10, 4), (1003, 64, 3), (5000, 1, 5000), (5000, 2000, 2)):
        yield case(block_shuffle(0, size, window), rows, epoch=3)
        yield case(block_shuffle(1, size, window), rows, epoch=3, start=rows - 32)
    for rows in (10**6, 10**6 + 1, 2**40, 2**62 + 17):
        for start in (0, rows // 3, rows - 24):
            yield case(block_shuffle(9, 256, 16), rows, epoch=4, start=start, count=24)
    yield case(block_shuffle(BIG, BIG, BIG), 3000, epoch=BIG, start=100)
    yield case(block_shuffle(2, 2**62, 1), 2**63 - 1, epoch=0, start=2**62 + 5, count=8)


def draws():
    yield case(weighted(0), 1)
    yield case(weighted(0, 8), 1, weights=[3.0])
    yield case(weighted(0, 64), 2, weights=[1.0, 3.0], count=64)
    yield case(weighted(1, 1000), 5, weights=[1e-9, 1.0, 1e-300, 2.5, 1e9], start=900)
    yield case(weighted(2, 100), 4, weights=[1e279, 1e279, 2e279, 1e-279], epoch=5)
    yield case(weighted(2, 100), 4, weights=[1e-280, 1e-279, 1e-281, 1e-279], epoch=5)
    for description in (None, "harmonic", "cycle"):
        for rows in (63, 64, 65, 1000):
            yield case(weighted(11), rows, weights=description, epoch=2, start=rows - 32)
    yield case(weighted(11, 2**63), 1000, weights="harmonic", epoch=2, start=2**62)
    yield case(weighted(BIG), 2**20, epoch=BIG, start=2**19)


def draws_once():
    yield case(weighted(0, replacement=False), 1)
    yield case(weighted(0, 1, False), 2, weights=[1.0, 3.0])
    for seed in range(4):
        yield case(weighted(seed, replacement=False), 5, weights=[1e-9, 1.0, 1e-280, 2.5, 1e9], epoch=seed)
    # Keys of the first two overflow to infinity: they come last, by row.
    yield case(weighted(3, replacement=False), 4, weights=[1e-308, 5e-324, 1.0, 1e279])
    for description in (None, "harmonic", "cycle"):
        yield case(weighted(12, 300, False), 1000, weights=description, epoch=1)
        yield case(weighted(12, replacement=False), 1000, weights=description, epoch=2, start=968)


def exponents():
    yield from (1, 2, 3, 5, 1000, 2**26 - 1, 2**52, 2**53 - 2, 2**53 - 1, 2**53)
    # On both sides of the square root of 2, and what the generator gives.
    yield from (round(2**52.5) - 1, round(2**52.5) + 1)
    yield from ((word >> 11) + 1 for position in range(12) for word in philox([position, 0, 0, 0], [0, 0]))


def document():
    words = [[0, 0, 0, 0], [BIG] * 4, [1, 2, 3, 4], [BIG, 0, BIG, 0]], [[0, 0], [BIG] * 2, [5, 6], [0, BIG]]
    places = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (7, 3, 10**9), (BIG, BIG, BIG)]
    return {
        "version": 1,
        "philox": [
            {"counter": counter, "key": key, "words": philox(counter, key)}
            for counter, key in zip(*words, strict=True)
        ],
        # The bits of a double, because readers of JSON do not all round alike.
        "exponentials": [
            {"v": v, "bits": struct.unpack("<Q", struct.pack("<d", exponential(v)))[0]} for v in exponents()
        ],
        "transform_seeds": [
            {
                "seed": seed, "epoch": epoch, "position": position,
                "expected": transform_seed(seed, epoch, position),
            }
            for seed, epoch, position in places
        ],
        "substitutes": [
            {
                "seed": seed, "rows": rows, "epoch": epoch, "position": position, "attempt": attempt,
                "expected": substitute(seed, rows, epoch, position, attempt),
            }
            for seed, epoch, position in places
            for rows, attempt in ((1, 0), (10, 0), (10, 1), (1000, BIG), (2**63, 2), (3 * 2**61 + 1, 0))
        ],
        "orders": [
            case({"name": "Sequential"}, 10, epoch=3, start=4),
            *shuffles(), *block_shuffles(), *draws(), *draws_once(),
        ],
    }  # fmt: skip


def text(value: dict) -> str:
    """JSON with one case a line, so that a difference shows which."""
    parts = []
    for name, content in value.items():
        if isinstance(content, list):
            rows = ",\n    ".join(json.dumps(row) for row in content)
            parts.append(f'  "{name}": [\n    {rows}\n  ]')
        else:
            parts.append(f'  "{name}": {json.dumps(content)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    Path(__file__).with_name("v1.json").write_text(text(document()), encoding="utf-8")
