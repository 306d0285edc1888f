"""What the four installed distributions say of themselves: versions, requirements, extras, licences."""

import importlib
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("datasetrt", "datasetrt-torch", "datasetrt-jax", "datasetrt-tf")


def _workspace_version() -> str:
    manifest = tomllib.loads((REPOSITORY / "Cargo.toml").read_text(encoding="utf-8"))
    return str(manifest["workspace"]["package"]["version"])


def _requirements(extra: str | None) -> set[str]:
    """Names that `datasetrt` requires always (``None``) or for one extra."""
    found = set()
    for line in importlib.metadata.requires("datasetrt") or []:
        requirement, _, marker = line.partition(";")
        named = re.search(r"extra\s*==\s*['\"]([\w-]+)", marker)
        if (named[1] if named else None) == extra:
            found.add(requirement.strip())
    return found


def _name(requirement: str) -> str:
    return re.split(r"[\s<>=!~(\[]", requirement, maxsplit=1)[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_versions_agree(package: str) -> None:
    assert importlib.metadata.version(package) == _workspace_version()


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(
        r"^## (\S+)", (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert headings[0] == _workspace_version()


def test_core_requires_few_packages_within_bounds() -> None:
    required = _requirements(None)
    assert {_name(line) for line in required} == {"click", "numpy", "polars", "pydantic", "typing-extensions"}
    assert all(">=" in line and "<" in line for line in required)


def test_extras_bring_the_adapters_and_codecs() -> None:
    extras = set(importlib.metadata.metadata("datasetrt").get_all("Provides-Extra") or [])
    assert extras == {"torch", "jax", "tf", "dill", "msgpack", "all"}
    for extra in ("torch", "jax", "tf"):
        assert {_name(line) for line in _requirements(extra)} == {f"datasetrt-{extra}"}
    for extra in ("dill", "msgpack"):
        assert {_name(line) for line in _requirements(extra)} == {extra}
    (everything,) = _requirements("all")
    assert set(re.findall(r"\w+", everything.partition("[")[2])) == extras - {"all"}


@pytest.mark.parametrize("package", PACKAGES)
def test_licence_texts_are_those_of_the_repository(package: str) -> None:
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        # A copy, because a built distribution cannot reach outside of its folder.
        assert (REPOSITORY / "packages" / package / name).read_bytes() == (REPOSITORY / name).read_bytes()
    files = {Path(str(file)).name for file in importlib.metadata.files(package) or []}
    assert {"LICENSE-MIT", "LICENSE-APACHE", "py.typed"} <= files


def test_torch_is_named_where_it_is_missing() -> None:
    # This environment has no framework; those of the others are asked for when they are needed.
    with pytest.raises(ImportError, match="pip install"):
        importlib.import_module("datasetrt_torch")
