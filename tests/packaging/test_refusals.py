"""Each thing that can be wrong with an installation is one clear error, seen from the built wheels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.environments import Environment, build_release, metadata, wheel

DATASET = "import datasetrt as drt\nds = drt.testing.tiny_dataset()\n"
JAX_ARRAYS = """
from datasetrt_jax import batches, device_batches
device_batches(batches(ds, global_batch=2, columns=['label']), None)
"""
KERAS_FIT = """
from datasetrt_tf import fit_args
fit_args(ds, 4, epochs=1, inputs='label', targets=None)
"""
# For each framework: the adapter, and the least that needs the framework.
NEEDS = {
    "torch": ("datasetrt-torch", "import datasetrt_torch"),
    "jax": (
        "datasetrt-jax",
        f"{DATASET}{JAX_ARRAYS}",
    ),
    "tensorflow": ("datasetrt-tf", f"{DATASET}import datasetrt_tf as drtf\ndrtf.dataset(ds, 4)"),
    "keras": (
        "datasetrt-tf",
        f"{DATASET}{KERAS_FIT}",
    ),
}
FAULTS = {
    "raise ImportError('undefined symbol: _Z1')": "ImportError: undefined symbol: _Z1",
    "raise OSError('libcudart.so.12: cannot open shared object file')": "OSError: libcudart.so.12: cannot",
    "raise RuntimeError('compiled against\\nanother ABI')": "RuntimeError: compiled against another ABI",
    "import part_of_it": "ModuleNotFoundError: No module named 'part_of_it'",
}


def refusal(environment: Environment, code: str, *folders: Path) -> str:
    """The one line of the error that ends a program; whatever else it prints would be noise."""
    done = environment.run(code, *folders)
    assert done.returncode == 1, done.stdout + done.stderr
    first, _, line = done.stderr.strip().splitlines()[-1].partition(": ")
    assert first == "datasetrt.errors.InstallationError"
    return line


def floor(framework: str) -> str:
    """What the adapter's wheel itself says about a framework, such as ``torch>=2.6``."""
    adapter, _ = NEEDS[framework]
    lines = [Requirement(line) for line in metadata(wheel(adapter)).get_all("Requires-Dist") or []]
    (specifier,) = (str(line.specifier) for line in lines if line.name == framework)
    return f"{framework}{specifier}"


@pytest.mark.parametrize("name", ["torch", "jax", "tf"])
@pytest.mark.parametrize("code", ["import datasetrt; datasetrt.{}", "from datasetrt import {}"])
def test_the_adapter_is_missing(name: str, code: str, core_alone: Environment) -> None:
    assert refusal(core_alone, code.format(name)) == (
        f"datasetrt.{name} needs the package datasetrt_{name}, and {core_alone.python} has none; "
        f"pip install 'datasetrt[{name}]'"
    )


@pytest.mark.parametrize("framework", NEEDS)
def test_the_framework_is_missing(framework: str, core_alone: Environment, adapters: Path) -> None:
    _, code = NEEDS[framework]
    line = refusal(core_alone, code, adapters)
    assert f" needs {framework} {floor(framework).partition('>=')[2]} or later, and " in line
    assert f"{core_alone.python} has none; pip install '{floor(framework)}'" in line


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("framework", NEEDS)
def test_the_framework_is_broken(
    framework: str, fault: str, core_alone: Environment, adapters: Path, tmp_path: Path
) -> None:
    (tmp_path / framework).mkdir()
    (tmp_path / framework / "__init__.py").write_text(fault.replace("\n", "\\n"), encoding="utf-8")
    _, code = NEEDS[framework]
    line = refusal(core_alone, code, adapters, tmp_path)
    assert f"but its import fails ({FAULTS[fault]}" in line
    assert f"pip install --force-reinstall '{floor(framework)}'" in line


@pytest.mark.parametrize("framework", NEEDS)
def test_the_framework_is_too_old(
    framework: str, core_alone: Environment, adapters: Path, tmp_path: Path
) -> None:
    (tmp_path / f"{framework}.py").write_text("__version__ = '0.4.1+cpu'", encoding="utf-8")
    _, code = NEEDS[framework]
    line = refusal(core_alone, code, adapters, tmp_path)
    assert f"{core_alone.python} has 0.4.1+cpu; pip install --upgrade '{floor(framework)}'" in line


@pytest.mark.parametrize("version", ["0.2.0", "0.0.9"])
@pytest.mark.parametrize("adapter", ["datasetrt-torch", "datasetrt-jax", "datasetrt-tf"])
def test_core_and_adapter_are_of_different_releases(
    adapter: str, version: str, core_alone: Environment, tmp_path: Path
) -> None:
    other = build_release(adapter, version, tmp_path)
    folder = tmp_path / "installed"
    core_alone.pip("install", "--no-deps", "--no-index", "--target", folder, other)
    module = adapter.replace("-", "_")
    core = core_alone.run("import datasetrt; print(datasetrt.__version__)").stdout.strip()
    expected = (
        f"{adapter} {version} does not go with datasetrt {core}: both have to be of one minor release; "
        f"pip install --upgrade datasetrt {adapter}"
    )
    assert refusal(core_alone, f"import {module}", folder) == expected
    assert (
        refusal(core_alone, f"from datasetrt import {module.removeprefix('datasetrt_')}", folder) == expected
    )


def test_programs_may_match_on_the_kind(core_alone: Environment, adapters: Path) -> None:
    code = (
        "import datasetrt\n"
        "try:\n    import datasetrt_torch\n"
        "except ImportError as error:\n    print(type(error).__name__, error.kind, error.name)"
    )
    assert core_alone.run(code, adapters).stdout.split() == ["InstallationError", "missing-package", "torch"]
    code = code.replace("import datasetrt_torch", "from datasetrt import torch")
    assert re.split(r"\s+", core_alone.run(code).stdout.strip())[1:] == ["missing-adapter", "datasetrt_torch"]
