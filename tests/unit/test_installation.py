"""What is missing, broken, too old or of another release is one line: what is there, and what to run."""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from pathlib import Path

import pytest

import datasetrt as drt
from datasetrt import installation


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of the path; what is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(
    module: str, at_least: str | None = "2.6", distributions: tuple[str, ...] = ()
) -> drt.InstallationError:
    with pytest.raises(drt.InstallationError) as caught:
        installation.import_package(
            module, user="my_adapter.feed", at_least=at_least, distributions=distributions
        )
    error = caught.value
    assert "\n" not in str(error)
    assert error.name == module
    return error


# Packages


def test_what_will_do_is_returned() -> None:
    assert installation.import_package("numpy", user="x", at_least="1.26").__name__ == "numpy"
    assert installation.import_package("json", user="x").__name__ == "json"
    assert installation.import_package("numpy.random", user="x", at_least="1.26").__name__ == "numpy.random"


def test_missing() -> None:
    error = refusal("no_such_package")
    assert error.kind == "missing-package"
    assert str(error) == (
        f"my_adapter.feed needs no_such_package 2.6 or later, and {sys.executable} has none; "
        "pip install 'no_such_package>=2.6'"
    )
    assert error.__suppress_context__
    assert str(refusal("no_such_package", None)).endswith("has none; pip install 'no_such_package'")


def test_a_choice_of_distributions() -> None:
    error = refusal("no_such_package", distributions=("first", "second"))
    assert str(error).endswith("; pip install 'first>=2.6' (or second)")
    # Where one is installed, no other one is put beside it.
    error = refusal("no_such_package", distributions=("first", "numpy"))
    assert str(error).endswith("; pip install 'numpy>=2.6'")


def test_a_missing_part_of_a_missing_package_is_missing(folder: Path) -> None:
    assert refusal("no_such_package.part").kind == "missing-package"
    (folder / "partless").mkdir()
    (folder / "partless" / "__init__.py").write_text("__version__ = '1.0'")
    assert refusal("partless.part").kind == "missing-package"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("import no_such_part", "ModuleNotFoundError: No module named 'no_such_part'"),
        ("raise ImportError('undefined\\n symbol')", "ImportError: undefined symbol"),
        ("raise OSError('libcudart.so.12: cannot open')", "OSError: libcudart.so.12: cannot open"),
        ("raise RuntimeError('compiled for another NumPy')", "RuntimeError: compiled for another NumPy"),
        ("raise ModuleNotFoundError('jaxlib is needed')", "ModuleNotFoundError: jaxlib is needed"),
        ("1 +", "SyntaxError: invalid syntax"),
    ],
)
def test_broken(folder: Path, content: str, reason: str) -> None:
    (folder / "shaky.py").write_text(content)
    error = refusal("shaky")
    assert error.kind == "broken-package"
    assert str(error).startswith(
        f"my_adapter.feed needs shaky 2.6 or later; shaky is installed for {sys.executable}, "
        f"but its import fails ({reason}"
    )
    assert str(error).endswith("); pip install --force-reinstall 'shaky>=2.6'")
    assert type(error.__cause__).__name__ == reason.partition(":")[0]


def test_a_long_reason_is_cut(folder: Path) -> None:
    (folder / "shaky.py").write_text("raise OSError('word ' * 10_000)")
    assert len(str(refusal("shaky"))) < 700


def test_a_broken_package_is_told_with_its_version(folder: Path) -> None:
    (folder / "shaky.py").write_text("raise OSError('gone')")
    version = importlib.metadata.version("numpy")
    error = refusal("shaky", distributions=("no-such-distribution", "numpy"))
    assert f"; numpy {version} is installed for" in str(error)
    assert str(error).endswith("; pip install --force-reinstall 'numpy>=2.6'")


@pytest.mark.parametrize(
    ("version", "floor", "enough"),
    [
        ("2.5.1+cu124", "2.6", False),
        ("2.6.0a0+git1234", "2.6", True),
        ("2.6", "2.6.0", False),  # a floor is given with as few numbers as do
        ("2.10.0", "2.6", True),
        ("10.0", "2.6", True),
        ("1.99", "2", False),
        ("nightly", "2.6", False),
    ],
)
def test_versions(folder: Path, version: str, floor: str, enough: bool) -> None:
    (folder / "aged.py").write_text(f"__version__ = {version!r}")
    if enough:
        assert installation.import_package("aged", user="x", at_least=floor).__name__ == "aged"
        return
    error = refusal("aged", floor)
    assert error.kind == "old-package"
    assert str(error) == (
        f"my_adapter.feed needs aged {floor} or later, and {sys.executable} has {version}; "
        f"pip install --upgrade 'aged>={floor}'"
    )


def test_a_folder_of_that_name_is_told_from_the_package(folder: Path) -> None:
    (folder / "lookalike").mkdir()
    error = refusal("lookalike")
    assert error.kind == "broken-package"
    assert f"is something else, without a version: ['{folder}/lookalike']; rename or remove it" in str(error)
    (folder / "script.py").write_text("")
    assert f"without a version: '{folder}/script.py'; rename" in str(refusal("script"))


# Releases


def test_this_build_verifies_what_it_reads() -> None:
    """One that was built for a benchmark, without verification, says so behind the number."""
    manifest = tomllib.loads((Path(__file__).parents[2] / "Cargo.toml").read_text(encoding="utf-8"))
    assert drt.__version__ == manifest["workspace"]["package"]["version"]
    assert "unverified" not in drt.__version__


@pytest.mark.parametrize("core", ["0.0.9", "0.2.0", "1.1.0", "0.10.0"])
def test_another_release(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drt, "__version__", core)
    with pytest.raises(drt.InstallationError) as caught:
        installation.check_release("datasetrt-torch", "0.1.3")
    assert (caught.value.kind, caught.value.name) == ("release-mismatch", "datasetrt_torch")
    assert str(caught.value) == (
        f"datasetrt-torch 0.1.3 does not go with datasetrt {core}: both have to be of one minor release; "
        "pip install --upgrade datasetrt datasetrt-torch"
    )


def test_another_patch_is_the_same_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drt, "__version__", "0.1.0")
    installation.check_release("datasetrt-torch", "0.1.3")


# Attributes of the package


@pytest.mark.parametrize("name", ["torch", "jax", "tf"])
def test_an_adapter_that_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"datasetrt_{name}", None)
    with pytest.raises(drt.InstallationError) as caught:
        getattr(drt, name)
    assert (caught.value.kind, caught.value.name) == ("missing-adapter", f"datasetrt_{name}")
    assert str(caught.value) == (
        f"datasetrt.{name} needs the package datasetrt_{name}, and {sys.executable} has none; "
        f"pip install 'datasetrt[{name}]'"
    )
    with pytest.raises(drt.InstallationError, match="pip install"):
        exec(f"from datasetrt import {name}", {})


def test_an_adapter_that_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "datasetrt_tf", raising=False)
    (folder / "datasetrt_tf.py").write_text("here = True")
    assert drt.tf.here is True


def test_an_adapter_that_lacks_a_part_of_itself_says_which(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "datasetrt_tf", raising=False)
    (folder / "datasetrt_tf.py").write_text("import datasetrt_tf_part")
    with pytest.raises(ModuleNotFoundError, match="datasetrt_tf_part"):
        drt.tf  # noqa: B018


def test_adapters_are_not_listed() -> None:
    assert {"torch", "jax", "tf"} & (set(dir(drt)) | set(drt.__all__)) == set()


def test_other_names_are_unknown_as_ever() -> None:
    with pytest.raises(AttributeError, match=r"^module 'datasetrt' has no attribute 'open_datase'$"):
        drt.open_datase  # noqa: B018
    assert not hasattr(drt, "keras")
