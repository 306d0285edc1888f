"""What the built wheels hold, and what they ask for: no more, no less."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.environments import DISTRIBUTIONS, REPOSITORY, WHEELS, build, metadata, wheel

ADAPTERS = DISTRIBUTIONS[1:]


def names(file: Path) -> set[str]:
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        return set(archive.namelist())


def requirements(file: Path, extra: str = "") -> set[str]:
    """What a wheel always requires, or for one extra besides."""
    lines = [Requirement(line) for line in metadata(file).get_all("Requires-Dist") or []]
    always = {line.name for line in lines if line.marker is None or line.marker.evaluate({"extra": ""})}
    if not extra:
        return always
    return {line.name for line in lines if line.marker and line.marker.evaluate({"extra": extra})} - always


def sources(distribution: str) -> set[str]:
    """The files of a package in the repository, as a wheel names them."""
    root = REPOSITORY / "packages" / distribution / "src"
    files = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()}
    return {name for name in files if "__pycache__" not in name and not name.endswith(".so")}


def test_there_are_four() -> None:
    assert sorted(WHEELS.glob("*.whl")) == sorted(wheel(name) for name in DISTRIBUTIONS)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_wheel_holds_its_package_and_nothing_else(distribution: str) -> None:
    native = {"datasetrt/_core.abi3.so"} if distribution == "datasetrt" else set()
    held = {name for name in names(wheel(distribution)) if ".dist-info/" not in name}
    assert held == sources(distribution) | native
    assert f"{distribution.replace('-', '_')}/py.typed" in held


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_what_a_wheel_says_of_itself(distribution: str) -> None:
    file = wheel(distribution)
    manifest = tomllib.loads((REPOSITORY / "Cargo.toml").read_text(encoding="utf-8"))
    version = manifest["workspace"]["package"]["version"]
    said = metadata(file)
    assert (said["Name"], said["Version"]) == (distribution, version)
    assert (said["License-Expression"], said["Requires-Python"]) == ("MIT OR Apache-2.0", ">=3.11")
    assert set(said.get_all("License-File") or []) == {"LICENSE-MIT", "LICENSE-APACHE"}
    folder = f"{distribution.replace('-', '_')}-{version}.dist-info/licenses"
    assert {f"{folder}/LICENSE-MIT", f"{folder}/LICENSE-APACHE"} <= names(file)


def test_one_native_wheel_serves_every_python() -> None:
    assert re.fullmatch(
        r"datasetrt-[\d.]+-cp311-abi3-(manylinux|linux|macosx)\w*\.whl", wheel("datasetrt").name
    )
    for distribution in ADAPTERS:
        assert wheel(distribution).name.endswith("-py3-none-any.whl")


def test_what_is_required() -> None:
    assert requirements(wheel("datasetrt")) == {"click", "numpy", "polars", "pydantic", "typing-extensions"}
    assert requirements(wheel("datasetrt-torch")) == {"datasetrt", "numpy", "torch"}
    # JAX and TensorFlow come in several builds, and both adapters are of use without.
    assert requirements(wheel("datasetrt-jax")) == {"datasetrt", "numpy"}
    assert requirements(wheel("datasetrt-tf")) == {"datasetrt", "numpy"}
    assert requirements(wheel("datasetrt-jax"), "jax") == {"jax"}
    assert requirements(wheel("datasetrt-tf"), "tensorflow") == {"tensorflow"}
    assert requirements(wheel("datasetrt-tf"), "cpu") == {"tensorflow-cpu"}
    assert requirements(wheel("datasetrt-tf"), "keras") == {"keras"}


@pytest.mark.parametrize("distribution", ADAPTERS)
def test_an_adapter_goes_with_the_core_of_its_minor_release(distribution: str) -> None:
    lines = [Requirement(line) for line in metadata(wheel(distribution)).get_all("Requires-Dist") or []]
    (core,) = (line.specifier for line in lines if line.name == "datasetrt")
    assert [version in core for version in ("0.0.9", "0.1.0", "0.1.7", "0.2.0")] == [False, True, True, False]
    extras = [Requirement(line) for line in metadata(wheel("datasetrt")).get_all("Requires-Dist") or []]
    (adapter,) = (line.specifier for line in extras if line.name == distribution)
    assert [version in adapter for version in ("0.0.9", "0.1.0", "0.2.0")] == [False, True, False]


@pytest.mark.parametrize("distribution", ADAPTERS)
def test_a_source_distribution_builds_the_same_wheel(distribution: str, tmp_path: Path) -> None:
    archive = build(REPOSITORY / "packages" / distribution, "sdist", tmp_path)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    rebuilt = build(tmp_path / archive.name.removesuffix(".tar.gz"), "wheel", tmp_path)
    with zipfile.ZipFile(rebuilt) as one, zipfile.ZipFile(wheel(distribution)) as other:
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }
