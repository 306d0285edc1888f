"""The commands: what to ask the library, and how its answer looks as text and as JSON."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import click

from datasetrt import __version__
from datasetrt.errors import DatasetRTError
from datasetrt.leftovers import clean as clean_leftovers
from datasetrt.opening import open_dataset, verify_cache
from datasetrt.reports import AuditReport, CleanReport, Problem, VerifyReport

from ._output import complain, progress, size, write_json, write_line
from ._status import FINE, WRONG, status_of, status_of_problems

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
_PATH = click.Path(path_type=str)


class InterruptedByUserError(Exception):
    """Ctrl-C, by a name that click does not write a line of its own for."""


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedByUserError from None


@click.group(cls=_Group, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="datasetrt")
def datasetrt() -> None:
    """Look at caches of datasetrt, check them, and clean up beside them.

    No command loads a payload, so nothing in a cache is executed. Exit status: 0 fine, 1 something is wrong
    with a cache, 2 the command line is wrong, 3 it could not be done, 130 interrupted.
    """


@datasetrt.command()
@click.argument("path", type=_PATH)
@_JSON
def info(path: str, as_json: bool) -> int:
    """Tell what the cache at PATH holds. Reads no payload."""
    dataset = open_dataset(path)
    (cache,) = dataset.caches
    columns = [{"name": name, "type": kind} for name, kind in dataset._view.schema]
    if as_json:
        write_json({**_plain(cache), "columns": columns})
        return FINE
    compressed = "" if cache.compression == "none" else f", {cache.compression}"
    rows = [
        ("path", str(cache.path)),
        ("cache id", cache.cache_id),
        ("samples", f"{cache.sample_count:,}"),
        ("payloads", size(cache.payload_bytes)),
        ("on disk", f"{size(cache.stored_bytes)}{compressed}"),
        ("codec", cache.codec if cache.codec is not None else "none named"),
        ("fingerprint", cache.fingerprint if cache.fingerprint is not None else "none given"),
    ]
    write_line(cache.name)
    for label, value in rows:
        write_line(f"  {label:12}{value}")
    for column in columns:
        write_line(f"  {'column':12}{column['name']}: {column['type']}")
    return FINE


@datasetrt.command()
@click.argument("paths", type=_PATH, nargs=-1, required=True, metavar="PATH...")
@_JSON
def verify(paths: tuple[str, ...], as_json: bool) -> int:
    """Read every byte of the caches at PATH... and list everything that is wrong."""
    results = []
    statuses = []
    for path in paths:
        status, result = _verify_one(path)
        statuses.append(status)
        results.append(result)
        if not as_json:
            _tell_verified(result)
    if as_json:
        write_json({"ok": all(result["ok"] for result in results), "caches": results})
    wrong = sum(not result["ok"] for result in results)
    if wrong:
        complain(f"{wrong:,} of {_count(len(results), 'cache')} failed the check")
    # Damage outweighs what could not be looked at.
    return WRONG if WRONG in statuses else max(statuses)


def _verify_one(path: str) -> tuple[int, dict[str, Any]]:
    found: dict[str, Any] = {"path": path, "name": None, "sample_count": None}
    try:
        dataset = open_dataset(path)
    except DatasetRTError:
        # One file is enough to stop opening; the others are looked at all the same.
        check: Callable[..., VerifyReport] = functools.partial(verify_cache, path)
    else:
        (cache,) = dataset.caches
        found |= {"name": cache.name, "sample_count": cache.sample_count}
        check = dataset.verify
    try:
        with progress(f"verify {path}", size) as on_progress:
            problems = check(on_progress=on_progress).problems
        status = status_of_problems(problems)
    except DatasetRTError as error:
        # There is nothing to look at.
        refusal = Problem(error.kind, str(error), error.path, error.shard, error.offset, error.sample_id)
        problems, status = (refusal,), status_of(error)
    return status, {**found, "ok": not problems, "problems": [_plain(problem) for problem in problems]}


def _tell_verified(result: dict[str, Any]) -> None:
    problems = result["problems"]
    if result["ok"]:
        write_line(f"{result['path']}: {result['sample_count']:,} samples, no problem")
        return
    write_line(f"{result['path']}: {_count(len(problems), 'problem')}")
    for problem in problems:
        write_line(f"  {problem['kind']}: {problem['message']}")


@datasetrt.command()
@click.argument("root", type=_PATH)
@click.option("--dry-run", "-n", is_flag=True, help="Only tell what would be removed.")
@_JSON
def clean(root: str, dry_run: bool, as_json: bool) -> int:
    """Remove what interrupted writes left in ROOT, the folder that holds the caches.

    An unfinished write that would be resumed is removed too. What a running writer uses stays, and so does
    anything that datasetrt did not make.
    """
    report = clean_leftovers(root, dry_run=dry_run)
    if as_json:
        write_json(
            {
                "root": root,
                "dry_run": dry_run,
                "ok": report.ok,
                "removed_bytes": report.removed_bytes,
                "leftovers": [_plain(leftover) for leftover in report.leftovers],
            }
        )
    else:
        _tell_cleaned(report)
    failed = sum(leftover.failed for leftover in report.leftovers)
    if failed:
        complain(f"{_count(failed, 'leftover')} could not be removed")
    return FINE if report.ok else WRONG


def _tell_cleaned(report: CleanReport) -> None:
    removed = "would remove" if report.dry_run else "removed"
    for leftover in report.leftovers:
        if leftover.removed:
            held = f"{_count(leftover.files, 'file')}, {size(leftover.bytes)}"
            write_line(f"{removed} {leftover.path}: {held}")
        else:
            write_line(f"kept {leftover.path}: {leftover.reason}")
    write_line(str(report))


@datasetrt.command()
@click.argument("path", type=_PATH)
@_JSON
def audit(path: str, as_json: bool) -> int:
    """List the globals that the pickled payloads of the cache at PATH would import. Loads none of them."""
    dataset = open_dataset(path)
    (cache,) = dataset.caches
    with progress(f"audit {path}", lambda count: f"{count:,}") as on_progress:
        report = dataset.audit(on_progress=on_progress)
    if as_json:
        write_json(
            {
                "path": path,
                "codec": cache.codec,
                "ok": report.ok,
                "samples": report.samples,
                "pickles": report.pickles,
                "globals": [_plain(each) for each in report.globals],
                "problems": [_plain(each) for each in report.problems],
            }
        )
    else:
        _tell_audited(path, cache.codec, report)
    if not report.ok:
        complain(
            f"{_count(len(report.problems), 'payload')} could not be followed: more globals may be named"
        )
    return status_of_problems(report.problems)


def _tell_audited(path: str, codec: str | None, report: AuditReport) -> None:
    if report.pickles == 0 and report.ok:
        written = f"their codec is {codec!r}" if codec is not None else "no codec is named"
        write_line(
            f"{path}: none of {report.samples:,} payloads is a pickle ({written}); they name no global"
        )
        return
    named = _count(len(report.globals), "global")
    write_line(f"{path}: {report.pickles:,} of {report.samples:,} payloads are pickles, which name {named}")
    for each in report.globals:
        write_line(f"  {each}")
    for problem in report.problems:
        write_line(f"  {problem}")


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"


def _plain(report: Any) -> dict[str, Any]:
    """A report's fields, with paths as text."""
    fields = dataclasses.asdict(report)
    return {
        key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in fields.items()
    }
