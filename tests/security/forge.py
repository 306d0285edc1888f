"""Forges caches: whoever can write their files can also compute every checksum in them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blake3
import xxhash

TAGS = {"none": 0, "lz4": 1, "zstd": 2, "zstd-dictionary": 3}


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest's members and seal it again."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    del manifest["cache_id"], manifest["checksum"]
    edit(manifest)
    body = json.dumps(manifest, indent=2, ensure_ascii=False).encode()[: -len("\n}")]
    digest = blake3.blake3(body).hexdigest()
    tail = f',\n  "cache_id": "{digest[:16]}",\n  "checksum": "{digest}"\n}}\n'
    path.write_bytes(body + tail.encode())


def replace_file(folder: Path, member: str, content: bytes) -> None:
    """Put other content into ``index.bin`` or ``metadata.arrow``, and its size and hash into the manifest."""
    name = {"index": "index.bin", "metadata": "metadata.arrow"}[member]
    (folder / name).write_bytes(content)
    entry = {"bytes": len(content), "xxh3": xxhash.xxh3_128_hexdigest(content)}
    edit_manifest(folder, lambda manifest: manifest.update({member: entry}))


def seal(block: bytes) -> bytes:
    """A shard's header or trailer: 56 bytes and their checksum."""
    assert len(block) == 56
    return block + struct.pack("<Q", xxhash.xxh3_64_intdigest(block))


def replace_record(folder: Path, stored: bytes, payload_bytes: int, tag: int, records: int = 1) -> None:
    """Make the cache one sample with this record, whatever its frame states; everything else fits it."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    key = int(manifest["record_key"], 16)
    seed = xxhash.xxh3_64_intdigest(struct.pack("<5Q", key, 0, tag, payload_bytes, len(stored)))
    checksum = xxhash.xxh3_64_intdigest(stored, seed=seed)
    length = struct.pack("<Q", payload_bytes) if tag else b""
    record = struct.pack("<QB", checksum, tag) + length + stored
    header = seal(struct.pack("<8sIIQQQ16x", b"DRTSHARD", 1, 0, key, 0, 0))
    body = header + record
    digest = blake3.blake3(body).digest()
    trailer = seal(struct.pack("<8sQQ32s", b"DRTSHEND", records, len(body), digest))
    (folder / "shards" / "000000.bin").write_bytes(body + trailer)
    shard = {"bytes": len(body) + 64, "samples": 1, "blake3": digest.hex()}
    edit_manifest(folder, lambda m: m.update(shards=[shard], payload_bytes=payload_bytes))
    replace_file(folder, "index", index_of([len(body)]))


def index_of(ends: list[int], count: int | None = None) -> bytes:
    """An index with these rows, which may state another count."""
    header = struct.pack("<8sIIQQ", b"DRTINDEX", 1, 8, len(ends) if count is None else count, 0)
    return header + struct.pack(f"<{len(ends)}Q", *ends)
