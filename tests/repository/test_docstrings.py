"""Every example in a docstring of the core package gives the result it shows.

`test_documented_members.py` says which names must have one. `doctest` finds no docstrings in native classes,
so that they are collected by hand here, from the public names down: `datasetrt.__all__`, the `__all__` of
public submodules, and the members of classes.
"""

import doctest
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import datasetrt
from datasetrt.columns import BatchMetadata

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
    """What the class defines; what it inherits of a public class or another package is documented there.

    Special methods too: those with an example of their own are run, others have none.
    """
    for name, value in own_members(cls).items():
        if not name.startswith("_") or (name.startswith("__") and inspect.isfunction(value)):
            yield name, getattr(value, "__func__", value)


def own_members(cls: type) -> dict[str, object]:
    """What the class defines, or has from a base of ours that is not public: such a base is a part of it."""
    parts = [
        base
        for base in cls.__mro__
        if base is cls or (base.__module__.startswith("datasetrt.") and not _is_public(base))
    ]
    return {name: value for part in reversed(parts) for name, value in vars(part).items()}


def _is_public(cls: type) -> bool:
    modules = (datasetrt, *(getattr(datasetrt, name) for name in datasetrt.__all__))
    return any(getattr(module, cls.__name__, None) is cls for module in modules)


def _documented(item: object) -> str:
    # A plain value would answer with the docstring of its class.
    own = (
        isinstance(item, types.ModuleType | type | property)
        or callable(item)
        or inspect.isdatadescriptor(item)
    )
    return (inspect.getdoc(item) or "") if own else ""


# A batch's metadata has a class of its own, which users meet without importing it.
PUBLIC = {
    **dict(public_objects(datasetrt)),
    "datasetrt.columns.BatchMetadata": BatchMetadata,
    **{f"datasetrt.columns.BatchMetadata.{name}": value for name, value in _members(BatchMetadata)},
}
EXAMPLES = [name for name, item in PUBLIC.items() if ">>>" in _documented(item)]


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


def test_native_docstrings_are_seen() -> None:
    assert any(name.startswith("datasetrt.CachedSample") for name in PUBLIC)


def test_a_wrong_example_is_noticed() -> None:
    assert failures("right", ">>> 1 + 1\n2\n", {}) == 0
    assert failures("wrong", ">>> 1 + 1\n3\n>>> undefined_name\n", {}) == 2
