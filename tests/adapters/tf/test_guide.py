"""The guide's blocks run as they stand, and so do the examples of the docstrings."""

from __future__ import annotations

import contextlib
import doctest
import re
from pathlib import Path

import pytest

import datasetrt_tf

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "tensorflow.md"
BLOCK = re.compile(r"^```python tf[ \t]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PUBLIC = [name for name in datasetrt_tf.__all__ if name != "__version__"]


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


@pytest.mark.parametrize("name", PUBLIC)
def test_the_example_of_a_public_name_runs(name: str) -> None:
    text = getattr(datasetrt_tf, name).__doc__ or ""
    assert ">>>" in text
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert doctest.DocTestRunner(verbose=False, optionflags=OPTIONS).run(test).failed == 0
