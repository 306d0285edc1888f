"""What has to be installed, checked once at import: each thing that can be wrong is one clear error."""

from __future__ import annotations

import importlib
import sys

import datasetrt as drt


def check_core(version: str, core: str = drt.__version__) -> None:
    """Refuse a core of another minor release: the adapter follows its loader state.

    Args:
        version: That of this adapter.
        core: That of the core.

    Raises:
        ImportError: They differ in more than the patch number; names both and the cure.
    """
    if version.split(".")[:2] != core.split(".")[:2]:
        raise ImportError(
            f"datasetrt-torch {version} does not go with datasetrt {core}: both need the same minor release; "
            "pip install --upgrade datasetrt datasetrt-torch",
            name="datasetrt_torch",
        )


def check_torch(module: str = "torch") -> None:
    """Import PyTorch.

    Raises:
        ImportError: It is not installed, or is installed and fails when it is imported.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise _broken(module, error) from error
        raise ImportError(
            f"datasetrt-torch needs PyTorch, and {sys.executable} has none; pip install torch, "
            "or choose a build at https://pytorch.org",
            name=module,
        ) from error
    except (ImportError, OSError) as error:  # OSError: a shared library is missing
        raise _broken(module, error) from error


def _broken(module: str, error: Exception) -> ImportError:
    reason = " ".join(str(error).split())
    return ImportError(
        f"PyTorch is installed in {sys.prefix} but cannot be imported ({type(error).__name__}: {reason}); "
        "reinstall torch, then check with `python -c 'import torch'`",
        name=module,
    )
