"""The environments of these tests, each made once a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.environments import DISTRIBUTIONS, WHEELS, Environment, empty, wheel


@pytest.fixture(scope="session")
def core_alone(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """``pip install datasetrt`` in an empty environment."""
    made = empty(tmp_path_factory.mktemp("core") / "venv")
    made.pip("install", "--find-links", WHEELS, "datasetrt")
    return made


@pytest.fixture(scope="session")
def with_extras(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """All extras that bring no framework. That of torch is installed in the session of torch."""
    made = empty(tmp_path_factory.mktemp("extras") / "venv")
    made.pip("install", "--find-links", WHEELS, "datasetrt[jax,tf,dill,msgpack]")
    return made


@pytest.fixture(scope="session")
def adapters(core_alone: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the three adapters, without what they require."""
    folder = tmp_path_factory.mktemp("adapters")
    wheels = [wheel(name) for name in DISTRIBUTIONS[1:]]
    core_alone.pip("install", "--no-deps", "--no-index", "--target", folder, *wheels)
    return folder
