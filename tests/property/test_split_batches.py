"""Batches that are read in columns hold what whole payloads hold, whatever is asked of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import datasetrt as drt

DTYPES = ("bool", "uint8", "int16", "float32", "float64", "complex128", "S3")
FIELDS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 5), max_size=3).map(tuple)),
    min_size=1,
)


class _Whole:
    """A codec whose batches are read as whole payloads: the twin of the fast path."""

    def __init__(self, codec: drt.codecs.Record) -> None:
        self.codec = codec
        self.name, self.dumps, self.loads = codec.name, codec.dumps, codec.loads

    def loads_batch(self, batch: drt.SampleBatch, /) -> dict[str, Any]:
        return self.codec._columns_of_rows(batch.as_array(np.uint8, (self.codec.size,)))


class _Untouched:
    """A codec that asks for columns and hands the batch out."""

    def __init__(self, codec: drt.codecs.Record) -> None:
        self.column_widths = codec.column_widths
        self.name, self.dumps, self.loads = codec.name, codec.dumps, codec.loads

    def loads_batch(self, batch: drt.SampleBatch, /) -> drt.SampleBatch:
        return batch


def _written(root: Path, codec: drt.codecs.Record, count: int, compression: Any) -> drt.CachedDataset:
    rng = np.random.default_rng(count)
    layout = codec.dtype.fields or {}

    def payload() -> bytes:
        # Bytes between fields are not all zero: they come back too.
        data = bytearray(rng.bytes(codec.size) if count % 2 else bytes(codec.size))
        for spec in layout.values():
            if spec[0].base.kind == "b":
                column = np.ndarray(spec[0].shape, "u1", data, spec[1])
                column[...] = rng.integers(0, 2, spec[0].shape)
        return bytes(data)

    class Source:
        name = "records"

        def __init__(self) -> None:
            self.codec = codec

        def __iter__(self) -> Any:
            return (drt.CacheInput(payload(), {"n": n}) for n in range(count))

    config = drt.WriterConfig(compression=compression, progress=False)
    drt.write_cache(Source(), root, config=config)
    return drt.open_dataset(root / "records")


@settings(max_examples=60, deadline=None)
@given(
    FIELDS,
    st.integers(1, 40),
    st.sampled_from(["none", "lz4", "zstd", "zstd-dictionary"]),
    st.integers(1, 12),
)
def test_columns_are_those_of_the_twin(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any], count: int, compression: str, size: int
) -> None:
    codec = drt.codecs.Record(fields)
    ds = _written(tmp_path_factory.mktemp("split"), codec, count, compression)
    order = drt.Shuffle(seed=count)
    fast = list(ds.loader(batch_size=size, sampler=order, transform=codec))
    plain = list(ds.loader(batch_size=size, sampler=order, transform=_Whole(codec)))
    assert len(fast) == len(plain)
    for left, right in zip(fast, plain, strict=True):
        assert left.keys() == right.keys()
        for name, column in left.items():
            assert column.dtype == right[name].dtype
            assert column.tobytes() == right[name].tobytes()
            assert column.shape == right[name].shape
            assert column.flags.writeable
            assert column.flags.c_contiguous
            assert column.ctypes.data % 64 == 0


@settings(max_examples=40, deadline=None)
@given(FIELDS, st.integers(1, 20), st.sampled_from(["none", "zstd"]))
def test_a_batch_in_columns_answers_like_any_other(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any], count: int, compression: str
) -> None:
    codec = drt.codecs.Record(fields)
    ds = _written(tmp_path_factory.mktemp("split"), codec, count, compression)
    [split] = ds.loader(batch_size=count, transform=_Untouched(codec))
    plain = ds.take(range(count))
    assert [bytes(p) for p in split.payloads] == [bytes(p) for p in plain.payloads]
    assert bytes(split.buffer) == bytes(plain.buffer)
    assert split.offsets.tolist() == plain.offsets.tolist()
    assert split.lengths.tolist() == plain.lengths.tolist()
    assert split.as_array("u1", (codec.size,)).tolist() == plain.as_array("u1", (codec.size,)).tolist()
    assert list(split) == list(plain)
    assert split[-1] == plain[-1]
    halves = [1, codec.size - 1] if codec.size > 1 else [1]
    assert list(map(bytes, split.split(halves))) == list(map(bytes, plain.split(halves)))
    widths = codec.column_widths
    assert widths is not None
    assert list(map(bytes, split.split(widths))) == list(map(bytes, plain.split(widths)))


def test_widths_that_do_not_fit_are_refused() -> None:
    batch = drt.testing.tiny_dataset().take([0, 1])
    for widths in ([], [0], [7], [4, 5], [-1], [2**70], [1.5], None, 8, [1] * 257):
        with pytest.raises(drt.InvalidInputError):
            batch.split(widths)  # type: ignore[arg-type]
    with pytest.raises(drt.InvalidInputError, match="9 bytes, the payloads have 8 bytes"):
        batch.split([4, 5])


def test_a_damaged_record_is_found_in_columns_too(tmp_path: Path) -> None:
    codec = drt.codecs.Record({"x": ("uint8", (100,)), "y": ("float64", ())})
    ds = _written(tmp_path, codec, 11, "none")
    shard = tmp_path / "records" / "shards" / "000000.bin"
    content = bytearray(shard.read_bytes())
    at = content.index(ds[6].data) + 50
    content[at] ^= 1
    shard.write_bytes(content)
    with pytest.raises(drt.CorruptionError, match="sample 6"):
        list(ds.loader(batch_size=4, transform=codec))
    replaced = list(ds.loader(batch_size=11, transform=codec, on_corrupt="substitute"))
    assert len(replaced[0]["x"]) == 11


def test_payloads_of_another_size_are_the_codecs_to_refuse(tmp_path: Path) -> None:
    class Source:
        name = "sizes"

        def __iter__(self) -> Any:
            return (drt.CacheInput(b"12345678"[:n], {}) for n in (8, 8, 7))

    drt.write_cache(Source(), tmp_path, config=drt.WriterConfig(progress=False))
    ds = drt.open_dataset(tmp_path / "sizes")
    codec = drt.codecs.Record({"x": ("float64", ())})
    with pytest.raises(drt.CodecError, match="7 bytes"):
        list(ds.loader(batch_size=3, transform=codec))


def test_more_fields_than_can_be_cut_decode_all_the_same(tmp_path: Path) -> None:
    codec = drt.codecs.Record({f"f{n}": ("uint8", ()) for n in range(300)})
    assert codec.column_widths is None
    ds = _written(tmp_path, codec, 3, "none")
    [batch] = ds.loader(batch_size=3, transform=codec)
    assert [batch[f"f{n}"].tolist() for n in (0, 299)] == [
        [sample.data[n] for sample in ds] for n in (0, 299)
    ]


def test_no_rows_have_no_columns() -> None:
    codec = drt.codecs.Record({"x": ("uint8", (8,))})
    assert codec.loads_batch(drt.testing.tiny_dataset().take([]))["x"].shape == (0, 8)
