"""Progress: a line on a terminal, calls of a function, or nothing."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import datasetrt as drt
from datasetrt.progress import Progress, render, watching
from tests.rows import RowSource, rows_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(samples: int, seconds: float, *, total: int | None = None, fraction: float | None = None) -> Progress:
    return Progress("train", samples, total, samples * 1_000_000, seconds, fraction)


def test_the_line_has_rates_and_the_time_left() -> None:
    line = render(at(50, 10.0, total=200, fraction=0.25), at(0, 0.0, total=200, fraction=0.0))
    assert line == "train: [#####...............] 25% 50 samples, 5 samples/s, 5.0 MB/s, 0:30 left"


def test_an_unknown_length_has_no_bar() -> None:
    assert render(at(1234, 2.0), at(0, 0.0)) == "train: 1,234 samples, 617 samples/s, 617.0 MB/s"


def test_rates_do_not_count_what_was_stored_before() -> None:
    line = render(at(150, 11.0, total=200, fraction=0.75), at(100, 1.0, total=200, fraction=0.5))
    assert "5 samples/s, 5.0 MB/s, 0:10 left" in line


def test_long_times_have_hours() -> None:
    assert render(at(1, 100.0, fraction=0.01), at(0, 0.0)).endswith("2:45:00 left")


@pytest.mark.parametrize("first", [at(0, 0.0, fraction=0.0), at(5, 1.0, fraction=0.5)])
def test_the_first_report_has_neither_rate_nor_time(first: Progress) -> None:
    assert "/s" not in render(first, first)
    assert "left" not in render(first, first)


def test_a_terminal_gets_one_line_that_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    with ExitStack() as ends:
        report = watching(True, "train", None, ends)
        assert report is not None
        for samples in (10_000, 5):
            report(samples, 0, None)
    first, second = terminal.getvalue().split("\r")[1:]
    assert (first, second.rstrip()) == ("train: 10,000 samples", "train: 5 samples")
    assert len(second.rstrip("\n")) == len(first), "what was longer before is written over"
    assert terminal.getvalue().endswith("\n")


def test_elsewhere_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with ExitStack() as ends:
            report = watching(True, "train", 10, ends)
            assert report is None
    monkeypatch.setattr(sys, "stderr", Terminal())
    with ExitStack() as ends:
        report = watching(False, "train", 10, ends)
        assert report is None


def test_a_function_receives_the_whole_write(tmp_path: Path) -> None:
    seen: list[Progress] = []
    config = drt.WriterConfig(progress=seen.append)
    report = drt.write_cache(RowSource("s", rows_of(50)), tmp_path, config=config)
    assert (seen[0].samples, seen[0].fraction) == (0, 0.0)
    assert (seen[-1].samples, seen[-1].total, seen[-1].fraction) == (50, 50, 1.0)
    assert seen[-1].payload_bytes == report.payload_bytes
    assert all(progress.name == "s" for progress in seen)
    assert [each.samples for each in seen] == sorted(each.samples for each in seen)


def test_a_map_source_reports_the_part_of_its_items(tmp_path: Path) -> None:
    def sample(item: int) -> list[drt.CacheInput]:
        time.sleep(0.03)
        return [drt.CacheInput(b"x", {"i": item})] * 2

    seen: list[Progress] = []
    drt.write_cache(
        drt.MapSource("m", range(10), sample), tmp_path, config=drt.WriterConfig(progress=seen.append)
    )
    between = [each for each in seen if each.fraction and each.fraction < 1]
    assert between
    for each in between:
        assert each.fraction is not None
        assert each.total is None
        assert (each.samples - 1) // 2 == round(each.fraction * 10)


def test_what_the_function_raises_ends_the_write(tmp_path: Path) -> None:
    boom = ZeroDivisionError("no more")

    def receive(progress: Progress) -> None:
        if progress.samples == 50:
            raise boom

    with pytest.raises(ZeroDivisionError) as caught:
        drt.write_cache(RowSource("s", rows_of(50)), tmp_path, config=drt.WriterConfig(progress=receive))
    assert caught.value is boom
    with pytest.raises(FileNotFoundError):
        drt.open_dataset(tmp_path / "s")
    # The lock is free again.
    drt.write_cache(RowSource("s", rows_of(50)), tmp_path, config=drt.WriterConfig(progress=False))


def test_reports_come_while_samples_are_written(tmp_path: Path) -> None:
    class Slow(RowSource):
        def __iter__(self) -> Iterator[drt.CacheInput]:
            for sample in super().__iter__():
                time.sleep(0.02)
                yield sample

    seen: list[Progress] = []
    drt.write_cache(Slow("s", rows_of(40)), tmp_path, config=drt.WriterConfig(progress=seen.append))
    assert 3 < len(seen) < 25, "about ten a second"
