"""Feeds PyTorch from a datasetrt cache, in exactly the order of its samplers.

:class:`NativeLoader` reads in this process with native threads and gives finished batches of tensors.
:class:`TorchDataset`, :class:`EpochSampler` and :func:`make_dataloader` are for ``torch.utils.data``, and for
what is built on it. :class:`ShardSpec` says which rank this process is; :func:`collate` makes batches.
"""

from datasetrt import installation

__version__ = "0.1.0"

# Before anything that needs them, so that the error is about what is missing and not about a name in it.
installation.check_release("datasetrt-torch", __version__)
installation.import_package("torch", user="datasetrt_torch", at_least="2.6")

from ._collate import collate  # noqa: E402
from ._dataloader import make_dataloader  # noqa: E402
from ._dataset import TorchDataset  # noqa: E402
from ._native import NativeLoader  # noqa: E402
from ._sampler import EpochSampler  # noqa: E402
from ._shards import ShardSpec  # noqa: E402

__all__ = [
    "EpochSampler",
    "NativeLoader",
    "ShardSpec",
    "TorchDataset",
    "__version__",
    "collate",
    "make_dataloader",
]
