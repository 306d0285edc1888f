"""Writes the golden caches of format 1, one folder a case.

Frozen: the cases and their content never change; a new case is a new entry. Every later release must read
what this wrote, and the second reader in tests/format/ must agree. Run it only to add a case:
``python testdata/caches/format-1/build.py CASE``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasetrt as drt

HERE = Path(__file__).parent
Rows = list[tuple[bytes, dict[str, Any]]]


def noise(seed: int, length: int) -> bytes:
    """Bytes of a linear congruential generator, so that no library decides what is in the files."""
    state, out = seed, bytearray()
    while len(out) < length:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out += (state >> 33).to_bytes(4, "little")
    return bytes(out[:length])


def typical(count: int) -> Rows:
    return [
        (
            noise(i, 40 + i % 7) + bytes(60),
            {"label": i % 10, "split": "val" if i % 5 == 0 else "train", "score": i / 7},
        )
        for i in range(count)
    ]


def alike(count: int) -> Rows:
    """Small payloads with much in common, as pickles of one class."""
    return [
        (b"{'name': 'sample %d', 'split': 'train', 'label': %d}" % (i, i % 10), {"i": i})
        for i in range(count)
    ]


def nulls() -> Rows:
    cells: list[dict[str, Any]] = [
        {"i": 1, "f": 0.5, "s": "é\0", "b": True, "never": None},
        {"i": None, "f": float("nan"), "s": None, "b": None, "never": None},
        {"i": -(2**63), "f": float("inf"), "s": "", "b": False, "never": None},
    ]
    return [(noise(i, 10), row) for i, row in enumerate(cells)]


CASES: dict[str, tuple[Rows, dict[str, Any]]] = {
    "plain": (typical(50), {}),
    "many-shards": (typical(50), {"max_shard_bytes": 1000}),
    "lz4": (typical(50), {"compression": "lz4"}),
    "zstd": (typical(50), {"compression": "zstd", "compression_level": 5}),
    "zstd-dictionary": (alike(50), {"compression": "zstd-dictionary"}),
    "no-metadata": ([(noise(i, 20), {}) for i in range(5)], {}),
    "nulls": (nulls(), {}),
    "empty-payloads": ([(b"", {"i": i}) for i in range(5)], {}),
    "one-sample": ([(b"x", {"i": 0})], {}),
    "larger-than-a-shard": ([(noise(i, 3000), {"i": i}) for i in range(3)], {"max_shard_bytes": 1000}),
}


class Source:
    """A golden case as a source; without a fingerprint in every second case."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows, _ = CASES[name]
        if len(name) % 2:
            self.fingerprint = f"golden {name}"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        return (drt.CacheInput(data, metadata) for data, metadata in self.rows)


def build(name: str, root: Path) -> Path:
    """Write one case below ``root``; gives its folder."""
    _, options = CASES[name]
    return Path(drt.write_cache(Source(name), root, config=drt.WriterConfig(progress=False, **options)).path)


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        if not (HERE / case).exists():
            print(build(case, HERE))
