"""What has to be installed beside this package, told in one line where it is not."""

from __future__ import annotations

import importlib
from typing import Any

import datasetrt as drt


def check_core(version: str) -> None:
    """Refuse a core of another minor release.

    Args:
        version: That of this package.

    Raises:
        ImportError: Core and adapter differ; has the line that installs both.
    """
    if _minor(version) != _minor(drt.__version__):
        raise ImportError(
            f"datasetrt-jax {version} does not go with datasetrt {drt.__version__}; "
            'install both of one release: pip install --upgrade "datasetrt[jax]"'
        )


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def import_jax() -> Any:
    """JAX, where it is needed for the first time.

    Raises:
        ImportError: It is not installed, or its own import fails, which is then the cause.
    """
    try:
        return importlib.import_module("jax")
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise ImportError(f"JAX is installed, but cannot be imported: {error}; reinstall it") from error
        raise ImportError(
            'device_batches needs JAX, which is not installed; pip install "datasetrt-jax[jax]"', name="jax"
        ) from error
    except ImportError as error:
        raise ImportError(f"JAX is installed, but cannot be imported: {error}; reinstall it") from error
