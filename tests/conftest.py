"""What every test may ask for: a config without progress bar, and a small dataset of ``rows_of(100)``.

Fixtures import `datasetrt` themselves: the tests that only read source files run before anything is built.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import datasetrt as drt


def pytest_configure(config: pytest.Config) -> None:
    """No test depends on how this run was started, or on how busy the machine is."""
    # A job in the background starts with SIGINT ignored, as does what it starts: Ctrl-C would do nothing.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hypothesis would give an example 200 ms.
    if config.pluginmanager.hasplugin("hypothesispytest"):  # not in every environment
        from hypothesis import settings

        settings.register_profile("untimed", settings.default, deadline=None)
        settings.load_profile("untimed")


@pytest.fixture(scope="session")
def quiet() -> drt.WriterConfig:
    """Defaults without a progress bar."""
    import datasetrt as drt

    return drt.WriterConfig(progress=False)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory, quiet: drt.WriterConfig) -> Path:
    """The folder of a cache of ``rows_of(100)``, written once a run; tests that change files take a copy."""
    import datasetrt as drt
    from tests.rows import RowSource, rows_of

    root = tmp_path_factory.mktemp("tiny")
    return Path(drt.write_cache(RowSource("tiny", rows_of(100)), root, config=quiet).path)


@pytest.fixture
def tiny(tiny_folder: Path) -> drt.CachedDataset:
    """A freshly opened dataset of ``rows_of(100)``."""
    import datasetrt as drt

    return drt.open_dataset(tiny_folder)
