"""``datasetrt.torch``, ``.jax`` and ``.tf``: the adapters, imported when they are asked for.

They are attributes of the package and no part of ``__all__`` or ``dir``, so that nothing that looks a package
over imports a framework. Each is the module of a distribution of its own, ``datasetrt_torch`` and so on.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

from .errors import InstallationError

ADAPTERS: Final = {"torch": "datasetrt_torch", "jax": "datasetrt_jax", "tf": "datasetrt_tf"}


def __getattr__(name: str) -> ModuleType:
    """What ``datasetrt`` answers for an attribute that it does not have.

    Raises:
        AttributeError: It is none of the adapters.
        InstallationError: The adapter is not installed (kind ``missing-adapter``), or it says itself what
            it lacks.
    """
    if name not in ADAPTERS:
        package = sys.modules["datasetrt"]  # for the interpreter's suggestion of a name like it
        raise AttributeError(f"module 'datasetrt' has no attribute {name!r}", name=name, obj=package)
    module = ADAPTERS[name]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        missing = InstallationError(
            f"datasetrt.{name} needs the package {module}, and {sys.executable} has none; "
            f"pip install 'datasetrt[{name}]'",
            kind="missing-adapter",
        )
        missing.name = module
        raise missing from None
