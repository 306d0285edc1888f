"""Licences of everything that a release contains or needs, against a list; read offline.

Whether a dependency has a known vulnerability or was withdrawn cannot be seen offline: that is what
`nox -s audit_dependencies` asks.
"""

import importlib.metadata
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]

# Permissive licences, which ask for no more than their own text. Adding one is a decision: none that makes
# demands on users' own code may come in.
ALLOWED = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0"),
    *("CC0-1.0", "ISC", "MIT", "MIT-0", "PSF-2.0", "Unicode-3.0", "Unlicense", "Zlib"),
}
# Distributions that name their licence by a classifier only.
CLASSIFIERS = {"License :: OSI Approved :: MIT License": "MIT"}


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression can be met with allowed licences alone."""
    # Cargo's old way to write OR.
    text = re.sub(r"\s*/\s*", " OR ", expression)
    text = re.sub(r"\s+WITH\s+", " WITH ", text)
    tokens = re.findall(r"\(|\)|\bAND\b|\bOR\b|[\w.+-]+(?: WITH [\w.+-]+)?", text)

    def either() -> bool:
        answer = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            answer = both() or answer
        return answer

    def both() -> bool:
        answer = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            answer = one() and answer
        return answer

    def one() -> bool:
        token = tokens.pop(0) if tokens else ")"
        if token != "(":
            return token in ALLOWED
        answer = either()
        return bool(tokens) and tokens.pop(0) == ")" and answer

    return either() and not tokens


def _crates() -> list[dict[str, str]]:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True, timeout=120)
    packages: list[dict[str, str]] = json.loads(done.stdout)["packages"]
    return packages


def test_licences_of_all_crates_are_allowed() -> None:
    crates = _crates()
    assert len(crates) > 50
    refused = [f"{c['name']} {c['license']}" for c in crates if not is_allowed(c["license"] or "none")]
    assert refused == []


def test_crates_come_from_the_registry_alone() -> None:
    lock = tomllib.loads((REPOSITORY / "Cargo.lock").read_text(encoding="utf-8"))
    ours = {"datasetrt-core", "datasetrt-python"}
    for package in lock["package"]:
        if package["name"] not in ours:
            assert package["source"].startswith("registry+"), package
            assert re.fullmatch(r"[0-9a-f]{64}", package["checksum"]), package


def _python_requirements() -> set[str]:
    """Names of what the core distribution needs, and of what that needs."""
    path = REPOSITORY / "packages" / "datasetrt" / "pyproject.toml"
    waiting = list(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"])
    names: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and requirement.name.lower() not in names:
            names.add(requirement.name.lower())
            waiting += importlib.metadata.requires(requirement.name) or []
    return names


def _python_licence(name: str) -> str:
    metadata = importlib.metadata.metadata(name)
    expressions = metadata.get_all("License-Expression") or []
    if expressions:
        return str(expressions[0])
    known = [CLASSIFIERS[c] for c in metadata.get_all("Classifier") or [] if c in CLASSIFIERS]
    return " AND ".join(known) or "none"


def test_licences_of_what_the_core_needs_are_allowed() -> None:
    names = _python_requirements()
    assert {"numpy", "polars", "pydantic", "click"} <= names
    refused = [f"{name} {_python_licence(name)}" for name in names if not is_allowed(_python_licence(name))]
    assert refused == []


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", True),
        ("MIT OR GPL-3.0-only AND BSD-3-Clause", True),
        ("GPL-3.0-only OR MPL-2.0 AND MIT", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0 WITH Classpath-exception-2.0", False),
        ("none", False),
        ("", False),
        ("(MIT", False),
        ("MIT MIT", False),
    ],
)
def test_expressions(expression: str, allowed: bool) -> None:
    assert is_allowed(expression) is allowed
