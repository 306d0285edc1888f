"""Every example in the adapter's docstrings gives the result it shows.

`tests/repository/test_documented_members.py` says which names must have one.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import datasetrt_jax
from tests.repository.test_docstrings import failures, public_objects

PUBLIC = dict(public_objects(datasetrt_jax))
EXAMPLES = [name for name, item in PUBLIC.items() if ">>>" in (inspect.getdoc(item) or "")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert failures(name, inspect.getdoc(PUBLIC[name]) or "", {}) == 0


def test_examples_of_members_are_seen() -> None:
    assert {"datasetrt_jax.BatchIterator.save", "datasetrt_jax.GrainSource.__getitem__"} <= set(EXAMPLES)
