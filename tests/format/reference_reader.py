"""A second reader of caches, written from docs/format/v1.md alone. It never imports datasetrt."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import blake3
import lz4.block
import pyarrow as pa
import xxhash
import zstandard

HEADER, TRAILER = 64, 64


class BrokenError(Exception):
    """The cache breaks a rule of the format."""


def need(condition: bool, rule: str) -> None:
    if not condition:
        raise BrokenError(rule)


@dataclass
class Cache:
    """A whole cache in memory."""

    manifest: dict[str, Any]
    payloads: list[bytes]
    metadata: list[dict[str, Any]]


def read_cache(folder: Path) -> Cache:
    manifest = read_manifest((folder / "manifest.json").read_bytes())
    index = (folder / "index.bin").read_bytes()
    check_file(index, manifest["index"], "index.bin")
    ends = read_index(index, manifest["sample_count"])
    table = (folder / "metadata.arrow").read_bytes()
    check_file(table, manifest["metadata"], "metadata.arrow")
    metadata = read_metadata(table, manifest)
    payloads = list(read_shards(folder, manifest, ends))
    need(sum(map(len, payloads)) == manifest["payload_bytes"], "payload_bytes is the sum of the payloads")
    return Cache(manifest, payloads, metadata)


def read_manifest(data: bytes) -> dict[str, Any]:
    def tail(digest: str) -> bytes:
        return f',\n  "cache_id": "{digest[:16]}",\n  "checksum": "{digest}"\n}}\n'.encode()

    body = data[: -len(tail("0" * 64))]
    need(data == body + tail(blake3.blake3(body).hexdigest()), "the tail is the one of the body")
    manifest: dict[str, Any] = json.loads(data)
    need(manifest["format"] == "datasetrt-cache" and manifest["version"] == 1, "format and version")
    need(sum(s["samples"] for s in manifest["shards"]) == manifest["sample_count"] >= 1, "sample counts")
    key = blake3.blake3(
        b"datasetrt record key 1\0"
        + manifest["name"].encode()
        + b"\0"
        + (manifest["fingerprint"] or "").encode()
    )
    learns = manifest["compression"]["method"] == "zstd-dictionary"
    need(("dictionary" in manifest) == learns, "a dictionary goes with its method")
    need(manifest["record_key"] == f"{int.from_bytes(key.digest()[:8], 'little'):016x}", "record_key")
    return manifest


def check_file(data: bytes, entry: dict[str, Any], name: str) -> None:
    need(len(data) == entry["bytes"], f"{name} has the size of the manifest")
    need(xxhash.xxh3_128_hexdigest(data) == entry["xxh3"], f"{name} has the hash of the manifest")


def read_index(data: bytes, samples: int) -> list[int]:
    magic, version, row_bytes, rows, zero = struct.unpack_from("<8sIIQQ", data)
    need((magic, version, row_bytes, rows, zero) == (b"DRTINDEX", 1, 8, samples, 0), "index header")
    need(len(data) == 32 + 8 * samples, "index size")
    return list(struct.unpack_from(f"<{samples}Q", data, 32))


def read_metadata(data: bytes, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    reader = pa.ipc.open_file(pa.py_buffer(data))
    types = {"bool": pa.bool_(), "int64": pa.int64(), "float64": pa.float64(), "string": pa.large_string()}
    expected = [pa.field(c["name"], types[c["type"]]) for c in manifest["columns"]]
    need(reader.schema == pa.schema(expected), "the schema is that of the manifest")
    batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    need([len(b) for b in batches] == batch_lengths(manifest), "one batch a shard, at most 65,536 rows")
    for position, column in enumerate(manifest["columns"]):
        nulls = sum(batch.column(position).null_count for batch in batches)
        need(nulls == column["null_count"], "null counts")
    return [row for batch in batches for row in (batch.to_pylist() or [{}] * len(batch))]


def batch_lengths(manifest: dict[str, Any]) -> list[int]:
    lengths = []
    for shard in manifest["shards"]:
        whole, rest = divmod(shard["samples"], 65_536)
        lengths += [65_536] * whole + [rest] * (rest > 0)
    return lengths


def read_shards(folder: Path, manifest: dict[str, Any], ends: list[int]) -> Iterator[bytes]:
    first = 0
    for ordinal, entry in enumerate(manifest["shards"]):
        data = (folder / "shards" / f"{ordinal:06d}.bin").read_bytes()
        need(len(data) == entry["bytes"], "shard size")
        check_shard(data, manifest, ordinal, first, entry)
        start = HEADER
        for sample in range(first, first + entry["samples"]):
            yield read_record(data[start : ends[sample]], sample, manifest)
            start = ends[sample]
        need(start == len(data) - TRAILER, "the last record ends at the trailer")
        first += entry["samples"]


def check_shard(
    data: bytes, manifest: dict[str, Any], ordinal: int, first: int, entry: dict[str, Any]
) -> None:
    header = struct.unpack_from("<8sIIQQQ16sQ", data)
    key = int(manifest["record_key"], 16)
    need(header[:7] == (b"DRTSHARD", 1, 0, key, ordinal, first, bytes(16)), "shard header")
    need(header[7] == xxhash.xxh3_64_intdigest(data[:56]), "checksum of the shard header")
    block = data[-TRAILER:]
    magic, records, offset, digest, checksum = struct.unpack("<8sQQ32sQ", block)
    need((magic, records, offset) == (b"DRTSHEND", entry["samples"], len(data) - TRAILER), "shard trailer")
    need(checksum == xxhash.xxh3_64_intdigest(block[:56]), "checksum of the shard trailer")
    need(digest == blake3.blake3(data[:-TRAILER]).digest(), "digest of the shard")
    need(digest.hex() == entry["blake3"], "digest in the manifest")


def read_record(record: bytes, sample: int, manifest: dict[str, Any]) -> bytes:
    checksum, tag = struct.unpack_from("<QB", record)
    stored = record[9:] if tag == 0 else record[17:]
    length = len(stored) if tag == 0 else struct.unpack_from("<Q", record, 9)[0]
    method = manifest["compression"]["method"]
    need(
        tag in {0, {"none": 0, "lz4": 1, "zstd": 2, "zstd-dictionary": 3}[method]},
        "the tag is that of the compression",
    )
    identity = struct.pack("<5Q", int(manifest["record_key"], 16), sample, tag, length, len(stored))
    seed = xxhash.xxh3_64_intdigest(identity)
    need(checksum == xxhash.xxh3_64_intdigest(stored, seed), "checksum of the record")
    if tag == 1:
        payload = lz4.block.decompress(stored, uncompressed_size=length)
    elif tag == 2:
        payload = zstandard.ZstdDecompressor().decompress(stored, max_output_size=length)
    elif tag == 3:
        known = zstandard.ZstdCompressionDict(base64.b64decode(manifest["dictionary"], validate=True))
        payload = zstandard.ZstdDecompressor(dict_data=known).decompress(stored, max_output_size=length)
    else:
        payload = stored
    need(len(payload) == length, "payload length")
    return bytes(payload)
