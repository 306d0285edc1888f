"""Columns as TensorFlow declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from datasetrt.wording import a_type

from ._columns import Array, Column, Ragged
from ._decoding import Layout
from ._order import invalid

if TYPE_CHECKING:
    import tensorflow as tf


def declared(tf: Any, layout: Layout, signature: Mapping[str, Any] | None, rows: int | None) -> Layout:
    """The layout with the dtypes and shapes that the user declares for some columns.

    Args:
        tf: The module ``tensorflow``.
        layout: What the first row shows.
        signature: Name to the spec of a whole batch, ``tf.TensorSpec`` or ``tf.RaggedTensorSpec``.
        rows: Samples of every batch; None where their number differs.

    Raises:
        InvalidInputError: A column is not known, or a spec is none of these.
    """
    if signature is None:
        return layout
    if not isinstance(signature, Mapping):
        raise invalid(f"signature is {a_type(signature)}; give a dict of column name to spec")
    for name in signature:
        if layout.column(name) is None:
            known = ", ".join(repr(column.name) for column in layout.columns)
            raise invalid(f"signature names {name!r}, which is no column; there are {known}")
    columns = [
        _declared(tf, column, signature[column.name], rows) if column.name in signature else column
        for column in layout.columns
    ]
    return replace(layout, columns=tuple(columns))


def spec_of(tf: Any, column: Column, rows: int | None) -> tf.TypeSpec:
    """The spec of a column in a batch of ``rows`` samples; None where their number differs."""
    dtype = tf.string if column.is_text else tf.as_dtype(column.dtype)
    if column.ragged:
        return tf.RaggedTensorSpec((rows, *column.shape), dtype, ragged_rank=1, row_splits_dtype=tf.int64)
    return tf.TensorSpec((rows, *column.shape), dtype)


def check_supported(tf: Any, columns: tuple[Column, ...]) -> None:
    """Refuse numbers that TensorFlow has no dtype for.

    Raises:
        CodecError: Names the column.
    """
    for column in columns:
        try:
            spec_of(tf, column, None)
        except TypeError as error:
            raise column.bad(f"dtype {column.dtype}, which TensorFlow does not have; convert it") from error


def flat(columns: tuple[Column, ...], batch: Mapping[str, Array | Ragged]) -> list[Array]:
    """The arrays of a batch one after the other, two for a ragged column."""
    arrays: list[Array] = []
    for column in columns:
        values = batch[column.name]
        arrays += values if isinstance(values, Ragged) else [values]
    return arrays


def flat_dtypes(tf: Any, columns: tuple[Column, ...]) -> list[Any]:
    """The dtypes of what :func:`flat` gives."""
    dtypes = []
    for column in columns:
        dtypes.append(tf.string if column.is_text else tf.as_dtype(column.dtype))
        dtypes += [tf.int64] if column.ragged else []
    return dtypes


def tensors(tf: Any, columns: tuple[Column, ...], arrays: list[Any], rows: int | None) -> dict[str, Any]:
    """The tensors that :func:`flat` became, by name, with the shapes that are known."""
    ahead = iter(arrays)
    named = {}
    for column in columns:
        tensor = next(ahead)
        if column.ragged:
            tensor.set_shape((None, *column.shape[1:]))
            splits = next(ahead)
            splits.set_shape((None if rows is None else rows + 1,))
            named[column.name] = tf.RaggedTensor.from_row_splits(tensor, splits, validate=False)
        else:
            tensor.set_shape((rows, *column.shape))
            named[column.name] = tensor
    return named


def _declared(tf: Any, column: Column, spec: Any, rows: int | None) -> Column:
    ragged = isinstance(spec, tf.RaggedTensorSpec)
    if not ragged and not isinstance(spec, tf.TensorSpec):
        raise invalid(
            f"signature[{column.name!r}] is {a_type(spec)}; give a tf.TensorSpec or a tf.RaggedTensorSpec"
        )
    shape = spec.shape
    if shape.rank is None or shape.rank < 1 + ragged or (ragged and spec.ragged_rank != 1):
        raise invalid(
            f"signature[{column.name!r}] has the shape {shape}; give that of a batch, the first length being "
            "the number of samples" + (", with ragged_rank=1" if ragged else "")
        )
    if shape[0] not in (None, rows):
        raise invalid(
            f"signature[{column.name!r}] has batches of {shape[0]} samples, and they have "
            f"{'any number' if rows is None else rows}; give {rows} there, or tail='drop' or 'pad'"
        )
    dtype = np.dtype(object) if spec.dtype == tf.string else np.dtype(spec.dtype.as_numpy_dtype)
    if (dtype.kind == "O") != column.is_text:
        found = "text" if column.is_text else f"numbers of dtype {column.dtype}"
        raise invalid(
            f"signature[{column.name!r}] wants {spec.dtype.name}, and column {column.name!r} has {found}; "
            "convert it in decode"
        )
    return Column(column.name, dtype, tuple(shape.as_list()[1:]), ragged)
