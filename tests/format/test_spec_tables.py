"""The byte tables of docs/format/v1.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "docs" / "format" / "v1.md").read_text()
FORMAT = ROOT / "crates" / "datasetrt-core" / "src" / "format"


def table(after: str) -> list[tuple[int, str, str]]:
    """Offset, size and content of the rows of the first byte table after a line."""
    rows = []
    for line in SPEC.split(after, 1)[1].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.match(r"\d", cells[0]):
            rows.append((int(cells[0].split()[0]), cells[1], cells[2]))
        elif rows:
            break
    return rows


def constants(file: str) -> dict[str, int]:
    """Integer constants of a Rust file; one may be a sum of earlier ones and numbers."""
    known: dict[str, int] = {}
    for name, value in re.findall(r"const (\w+): usize = ([\w +]+);", (FORMAT / file).read_text()):
        known[name] = sum(known[part] if part in known else int(part) for part in value.split(" + "))
    return known


def offsets(rows: list[tuple[int, str, str]]) -> dict[str, int]:
    return {content.split(",")[0].strip("`"): offset for offset, _, content in rows}


def without_gaps(rows: list[tuple[int, str, str]], end: int) -> bool:
    ends = [offset + int(size) for offset, size, _ in rows]
    return [0, *ends] == [*(offset for offset, _, _ in rows), end]


def test_shard_header() -> None:
    rows, code = table("Shard header:"), constants("shard.rs")
    assert without_gaps(rows, code["HEADER_BYTES"])
    spec = offsets(rows)
    assert spec["version"] == code["HEADER_VERSION"]
    assert spec["record key"] == code["RECORD_KEY"]
    assert spec["ordinal of the shard"] == code["ORDINAL"]
    assert spec["sample id of the first record"] == code["FIRST_SAMPLE"]
    assert spec["XXH3-64 of the 56 bytes before"] == code["CHECKSUM"] == 56


def test_shard_trailer() -> None:
    rows, code = table("Shard trailer:"), constants("shard.rs")
    assert without_gaps(rows, code["TRAILER_BYTES"])
    spec = offsets(rows)
    assert spec["number of records"] == code["RECORDS"]
    assert spec["offset of the trailer in the file"] == code["TRAILER_OFFSET"]
    assert next(offset for offset, size, _ in rows if size == "32") == code["DIGEST"]


def test_index() -> None:
    rows, code = table("## index.bin"), constants("index.rs")
    assert without_gaps(rows[:-1], code["HEADER_BYTES"])
    spec = offsets(rows)
    assert (spec["version"], spec["bytes a row"]) == (code["FIELD_VERSION"], code["FIELD_ROW_BYTES"])
    assert (spec["sample count"], spec["zero"]) == (code["FIELD_SAMPLES"], code["FIELD_ZERO"])
    assert rows[-1][0] == code["HEADER_BYTES"]
    assert rows[-1][1].split()[0] == str(code["ROW_BYTES"])


def test_record() -> None:
    rows, code = table("Record:"), constants("record.rs")
    assert [offset for offset, _, _ in rows] == [0, 8, 9, 9]
    assert (code["RAW_FRAME_BYTES"], code["PACKED_FRAME_BYTES"]) == (9, 17)
    assert "9 or 17" in SPEC


def test_magic_texts() -> None:
    for file, words in {"shard.rs": ["DRTSHARD", "DRTSHEND"], "index.rs": ["DRTINDEX"]}.items():
        for word in words:
            assert f'b"{word}"' in (FORMAT / file).read_text()
            assert f"`{word}`" in SPEC
