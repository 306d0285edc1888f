"""The guide's blocks run as they stand, and so do the examples of the docstrings.

`tests/repository/test_documented_members.py` says which names must have an example.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from pathlib import Path

import pytest

import datasetrt_tf
from tests.repository.test_docstrings import failures, public_objects

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "tensorflow.md"
BLOCK = re.compile(r"^```python tf[ \t]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)

PUBLIC = dict(public_objects(datasetrt_tf))
EXAMPLES = [name for name, item in PUBLIC.items() if ">>>" in (inspect.getdoc(item) or "")]


def test_the_blocks_of_the_guide_run(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python")
    names: dict[str, object] = {"__name__": "__main__"}
    with contextlib.chdir(tmp_path):
        for block in blocks:
            # Blank lines first, so that a traceback shows the line of the page.
            code = "\n" * text.count("\n", 0, block.start("code")) + block["code"]
            exec(compile(code, str(GUIDE), "exec"), names)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert failures(name, inspect.getdoc(PUBLIC[name]) or "", {}) == 0
