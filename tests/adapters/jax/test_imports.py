"""What importing the adapter loads, and what it says where something is missing or broken."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

BATCH = """
import sys
import datasetrt as drt, datasetrt_jax as drtj
it = drtj.batches(drt.testing.tiny_dataset(), global_batch=2, columns=["label"])
next(it)
assert not {"jax", "grain", "orbax"} & set(sys.modules)
"""


def python(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that finds these folders first."""
    lines = [f"import sys; sys.path[:0] = {[str(folder) for folder in path]}", code]
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False
    )


def last_line(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 1, run.stdout
    return run.stderr.strip().splitlines()[-1]


def test_numpy_batches_need_no_framework() -> None:
    run = python(BATCH)
    assert run.returncode == 0, run.stderr


def test_importing_starts_no_thread() -> None:
    code = "import datasetrt_jax, pathlib; assert len(list(pathlib.Path('/proc/self/task').iterdir())) == 1"
    run = python(f"import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'\n{code}")
    assert run.returncode == 0, run.stderr


DEVICE = """
import datasetrt as drt, datasetrt_jax as drtj
drtj.device_batches(drtj.batches(drt.testing.tiny_dataset(), global_batch=2, columns=["label"]), None)
"""


def test_a_missing_jax_is_named_with_its_cure() -> None:
    code = "import sys; sys.modules['jax'] = None\n" + DEVICE
    assert last_line(python(code)) == (
        "datasetrt.errors.InstallationError: datasetrt_jax.device_batches needs jax 0.5 or later, "
        f"and {sys.executable} has none; pip install 'jax>=0.5'"
    )


@pytest.mark.parametrize("fault", ["import no_such_part", "raise RuntimeError('libjax.so is damaged')"])
def test_a_broken_jax_is_not_called_missing(tmp_path: Path, fault: str) -> None:
    (tmp_path / "jax.py").write_text(fault)
    line = last_line(python(DEVICE, tmp_path))
    assert f"; jax {importlib.metadata.version('jax')} is installed" in line
    assert "No module named 'no_such_part'" in line or "RuntimeError: libjax.so is damaged" in line
    assert line.endswith("; pip install --force-reinstall 'jax>=0.5'")


def test_an_old_jax_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("__version__ = '0.4.38'")
    assert last_line(python(DEVICE, tmp_path)).endswith("has 0.4.38; pip install --upgrade 'jax>=0.5'")


def test_a_core_of_another_release_is_refused() -> None:
    line = last_line(python("import datasetrt; datasetrt.__version__ = '9.9.0'\nimport datasetrt_jax"))
    assert line == (
        "datasetrt.errors.InstallationError: datasetrt-jax 0.1.0 does not go with datasetrt 9.9.0: "
        "both have to be of one minor release; pip install --upgrade datasetrt datasetrt-jax"
    )


def test_the_core_hands_the_adapter_over() -> None:
    import datasetrt
    import datasetrt_jax

    assert datasetrt.jax is datasetrt_jax


def test_only_public_names_of_the_core_are_used() -> None:
    """The repository's test of layers sees imports; this one sees private attributes of objects."""
    import datasetrt_jax

    folder = Path(datasetrt_jax.__file__).parent
    text = "\n".join(file.read_text() for file in folder.glob("*.py"))
    assert "._core" not in text
    for private in ("._view", "._order(", "._cursor", "._loop", "._uneven_for", "._bound"):
        assert private not in text, private
