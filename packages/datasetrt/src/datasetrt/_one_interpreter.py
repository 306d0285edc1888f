"""Says what is wrong in a second interpreter of the process: NumPy refuses it without a word about that."""

from __future__ import annotations

try:
    import numpy as np  # noqa: F401
except ImportError as error:
    if "more than once per process" not in str(error):
        raise
    raise ImportError(
        "datasetrt is loaded in another interpreter of this process, and works in one only; "
        "use processes or threads instead of subinterpreters"
    ) from error
