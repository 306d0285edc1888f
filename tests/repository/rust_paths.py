"""The paths a Rust file names, as absolute ones: `super::wire` in format/shard.rs is `crate::format::wire`.

Enough of Rust's grammar for import rules: comments and literals are blanked, `use` trees expanded, paths in
expressions collected, items under `#[cfg(test)]` left out, because a layer's tests may build on upper layers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NOT_CODE = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | (?<!\w)[bc]?r(?P<hashes>\#*)".*?"(?P=hashes)
      | [bc]?"(?:\\.|[^"\\])*"
      | b?'(?:\\[^']+|[^\\'])'""",
    re.VERBOSE | re.DOTALL,
)
_TOKEN = re.compile(r"\w+|::|\S")
_ROOTS = {"crate", "self", "super"}


@dataclass(frozen=True)
class Token:
    """One word or sign of code, with its line (from 1)."""

    text: str
    line: int


@dataclass(frozen=True)
class PathUse:
    """One absolute path, such as ``("crate", "format", "wire")``, and where it stands."""

    path: tuple[str, ...]
    line: int


def paths_in(file: Path, source_root: Path) -> list[PathUse]:
    """Every path of two segments or more that ``file`` names outside of test code."""
    tokens, _ = _without_tests(_tokens(file.read_text(encoding="utf-8")))
    return list(_walk(tokens, _module_of(file, source_root)))


def product_files(source_root: Path) -> list[Path]:
    """All files but those of modules that are declared as ``#[cfg(test)] mod name;``."""
    files = sorted(source_root.rglob("*.rs"))
    tests: set[tuple[str, ...]] = set()
    for file in files:
        _, dropped = _without_tests(_tokens(file.read_text(encoding="utf-8")))
        names = [item[item.index("mod") + 1] for item in dropped if "mod" in item and item[-1] == ";"]
        tests.update((*_module_of(file, source_root), name) for name in names)
    modules = [(file, _module_of(file, source_root)) for file in files]
    return [file for file, path in modules if not any(path[: len(test)] == test for test in tests)]


def reexports(lib: Path) -> dict[str, str]:
    """Names that lib.rs re-exports from its modules: ``{"Error": "error"}``."""
    found = {}
    for use in paths_in(lib, lib.parent):
        path = use.path[1:] if use.path[0] == "crate" else use.path
        if len(path) > 1:
            found[path[-1]] = path[0]
    return found


def _tokens(text: str) -> list[Token]:
    code = _NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    lines = enumerate(code.splitlines(), start=1)
    return [Token(match[0], number) for number, line in lines for match in _TOKEN.finditer(line)]


def _module_of(file: Path, source_root: Path) -> tuple[str, ...]:
    parts = file.relative_to(source_root).with_suffix("").parts
    return parts[:-1] if parts[-1] in {"lib", "mod"} else parts


def _without_tests(tokens: list[Token]) -> tuple[list[Token], list[list[str]]]:
    """Separate the items that follow ``#[cfg(test)]``, each as its words, from everything else."""
    kept: list[Token] = []
    dropped: list[list[str]] = []
    at = 0
    while at < len(tokens):
        if [t.text for t in tokens[at : at + 7]] == ["#", "[", "cfg", "(", "test", ")", "]"]:
            end = _end_of_item(tokens, at + 7)
            dropped.append([t.text for t in tokens[at + 7 : end]])
            at = end
        else:
            kept.append(tokens[at])
            at += 1
    return kept, dropped


def _end_of_item(tokens: list[Token], at: int) -> int:
    """The place behind the item at ``at``: behind its closing brace, or its semicolon."""
    depth = 0
    for place in range(at, len(tokens)):
        text = tokens[place].text
        depth += (text in "{([") - (text in "})]")
        if depth == 0 and text in {"}", ";"}:
            return place + 1
    return len(tokens)


def _walk(tokens: list[Token], module: tuple[str, ...]) -> Iterator[PathUse]:
    """Follow inline modules by their braces, and yield what each token sequence names."""
    scopes = [module]  # one entry for each open brace: the module inside it
    at = 0
    while at < len(tokens):
        text = tokens[at].text
        if text == "{":
            opens_module = at >= 2 and tokens[at - 2].text == "mod"
            scopes.append((*scopes[-1], tokens[at - 1].text) if opens_module else scopes[-1])
        elif text == "}" and len(scopes) > 1:
            scopes.pop()
        elif text == "use":
            tree, end = _use_tree(tokens, at + 1)
            for path in tree:
                yield PathUse(_absolute(path, scopes[-1]), tokens[at].line)
            at = end
            continue
        elif _starts_path(tokens, at):
            path, end = _plain_path(tokens, at)
            yield PathUse(_absolute(path, scopes[-1]), tokens[at].line)
            at = end
            continue
        at += 1


def _starts_path(tokens: list[Token], at: int) -> bool:
    continued = at > 0 and tokens[at - 1].text == "::"
    follows = at + 1 < len(tokens) and tokens[at + 1].text == "::"
    return follows and not continued and tokens[at].text.isidentifier()


def _plain_path(tokens: list[Token], at: int) -> tuple[list[str], int]:
    path = [tokens[at].text]
    at += 1
    while at + 1 < len(tokens) and tokens[at].text == "::" and tokens[at + 1].text.isidentifier():
        path.append(tokens[at + 1].text)
        at += 2
    return path, at


def _use_tree(tokens: list[Token], at: int) -> tuple[list[list[str]], int]:
    """Expand ``a::{b, c::{self, d as e}}`` at ``at`` into its paths; returns the place behind the tree."""
    prefix: list[str] = []
    while at < len(tokens):
        text = tokens[at].text
        if text == "{":
            return _use_group(tokens, at + 1, prefix)
        if text == "as":
            at += 1  # the new name is no path segment
        elif text in {",", "}", ";"}:
            break
        elif text not in {"::", "*"}:
            prefix.append(text)
        at += 1
    return [prefix], at


def _use_group(tokens: list[Token], at: int, prefix: list[str]) -> tuple[list[list[str]], int]:
    paths: list[list[str]] = []
    while at < len(tokens) and tokens[at].text != "}":
        if tokens[at].text == ",":
            at += 1
            continue
        inner, at = _use_tree(tokens, at)
        paths += [prefix if path == ["self"] else prefix + path for path in inner]
    return paths, at + 1


def _absolute(path: list[str], module: tuple[str, ...]) -> tuple[str, ...]:
    if path and path[0] in _ROOTS - {"crate"}:
        here = list(module)
        while path and path[0] in {"self", "super"}:
            if path[0] == "super" and here:
                here.pop()
            path = path[1:]
        return ("crate", *here, *path)
    return tuple(path)
