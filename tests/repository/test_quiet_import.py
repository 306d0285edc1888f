"""Importing `datasetrt` brings no framework and starts no thread, seen from a fresh interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

# Threads are counted by the kernel where it tells: native ones do not show up in `threading`.
PROBE = """
import importlib, json, os, sys, threading
for name in sys.argv[1:]:
    importlib.import_module(name)
tasks = "/proc/self/task"
print(json.dumps({
    "modules": sorted(sys.modules),
    "python_threads": threading.active_count(),
    "native_threads": len(os.listdir(tasks)) if os.path.isdir(tasks) else None,
}))
"""
FRAMEWORKS = {"torch", "jax", "tensorflow", "keras", "sklearn", "skimage", "pandas", "pyarrow"}


def _after_importing(*names: str, folder: Path | None = None) -> tuple[set[str], int, int | None]:
    """Modules, Python threads and native threads of an interpreter that imported ``names``."""
    path = os.pathsep.join(filter(None, [str(folder or ""), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, *names],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    seen = json.loads(done.stdout)
    return set(seen["modules"]), seen["python_threads"], seen["native_threads"]


def test_importing_datasetrt_is_quiet() -> None:
    # NumPy's linear algebra starts threads of its own; ours is the difference to the requirements alone.
    _, _, required = _after_importing("numpy", "polars", "pydantic")
    modules, python_threads, native_threads = _after_importing("datasetrt")
    assert "datasetrt" in modules
    assert modules & FRAMEWORKS == set()
    assert python_threads == 1
    assert (native_threads or 0) <= (required or 0)


def test_importing_an_adapter_brings_no_framework() -> None:
    modules, python_threads, _ = _after_importing("datasetrt_jax", "datasetrt_tf")
    assert {"datasetrt_jax", "datasetrt_tf"} <= modules
    assert modules & FRAMEWORKS == set()
    assert python_threads == 1


def test_a_loud_module_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "loud.py").write_text(
        "import threading, torch\n"
        "threading.Thread(target=threading.Event().wait, args=(5,), daemon=True).start()\n"
    )
    _, _, before = _after_importing("threading", folder=tmp_path)
    modules, python_threads, native_threads = _after_importing("loud", folder=tmp_path)
    assert modules & FRAMEWORKS == {"torch"}
    assert python_threads == 2
    if before is not None:
        assert native_threads == before + 1
