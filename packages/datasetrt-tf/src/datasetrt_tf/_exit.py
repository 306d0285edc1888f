"""The end of a process whose pipelines are still being read ahead.

At its end Python takes apart what is left, iterators of TensorFlow too, and each of them waits for the calls
that are under way. A call that waits for Python by then never gets it: CPython ends its thread, or stops it
for ever, and the process would not end. So what such iterators hold is kept, and goes with the process.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
from functools import cache


@cache
def keep_iterators() -> None:
    """Have iterators kept at the end of this process; once is enough."""
    atexit.register(_keep_resources)


def _keep_resources() -> None:
    import tensorflow as tf

    found = gc.get_objects()
    tensors = {kind for kind in set(map(type, found)) if issubclass(kind, tf.Tensor)}
    for thing in found:
        if type(thing) in tensors and thing.dtype == tf.resource:
            # One reference more than anybody gives back.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
