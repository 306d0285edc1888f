"""The layers of the engine point one way, as ARCHITECTURE.md draws them; the meta-test plants breaches."""

import re
from pathlib import Path

import pytest

from tests.repository.rust_paths import paths_in, product_files, reexports

REPOSITORY = Path(__file__).parents[2]
CORE = REPOSITORY / "crates" / "datasetrt-core" / "src"

# A module may use modules of a lower rank, and itself. Equal ranks do not know each other.
RANK = {
    "error": 0,
    "exec": 1,
    "memory": 1,
    "prefetch": 1,
    "format": 2,
    "store": 2,
    "sampler": 2,
    "metadata": 3,
    "read": 4,
    "write": 4,
    "stream": 5,
}
# Turning bytes into structs, and positions into rows, needs no file, thread or clock.
PURE = {"format", "sampler"}
IMPURE = {"fs", "thread", "time", "net", "process", "env"}


def breaches(source_root: Path) -> list[str]:
    """Every import in a core crate's ``src`` that points the wrong way, as ``file:line: what``."""
    exported = reexports(source_root / "lib.rs")
    found = []
    for file in product_files(source_root):
        module = _top_module(file, source_root)
        if module == "lib":
            continue  # the table of contents names everything
        where = file.relative_to(source_root).as_posix()
        if module not in RANK:
            found.append(f"{where}:1: module {module} has no place in the layers")
            continue
        for use in paths_in(file, source_root):
            problem = _problem(use.path, module, exported)
            if problem:
                found.append(f"{where}:{use.line}: {problem}")
    return found


def _top_module(file: Path, source_root: Path) -> str:
    return file.relative_to(source_root).with_suffix("").parts[0]


def _problem(path: tuple[str, ...], module: str, exported: dict[str, str]) -> str | None:
    if path[0] == "crate" and len(path) > 1:
        target = path[1] if path[1] in RANK else exported.get(path[1])
        if target is None:
            return f"crate::{path[1]} has no place in the layers"
        if target != module and RANK[target] >= RANK[module]:
            return f"{module} uses {target}"
    if path[0] == "std" and len(path) > 1 and module in PURE and path[1] in IMPURE:
        return f"{module} uses std::{path[1]}"
    if path[0] == "pyo3":
        return f"{module} uses pyo3"
    return None


def test_every_module_has_a_rank() -> None:
    listed = re.findall(r"^(?:pub )?mod (\w+);", (CORE / "lib.rs").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(RANK)


def test_core_layers_point_one_way() -> None:
    assert breaches(CORE) == []


def test_only_the_binding_crate_depends_on_pyo3() -> None:
    named = [
        manifest.parent.name
        for manifest in sorted((REPOSITORY / "crates").glob("*/Cargo.toml"))
        if re.search(r"^pyo3", manifest.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert named == ["datasetrt-python"]


PLANTED = {
    "plain use": ("read/mod.rs", "use crate::write::Writer;", "read uses write"),
    "other way round": ("write/mod.rs", "use crate::read::Cache;", "write uses read"),
    "group": ("exec.rs", "use crate::{error::Error, format::{wire, shard}};", "exec uses format"),
    "upper layer": ("metadata/mod.rs", "use crate::stream::Stream as Other;", "metadata uses stream"),
    "sibling": ("format/mod.rs", "use crate::store::Storage;", "format uses store"),
    "super": ("format/shard.rs", "use super::super::read;", "format uses read"),
    "super in a module": (
        "sampler/rng.rs",
        "mod inner { use super::super::super::store; }",
        "sampler uses store",
    ),
    "expression": ("store/mod.rs", "fn f() { let _ = crate::metadata::open(1); }", "store uses metadata"),
    "re-exported name": ("error.rs", "use crate::Order;", "error uses sampler"),
    "file access": ("format/mod.rs", "use std::{collections::HashMap, fs, io};", "format uses std::fs"),
    "clock in a body": ("sampler/mod.rs", "fn f() { std::time::Instant::now(); }", "sampler uses std::time"),
    "thread": ("sampler/mod.rs", "use std::thread::spawn;", "sampler uses std::thread"),
    "python": ("store/mod.rs", "use pyo3::prelude::*;", "store uses pyo3"),
    "unplaced module": ("extra.rs", "", "module extra has no place in the layers"),
    "unplaced name": ("read/mod.rs", "use crate::extra::x;", "crate::extra has no place in the layers"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_breach_is_found(name: str, tmp_path: Path) -> None:
    file, code, expected = PLANTED[name]
    (tmp_path / "lib.rs").write_text(
        "pub mod error; pub use sampler::Order; pub use crate::error::{Error, Result};"
    )
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(f"// one line before\n{code}\n")
    found = breaches(tmp_path)
    assert {line.split(": ", 1)[1] for line in found} == {expected}
    assert found[0].startswith(f"{file}:")


ALLOWED = {
    "comment": "// use crate::write::Writer;\n/* crate::write::Writer */",
    "string": r'const HELP: &str = "crate::write::Writer \" crate::stream";',
    "raw string": 'const RAW: &str = r#"a " crate::write::X"#;',
    "lower layers": "use crate::{error::Error, exec::lock, metadata};\nuse crate::Result;",
    "itself": "use super::read::open;\nuse self::open::Level;\nuse crate::read::batch;",
    "test code": "#[cfg(test)]\nmod tests { use crate::write::Writer; fn f() { if true { } } }",
    "lifetimes are no strings": "fn f<'a>(x: &'a str, y: char) -> bool { y == '\"' || x == \"'\" }",
}


def test_a_file_of_tests_may_use_any_layer(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("pub mod read;")
    (tmp_path / "read" / "laws").mkdir(parents=True)
    (tmp_path / "read" / "mod.rs").write_text("#[cfg(test)]\n#[allow(x)]\npub(crate) mod laws;\nmod other;")
    (tmp_path / "read" / "laws" / "mod.rs").write_text("use crate::write::Writer;")
    (tmp_path / "read" / "laws" / "one.rs").write_text("use crate::write::Writer;")
    assert breaches(tmp_path) == []
    (tmp_path / "read" / "other.rs").write_text("use crate::write::Writer;")
    assert breaches(tmp_path) == ["read/other.rs:1: read uses write"]


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_code_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("pub use crate::error::{Error, Result};")
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "mod.rs").write_text(ALLOWED[name])
    assert breaches(tmp_path) == []
