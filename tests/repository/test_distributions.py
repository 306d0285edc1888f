"""What the four installed distributions say of themselves: versions, requirements, extras, licences."""

import importlib
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("datasetrt", "datasetrt-torch", "datasetrt-jax", "datasetrt-tf")
PLANNED = {
    "datasetrt_torch": "TorchDataset EpochSampler make_dataloader NativeLoader collate ShardSpec",
    "datasetrt_jax": "batches device_batches GrainSource GrainBatchSource",
    "datasetrt_tf": "dataset raw distributed fit_args cursor",
}


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
    module = importlib.import_module(package.replace("-", "_"))
    assert importlib.metadata.version(package) == module.__version__ == _workspace_version()


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(
        r"^## (\S+)", (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert headings[0] == _workspace_version()


def test_core_requires_exactly_three_packages_within_bounds() -> None:
    required = _requirements(None)
    assert {_name(line) for line in required} == {"numpy", "polars", "pydantic"}
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


@pytest.mark.parametrize(("module", "name"), [(m, n) for m in PLANNED for n in PLANNED[m].split()])
def test_a_planned_name_of_an_adapter_says_it_is_not_here_yet(module: str, name: str) -> None:
    with pytest.raises(ImportError, match=rf"{name} yet; datasetrt's own loader works today"):
        exec(f"from {module} import {name}")


@pytest.mark.parametrize("module", PLANNED)
def test_other_names_of_an_adapter_are_ordinary_mistakes(module: str) -> None:
    with pytest.raises(AttributeError, match="make_datalaoder"):
        importlib.import_module(module).make_datalaoder  # noqa: B018
