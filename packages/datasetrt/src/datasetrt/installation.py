"""What an adapter asks for at its import: a core of its own release, and a framework that works.

For authors of adapters; ``datasetrt_torch``, ``datasetrt_jax`` and ``datasetrt_tf`` use it. The two functions
keep their names and arguments in later releases, because an adapter of any release may find itself beside a
core of any other, and has to say so.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from types import ModuleType

from .errors import InstallationError
from .wording import shown

__all__ = ["check_release", "import_package"]

#: A reason that a package gives for its failure is cut at this length.
_REASON_CHARACTERS = 300


def check_release(adapter: str, version: str) -> None:
    """Refuse an adapter of another minor release than the core: they share the state of a loader.

    Args:
        adapter: Name of the adapter's distribution, such as ``"datasetrt-torch"``.
        version: The adapter's own version; only the first two numbers count.

    Raises:
        InstallationError: The core is of another minor release (kind ``release-mismatch``).

    Example:
        >>> import datasetrt as drt
        >>> drt.installation.check_release("datasetrt-torch", drt.__version__)
        >>> drt.installation.check_release("datasetrt-torch", "9.2.0")
        Traceback (most recent call last):
        datasetrt.errors.InstallationError: datasetrt-torch 9.2.0 does not go with datasetrt 0.1.0: ...
    """
    import datasetrt  # here, because the package is not complete when it imports this module

    core = datasetrt.__version__
    if version.split(".")[:2] != core.split(".")[:2]:
        raise _error(
            f"{adapter} {version} does not go with datasetrt {core}: both have to be of one minor release; "
            f"pip install --upgrade datasetrt {adapter}",
            kind="release-mismatch",
            module=adapter.replace("-", "_"),
        )


def import_package(
    module: str, *, user: str, at_least: str | None = None, distributions: tuple[str, ...] = ()
) -> ModuleType:
    """Import a package that an adapter needs, where it is needed.

    Args:
        module: Name of the module, such as ``"tensorflow"``, or of one inside of it.
        user: What needs it, for the message, such as ``"datasetrt_tf.dataset"``.
        at_least: The oldest version that will do, such as ``"2.16"``; default: any. Only its numbers are
            compared: ``2.16.0rc1`` counts as 2.16.0.
        distributions: What ``pip`` can install to get it, the first choice first; default: ``module``.

    Returns:
        The imported module.

    Raises:
        InstallationError: It is not installed (kind ``missing-package``), its own import fails
            (``broken-package``; what it raised is the cause), or it is too old (``old-package``).

    Example:
        >>> import datasetrt as drt
        >>> drt.installation.import_package("numpy", user="my_adapter", at_least="1.26").__name__
        'numpy'
        >>> drt.installation.import_package("numqy", user="my_adapter", at_least="1.26")
        Traceback (most recent call last):
        datasetrt.errors.InstallationError: my_adapter needs numqy 1.26 or later, and ... has none; ...
    """
    choices = distributions or (module,)
    need = f"{user} needs {module}" + (f" {at_least} or later" if at_least else "")
    try:
        found = importlib.import_module(module)
    # A foreign package may fail in any way when it is imported; whatever it raises is kept as the cause.
    except Exception as error:
        # A module of another name that is not found is one that this package lacks: it is broken.
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise _error(
                f"{need}, and {sys.executable} has none; {_pip('', choices, at_least)}",
                kind="missing-package",
                module=module,
            ) from None
        raise _error(
            f"{need}; {_installed(choices)} is installed for {sys.executable}, but its import fails "
            f"({_reason(error)}); {_pip('--force-reinstall ', choices, at_least)}",
            kind="broken-package",
            module=module,
        ) from error
    if at_least is not None:
        _check_version(sys.modules[module.partition(".")[0]], need, choices, at_least)
    return found


def _check_version(found: ModuleType, need: str, choices: tuple[str, ...], at_least: str) -> None:
    version = getattr(found, "__version__", None)
    if not isinstance(version, str):
        # Most often a folder or a file of the user's, of the same name and earlier on the path.
        place = getattr(found, "__file__", None) or list(getattr(found, "__path__", []))
        raise _error(
            f"{need}; the {found.__name__} that is imported is something else, without a version: "
            f"{shown(place, most=_REASON_CHARACTERS)}; rename or remove it, or "
            f"{_pip('--force-reinstall ', choices, at_least)}",
            kind="broken-package",
            module=found.__name__,
        )
    if _numbers(version) < _numbers(at_least):
        raise _error(
            f"{need}, and {sys.executable} has {version}; {_pip('--upgrade ', choices, at_least)}",
            kind="old-package",
            module=found.__name__,
        )


def _pip(options: str, choices: tuple[str, ...], at_least: str | None) -> str:
    """The line to run, for the distribution that is there already or else the first choice."""
    best = next((name for name in choices if _version(name)), choices[0])
    floor = f">={at_least}" if at_least else ""
    line = f"pip install {options}'{best}{floor}'"
    others = [name for name in choices if name != best] if not _version(best) else []
    return " ".join([line, *(f"(or {name})" for name in others)])


def _installed(choices: tuple[str, ...]) -> str:
    """Name and version of what is installed, as far as they are known."""
    return next((f"{name} {version}" for name in choices if (version := _version(name))), choices[0])


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: ``(2, 16, 0)`` for ``2.16.0rc1+cpu``."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _reason(error: Exception) -> str:
    """A foreign exception on one line of bounded length, such as ``OSError: libcudart.so.12: ...``."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _REASON_CHARACTERS else f"{text[:_REASON_CHARACTERS]}…"


def _error(message: str, *, kind: str, module: str) -> InstallationError:
    error = InstallationError(message, kind=kind)
    error.name = module
    return error
