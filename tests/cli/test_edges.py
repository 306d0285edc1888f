"""Whatever happens around a command: one line on standard error, a status that says what, no traceback."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

import datasetrt as drt
from datasetrt.cli import main
from datasetrt.cli._output import printable
from tests.cli.commands import COMMAND, run, run_json
from tests.rows import RowSource, rows_of


def test_importing_datasetrt_does_not_import_click() -> None:
    code = "import sys, datasetrt; sys.exit('click' in sys.modules or 'datasetrt.cli' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        *(("info", path) for path in ("nowhere", "", "/dev/null", "/dev/null/x", "x\ny", b"\xff\xfe")),
        *((command, path) for command in ("verify", "audit", "clean") for path in ("/dev/null", b"\xff")),
    ],
)
def test_a_path_without_a_cache(command: str, path: str | bytes, tmp_path: Path) -> None:
    done = run(command, path, cwd=tmp_path)
    assert done.returncode in {1, 2, 3}
    assert done.stderr.startswith("datasetrt: ")


def test_what_the_system_refuses_is_status_3(tmp_path: Path) -> None:
    # Also for root, whom no permission stops.
    done = run("info", tmp_path / ("x" * 300))
    assert done.returncode == 3
    assert "File name too long" in done.stderr


def test_an_error_of_a_json_command_is_json_too(tmp_path: Path) -> None:
    document = run_json("info", tmp_path / "nowhere", status=3)
    assert document["ok"] is False
    assert document["error"]["kind"] == "not-found"
    assert document["error"]["path"] == str(tmp_path / "nowhere")


def _until(command: list[str], output: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *command], stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)


def test_a_reader_that_stops_is_status_141(tiny_folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = _until(["info", str(tiny_folder)], writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_status_3(tiny_folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = _until(["info", str(tiny_folder)], full.fileno())
    assert done.returncode == 3
    assert done.stderr.startswith("datasetrt: standard output cannot be written")
    assert done.stderr.count("\n") == 1


def test_closed_standard_output_is_status_3(tiny_folder: Path) -> None:
    command = [*COMMAND, "info", str(tiny_folder)]
    shell = ["sh", "-c", '"$@" >&-', "sh", *command]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr == "datasetrt: standard output is closed\n"


def test_ctrl_c_is_status_130(tmp_path: Path) -> None:
    # A payload that takes long to follow, for a moment in which the command surely runs.
    slow = b"\x80\x04" + b"N0" * 2_000_000 + b"N."
    codec = drt.codecs.Pickle(trust=True)
    folder = drt.write_cache(
        RowSource("slow", [(slow, {"i": i}) for i in range(20)], codec=codec), tmp_path
    ).path
    code = (
        "import sys, threading, _thread, datasetrt.pickle_walk as w\n"
        "from datasetrt.cli import main\n"
        "real = w._Walker.run\n"
        "def run(self):\n"
        "    print('started', file=sys.stderr, flush=True)\n"
        "    real(self)\n"
        "w._Walker.run = run\n"
        f"sys.exit(main(['audit', {str(folder)!r}]))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest.replace("started\n", "") == "datasetrt: interrupted\n"


def test_progress_is_drawn_on_a_terminal_only(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    folder = drt.write_cache(RowSource("s", rows_of(100)), tmp_path).path
    quiet = run("verify", folder)
    assert quiet.stderr == ""
    master, slave = pty.openpty()
    process = subprocess.Popen([*COMMAND, "verify", folder], stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    process.communicate(timeout=60)
    drawn = b""
    deadline = time.monotonic() + 10
    while not drawn.endswith(b"\r") and time.monotonic() < deadline:
        try:
            drawn += os.read(master, 10_000)
        except OSError:  # how a terminal says that everybody has left
            break
    os.close(master)
    assert process.returncode == 0
    assert b"verify" in drawn
    assert b"% " in drawn
    assert b"\x1b" not in drawn


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\u009b31m\x7f"


def test_names_from_a_cache_cannot_steer_the_terminal(tmp_path: Path) -> None:
    rows = [(b"\x80\x04\x8c\x06\x1b[2J\xc2\x9b\x8c\x01x\x93.", {HOSTILE.replace("\x07", ""): 1})]
    codec = drt.codecs.Pickle(trust=True)
    source = RowSource("a\u202eb", rows, codec=codec, fingerprint=HOSTILE)
    folder = Path(drt.write_cache(source, tmp_path).path)
    for command in ("info", "verify", "audit"):
        for flags in ([], ["--json"]):
            done = run(command, folder, *flags)
            assert done.returncode == 0
            assert printable(done.stdout.replace("\n", " ")) == done.stdout.replace("\n", " ")
    assert "\\x1b]0;owned\\x07" in run("info", folder).stdout
    assert "\\x1b[2J\\x9b.x" in run("audit", folder).stdout


def test_arguments_cannot_steer_the_terminal(tmp_path: Path) -> None:
    for line in ([HOSTILE], ["info", HOSTILE], ["info", "--" + HOSTILE], ["clean", HOSTILE]):
        done = run(*line, cwd=tmp_path)
        assert done.returncode in {1, 2, 3}
        assert printable(done.stderr[:-1]) == done.stderr[:-1]


def test_output_in_an_encoding_without_the_name(tmp_path: Path) -> None:
    folder = drt.write_cache(RowSource("é→", rows_of(3)), tmp_path).path
    done = run("info", folder, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "\\xe9\\u2192" in done.stdout


def test_a_bug_is_one_line_and_status_70(tmp_path: Path) -> None:
    code = (
        "import sys, datasetrt.cli._commands as c\n"
        "def broken(*a, **k): raise ZeroDivisionError('a\\nb')\n"
        "c.open_dataset = broken\n"
        "from datasetrt.cli import main\n"
        "sys.exit(main(['info', 'x']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 70
    assert done.stderr == "datasetrt: this is a bug, please report it: ZeroDivisionError: a b\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["info", "--help"]], ids=" ".join)
def test_help_that_cannot_be_written_is_no_bug(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert "bug" not in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=" ".join)
def test_help_that_nobody_reads_is_a_broken_pipe(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


# A command line, the status when all can be written, and whether it has something for standard output.
LINES = [
    (["bogus"], 2, False),
    ([], 2, False),
    (["info"], 2, False),
    (["info", "--bogus"], 2, False),
    (["info", "nowhere"], 3, False),
    (["info", "nowhere", "--json"], 3, True),
    (["clean", "nowhere"], 3, False),
    (["--help"], 0, True),
    (["info", "CACHE"], 0, True),
    (["info", "CACHE", "--json"], 0, True),
    (["verify", "CACHE"], 0, True),
    (["verify", "nowhere"], 3, True),
    (["audit", "CACHE"], 0, True),
    (["clean", "."], 0, True),
]


@pytest.fixture(params=["full", "closed"])
def unwritable(request: pytest.FixtureRequest) -> Iterator[TextIO | None]:
    """A standard stream as Python has it where the disk is full, and where it was closed."""
    if request.param == "closed":
        yield None
        return
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with Path("/dev/full").open("w") as full:
        yield full


def _line(words: list[str], folder: Path) -> list[str]:
    return [str(folder) if word == "CACHE" else word for word in words]


@pytest.mark.parametrize(("line", "status", "speaks"), LINES, ids=str)
def test_output_that_nobody_needs_changes_no_status(
    line: list[str],
    status: int,
    speaks: bool,
    unwritable: TextIO | None,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    monkeypatch.setattr(sys, "stdout", unwritable)
    monkeypatch.setattr(sys, "stderr", said)
    assert main(_line(line, tiny_folder)) == (3 if speaks else status)
    assert said.getvalue().startswith("datasetrt: ")
    assert said.getvalue().count("\n") == 1
    assert ("standard output" in said.getvalue()) == speaks


@pytest.mark.parametrize(("line", "status", "_speaks"), LINES, ids=str)
def test_complaints_that_cannot_be_written_change_no_status(
    line: list[str],
    status: int,
    _speaks: bool,
    unwritable: TextIO | None,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stderr", unwritable)
    assert main(_line(line, tiny_folder)) == status


@pytest.mark.parametrize("where", [">/dev/full", ">&-", "2>/dev/full", "2>&-", ">/dev/full 2>&1"])
def test_a_wrong_command_line_is_status_2_wherever_it_is_written(where: str) -> None:
    shell = ["sh", "-c", f'"$@" {where}', "sh", *COMMAND, "bogus"]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=60)
    expected = "" if "2>" in where else "datasetrt: No such command 'bogus'. (see datasetrt --help)\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
