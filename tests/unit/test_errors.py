"""The tree of errors: what each one is, what survives pickling, and that all lists of kinds agree."""

import ast
import copy
import errno
import pickle
import re
from pathlib import Path

import pytest

import datasetrt as drt
from datasetrt import errors

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "packages/datasetrt/src/datasetrt"
ENGINE = REPOSITORY / "crates/datasetrt-core/src/error.rs"

BUILTINS = {
    drt.CacheNotFoundError: FileNotFoundError,
    drt.CacheExistsError: FileExistsError,
    drt.StaleCacheError: drt.DatasetRTError,
    drt.FormatError: drt.DatasetRTError,
    drt.CorruptionError: drt.DatasetRTError,
    drt.InvalidInputError: ValueError,
    drt.SampleIndexError: IndexError,
    drt.StateError: ValueError,
    drt.CodecError: ValueError,
    drt.StorageError: OSError,
    drt.InstallationError: ImportError,
}
CLASSES = [drt.DatasetRTError, *BUILTINS]
PLACE = {"kind": "record-checksum", "path": "/c/s", "shard": 3, "offset": 17, "sample_id": 5}


def _state(error: drt.DatasetRTError) -> dict[str, object]:
    return {name: getattr(error, name) for name in PLACE}


@pytest.mark.parametrize("cls", BUILTINS)
def test_a_caller_may_catch_the_root_or_the_builtin(cls: type[drt.DatasetRTError]) -> None:
    assert issubclass(cls, drt.DatasetRTError)
    assert issubclass(cls, BUILTINS[cls])


@pytest.mark.parametrize("cls", CLASSES)
def test_one_string_makes_an_error(cls: type[drt.DatasetRTError]) -> None:
    error = cls("cannot open 'a': gone; write it again")
    assert str(error) == "cannot open 'a': gone; write it again"
    slug = re.sub("(?<=[a-z])(?=[A-Z])", "-", cls.__name__.replace("DatasetRT", "Datasetrt")).lower()
    assert error.kind == slug
    assert _state(error) == {**dict.fromkeys(PLACE), "kind": slug}
    assert str(cls()) == ""


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_copies_keep_everything_but_the_cause(cls: type[drt.DatasetRTError], again: object) -> None:
    error = cls("message", **PLACE)
    error.add_note("while sample 5 was read")
    error.__cause__ = OSError("disk")
    if isinstance(error, OSError):
        error.errno = errno.EIO
    if isinstance(error, ImportError):
        error.name = "torch"
    twin = again(error)  # type: ignore[operator]
    assert type(twin) is cls
    assert (str(twin), twin.args, _state(twin)) == ("message", ("message",), PLACE)
    assert twin.__notes__ == ["while sample 5 was read"]
    assert twin.__cause__ is None
    assert getattr(twin, "errno", None) == getattr(error, "errno", None)
    assert getattr(twin, "name", None) == getattr(error, "name", None)


def test_attributes_may_be_set_afterwards() -> None:
    error = drt.CorruptionError("message")
    error.path, error.sample_id = "/c/s", 9
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.path, twin.sample_id, twin.shard) == ("/c/s", 9, None)


def test_attributes_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        drt.CorruptionError("message", "record-checksum")  # type: ignore[misc]


def test_the_message_is_shown_as_it_is_with_an_error_number() -> None:
    error = errors._build(
        "Storage", "no-space", "cannot write /c: full", "/c", None, None, None, errno.ENOSPC
    )
    assert type(error) is drt.StorageError
    assert (error.errno, str(error)) == (errno.ENOSPC, "cannot write /c: full")


@pytest.mark.parametrize("name", errors._CLASSES)
def test_the_engine_builds_every_class(name: str) -> None:
    error = errors._build(name, "record-checksum", "message", "/c/s", 3, 17, 5, errno.EIO)
    assert type(error) is errors._CLASSES[name]
    assert (str(error), _state(error)) == ("message", PLACE)
    assert getattr(error, "errno", errno.EIO) == errno.EIO


# Kinds: the engine's list, Python's list and the documentation are one.


def engine_classes(text: str) -> set[str]:
    """The variants of `enum Class` in error.rs."""
    body = re.search(r"pub enum Class \{(.*?)\n\}", text, re.DOTALL)
    assert body is not None
    return set(re.findall(r"^    (\w+),$", body[1], re.MULTILINE))


def engine_kinds(text: str) -> dict[str, str]:
    """Code and class of every kind in error.rs, whose lines are ``Name = "code", Class;``."""
    return dict(re.findall(r'^    \w+ = "([a-z-]+)", (\w+);$', text, re.MULTILINE))


def documented_kinds(text: str) -> dict[str, str]:
    """Code and class of every row of the table of kinds."""
    return dict(re.findall(r"^\| `([a-z-]+)` \| `(\w+)` \| \S.* \| \S.* \|$", text, re.MULTILINE))


def test_every_class_of_the_engine_has_one_here() -> None:
    assert engine_classes(ENGINE.read_text()) == set(errors._CLASSES)


def test_the_documented_kinds_are_those_of_the_engine_and_of_python() -> None:
    engine = {code: errors._CLASSES[cls].__name__ for code, cls in engine_kinds(ENGINE.read_text()).items()}
    python = {kind: cls.__name__ for kind, cls in errors.PYTHON_KINDS.items()}
    assert len(engine) > 30
    assert engine.keys() & python.keys() == set()
    assert documented_kinds((REPOSITORY / "docs/errors.md").read_text()) == engine | python


def raised_kinds(source: str) -> set[str]:
    """Every literal ``kind=`` of a call."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    kinds = [word.value for call in calls for word in call.keywords if word.arg == "kind"]
    return {kind.value for kind in kinds if isinstance(kind, ast.Constant) and isinstance(kind.value, str)}


def test_python_code_raises_no_other_kind() -> None:
    known = set(engine_kinds(ENGINE.read_text())) | set(errors.PYTHON_KINDS)
    raised = set().union(*(raised_kinds(file.read_text()) for file in PACKAGE.rglob("*.py")))
    assert raised <= known
    # Some are passed through a variable, so that the reverse is checked by the codecs' own tests.
    assert raised & set(errors.PYTHON_KINDS) >= {"untrusted", "refused-global", "decode", "encode", "layout"}


def test_the_parsers_see_what_they_are_to_see() -> None:
    rust = '    /// Gone.\n    Gone = "gone", Storage;\n    Gone = gone, Storage;\n'
    assert engine_kinds(rust) == {"gone": "Storage"}
    assert engine_classes("pub enum Class {\n    /// A.\n    Storage,\n    Format,\n}\n") == {
        "Storage",
        "Format",
    }
    assert documented_kinds("| `gone` | `StorageError` | Gone. | Look. |\n| `a` | `B` | |\n") == {
        "gone": "StorageError"
    }
    assert raised_kinds("raise E('x', kind='gone')\nf(kind=other)") == {"gone"}
