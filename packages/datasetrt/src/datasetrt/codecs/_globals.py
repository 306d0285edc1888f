"""Which globals a pickle may name, written as ``module.qualname``, and what they are."""

from __future__ import annotations

import importlib
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterable
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from datasetrt.checks import invalid
from datasetrt.errors import CodecError
from datasetrt.wording import reason, shown

NUMPY_PRESET = "numpy"
#: The NumPy integers that `PickleOOB` names by their class.
INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

# Exactly what pickled arrays, dtypes and NumPy scalars name, in protocols 0 to 5. NumPy 1 says `numpy.core`,
# NumPy 2 `numpy._core`; protocols below 3 spell bytes as text to be encoded.
NUMPY_NAMES = frozenset(
    {
        "numpy.ndarray",
        "numpy.dtype",
        *(f"numpy.{name}" for name in INTEGERS),
        *(
            f"numpy.{core}.{name}"
            for core in ("core", "_core")
            for name in ("multiarray._reconstruct", "multiarray.scalar", "numeric._frombuffer")
        ),
        "_codecs.encode",
        "builtins.bytes",
    }
)

_LAST_PROTOCOL_OF_PYTHON_2 = 2


def normalise(allow: Any) -> tuple[str, ...] | None:
    """The option ``allow`` as a sorted tuple, so that equal options make equal codecs."""
    if allow is None:
        return None
    if isinstance(allow, str):
        # A string is also an iterable of characters: only the preset may stand alone.
        if allow != NUMPY_PRESET:
            raise invalid(
                f"allow={shown(allow)} is no preset; write allow=[{shown(allow)}], or allow='numpy'"
            )
        return (allow,)
    names = list(allow) if isinstance(allow, Iterable) else [allow]
    for name in names:
        if not isinstance(name, str) or (name != NUMPY_PRESET and not _is_global(name)):
            raise invalid(
                f"allow has {shown(name)}, which is no global; write 'module.qualname', such as 'a.b.C'"
            )
    return tuple(sorted(set(names)))


def _is_global(name: str) -> bool:
    parts = name.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


@lru_cache(maxsize=256)
def expand(allow: tuple[str, ...]) -> frozenset[str]:
    """Every allowed name, the preset's included."""
    names = frozenset(allow)
    return (names - {NUMPY_PRESET}) | NUMPY_NAMES if NUMPY_PRESET in names else names


def full_name(module: object, name: object, protocol: int) -> str:
    """A pickle's two strings as one name of today's Python."""
    if type(module) is not str or type(name) is not str:
        raise CodecError("a pickle names a global by something other than two strings", kind="decode")
    if protocol <= _LAST_PROTOCOL_OF_PYTHON_2:
        # Python 3 writes its own names in these as Python 2 had them, and reads them back by the same tables.
        module, name = NAME_MAPPING.get((module, name)) or (IMPORT_MAPPING.get(module, module), name)
    return f"{module}.{name}"


@lru_cache(maxsize=4096)
def resolve(name: str) -> object:
    """The object that an allowed name means to whoever wrote the allow-list.

    The pickle's own split into module and attribute is not used: it could lead elsewhere by way of a module's
    imports. The longest part that is a module wins.
    """
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:length])
        try:
            found: object = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            # Only "this part is no module" moves on; what a module misses itself is for the user to see.
            if error.name is not None and (module_name + ".").startswith(error.name + "."):
                continue
            raise CodecError(
                f"allow has {shown(name)}, whose module fails to import ({reason(error)})", kind="decode"
            ) from error
        return _attribute(found, parts[length:], name)
    raise CodecError(
        f"allow has {shown(name)}, but there is no module {shown(parts[0])}; install it", kind="decode"
    )


def _attribute(found: object, path: list[str], name: str) -> object:
    for part in path:
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise CodecError(
                f"allow has {shown(name)}, but its module has no {shown(part)}", kind="decode"
            ) from error
    if isinstance(found, ModuleType):
        raise CodecError(
            f"allow has {shown(name)}, which is a module; name a class or function in it", kind="decode"
        )
    return found


def refused_global(name: str) -> CodecError:
    """The error for a global that is not allowed."""
    named = name if len(name) <= 200 else name[:200] + "…"
    return CodecError(
        f"the pickle names the global {named!r}, which is not allowed; add it to allow=[…] if it is harmless "
        "whatever its arguments, or use trust=True for data that you wrote yourself",
        kind="refused-global",
    )
