"""Every example in the adapter's docstrings gives the result it shows, and the guide runs.

`tests/repository/test_documented_members.py` says which names must have an example.
"""

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
