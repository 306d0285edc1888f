"""What the exit status of a command says. Append only: scripts rely on it."""

from collections.abc import Sequence
from typing import Final

from datasetrt.errors import CorruptionError, DatasetRTError, FormatError, InvalidInputError, StaleCacheError
from datasetrt.reports import Problem

FINE: Final = 0
#: Something is wrong with a cache, or a leftover could not be removed.
WRONG: Final = 1
#: The command line is wrong.
USAGE: Final = 2
#: It could not be done: nothing at the path, no permission, a failing disk, output that cannot be written.
FAILED: Final = 3
#: A bug in datasetrt.
BUG: Final = 70
#: As shells report a program that ended by SIGINT and SIGPIPE.
INTERRUPTED: Final = 130
READER_GONE: Final = 141


def status_of(error: DatasetRTError) -> int:
    """The exit status for an error of the library."""
    if isinstance(error, InvalidInputError):
        return USAGE
    if isinstance(error, CorruptionError | FormatError | StaleCacheError):
        return WRONG
    return FAILED


#: Kinds of problems that say nothing about a cache: it could not be read.
_NOT_THE_CACHE: Final = frozenset({"io", "permission-denied"})


def status_of_problems(problems: Sequence[Problem]) -> int:
    """The exit status for what a check found; damage outweighs what could not be looked at."""
    if not problems:
        return FINE
    return FAILED if all(problem.kind in _NOT_THE_CACHE for problem in problems) else WRONG
