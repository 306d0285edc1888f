"""Feeds TensorFlow and Keras from a datasetrt cache, in the core's own order and with the loader's own state.

:func:`dataset` gives decoded batches, :func:`raw` payloads to decode in the graph, :func:`distributed` one
pipeline for each worker of a strategy, :func:`fit_args` what ``model.fit`` takes, :func:`cursor` the state to
save beside a model. Importing this package imports neither TensorFlow nor Keras; using it does.
"""

from datasetrt import installation

__version__ = "0.1.0"

installation.check_release("datasetrt-tf", __version__)

from ._distribution import distributed  # noqa: E402 - after the check: an older core may lack what these need
from ._fit import FitArgs, fit_args  # noqa: E402
from ._pipeline import dataset, raw  # noqa: E402
from ._place import cursor  # noqa: E402

__all__ = ["FitArgs", "__version__", "cursor", "dataset", "distributed", "fit_args", "raw"]
