"""Each thing that can be wrong with an installation is one clear error, at import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import datasetrt as drt
import datasetrt_torch as drtt
from datasetrt_torch._requirements import check_core, check_torch


def imported(folder: Path, before: str = "") -> str:
    """The last line of an import that fails, with a folder in front of everything else."""
    code = f"import sys\nsys.path.insert(0, {str(folder)!r})\n{before}\nimport datasetrt_torch"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout
    return run.stderr.strip().splitlines()[-1]


def test_without_torch(tmp_path: Path) -> None:
    line = imported(tmp_path, "sys.modules['torch'] = None")
    assert line.startswith("ImportError: datasetrt-torch needs PyTorch")
    assert "pip install torch" in line
    assert sys.executable in line


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            "import libtorch_of_another_build",
            "ModuleNotFoundError: No module named 'libtorch_of_another_build'",
        ),
        ("raise OSError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12"),
        ("raise ImportError('undefined symbol')", "undefined symbol"),
    ],
)
def test_with_a_broken_torch(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "torch.py").write_text(content)
    line = imported(tmp_path)
    assert line.startswith("ImportError: PyTorch is installed in ")
    assert reason in line
    assert "reinstall torch" in line


def test_with_another_core() -> None:
    for core in ("0.0.9", "0.2.0", "1.1.0"):
        with pytest.raises(ImportError, match=rf"datasetrt-torch 0\.1\.3 does not go with datasetrt {core}"):
            check_core("0.1.3", core)
    check_core("0.1.3", "0.1.0")
    check_core(drtt.__version__, drt.__version__)


def test_what_is_there_passes() -> None:
    check_torch()


def test_optional_packages_are_not_imported() -> None:
    code = (
        "import sys, datasetrt_torch\n"
        "wanted = {'torchdata', 'lightning', 'accelerate', 'transformers', 'tensordict'} & set(sys.modules)\n"
        "assert not wanted, wanted"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})
