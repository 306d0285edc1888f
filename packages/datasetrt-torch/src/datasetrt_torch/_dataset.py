"""A cache as a map-style dataset of PyTorch."""

from __future__ import annotations

import multiprocessing.context
from collections.abc import Mapping, Sequence
from typing import Any, Literal, SupportsIndex, TypeVar, cast, overload

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

import datasetrt as drt

from ._checks import choice, invalid
from ._decode import Decode, Source, decoding, opened
from ._marked import UNMARKED, marks_of
from ._tensors import Float64
from ._workers import refuse_unpicklable

T_co = TypeVar("T_co", covariant=True)


class TorchDataset(Dataset[T_co]):
    """A map-style dataset over a cache: for DataLoader, samplers of others, Trainer, and the like.

    Has no state, and decides no order. Reads whole batches where the DataLoader asks for them, which it does
    by itself. Pickles as the decoder and a recipe of some hundred bytes (a filtered view's also has its row
    numbers), so that it works in workers however they are started; a worker opens the files when it is first
    asked.

    A damaged sample is an error: what is read by its row has no substitute. `NativeLoader` can put others in
    their place, and mark them.

    To select, weight or reorder rows, do so with the `CachedDataset`, and wrap the result.

    Args:
        source: A dataset, or the path of a cache.
        decode: A codec, or a function of a `CachedSample`; None takes the dataset's transform. Without
            either, samples are `CachedSample`, and batches of columns have the payloads as ``"data"``, uint8
            of shape (n, bytes), if all have one size.
        output: What a batch is: ``"samples"``, a list of what ``decode`` gives; or ``"columns"``, tensors,
            made at once where the codec can, which `collate` lets pass. One sample is the same with both.
        columns: Metadata columns to put beside what ``decode`` gives, which is a dict then.
        include_index: The name under which the row number is put there too.
        float64: ``"float32"`` narrows float64 tensors in batches of columns.
        fill: What stands for missing values, by column.
        seeded: Call ``decode(sample, seed)``, with the seed that the core's loader gives with
            ``seeded=True``: a function of the sampler's seed, the epoch and the position, whatever the
            number of workers and ranks.
        mask_key: The name under which each sample says whether it is real: False where a sampler repeats it
            so that all ranks get equally many. ``decode`` gives a dict then.

    With ``seeded`` or ``mask_key``, indices have to be those of an `EpochSampler` that was made for this
    dataset, as in `make_dataloader`: others do not say where they stand in the order, and are refused.

    Raises:
        InvalidInputError: An argument breaks a rule, there is no such column, or it cannot be a tensor.
        CodecError: The payloads were packed by another codec.
        DatasetRTError: The cache cannot be opened, as `datasetrt.open_dataset`.

    Example:
        >>> import datasetrt as drt, datasetrt_torch as drtt
        >>> def decode(sample):
        ...     return {"label": sample.metadata["label"]}
        >>> dataset = drtt.TorchDataset(drt.testing.tiny_dataset(), decode=decode)
        >>> len(dataset), dataset[3], dataset[-1]
        (10, {'label': 3}, {'label': 9})
        >>> loader = torch.utils.data.DataLoader(dataset, batch_size=4)
        >>> next(iter(loader))["label"]
        tensor([0, 1, 2, 3])
    """

    def __init__(
        self,
        source: Source,
        *,
        decode: Decode | None = None,
        output: Literal["samples", "columns"] = "samples",
        columns: Sequence[str] = (),
        include_index: str | None = None,
        float64: Float64 = "keep",
        fill: Mapping[str, Any] | None = None,
        seeded: bool = False,
        mask_key: str | None = None,
    ) -> None:
        choice("output", output, ("samples", "columns"))
        self._dataset, decode = opened(source, decode, seeded=seeded)
        self._output = output
        self._decoding = decoding(
            self._dataset,
            decode,
            columns,
            include_index,
            float64,
            fill,
            tensors=output == "columns",
            seeded=seeded,
            mask_key=mask_key,
        )
        if decode is None and output == "samples" and self._decoding.adds:
            raise invalid(
                "columns=, include_index= and mask_key= need decode= or output='columns'; without them "
                "samples are CachedSample"
            )

    @property
    def dataset(self) -> drt.CachedDataset:
        """The rows that are read, without a transform.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> ds = drt.testing.tiny_dataset()
            >>> drtt.TorchDataset(ds).dataset is ds
            True
        """
        return self._dataset

    @property
    def decode(self) -> Decode | None:
        """What unpacks a sample: what was given, or the dataset's transform.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> drtt.TorchDataset(drt.testing.tiny_dataset(), decode=drt.codecs.Json()).decode
            Json()
        """
        return self._decoding.decode

    @property
    def needs_marks(self) -> bool:
        """Whether indices have to say where they stand in the order: with ``seeded`` and ``mask_key``.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> drtt.TorchDataset(drt.testing.tiny_dataset()).needs_marks
            False
        """
        return self._decoding.needs_marks

    def __len__(self) -> int:
        return len(self._dataset)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T_co: ...
    @overload
    def __getitem__(self, index: Sequence[int] | Tensor) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        """One sample; or a batch, for a sequence of indices, as a DataLoader with ``batch_size=None`` asks.

        Args:
            index: Row of the active table, negative ones count from the end; or a sequence, array or tensor.

        Raises:
            SampleIndexError: There is no such row.
            CorruptionError: A payload does not match its checksum.

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> ds = drt.testing.tiny_dataset()
            >>> dataset = drtt.TorchDataset(ds, decode=lambda sample: sample.sample_id)
            >>> dataset[-1], dataset[[1, 3]]
            (9, [1, 3])
        """
        if isinstance(index, Sequence) or len(getattr(index, "shape", ())) > 0:
            return self.__getitems__(index)
        if isinstance(index, slice):
            raise invalid(f"a slice of a TorchDataset is no batch; wrap dataset.dataset[{_slice(index)}]")
        marks = marks_of([index]) if self.needs_marks else UNMARKED
        # Not int(), which makes a row number of 2.7 too.
        row: Any = index.item() if isinstance(index, Tensor) else index
        sample = self._dataset[row]
        return self._decoding.sample(sample, int(row) % len(self._dataset), marks)

    def __getitems__(self, indices: Sequence[int] | Tensor) -> Any:
        """A batch: a list of samples, or columns.

        Args:
            indices: Rows of the active table: a sequence, or a tensor of shape (n,).

        Example:
            >>> import datasetrt as drt, datasetrt_torch as drtt
            >>> dataset = drtt.TorchDataset(drt.testing.tiny_dataset(), output="columns", columns=["label"])
            >>> dataset.__getitems__([1, 3])["label"]
            tensor([1, 3])
        """
        rows = cast(Sequence[int], np.asarray(indices)) if isinstance(indices, Tensor) else indices
        marks = marks_of(indices) if self.needs_marks else UNMARKED  # type: ignore[arg-type]
        batch = self._dataset.take(rows)
        make = self._decoding.batch if self._output == "columns" else self._decoding.samples
        return make(batch, marks)

    def __getstate__(self) -> dict[str, Any]:
        # For a worker that is just being started; others, such as cloudpickle, may send what pickle cannot.
        if multiprocessing.context.get_spawning_popen() is not None:
            refuse_unpicklable({"decode": self.decode})
        return self.__dict__

    def __repr__(self) -> str:
        return f"TorchDataset({self._dataset!r}, decode={self.decode!r}, output={self._output!r})"


def _slice(index: slice) -> str:
    parts = ["" if part is None else str(part) for part in (index.start, index.stop)]
    return ":".join(parts if index.step is None else [*parts, str(index.step)])
