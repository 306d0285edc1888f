"""What pip makes of the wheels in an empty environment; a folder stands in for the index."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.packaging.environments import WHEELS, Environment, build_release, metadata, wheel

USES = {
    "core": "assert len(list(drt.testing.tiny_dataset().loader(batch_size=4)))",
    "lazy jax": "import datasetrt_jax; assert drt.jax is datasetrt_jax",
    "lazy tf": "import datasetrt_tf; assert drt.tf is datasetrt_tf",
    "jax without JAX": (
        "batches = drt.jax.batches(drt.testing.tiny_dataset(), global_batch=2, columns=['label'])\n"
        "assert next(batches)['label'].shape == (2,)"
    ),
    "tf without TensorFlow": "assert drt.tf.cursor(drt.testing.tiny_dataset(), 4, global_step=1)",
    "dill": "c = drt.codecs.Dill(trust=True); assert c.loads(c.dumps(lambda: 7))() == 7",
    "msgpack": "c = drt.codecs.Msgpack(); assert c.loads(c.dumps({'a': 1})) == {'a': 1}",
}


@pytest.mark.parametrize("use", USES)
def test_what_the_extras_bring_works(use: str, with_extras: Environment) -> None:
    done = with_extras.run(f"import datasetrt as drt\n{USES[use]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("distribution", ["datasetrt", "datasetrt-jax", "datasetrt-tf"])
def test_it_is_the_wheel_from_the_folder(distribution: str, with_extras: Environment) -> None:
    """And not one of the same name from an index: the hashes of all its files are ours."""
    code = f"import importlib.metadata as m; print(m.distribution({distribution!r}).read_text('RECORD'))"
    lines = set(with_extras.run(code).stdout.split())
    with zipfile.ZipFile(wheel(distribution)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        ours = set(archive.read(name).decode().split())
    hashed = {line for line in ours if ",sha256=" in line}
    assert len(hashed) > 5
    assert hashed <= lines


def test_what_is_installed_verifies_what_it_reads(core_alone: Environment) -> None:
    """The engine says in its version when it was built for a benchmark, without verification."""
    done = core_alone.run("import datasetrt; print(datasetrt.__version__)")
    assert done.stdout.strip() == metadata(wheel("datasetrt"))["Version"], done.stderr
    assert "+" not in done.stdout


def test_no_framework_comes_along(with_extras: Environment) -> None:
    there = {line.partition("==")[0].lower() for line in with_extras.pip("freeze").stdout.splitlines()}
    assert {"datasetrt", "datasetrt-jax", "datasetrt-tf", "dill", "msgpack", "numpy"} <= there
    assert {
        "torch",
        "jax",
        "jaxlib",
        "tensorflow",
        "tensorflow-cpu",
        "keras",
        "datasetrt-torch",
    } & there == set()


def test_the_core_brings_what_it_requires_alone(core_alone: Environment) -> None:
    there = {line.partition("==")[0].lower() for line in core_alone.pip("freeze").stdout.splitlines()}
    assert {"datasetrt", "numpy", "polars", "pydantic"} <= there
    assert not any(name.startswith("datasetrt-") for name in there)


@pytest.mark.parametrize("environment", ["core_alone", "with_extras"])
def test_requirements_agree(environment: str, request: pytest.FixtureRequest) -> None:
    assert "No broken requirements" in request.getfixturevalue(environment).pip("check").stdout


def test_pip_refuses_an_adapter_of_another_release(with_extras: Environment, tmp_path: Path) -> None:
    newer = build_release("datasetrt-jax", "0.2.0", tmp_path)
    done = with_extras.pip("install", "--no-index", "--find-links", WHEELS, newer, check=False)
    assert done.returncode != 0
    assert "datasetrt==0.2.*" in done.stderr
