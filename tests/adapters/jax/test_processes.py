"""Several JAX processes, connected by gloo: global arrays, and a run that changes its world."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import datasetrt as drt

WORKER = Path(__file__).with_name("process_worker.py")


def run(folder: Path, processes: int, devices: int, mesh: str, steps: int, state: str = "") -> Any:
    """What process 0 reports of a run; all processes must end well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    arguments = [address, str(processes), str(folder), mesh, str(steps), state]
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), *arguments],
            env={**os.environ, **flags},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        # Long enough for a busy machine: four of them import JAX at the same time.
        results = [worker.communicate(timeout=280) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    for worker, (_, errors) in zip(workers, results, strict=True):
        assert worker.returncode == 0, errors
    reports = [json.loads(out.splitlines()[-1]) for out, _ in results]
    assert all(report == reports[0] for report in reports), "processes differ"
    return reports[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    return Path(drt.testing.tiny_dataset(91, root=root).caches[0].path)


@pytest.fixture(scope="module")
def alone(folder: Path) -> Any:
    """Twelve steps of one process."""
    return run(folder, 1, 4, "data", 12)


@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (4, 1)])
def test_global_arrays_are_the_same_for_any_number_of_processes(
    folder: Path, alone: Any, processes: int, devices: int
) -> None:
    assert run(folder, processes, devices, "data", 12) == alone


def test_processes_that_hold_the_same_rows(folder: Path, alone: Any) -> None:
    """Two processes of a model-parallel group: each reads all rows of the group."""
    assert run(folder, 2, 2, "model", 12)["rows"] == alone["rows"]


def test_a_run_goes_on_with_another_number_of_processes(folder: Path, alone: Any) -> None:
    before = run(folder, 4, 1, "data", 4)
    after = run(folder, 2, 2, "data", 8, json.dumps(before["state"]))
    assert before["rows"] + after["rows"] == alone["rows"]
    assert after["state"] == alone["state"]
