"""What each command prints, as text and as JSON, and its exit status."""

from __future__ import annotations

import collections
import os
import pickle
import shutil
from pathlib import Path

import pytest

import datasetrt as drt
from datasetrt.cli import main
from datasetrt.cli._status import status_of_problems
from tests.cli.commands import run, run_json
from tests.rows import RowSource, rows_of


class Touch:
    """Unpickling it makes a file: what must never happen here."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A cache of its own for each test."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "tiny"))


def damage(folder: Path, at: int = -100) -> None:
    shard = folder / "shards" / "000000.bin"
    content = bytearray(shard.read_bytes())
    content[at] ^= 1
    shard.write_bytes(content)


def test_info(folder: Path) -> None:
    done = run("info", folder)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "tiny"
    assert "  samples     100" in done.stdout.splitlines()
    assert "  column      label: int64" in done.stdout.splitlines()
    (cache,) = drt.open_dataset(folder).caches
    assert run_json("info", folder) == {
        "path": str(folder),
        "name": "tiny",
        "cache_id": cache.cache_id,
        "sample_count": 100,
        "payload_bytes": cache.payload_bytes,
        "stored_bytes": cache.stored_bytes,
        "fingerprint": None,
        "codec": None,
        "compression": "none",
        "columns": [
            {"name": "label", "type": "int64"},
            {"name": "split", "type": "string"},
            {"name": "score", "type": "float64"},
            {"name": "even", "type": "bool"},
        ],
    }


def test_verify_of_sound_caches(folder: Path) -> None:
    done = run("verify", folder, folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{folder}: 100 samples, no problem\n" * 2
    (cache,) = run_json("verify", folder)["caches"]
    expected = {"path": str(folder), "name": "tiny", "sample_count": 100, "ok": True, "problems": []}
    assert cache == expected


def test_verify_lists_everything_that_is_wrong(folder: Path, tiny_folder: Path) -> None:
    damage(folder, 80)
    damage(folder, -100)
    report = drt.open_dataset(folder).verify()
    assert len(report.problems) == 3  # two samples and the digest of the shard
    done = run("verify", folder, tiny_folder)
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("  ")] == [
        f"  {problem}" for problem in report.problems
    ]
    assert f"{tiny_folder}: 100 samples, no problem" in done.stdout
    assert done.stderr == "datasetrt: 1 of 2 caches failed the check\n"
    document = run_json("verify", folder, tiny_folder, status=1)
    assert document["ok"] is False
    first, second = document["caches"]
    assert [problem["sample_id"] for problem in first["problems"]] == [p.sample_id for p in report.problems]
    assert (first["ok"], second["ok"]) == (False, True)


def test_verify_goes_on_after_a_cache_that_cannot_be_opened(folder: Path, tmp_path: Path) -> None:
    (folder / "index.bin").unlink()
    damage(folder, 80)
    document = run_json("verify", folder, tmp_path / "nowhere", status=1)
    kinds = [[problem["kind"] for problem in cache["problems"]] for cache in document["caches"]]
    assert kinds == [["missing-file", "shard-digest"], ["not-found"]]
    assert [cache["name"] for cache in document["caches"]] == [None, None]
    assert run("verify", tmp_path / "nowhere").returncode == 3
    assert run("verify", b"\xff").returncode == 2


def test_what_verify_cannot_look_at_is_no_damage() -> None:
    def problem(kind: str) -> drt.Problem:
        return drt.Problem(kind, "message", None, None, None, None)

    assert status_of_problems([]) == 0
    assert status_of_problems([problem("io"), problem("permission-denied")]) == 3
    assert status_of_problems([problem("io"), problem("missing-file")]) == 1


def interrupted(root: Path, name: str = "half") -> Path:
    """What a writer leaves that fails in the middle, and a lock as a killed one does."""

    class Failing:
        fingerprint = "v1"

        def __init__(self) -> None:
            self.name = name

        def __iter__(self) -> object:
            for row in rows_of(200):
                yield drt.CacheInput(*row)
            raise KeyError("end")

    config = drt.WriterConfig(progress=False, max_shard_bytes=2000)
    with pytest.raises(KeyError):
        drt.write_cache(Failing(), root, config=config)  # type: ignore[arg-type]
    (root / f".{name}.lock").write_bytes(b"datasetrt writer lock\n")
    return root / f".{name}.partial"


def test_clean_removes_an_interrupted_write(folder: Path) -> None:
    root = folder.parent
    partial = interrupted(root)
    files = [path for path in root.glob(".half.*/**/*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) + 22
    assert len(files) > 4
    told = run("clean", root, "--dry-run")
    assert told.returncode == 0
    assert told.stdout.splitlines()[-1] == f"would remove 3 leftovers, {size:,} bytes"
    assert partial.is_dir()
    document = run_json("clean", root)
    assert document["removed_bytes"] == size
    names = [Path(leftover["path"]).name for leftover in document["leftovers"]]
    assert names == [".half.journal", ".half.partial", ".half.lock"]
    assert all(leftover["removed"] and leftover["reason"] is None for leftover in document["leftovers"])
    assert sorted(path.name for path in root.iterdir()) == ["tiny"]
    assert drt.open_dataset(folder).verify().ok


def test_clean_keeps_what_it_does_not_know(folder: Path) -> None:
    root = folder.parent
    partial = interrupted(root)
    (partial / "notes.txt").write_text("mine")
    done = run("clean", root)
    assert done.returncode == 0
    assert f"kept {partial}: datasetrt did not make {partial / 'notes.txt'}" in done.stdout.splitlines()
    assert (partial / "shards" / "000000.bin").exists()
    assert not (root / ".half.lock").exists()


def test_clean_tells_what_the_system_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # In this process: root, who may run these tests, is refused nothing.
    answer = {"path": "r/.x.lock", "files": 1, "bytes": 22, "reason": "cannot remove it", "failed": True}
    monkeypatch.setattr("datasetrt.leftovers.clean_root", lambda root, dry_run: [answer])
    assert main(["clean", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == "kept r/.x.lock: cannot remove it\nremoved 0 leftovers, 0 bytes\n"
    assert err == "datasetrt: 1 leftover could not be removed\n"


def test_clean_of_no_folder_is_an_error(tmp_path: Path) -> None:
    done = run("clean", tmp_path / "nowhere")
    assert done.returncode == 3
    assert str(tmp_path / "nowhere") in done.stderr


def test_audit_lists_globals_and_runs_none(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    counter = pickle.dumps(collections.Counter("ab"))
    rows = [(counter, {}), (pickle.dumps(Touch(evidence)), {}), (counter, {})]
    codec = drt.codecs.Pickle(trust=True)
    folder = drt.write_cache(RowSource("p", rows, codec=codec), tmp_path).path
    done = run("audit", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        "  collections.Counter: 2 samples, such as 0",
        f"  {os.mkdir.__module__}.mkdir: 1 sample, such as 1",
    ]
    document = run_json("audit", folder)
    cache_id = drt.open_dataset(folder).caches[0].cache_id
    assert document == {
        "path": str(folder),
        "codec": "pickle",
        "ok": True,
        "samples": 3,
        "pickles": 3,
        "globals": [
            {"name": "collections.Counter", "samples": 2, "cache_id": cache_id, "sample_id": 0},
            {"name": f"{os.mkdir.__module__}.mkdir", "samples": 1, "cache_id": cache_id, "sample_id": 1},
        ],
        "problems": [],
    }
    assert not evidence.exists()


def test_audit_says_that_other_payloads_are_no_pickles(tmp_path: Path) -> None:
    codec = drt.codecs.Json()
    folder = drt.write_cache(RowSource("j", [(b"[1]", {})], codec=codec), tmp_path).path
    done = run("audit", folder)
    assert done.returncode == 0
    assert "none of 1 payloads is a pickle (their codec is 'json')" in done.stdout


def test_audit_lists_payloads_that_cannot_be_followed(tmp_path: Path) -> None:
    codec = drt.codecs.Pickle(trust=True)
    rows = [(pickle.dumps(1), {}), (b"cos\nsystem\nX", {})]
    folder = drt.write_cache(RowSource("p", rows, codec=codec), tmp_path).path
    done = run("audit", folder)
    assert done.returncode == 1
    assert "  os.system: 1 sample, such as 1" in done.stdout.splitlines()
    assert "sample 1: the pickle cannot be followed" in done.stdout
    assert run_json("audit", folder, status=1)["problems"][0]["sample_id"] == 1


def test_audit_of_what_may_not_be_read_is_status_3(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process, and told rather than made so: no permission stops root.
    refused = drt.Problem("permission-denied", "may not be read", None, None, None, None)
    report = drt.AuditReport((), (refused,), samples=10, pickles=0)
    monkeypatch.setattr(drt.CachedDataset, "audit", lambda *_, **__: report)
    assert main(["audit", str(tiny_folder)]) == 3


@pytest.mark.parametrize("command", ["info", "verify", "audit", "clean"])
def test_every_command_has_help(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"Usage: datasetrt {command}" in done.stdout


@pytest.mark.parametrize(
    "line", [[], ["bogus"], ["info"], ["info", "a", "b"], ["verify"], ["clean", "--x", "."]]
)
def test_a_wrong_command_line_is_one_line_and_status_2(line: list[str]) -> None:
    done = run(*line)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("datasetrt: ")
