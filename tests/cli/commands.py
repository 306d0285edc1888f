"""Runs `datasetrt` as its users do, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "datasetrt"]


def run(*arguments: str | bytes | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended. A traceback is never the answer."""
    environment = {**os.environ, **options.pop("env", {})}
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=120,
        env=environment,
        **options,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stderr.count("\n") <= 1, done.stderr
    return done


def run_json(*arguments: str | Path, status: int = 0) -> dict[str, Any]:
    """The one JSON document that a command prints."""
    done = run(*arguments, "--json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document
