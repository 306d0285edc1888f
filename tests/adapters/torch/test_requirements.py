"""Each thing that can be wrong with an installation is one clear error, at import."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

import datasetrt as drt
import datasetrt_torch


def imported(folder: Path, before: str = "") -> str:
    """The last line of an import that fails, with a folder in front of everything else."""
    code = f"import sys\nsys.path.insert(0, {str(folder)!r})\n{before}\nimport datasetrt_torch"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout
    return run.stderr.strip().splitlines()[-1]


def test_without_torch(tmp_path: Path) -> None:
    line = imported(tmp_path, "sys.modules['torch'] = None")
    assert line == (
        "datasetrt.errors.InstallationError: datasetrt_torch needs torch 2.6 or later, "
        f"and {sys.executable} has none; pip install 'torch>=2.6'"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            "import libtorch_of_another_build",
            "ModuleNotFoundError: No module named 'libtorch_of_another_build'",
        ),
        ("raise OSError('libcudart.so.12: cannot open shared object file')", "OSError: libcudart.so.12"),
        ("raise ImportError('undefined symbol')", "ImportError: undefined symbol"),
    ],
)
def test_with_a_broken_torch(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "torch.py").write_text(content)
    line = imported(tmp_path)
    # The version is that of the torch which is installed here, behind the broken one.
    version = importlib.metadata.version("torch")
    assert f"; torch {version} is installed for {sys.executable}, but its import fails ({reason}" in line
    assert line.endswith("; pip install --force-reinstall 'torch>=2.6'")


def test_with_an_old_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '2.5.1+cu124'")
    line = imported(tmp_path)
    assert "has 2.5.1+cu124; pip install --upgrade 'torch>=2.6'" in line


def test_with_another_core(tmp_path: Path) -> None:
    line = imported(tmp_path, "import datasetrt; datasetrt.__version__ = '0.2.0'")
    assert "datasetrt-torch 0.1.0 does not go with datasetrt 0.2.0" in line


def test_the_core_hands_it_over() -> None:
    assert drt.torch is datasetrt_torch


def test_optional_packages_are_not_imported() -> None:
    code = (
        "import sys, datasetrt_torch\n"
        "wanted = {'torchdata', 'lightning', 'accelerate', 'transformers', 'tensordict'} & set(sys.modules)\n"
        "assert not wanted, wanted"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})
