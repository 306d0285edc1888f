"""Every Python block of the Markdown pages runs as it stands, and every link into the repository holds.

The blocks of one file run in order and share their names, in an empty folder. There is no way to mark a
block as not to be run: what cannot run is written as `text`. In `console` blocks, each line after `$ ` is a
command of a shell, and the lines below it are what it prints; `...` stands for anything.
"""

import contextlib
import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

REPOSITORY = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?P<kind>python|console)[ \t]*\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
ANY_BLOCK = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def _pages() -> list[Path]:
    return [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]


def run_blocks(page: Path, folder: Path) -> int:
    """Run the blocks of a page in ``folder``; returns how many there were."""
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    names: dict[str, object] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for block in blocks:
            if block["kind"] == "console":
                run_commands(block["code"])
                continue
            # Blank lines first, so that a traceback shows the line of the page.
            code = "\n" * text.count("\n", 0, block.start("code")) + block["code"]
            exec(compile(code, str(page), "exec"), names)
    return len(blocks)


def run_commands(block: str) -> None:
    """Run the commands of a block in the current folder, and compare what they print."""
    for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = example.partition("\n")
        # The command of this environment, wherever its scripts are.
        function = f'datasetrt() {{ "{sys.executable}" -m datasetrt "$@"; }}\n'
        done = subprocess.run(
            ["sh", "-c", function + command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            env={**os.environ, "COLUMNS": "80"},
        )
        same = doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS)
        assert same, f"$ {command}\nexpected:\n{expected}\nfound:\n{done.stdout}"


def broken_links(page: Path) -> list[str]:
    """Targets of a page's links into the repository that are not there."""
    prose = ANY_BLOCK.sub("", page.read_text(encoding="utf-8"))  # code has brackets of its own
    targets = [match["target"] for match in LINK.finditer(prose)]
    inside = [target.partition("#")[0] for target in targets if "://" not in target]
    return [target for target in inside if target and not (page.parent / target).exists()]


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_blocks_run_and_links_lead_somewhere(page: Path, tmp_path: Path) -> None:
    run_blocks(page, tmp_path)
    assert broken_links(page) == []


def test_the_readme_has_an_example(tmp_path: Path) -> None:
    assert run_blocks(REPOSITORY / "README.md", tmp_path) >= 1


def test_a_block_that_fails_is_noticed_with_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n```python\nx = 1\n```\n\n```text\nno code\n```\n\n```python\nassert x == 2\n```\n"
    )
    with pytest.raises(AssertionError) as caught:
        run_blocks(page, tmp_path)
    assert caught.traceback[-1].lineno == 11  # counted from 0 here


def test_a_command_that_prints_something_else_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo 1\n1\n$ datasetrt --version\ndatasetrt, version ...\n```\n")
    assert run_blocks(page, tmp_path) == 1
    page.write_text("```console\n$ echo 1\n2\n```\n")
    with pytest.raises(AssertionError, match="echo 1"):
        run_blocks(page, tmp_path)


def test_a_link_to_nowhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#part) [b](gone.md) [c](https://example.org/x) [d](#here)")
    assert broken_links(page) == ["gone.md"]


def test_every_page_of_docs_is_listed() -> None:
    listing = (REPOSITORY / "docs" / "README.md").read_text(encoding="utf-8")
    pages = [page.relative_to(REPOSITORY / "docs").as_posix() for page in (REPOSITORY / "docs").rglob("*.md")]
    assert sorted(set(pages) - {"README.md"} - set(LINK.findall(listing))) == []
