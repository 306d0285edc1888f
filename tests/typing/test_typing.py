"""What the types of the public API let users write, and what they refuse, judged by mypy in strict mode.

``accepted.py`` must have no error. In ``rejected.py`` each wrong line ends with ``# error: CODE``, and
exactly these errors must be reported.
"""

import re
from pathlib import Path

import mypy.api
import pytest

pytestmark = pytest.mark.types

HERE = Path(__file__).parent
SETTINGS = HERE.parents[1] / "pyproject.toml"
REPORTED = re.compile(r"^(?P<file>.*?):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$", re.MULTILINE)
EXPECTED = re.compile(r"# error: ([\w-]+)$")


def reported(file: Path) -> set[tuple[int, str]]:
    """Line and code of each error that mypy finds in one file."""
    output, trouble, status = mypy.api.run(["--config-file", str(SETTINGS), "--no-error-summary", str(file)])
    assert status in {0, 1}, trouble or output
    return {
        (int(match["line"]), match["code"])
        for match in REPORTED.finditer(output)
        if Path(match["file"]).name == file.name
    }


def expected(file: Path) -> set[tuple[int, str]]:
    """Line and code of each error that the file announces."""
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
    return {(number, match[1]) for number, line in lines if (match := EXPECTED.search(line))}


def test_correct_use_is_accepted() -> None:
    assert reported(HERE / "accepted.py") == set()


def test_wrong_use_is_rejected() -> None:
    assert len(expected(HERE / "rejected.py")) > 5
    assert reported(HERE / "rejected.py") == expected(HERE / "rejected.py")
