"""Every public name is documented, every documented example runs, and so does the guide."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch

import datasetrt
import datasetrt_torch
from tests.repository.test_docstrings import failures, public_objects

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "torch.md"
BLOCK = re.compile(r"^```python torch[ \t]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)

PUBLIC = dict(public_objects(datasetrt_torch))
EXAMPLES = [name for name, item in PUBLIC.items() if ">>>" in (inspect.getdoc(item) or "")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"torch": torch, "drt": datasetrt, "drtt": datasetrt_torch, **vars(datasetrt_torch)}
    names["np"] = __import__("numpy")
    assert failures(name, inspect.getdoc(PUBLIC[name]) or "", names) == 0


@pytest.mark.parametrize("name", [name for name in datasetrt_torch.__all__ if name != "__version__"])
def test_a_public_name_has_an_example(name: str) -> None:
    assert f"datasetrt_torch.{name}" in EXAMPLES


def test_every_public_member_has_a_docstring() -> None:
    members = {name: item for name, item in PUBLIC.items() if callable(item) or isinstance(item, property)}
    assert [name for name, item in members.items() if not inspect.getdoc(item)] == []


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= 5
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        _run(blocks, text, names)
    finally:
        # One after the other: collected as garbage all together, PyTorch waits five seconds for each worker.
        names.clear()
    assert text.count("```python") == len(blocks), "a block is not marked as one of PyTorch"


def _run(blocks: list[re.Match[str]], text: str, names: dict[str, object]) -> None:
    for block in blocks:
        # Blank lines first, so that a traceback shows the line of the page.
        code = "\n" * text.count("\n", 0, block.start("code")) + block["code"]
        exec(compile(code, str(GUIDE), "exec"), names)
