"""Feeds JAX from a datasetrt cache: NumPy batches, global arrays on devices, and sources for grain.

:func:`batches` yields dicts of NumPy arrays, and this package imports NumPy alone; :func:`device_batches`
puts them on devices as global arrays, and is the one function that needs JAX. :class:`GrainSource` and
:class:`GrainBatchSource` are data sources for grain. A saved state is that of datasetrt's own loader.
"""

from datasetrt import installation

__version__ = "0.1.0"

installation.check_release("datasetrt-jax", __version__)

from ._batches import BatchIterator, batches  # noqa: E402 - a core of another release is named first
from ._device import DeviceIterator, device_batches  # noqa: E402
from ._errors import ClosedError, NarrowingError, ShardingError, StaticShapeError  # noqa: E402
from ._grain import GrainBatchSource, GrainSource  # noqa: E402
from ._spec import ShapeDtype  # noqa: E402

__all__ = [
    "BatchIterator",
    "ClosedError",
    "DeviceIterator",
    "GrainBatchSource",
    "GrainSource",
    "NarrowingError",
    "ShapeDtype",
    "ShardingError",
    "StaticShapeError",
    "__version__",
    "batches",
    "device_batches",
]
