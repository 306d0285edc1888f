"""Every public member says what it gives, shows it in an example, and describes what it takes.

The examples themselves run in `test_docstrings.py`, and those of an adapter in its own tests, because they
need its framework. Here an adapter is read as source text, so that no framework is needed.

What is asked of whom:

- A function, method or property has a docstring with an example, and an ``Args`` section if it takes
  anything. One that overrides another may inherit the whole docstring. A special method is held to this
  where it has a docstring of its own; elsewhere the docstring of its class shows it.
- A class has an example, and an ``Args`` section if users construct it. Its docstring says "made by" where
  they do not. Fields of a dataclass, of a NamedTuple and of a config are described in that section.
- A protocol is implemented by users, not called: its own docstring has the example of an implementation, and
  its members say what they mean.
- A class that inherits its constructor, as errors do, inherits what that says about arguments, but not the
  example: that of an error shows what raises it.
- Modules need a docstring only, and a type alias, which cannot have one at run time, is passed over.
"""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import datasetrt
from datasetrt.columns import BatchMetadata
from tests.repository.test_docstrings import own_members

pytestmark = pytest.mark.docs

PACKAGES = Path(__file__).parents[2] / "packages"
ADAPTERS = ("datasetrt_torch", "datasetrt_jax", "datasetrt_tf")


@dataclass(frozen=True)
class Documented:
    """A public name: its docstring, and what that has to have."""

    name: str
    text: str
    takes: bool = False
    shows: bool = True

    def faults(self) -> list[str]:
        if not self.text.strip():
            return [f"{self.name} has no docstring"]
        found = []
        if self.shows and ">>>" not in self.text:
            found.append(f"{self.name} has no example")
        if self.takes and "Args:" not in self.text:
            found.append(f"{self.name} has no Args section")
        return found


# The core package, as it is imported: native classes have no source to read.


def of_module(module: types.ModuleType) -> Iterator[Documented]:
    """What a module makes public, with the members of its classes."""
    yield Documented(module.__name__, module.__doc__ or "", shows=False)
    for name in module.__all__:
        item = getattr(module, name)
        if isinstance(item, types.ModuleType):
            yield from of_module(item)
        elif inspect.isclass(item):
            yield from of_class(f"{module.__name__}.{name}", item)
        elif inspect.isroutine(item):
            yield Documented(f"{module.__name__}.{name}", inspect.getdoc(item) or "", _takes(item))


def of_class(path: str, cls: type) -> Iterator[Documented]:
    """A class and what it defines itself; what it inherits unchanged is documented at its origin."""
    text = vars(cls).get("__doc__") or ""
    protocol = bool(vars(cls).get("_is_protocol"))
    fails = issubclass(cls, BaseException) and "__init__" not in vars(cls)
    yield Documented(path, text, not (protocol or fails or "made by" in text.lower()) and _takes(cls))
    for name, value in own_members(cls).items():
        member = getattr(value, "__func__", value)
        described = inspect.isfunction(member) and member.__doc__ and _of_ours(member)
        if name.startswith("_") and not (name.startswith("__") and described):
            continue
        if isinstance(member, property | cached_property | types.GetSetDescriptorType):
            yield Documented(f"{path}.{name}", inspect.getdoc(member) or "", shows=not protocol)
        elif inspect.isroutine(member):
            takes = not protocol and _takes(member, bound=not isinstance(value, staticmethod))
            yield Documented(f"{path}.{name}", inspect.getdoc(member) or "", takes, shows=not protocol)


def _of_ours(member: types.FunctionType) -> bool:
    # Not what dataclasses, protocols and typing put into a class.
    return "<string>" not in member.__code__.co_filename and member.__module__.startswith("datasetrt")


def _takes(item: object, *, bound: bool = False) -> bool:
    """Whether a caller gives it anything."""
    assert callable(item)
    try:
        return len(inspect.signature(item).parameters) > bound
    except ValueError:
        # The constructor of a builtin, which a TypedDict and a subclass of dict leave as it is.
        return False


# The adapters, as source text.


def of_adapter(package: str) -> Iterator[Documented]:
    """What an adapter makes public, found through the imports of its ``__init__``."""
    folder = PACKAGES / package.replace("_", "-") / "src" / package
    top = _parsed(folder / "__init__.py")
    yield Documented(package, ast.get_docstring(top) or "", shows=False)
    origins = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(top)
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
    }
    for name in _public_names(top):
        if name.startswith("__"):
            continue
        module, original = origins[name]
        tree = _parsed(folder / f"{module.replace('.', '/')}.py")
        definitions = {node.name: node for node in tree.body if isinstance(node, Definition)}
        yield from _of_definition(f"{package}.{name}", definitions[original], definitions)


Method = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.ClassDef | Method


def _of_definition(path: str, node: Definition, known: dict[str, Definition]) -> Iterator[Documented]:
    text = ast.get_docstring(node) or ""
    if not isinstance(node, ast.ClassDef):
        yield Documented(path, text, _arguments(node) > 0)
        return
    bases = [ast.unparse(base) for base in node.bases]
    methods = _methods(node)
    init = methods.get("__init__")
    fields = sum(isinstance(each, ast.AnnAssign) for each in node.body) if _is_dataclass(node) else 0
    constructed = fields + (_arguments(init[0]) - 1 if init else 0) > 0
    yield Documented(path, text, constructed and "made by" not in text.lower())
    for name, overloads in methods.items():
        described = any(ast.get_docstring(each) for each in overloads)
        if name.startswith("_") and not (name.startswith("__") and described):
            continue
        method = overloads[-1]
        text = ast.get_docstring(method) or _inherited(name, bases, known)
        yield Documented(f"{path}.{name}", text, _arguments(method) - (not _has(method, "staticmethod")) > 0)


def _inherited(name: str, bases: list[str], known: dict[str, Definition]) -> str:
    for base in bases:
        node = known.get(base.partition("[")[0])
        if isinstance(node, ast.ClassDef):
            for method in _methods(node).get(name, []):
                if text := ast.get_docstring(method):
                    return text
    return ""


def _methods(node: ast.ClassDef) -> dict[str, list[Method]]:
    found: dict[str, list[Method]] = {}
    for each in node.body:
        if isinstance(each, Method) and not any(
            ast.unparse(decorator).endswith((".setter", ".deleter")) for decorator in each.decorator_list
        ):
            found.setdefault(each.name, []).append(each)
    return found


def _arguments(node: Method) -> int:
    given = node.args
    named = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    return named + (given.vararg is not None) + (given.kwarg is not None)


def _has(node: Definition, decorator: str) -> bool:
    return any(decorator in ast.unparse(each) for each in node.decorator_list)


def _is_dataclass(node: ast.ClassDef) -> bool:
    return _has(node, "dataclass")


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def _public_names(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise AssertionError("the package has no __all__")


def _faults(names: Iterator[Documented]) -> list[str]:
    return [fault for name in names for fault in name.faults()]


def test_the_core_package() -> None:
    # A batch's metadata has a class of its own, which users meet without importing it.
    extra = of_class("datasetrt.columns.BatchMetadata", BatchMetadata)
    assert _faults(of_module(datasetrt)) + _faults(extra) == []


@pytest.mark.parametrize("package", ADAPTERS)
def test_an_adapter(package: str) -> None:
    assert _faults(of_adapter(package)) == []


def test_the_walk_reaches_members_of_all_kinds() -> None:
    names = {each.name for each in of_module(datasetrt)}
    assert {
        "datasetrt.CachedSample.data",
        "datasetrt.SampleBatch.as_array",
        "datasetrt.CachedDataset.codec",
        "datasetrt.CachedDataset.__getitem__",
        "datasetrt.CachedDataset.loader",
        "datasetrt.codecs.Npy.loads_batch",
        "datasetrt.testing.Resumable.state_dict",
    } <= names
    for package in ADAPTERS:
        assert len(list(of_adapter(package))) > 3


class Undocumented:
    """A class. Made by nobody."""

    @property
    def bare(self) -> int:
        """A property without an example."""
        return 1

    def silent(self) -> None: ...

    def taking(self, what: int) -> int:
        """Give it back.

        >>> 1
        1
        """
        return what


def test_what_lacks_is_named_in_both_ways_of_reading() -> None:
    expected = [
        "Undocumented has no example",
        "Undocumented.bare has no example",
        "Undocumented.silent has no docstring",
        "Undocumented.taking has no Args section",
    ]
    assert _faults(of_class("Undocumented", Undocumented)) == expected
    tree = ast.parse(textwrap.dedent(inspect.getsource(Undocumented)))
    (node,) = tree.body
    assert isinstance(node, ast.ClassDef)
    assert _faults(_of_definition("Undocumented", node, {})) == expected
