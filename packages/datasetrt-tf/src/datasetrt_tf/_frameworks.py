"""TensorFlow and Keras, imported where they are first needed; what is missing says how to get it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import datasetrt as drt


def tensorflow(user: str) -> Any:
    """The module ``tensorflow``, for a function of ours called ``user``.

    Raises:
        ImportError: It is not installed, or it is and cannot be imported.
    """
    return _imported("tensorflow", user, "tensorflow or pip install tensorflow-cpu")


def keras(user: str) -> Any:
    """The module ``keras``, version 3, for a function of ours called ``user``.

    Raises:
        ImportError: It is not installed, it is and cannot be imported, or it is older than 3.
    """
    module = _imported("keras", user, "keras")
    if not hasattr(module, "config"):
        raise ImportError(
            f"datasetrt_tf.{user} needs Keras 3, and Keras {module.__version__} is installed; "
            "pip install 'keras>=3'",
            name="keras",
        )
    return module


def check_core(version: str) -> None:
    """Refuse to work with a core of another minor release: they share the state of a loader.

    Raises:
        ImportError: The releases differ; names both, and the command that brings them together.
    """
    if drt.__version__.split(".")[:2] != version.split(".")[:2]:
        raise ImportError(
            f"datasetrt-tf {version} works with datasetrt {'.'.join(version.split('.')[:2])}.*, and "
            f"{drt.__version__} is installed; pip install --upgrade datasetrt datasetrt-tf",
            name="datasetrt",
        )


def _imported(name: str, user: str, install: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise _broken(name, user, error) from error
        raise ModuleNotFoundError(
            f"datasetrt_tf.{user} needs {name}, which {sys.executable} does not have; pip install {install}",
            name=name,
        ) from error
    except (ImportError, OSError) as error:  # OSError: a shared library that cannot be loaded
        raise _broken(name, user, error) from error


def _broken(name: str, user: str, error: Exception) -> ImportError:
    reason = " ".join(str(error).split())
    return ImportError(
        f"datasetrt_tf.{user} needs {name}, which is installed but cannot be imported: {reason}; "
        f"pip install --force-reinstall {name}",
        name=name,
    )
