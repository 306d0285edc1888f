"""The TensorFlow adapter of datasetrt: this release holds its version and says so when asked for more."""

from typing import NoReturn

__version__ = "0.1.0"

__all__ = ["__version__"]

_PLANNED = frozenset({"dataset", "raw", "distributed", "fit_args", "cursor"})


def __getattr__(name: str) -> NoReturn:
    if name in _PLANNED:
        # ImportError, because `from datasetrt_tf import …` replaces the text of an AttributeError.
        raise ImportError(
            f"datasetrt-tf {__version__} does not contain {name} yet; "
            "datasetrt's own loader works today: dataset.loader(batch_size=...) yields NumPy batches",
            name=__name__,
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
