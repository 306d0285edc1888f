"""Preprocess a training set once, then read it in an order that can be resumed exactly.

Writing: :func:`cache`, :func:`write_cache`, :class:`MapSource`. Reading: :func:`open_dataset`,
:func:`verify_cache`,
:class:`CachedDataset`. Order: :class:`Shuffle` and others. Loading: :meth:`CachedDataset.loader`. Packing
and unpacking of payloads: :mod:`datasetrt.codecs`. For tests of code that uses it: :mod:`datasetrt.testing`.

``datasetrt.torch``, ``datasetrt.jax`` and ``datasetrt.tf`` are the packages ``datasetrt_torch``,
``datasetrt_jax`` and ``datasetrt_tf``, imported when they are asked for. For authors of such packages:
:mod:`datasetrt.installation` and :mod:`datasetrt.wording`.
"""

from typing import TYPE_CHECKING  # noqa: I001

# Before anything else that imports NumPy.
from . import _one_interpreter  # noqa: F401
from . import codecs, installation, testing, wording
from ._core import BatchInfo, BatchPlan, CachedSample, SampleBatch
from ._core import version as __version__
from .config import ReaderConfig, WriterConfig
from .dataset import CachedDataset
from .errors import (
    CacheExistsError,
    CacheNotFoundError,
    CodecError,
    CorruptionError,
    DatasetRTError,
    FormatError,
    InstallationError,
    InvalidInputError,
    SampleIndexError,
    StaleCacheError,
    StateError,
    StorageError,
)
from .figures import LoaderStats
from .leftovers import clean
from .loader import Loader
from .loop import LoaderIterator
from .opening import open_dataset, verify_cache
from .progress import Progress
from .reports import (
    AuditedGlobal,
    AuditReport,
    CacheInfo,
    CacheReport,
    CleanReport,
    Leftover,
    Problem,
    VerifyReport,
)
from .sampler import BlockShuffle, Sampler, Sequential, Shard, Shuffle, Weighted
from .source import CacheInput, CacheSource, MapSource, MetadataValue
from .state import LoaderState
from .writer import cache, write_cache

if TYPE_CHECKING:
    from types import ModuleType

    # No more than that: the types of an adapter would bring those of its framework. Who wants them imports
    # the adapter by its own name.
    torch: ModuleType
    jax: ModuleType
    tf: ModuleType
else:
    from .adapters import __getattr__ as __getattr__  # unseen by type checkers: other names stay errors

__all__ = [
    "AuditReport",
    "AuditedGlobal",
    "BatchInfo",
    "BatchPlan",
    "BlockShuffle",
    "CacheExistsError",
    "CacheInfo",
    "CacheInput",
    "CacheNotFoundError",
    "CacheReport",
    "CacheSource",
    "CachedDataset",
    "CachedSample",
    "CleanReport",
    "CodecError",
    "CorruptionError",
    "DatasetRTError",
    "FormatError",
    "InstallationError",
    "InvalidInputError",
    "Leftover",
    "Loader",
    "LoaderIterator",
    "LoaderState",
    "LoaderStats",
    "MapSource",
    "MetadataValue",
    "Problem",
    "Progress",
    "ReaderConfig",
    "SampleBatch",
    "SampleIndexError",
    "Sampler",
    "Sequential",
    "Shard",
    "Shuffle",
    "StaleCacheError",
    "StateError",
    "StorageError",
    "VerifyReport",
    "Weighted",
    "WriterConfig",
    "__version__",
    "cache",
    "clean",
    "codecs",
    "installation",
    "open_dataset",
    "testing",
    "verify_cache",
    "wording",
    "write_cache",
]
