"""Every public name is documented, and every example in a docstring gives the result it shows.

`doctest` finds no docstrings in native classes, so that they are collected by hand here, from the public
names down: `datasetrt.__all__`, the `__all__` of public submodules, and the public members of classes.
"""

import doctest
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import datasetrt

pytestmark = pytest.mark.docs

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def public_objects(module: types.ModuleType) -> Iterator[tuple[str, object]]:
    """Name and object of all that a module makes public, members of its classes included."""
    yield module.__name__, module
    for name in module.__all__:
        item = getattr(module, name)
        path = f"{module.__name__}.{name}"
        if isinstance(item, types.ModuleType):
            yield from public_objects(item)
            continue
        yield path, item
        if inspect.isclass(item):
            yield from ((f"{path}.{member}", value) for member, value in _members(item))


def _members(cls: type) -> Iterator[tuple[str, object]]:
    """What the class itself defines under public names; what it inherits is documented at its origin."""
    for name, value in vars(cls).items():
        if not name.startswith("_"):
            yield name, getattr(value, "__func__", value)


def _documented(item: object) -> str:
    # A plain value would answer with the docstring of its class.
    own = (
        isinstance(item, types.ModuleType | type | property)
        or callable(item)
        or inspect.isdatadescriptor(item)
    )
    return (inspect.getdoc(item) or "") if own else ""


PUBLIC = dict(public_objects(datasetrt))
EXAMPLES = [name for name, item in PUBLIC.items() if ">>>" in _documented(item)]
TOP_LEVEL = [name for name in datasetrt.__all__ if not isinstance(getattr(datasetrt, name), types.ModuleType)]


def names_known_to(item: object) -> dict[str, object]:
    """What an example may use without importing it: the names of its module, as with doctest, and ``drt``."""
    module = sys.modules.get(getattr(item, "__module__", "datasetrt"), datasetrt)
    return {**vars(datasetrt), **vars(module), "drt": datasetrt}


def failures(name: str, text: str, names: dict[str, object]) -> int:
    """Run the examples of one docstring; returns how many of them failed, and prints which."""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    return runner.run(test).failed


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    item = PUBLIC[name]
    assert failures(name, _documented(item), names_known_to(item)) == 0


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_a_public_name_has_a_docstring_and_an_example(name: str) -> None:
    item = getattr(datasetrt, name)
    if not callable(item):
        return  # a constant or a type alias
    assert inspect.getdoc(item), f"datasetrt.{name} has no docstring"
    # Errors are raised for users, not by them: what each means is enough.
    if not (inspect.isclass(item) and issubclass(item, BaseException)):
        assert "Example" in _documented(item), f"datasetrt.{name} shows no example"
        assert f"datasetrt.{name}" in EXAMPLES, f"the example of datasetrt.{name} has no >>>"


def test_every_public_member_has_a_docstring() -> None:
    members = {name: item for name, item in PUBLIC.items() if callable(item) or isinstance(item, property)}
    assert [name for name, item in members.items() if not inspect.getdoc(item)] == []


def test_native_docstrings_are_seen() -> None:
    assert any(name.startswith("datasetrt.CachedSample") for name in PUBLIC)


def test_a_wrong_example_is_noticed() -> None:
    assert failures("right", ">>> 1 + 1\n2\n", {}) == 0
    assert failures("wrong", ">>> 1 + 1\n3\n>>> undefined_name\n", {}) == 2
