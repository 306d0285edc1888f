"""The byte tables of docs/format/v1.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "docs" / "format" / "v1.md").read_text()
ENGINE = ROOT / "crates" / "datasetrt-core" / "src"
FORMAT = ENGINE / "format"


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
    assert f"bytes a row, `{code['ROW_BYTES']}`" in [content for _, _, content in rows]


def test_record() -> None:
    rows, code = table("Record:"), constants("record.rs")
    raw, packed = code["RAW_FRAME_BYTES"], code["PACKED_FRAME_BYTES"]
    assert (raw, packed) == (9, 17)
    assert [offset for offset, _, _ in rows] == [0, 8, raw, raw]
    assert [size for _, size, _ in rows] == ["8", "1", f"0 or {packed - raw}", "the rest"]
    assert "9 or 17" in SPEC


def test_magic_texts() -> None:
    for file, words in {"shard.rs": ["DRTSHARD", "DRTSHEND"], "index.rs": ["DRTINDEX"]}.items():
        for word in words:
            assert f'b"{word}"' in (FORMAT / file).read_text()
            assert f"`{word}`" in SPEC


def code_of(file: str) -> str:
    return (ENGINE / file).read_text()


def constant(file: str, name: str) -> int:
    """A constant whose value is a number or a shifted number."""
    found = re.search(rf"const {name}: \w+ = ([\d_]+)(?: << (\d+))?;", code_of(file))
    assert found is not None, name
    return int(found[1]) << int(found[2] or 0)


def test_version() -> None:
    version = constant("format/mod.rs", "VERSION")
    assert SPEC.startswith(f"# Cache format, version {version}\n")
    assert f"| `version` | integer | `{version}` |" in SPEC
    # Of the index and of a shard.
    assert re.findall(r"\| version, (.*?) \|", SPEC) == [f"`{version}`"] * 2


def test_tags() -> None:
    tags = {"RAW": "stored as it is", "LZ4": "LZ4 block", "ZSTD": "Zstandard frame,"}
    tags["ZSTD_DICTIONARY"] = "Zstandard frame made with the dictionary"
    for name, words in tags.items():
        assert f"`{constant('format/compression.rs', f'TAG_{name}')}` {words}" in SPEC


def test_limits() -> None:
    assert f"at most {constant('format/manifest.rs', 'MAX_BYTES'):,} bytes" in SPEC
    learnt = constant("format/dictionary.rs", "MAX_DICTIONARY_BYTES")
    assert f"at most {learnt:,} bytes before that" in SPEC
    assert f"is 1 to {constant('format/names.rs', 'MAX_NAME_BYTES')} bytes" in SPEC
    assert f"more than {constant('write/shards.rs', 'MAX_SHARD_RECORDS'):,} records" in SPEC
    assert f"more than {constant('write/shards.rs', 'MAX_SHARD_ROW_BYTES') >> 20} MiB of metadata" in SPEC
    assert f"after every {constant('metadata/types.rs', 'MAX_BATCH_ROWS'):,} rows" in SPEC


def test_names_of_files() -> None:
    names = dict(re.findall(r'const (\w+): &str = "([\w.]+)";', code_of("format/names.rs")))
    tree = SPEC.split("```")[1]
    assert sorted(names) == ["INDEX", "MANIFEST", "METADATA", "SHARDS", "SHARD_SUFFIX"]
    shard = f"{names['SHARDS']}/000000{names['SHARD_SUFFIX']}"
    for name in (names["MANIFEST"], names["METADATA"], names["INDEX"], shard):
        assert re.search(rf"^  {re.escape(name)} ", tree, re.MULTILINE), name


def test_reserved_columns() -> None:
    found = re.search(r"RESERVED: \[&str; 3\] = \[(.*)\];", code_of("metadata/types.rs"))
    assert found is not None
    first, second, third = re.findall(r'"(\w+)"', found[1])
    assert f"`{first}`, `{second}`\nand `{third}` are reserved" in SPEC


def members(struct: str) -> list[str]:
    """The members of a struct that becomes JSON, in order."""
    found = re.search(rf"struct {struct} \{{\n(.*?)\n\}}", code_of("format/manifest.rs"), re.DOTALL)
    assert found is not None
    return re.findall(r"^    (\w+):", found[1], re.MULTILINE)


def test_members_of_the_manifest() -> None:
    part = SPEC.split("## manifest.json", 1)[1].split("## index.bin", 1)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.MULTILINE)
    assert [name for name, _ in rows] == members("Text")
    words = dict(rows)
    for name, struct in {
        "compression": "CompressionText",
        "metadata": "FileText",
        "shards": "ShardText",
    }.items():
        assert all(f"`{member}`" in words[name] for member in members(struct)), name


def test_texts_that_are_hashed() -> None:
    source = code_of("format/manifest.rs")
    assert 'b"datasetrt record key 1\\0"' in source
    assert "`datasetrt record key 1`, a NUL" in SPEC
    assert 'const FORMAT: &str = "datasetrt-cache";' in source
    assert "| `format` | string | `datasetrt-cache` |" in SPEC
