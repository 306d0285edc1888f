"""The floor: a C extension that does the least a reader can do, built where it is used."""

from __future__ import annotations

import importlib
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

_SOURCE = Path(__file__).with_name("floor.c")


def build(folder: Path) -> None:
    """Compile the extension for this Python into ``folder``; needs a C compiler and Python's headers."""
    folder.mkdir(parents=True, exist_ok=True)
    include = f"-I{sysconfig.get_path('include')}"
    flags = ["-O3", "-Wall", "-Wextra", "-shared", "-fPIC", include]
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    target = str(folder / "floor_native.so")
    subprocess.run([compiler, *flags, str(_SOURCE), "-o", target], check=True)


def load(folder: Path) -> ModuleType:
    """The extension that :func:`build` made."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module("floor_native")
