"""TensorFlow and Keras, imported where they are first needed; what is missing says how to get it."""

from __future__ import annotations

from typing import Any

import datasetrt as drt


def tensorflow(user: str) -> Any:
    """The module ``tensorflow``, for a function of ours called ``user``.

    Raises:
        InstallationError: It is missing, broken, or older than the first with Keras 3.
    """
    return drt.installation.import_package(
        "tensorflow",
        user=f"datasetrt_tf.{user}",
        at_least="2.16",
        distributions=("tensorflow", "tensorflow-cpu"),
    )


def keras(user: str) -> Any:
    """The module ``keras``, for a function of ours called ``user``.

    Raises:
        InstallationError: It is missing, broken, or older than 3.3.
    """
    return drt.installation.import_package("keras", user=f"datasetrt_tf.{user}", at_least="3.3")
