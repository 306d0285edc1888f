"""Runs a command and turns whatever happens into one line on standard error and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from datasetrt.errors import DatasetRTError

from ._commands import InterruptedByUserError, datasetrt
from ._output import OutputError, ReaderGoneError, cannot_write, check_open, complain, write_json
from ._status import BUG, FAILED, FINE, INTERRUPTED, READER_GONE, USAGE, status_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; never raises.

    Args:
        arguments: Without the program's name; default: those of this process.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        status = _run(given)
        if status == FINE:
            # Whatever went well had something to say, which click drops in silence where nobody can read it.
            check_open()
        return status
    except ReaderGoneError:
        return READER_GONE
    except OutputError as error:
        complain(str(error))
        return FAILED
    except (InterruptedByUserError, KeyboardInterrupt, click.Abort):
        complain("interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: a line for the user instead of a traceback
        complain(f"this is a bug, please report it: {type(error).__name__}: {error}")
        return BUG


def _run(given: list[str]) -> int:
    try:
        status = datasetrt.main(given, prog_name="datasetrt", standalone_mode=False)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "datasetrt"
        complain(f"{error.format_message()} (see {where} --help)")
        return USAGE
    except click.ClickException as error:
        complain(error.format_message())
        return error.exit_code
    except DatasetRTError as error:
        if "--json" in given:
            write_json({"ok": False, "error": _described(error)})
        complain(str(error))
        return status_of(error)
    except MemoryError:
        complain("there is not enough memory")
        return FAILED
    except SystemExit as error:
        # click ends the process itself where nobody reads its help or its version any more.
        raise ReaderGoneError from error
    except OSError as error:
        # The files of caches give errors of ours: this is about click's own output.
        raise cannot_write(error) from error
    return status if isinstance(status, int) else FINE


def _described(error: DatasetRTError) -> dict[str, str | int | None]:
    return {
        "kind": error.kind,
        "message": str(error),
        "path": error.path,
        "shard": error.shard,
        "offset": error.offset,
        "sample_id": error.sample_id,
    }
