"""Every example in the adapter's docstrings gives the result it shows, and every public name has one."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import datasetrt_jax as drtj

NAMES = [name for name in drtj.__all__ if callable(getattr(drtj, name))]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def documented(name: str) -> list[object]:
    item = getattr(drtj, name)
    members = vars(item).items() if inspect.isclass(item) else ()
    return [
        item,
        *(value for member, value in members if not member.startswith("_") and inspect.getdoc(value)),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for item in documented(name):
        text = inspect.getdoc(item) or ""
        test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
        result = doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test)
        assert result.failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_public_names_are_documented(name: str) -> None:
    item = getattr(drtj, name)
    assert inspect.getdoc(item)
    if inspect.isclass(item):
        own = {key: value for key, value in vars(item).items() if not key.startswith("_")}
        described = {key for key, value in own.items() if callable(value) or isinstance(value, property)}
        assert [key for key in described if not inspect.getdoc(own[key])] == []
        if issubclass(item, BaseException):
            return
    examples = "".join(inspect.getdoc(each) or "" for each in documented(name))
    assert ">>>" in examples or name == "DeviceIterator"
