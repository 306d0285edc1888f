"""How the samples of a batch become columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import datasetrt as drt

from ._arrays import aligned, aligned_empty
from ._dtypes import DtypePolicy, check_numeric, narrowed
from ._errors import StaticShapeError, invalid
from ._spec import Batch

#: A codec, or a function of a sample that returns a dict of arrays (or one array, which is called "data").
Decode: TypeAlias = drt.codecs.Codec[Any] | Callable[[drt.CachedSample], Any]

#: The name of what has none: an array that decode returns, or payloads that are not decoded.
DATA = "data"


@dataclass(frozen=True)
class Columns:
    """Makes columns of samples.

    Args:
        decode: How a payload is unpacked; None gives its bytes.
        columns: Metadata columns that become part of the batch.
        host_columns: Columns that are not for devices: text and objects are allowed.
        pad_to: Shapes to which arrays of a sample are filled up with zeros.
        policy: ``"jax"`` for 32 bits where values fit; ``"keep"`` for the dtypes as they are.
    """

    decode: Decode | None
    columns: tuple[str, ...]
    host_columns: tuple[str, ...]
    pad_to: Mapping[str, tuple[int, ...]]
    policy: DtypePolicy

    def __call__(self, batch: drt.SampleBatch) -> Batch:
        """The columns of a batch: numbers of one shape a column, aligned and writable."""
        found = self._decoded(batch)
        for name in self._metadata_names():
            if name in found:
                raise invalid(f"{name!r} is a metadata column, and decode returns it too; give one of the two")
            found[name] = _stored(name, batch)
        return {name: self._settled(name, column, batch) for name, column in found.items()}

    def _metadata_names(self) -> list[str]:
        # A host column may as well come from decode.
        return [*self.columns, *(name for name in self.host_columns if name in self._stored_names)]

    @property
    def _stored_names(self) -> frozenset[str]:
        return frozenset()

    def _settled(self, name: str, column: npt.NDArray[Any], batch: drt.SampleBatch) -> npt.NDArray[Any]:
        if name in self.host_columns:
            return column
        check_numeric(name, column)
        if self.policy == "keep":
            return aligned(column)
        return narrowed(name, column, lambda row: sample_name(batch, row))
