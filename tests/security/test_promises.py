"""Every sentence of SECURITY.md that says what an attacker cannot do, tried with forged caches."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard

import datasetrt as drt
from tests.rows import RowSource, rows_of
from tests.security.forge import TAGS, edit_manifest, index_of, replace_file, replace_record

HUGE = [2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1]


def cache(root: Path, count: int = 20, compression: str = "none") -> Path:
    config = drt.WriterConfig(progress=False, compression=compression)  # type: ignore[arg-type]
    return Path(drt.write_cache(RowSource("s", rows_of(count)), root, config=config).path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return cache(tmp_path)


def read_everything(folder: Path) -> list[bytes]:
    """What a user does with a cache; forged ones end in one typed error of one line."""
    ds = drt.open_dataset(folder)
    ds.metadata  # noqa: B018 - it is loaded here
    payloads = [sample.data for sample in ds]
    assert ds.verify().ok
    return payloads


def test_the_forger_makes_sound_caches(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest)
    assert read_everything(folder) == [data for data, _ in rows_of(20)]
    single = cache(folder.parent / "single", 1, "lz4")
    replace_record(single, b"hello", 5, TAGS["none"])
    assert read_everything(single) == [b"hello"]


# Names and paths from a manifest do not leave the folder.


def test_files_have_fixed_names_and_a_manifest_cannot_name_others(folder: Path) -> None:
    def name_others(manifest: dict[str, Any]) -> None:
        for member in (manifest, manifest["index"], manifest["metadata"], *manifest["shards"]):
            member.update(path="/etc/passwd", file="../../../etc/passwd", folder="/etc")

    edit_manifest(folder, name_others)
    assert read_everything(folder) == [data for data, _ in rows_of(20)]


@pytest.mark.parametrize("name", ["..", "../x", "/etc", "a/b", "a\\b", "", ".x", "a\0b", "a\x1b[2Jb"])
def test_a_name_in_a_manifest_is_one_plain_segment(folder: Path, name: str) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(name=name))
    with pytest.raises(drt.FormatError) as caught:
        read_everything(folder)
    assert caught.value.kind == "bad-manifest"
    assert str(caught.value).isprintable()


# Links are not followed out of a cache.

INSIDE = ["manifest.json", "index.bin", "metadata.arrow", "shards", "shards/000000.bin"]


@pytest.mark.parametrize("inside", INSIDE)
def test_a_link_inside_a_cache_is_refused_with_the_cure(folder: Path, inside: str) -> None:
    outside = folder.parent / "outside"
    shutil.move(folder / inside, outside)
    (folder / inside).symlink_to(outside)
    with pytest.raises(drt.CorruptionError) as caught:
        drt.open_dataset(folder)
    assert caught.value.kind == "symbolic-link"
    assert caught.value.path == str(folder / inside)
    assert "cp -rL" in str(caught.value)
    assert "git annex unlock" in str(caught.value)


@pytest.mark.parametrize("inside", ["shards", "shards/000000.bin"])
def test_a_link_that_appears_under_an_open_dataset_is_not_followed(folder: Path, inside: str) -> None:
    ds = drt.open_dataset(folder)
    outside = folder.parent / "outside"
    shutil.move(folder / inside, outside)
    (folder / inside).symlink_to(outside)
    with pytest.raises(drt.CorruptionError) as caught:
        ds[0]
    assert caught.value.kind == "symbolic-link"
    assert "symbolic-link" in {problem.kind for problem in ds.verify().problems}


def test_a_farm_of_links_is_cured_by_a_copy(folder: Path) -> None:
    farm = folder.parent / "farm"
    for file in [path for path in folder.rglob("*") if path.is_file()]:
        link = farm / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    with pytest.raises(drt.CorruptionError):
        drt.open_dataset(farm)
    subprocess.run(["cp", "-rL", farm, folder.parent / "copy"], check=True, timeout=60)
    assert len(read_everything(folder.parent / "copy")) == 20


def test_a_link_to_a_cache_or_to_its_root_is_the_users_own(folder: Path) -> None:
    (folder.parent / "alias").symlink_to(folder)
    assert len(read_everything(folder.parent / "alias")) == 20
    (folder.parent / "elsewhere").symlink_to(folder.parent)
    assert len(read_everything(folder.parent / "elsewhere" / "s")) == 20


# Nothing in a cache is executed.

EXECUTES_NOTHING = """
import sys, datasetrt as drt

def everything():
    ds = drt.open_dataset(sys.argv[1])
    ds.caches, ds.schema, ds.fingerprint, ds.codec, ds.metadata, repr(ds), ds[0], ds.take([1, 0])
    assert ds.verify().ok
    assert {each.name for each in ds.audit().globals} == {"posix.mkdir", "evil_module.run"}
    for sampler in (drt.Sequential(), drt.Shuffle(seed=1), drt.BlockShuffle(2), drt.Weighted(3)):
        for batch in ds.loader(batch_size=2, sampler=sampler):
            batch.metadata, batch.payloads

def hook(event, arguments):
    family = event.partition(".")[0]
    if family in {"pickle", "marshal", "subprocess", "exec", "compile", "import"} or event in {
        "os.system", "os.exec", "os.fork", "os.mkdir"
    }:
        raise SystemExit(f"{event} {arguments!r}")

everything()  # the first time imports what is needed; whatever a cache made it run leaves its evidence
assert "evil_module" not in sys.modules
sys.addaudithook(hook)
everything()
print("done")
"""


class Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("codec", ["pickle", "pickle-oob", "dill", None])
def test_nothing_in_a_cache_is_executed(tmp_path: Path, codec: str | None) -> None:
    evidence = tmp_path / "evidence"
    module = tmp_path / "evil_module.py"
    module.write_text(f"import os\nos.mkdir({str(evidence)!r})\n")
    writers = {
        "pickle": drt.codecs.Pickle(trust=True),
        "pickle-oob": drt.codecs.PickleOOB(trust=True),
        "dill": drt.codecs.Dill(trust=True),
    }
    evil = Evil(str(evidence))
    packed = writers[codec].dumps(evil) if codec in writers else pickle.dumps(evil)
    named = b"cevil_module\nrun\n(tR."
    if codec == "pickle-oob":
        frame = writers["pickle-oob"].dumps(None)
        # The same frame around another pickle.
        head = frame[:8] + len(named).to_bytes(8, "little") + frame[16:24]
        named = head + named + bytes(-(len(head) + len(named)) % 64)
    rows = [(packed, {"x": "__import__('os').mkdir('evidence')"}), (named, {"x": "{0.__class__}%s"})]
    optional = {"codec": writers[codec]} if codec in writers else {}
    source = RowSource("s", rows, fingerprint="$(mkdir evidence)", **optional)
    folder = Path(drt.write_cache(source, tmp_path / "root").path)
    done = subprocess.run(
        [sys.executable, "-c", EXECUTES_NOTHING, folder],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    assert not evidence.exists()
    # The trap works: this is what loading it does.
    with pytest.raises(drt.CodecError):
        drt.codecs.Pickle(allow="numpy").loads(pickle.dumps(evil))
    assert not evidence.exists()
    pickle.loads(pickle.dumps(evil))
    assert evidence.exists()


# Decompression bombs and absurd counts.


@pytest.mark.parametrize(("method", "ratio"), [("lz4", 255), ("zstd", 32_768), ("zstd-dictionary", 32_768)])
@pytest.mark.parametrize("excess", [1, 2**40, 2**62])
def test_a_record_cannot_state_more_than_its_bytes_can_hold(
    tmp_path: Path, method: str, ratio: int, excess: int
) -> None:
    folder = cache(tmp_path, 1, method)
    stored = bytes(100)
    replace_record(folder, stored, len(stored) * ratio + excess, TAGS[method])
    ds = drt.open_dataset(folder)
    for read in (lambda: ds[0], lambda: ds.take([0]), lambda: list(ds)):
        with pytest.raises(drt.CorruptionError, match="cannot hold") as caught:
            read()
        assert caught.value.kind == "bad-record"
    assert "bad-record" in {problem.kind for problem in ds.verify().problems}


def test_a_record_that_decompresses_to_more_than_it_states_is_refused(tmp_path: Path) -> None:
    folder = cache(tmp_path, 1, "zstd")
    bomb = zstandard.ZstdCompressor().compress(bytes(256 << 20))
    assert len(bomb) < 16_384
    replace_record(folder, bomb, 1000, TAGS["zstd"])
    with pytest.raises(drt.CorruptionError) as caught:
        drt.open_dataset(folder)[0]
    assert caught.value.kind == "decompression"


def test_a_payload_cannot_be_longer_than_all_payloads(tmp_path: Path) -> None:
    folder = cache(tmp_path, 1, "lz4")
    replace_record(folder, bytes(100), 1000, TAGS["lz4"])
    edit_manifest(folder, lambda manifest: manifest.update(payload_bytes=999))
    with pytest.raises(drt.CorruptionError, match="states 1000 payload bytes"):
        drt.open_dataset(folder)[0]


def _set(*path: str | int) -> Callable[[int], Callable[[dict[str, Any]], None]]:
    def to(value: int) -> Callable[[dict[str, Any]], None]:
        def edit(manifest: dict[str, Any]) -> None:
            at: Any = manifest
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = value

        return edit

    return to


@pytest.mark.parametrize("huge", HUGE)
@pytest.mark.parametrize(
    "member",
    [
        ("sample_count",),
        ("shards", 0, "samples"),
        ("shards", 0, "bytes"),
        ("index", "bytes"),
        ("metadata", "bytes"),
        ("columns", 0, "null_count"),
        ("payload_bytes",),
    ],
    ids=lambda member: ".".join(map(str, member)),
)
def test_absurd_counts_in_a_manifest_are_refused(
    folder: Path, member: tuple[str | int, ...], huge: int
) -> None:
    edit_manifest(folder, _set(*member)(huge))
    with pytest.raises((drt.DatasetRTError, AssertionError)):
        read_everything(folder)
    if member != ("payload_bytes",):  # only the sum at the end shows that one
        with pytest.raises(drt.DatasetRTError):
            drt.open_dataset(folder).metadata  # noqa: B018


@pytest.mark.parametrize("huge", HUGE)
def test_absurd_counts_in_an_index_are_refused(folder: Path, huge: int) -> None:
    ends = [int.from_bytes(row, "little") for row in _rows((folder / "index.bin").read_bytes()[32:])]
    for forged in (index_of(ends, huge), index_of([huge, *ends[1:]]), index_of([*ends[:-1], huge])):
        replace_file(folder, "index", forged)
        with pytest.raises(drt.CorruptionError) as caught:
            read_everything(folder)
        assert caught.value.kind == "index-checksum"


def _rows(data: bytes) -> list[bytes]:
    return [data[at : at + 8] for at in range(0, len(data), 8)]


@pytest.mark.parametrize("huge", HUGE)
def test_absurd_counts_in_a_shard_are_refused(tmp_path: Path, huge: int) -> None:
    folder = cache(tmp_path, 1)
    replace_record(folder, b"x", 1, TAGS["none"], records=huge)
    with pytest.raises(drt.CorruptionError) as caught:
        read_everything(folder)
    assert caught.value.kind == "shard-mismatch"


@pytest.mark.parametrize("huge", [2**31, 2**53, 2**63 - 1, 2**63])
def test_absurd_counts_in_metadata_are_refused(folder: Path, huge: int) -> None:
    # The number of rows is in each batch and, again, with each of its columns.
    content = (folder / "metadata.arrow").read_bytes()
    rows, forged = (20).to_bytes(8, "little"), huge.to_bytes(8, "little")
    assert content.count(rows) >= 5
    replace_file(folder, "metadata", content.replace(rows, forged))
    with pytest.raises(drt.CorruptionError) as caught:
        read_everything(folder)
    assert caught.value.kind == "bad-metadata"


@pytest.mark.parametrize("trick", ["compressed", "dictionary", "more rows", "none"])
def test_metadata_is_only_what_the_format_has(folder: Path, trick: str) -> None:
    table = pa.ipc.open_file(folder / "metadata.arrow").read_all()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if trick == "compressed" else None)
    if trick == "dictionary":
        table = table.set_column(1, "split", table["split"].dictionary_encode())
    if trick == "more rows":
        table = pa.concat_tables([table, table])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    replace_file(folder, "metadata", sink.getvalue().to_pybytes())
    if trick == "none":
        assert len(read_everything(folder)) == 20
        return
    with pytest.raises(drt.CorruptionError) as caught:
        read_everything(folder)
    assert caught.value.kind == "bad-metadata"


def test_a_manifest_has_a_largest_size(folder: Path) -> None:
    with (folder / "manifest.json").open("r+b") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(drt.FormatError, match=r"at most 268435456"):
        drt.open_dataset(folder)


# What is not promised.


def test_a_forged_cache_is_taken_for_a_sound_one(tmp_path: Path) -> None:
    folder = cache(tmp_path, 1)
    replace_record(folder, b"not what was written", 20, TAGS["none"])
    ds = drt.open_dataset(folder)
    assert ds.verify().ok
    assert ds[0].data == b"not what was written"
