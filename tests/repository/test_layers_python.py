"""Which Python package may import what, as ARCHITECTURE.md draws it; the meta-test plants breaches."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

REPOSITORY = Path(__file__).parents[2]
CORE = "packages/datasetrt/src/datasetrt"
TORCH, JAX, TF = (f"packages/datasetrt-{name}/src/datasetrt_{name}" for name in ("torch", "jax", "tf"))
FRAMEWORKS = {
    *("torch", "torchdata", "lightning", "jax", "flax", "grain", "tensorflow", "keras"),
    *("sklearn", "skimage", "datasetrt_torch", "datasetrt_jax", "datasetrt_tf"),
}
# Only the core may know the native module; tests may look at it, because they test it.
USERS_OF_THE_CORE = (TORCH, JAX, TF, "examples", "benchmarks")


def breaches(root: Path) -> list[str]:
    """Every import below ``root`` that points the wrong way, as ``file:line: what``."""
    return [
        f"{file.relative_to(root).as_posix()}:{line}: {problem}"
        for check in (_core_problems, _user_problems)
        for file, line, problem in check(root)
    ]


def _core_problems(root: Path) -> Iterator[tuple[Path, int, str]]:
    for file in _python_files(root / CORE):
        for line, module, _ in _imports(file):
            if module.split(".")[0] in FRAMEWORKS:
                yield file, line, f"the core imports {module}"
            if file.stem == "errors" and module.split(".")[0] in {"", "datasetrt"}:  # "": relative
                yield file, line, f"errors imports {module}"


def _user_problems(root: Path) -> Iterator[tuple[Path, int, str]]:
    public = _public_names(root / CORE / "__init__.py")
    for folder in USERS_OF_THE_CORE:
        for file in _python_files(root / folder):
            for line, module, name in _imports(file):
                if module.split(".")[0] == "datasetrt" and not _is_public(module, name, public):
                    yield file, line, f"uses {module}.{name}" if name else f"uses {module}"


def _is_public(module: str, name: str | None, public: set[str]) -> bool:
    path = [*module.split(".")[1:], *([name] if name else [])]
    if not path or path == ["*"]:
        return True
    # A public submodule (datasetrt.codecs) is listed like any other public name.
    return path[0] in public and not any(_is_private(part) for part in path)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _python_files(folder: Path) -> list[Path]:
    return sorted([*folder.rglob("*.py"), *folder.rglob("*.pyi")])


def _imports(file: Path) -> Iterator[tuple[int, str, str | None]]:
    """Line, module and imported name of each import; relative ones have a module that starts with a dot."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), filename=str(file))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, None
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, "." * node.level + (node.module or ""), alias.name
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            if node.args and isinstance(node.args[0], ast.Constant):
                yield node.lineno, str(node.args[0].value), None
        elif _is_private_access(node):
            yield node.lineno, "datasetrt", node.attr


def _is_private_access(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether this is ``drt._core``: after ``import datasetrt as drt`` it needs no import of its own."""
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
        return False
    return node.value.id in {"drt", "datasetrt"} and _is_private(node.attr)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _public_names(init: Path) -> set[str]:
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{init} has no literal __all__")


def test_python_imports_point_one_way() -> None:
    assert breaches(REPOSITORY) == []


CLEAN = {
    f"{CORE}/__init__.py": "from . import codecs\n__all__ = ['cache', 'codecs']\n",
    f"{CORE}/errors.py": "import enum\n",
    f"{TORCH}/x.py": "import torch\nfrom datasetrt import cache, codecs\n",
    "examples/a.py": "import datasetrt as drt\nfrom datasetrt.codecs import Json\nprint(drt.__version__)\n",
}
PLANTED = {
    f"{CORE}/a.py": ("import torch.nn", "the core imports torch.nn"),
    f"{CORE}/b.py": ("def f():\n    from jax import numpy", "the core imports jax"),
    f"{CORE}/c.py": ("import importlib\nimportlib.import_module('keras')", "the core imports keras"),
    f"{CORE}/d.py": ("import datasetrt_tf", "the core imports datasetrt_tf"),
    f"{CORE}/e/errors.py": ("from datasetrt.config import x", "errors imports datasetrt.config"),
    f"{CORE}/errors.py": ("from .config import x", "errors imports .config"),
    f"{JAX}/a.py": (
        "from datasetrt._core import View",
        "uses datasetrt._core.View",
    ),
    f"{TF}/a.py": ("from datasetrt import _core", "uses datasetrt._core"),
    f"{TORCH}/a.py": (
        "from datasetrt import Hidden",
        "uses datasetrt.Hidden",
    ),
    "examples/b.py": ("import datasetrt._core", "uses datasetrt._core"),
    "benchmarks/b.py": ("import datasetrt as drt\ndrt._core.View", "uses datasetrt._core"),
}


def _plant(root: Path, files: dict[str, str]) -> None:
    for name, code in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(code)


def test_a_clean_tree_has_no_breach(tmp_path: Path) -> None:
    _plant(tmp_path, CLEAN)
    assert breaches(tmp_path) == []


@pytest.mark.parametrize("file", PLANTED)
def test_a_planted_breach_is_found(file: str, tmp_path: Path) -> None:
    code, expected = PLANTED[file]
    _plant(tmp_path, {**CLEAN, file: f"{code}\n"})
    found = breaches(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(f"{file}:")
    assert expected in found[0]
