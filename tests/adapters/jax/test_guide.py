"""Every block of the JAX guide runs, in order and in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "jax.md"
BLOCK = re.compile(r"^```python jax[ \t]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def test_the_blocks_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python"), "a block is marked for another session"
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        # Blank lines first, so that a traceback shows the line of the page.
        code = "\n" * text.count("\n", 0, block.start("code")) + block["code"]
        exec(compile(code, str(GUIDE), "exec"), names)
