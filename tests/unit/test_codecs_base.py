"""What holds for every codec: a value with a name, that takes any buffer and refuses in one line."""

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import datasetrt as drt
from datasetrt import codecs
from tests.rows import RowSource

FIELDS: dict[str, Any] = {"x": ("float32", (2, 3)), "id": ("int64", ())}
RECORD = {"x": np.ones((2, 3), np.float32), "id": np.int64(7)}
# One codec of each kind with something that it packs.
SAMPLES: dict[str, tuple[Any, Any]] = {
    "dill": (codecs.Dill(trust=True), {"a": 1}),
    "json": (codecs.Json(), {"a": 1}),
    "msgpack": (codecs.Msgpack(), {"a": 1}),
    "npy": (codecs.Npy(), np.arange(6)),
    "pickle": (codecs.Pickle(trust=True), {"a": 1}),
    "pickle-allow": (codecs.Pickle(allow=["numpy", "fractions.Fraction"]), {"a": 1}),
    "pickle-oob": (codecs.PickleOOB(allow="numpy"), {"a": np.arange(3)}),
    "record": (codecs.Record(FIELDS), RECORD),
    "validated": (codecs.Validated(codecs.Json(), dict[str, int]), {"a": 1}),
}
ALL = pytest.mark.parametrize(("codec", "sample"), SAMPLES.values(), ids=list(SAMPLES))


def same(left: Any, right: Any) -> bool:
    """Whether two decoded values are equal, arrays in dicts included."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(np.array_equal(left, right))


@ALL
def test_a_codec_is_a_value(codec: Any, sample: Any) -> None:
    assert isinstance(codec, codecs.Codec)
    twin = pickle.loads(pickle.dumps(codec))
    assert twin is not codec
    assert twin == codec
    assert hash(twin) == hash(codec)
    assert repr(twin) == repr(codec)
    assert twin.name == codec.name
    assert copy.deepcopy(codec) == codec
    assert codec != object()
    for attribute in ("name", "trust", "anything"):
        with pytest.raises(AttributeError):
            setattr(codec, attribute, "x")
    assert same(twin.loads(codec.dumps(sample)), sample)


def test_all_kinds_differ() -> None:
    assert len({codec for codec, _ in SAMPLES.values()}) == len(SAMPLES)


@ALL
def test_any_contiguous_buffer_is_read(codec: Any, sample: Any) -> None:
    payload = codec.dumps(sample)
    assert type(payload) is bytes
    buffers = [
        payload,
        bytearray(payload),
        memoryview(payload),
        memoryview(b"xxx" + payload)[3:],
        np.frombuffer(payload, np.uint8),
        np.frombuffer(payload, np.dtype((np.void, len(payload)))),
    ]
    assert all(same(codec.loads(buffer), sample) for buffer in buffers)


@ALL
def test_what_is_no_buffer_is_refused(codec: Any, sample: Any) -> None:
    payload = codec.dumps(sample)
    spaced = np.repeat(np.frombuffer(payload, np.uint8), 2)[::2]
    stored = SimpleNamespace(sample_id=3, data=payload)
    for buffer, cure in (
        (None, "give bytes"),
        ("text", "give bytes"),
        (stored, "sample.data"),
        (spaced, "bytes("),
    ):
        with pytest.raises(drt.CodecError) as caught:
            codec.loads(buffer)
        assert caught.value.kind == "decode"
        assert cure in str(caught.value)


@ALL
def test_damage_is_refused_in_one_line(codec: Any, sample: Any) -> None:
    payload = codec.dumps(sample)
    noise = b"\xff" * (len(payload) + 1)
    for damaged in (b"", payload[:-1], payload + b"\0", noise):
        with pytest.raises(drt.CodecError) as caught:
            codec.loads(damaged)
        assert caught.value.kind in ("decode", "layout")
        assert "\n" not in str(caught.value)
        assert "payload" in str(caught.value) or "the pickle" in str(caught.value)


def test_only_some_codecs_decode_whole_batches() -> None:
    batched = {name for name, (codec, _) in SAMPLES.items() if isinstance(codec, codecs.BatchCodec)}
    assert batched == {"npy", "pickle-oob", "record"}


def test_a_codec_needs_no_base_class() -> None:
    class Own:
        name = "own"

        def dumps(self, obj: str) -> bytes:
            return obj.encode()

        def loads(self, buffer: Any) -> str:
            return bytes(buffer).decode()

    assert isinstance(Own(), codecs.Codec)
    assert not isinstance(Own(), codecs.BatchCodec)
    assert not isinstance("json", codecs.Codec)


@pytest.mark.parametrize("written", [None, "json"])
def test_the_right_codec_passes(written: str | None) -> None:
    codecs.check(SimpleNamespace(codec=written), codecs.Json())


def test_another_codec_is_refused_by_both_names() -> None:
    other = codecs.Record({"x": ("float64", (2, 3))})
    for codec, written in ((codecs.Json(), "npy"), (other, codecs.Record(FIELDS).name)):
        with pytest.raises(drt.CodecError) as caught:
            codecs.check(SimpleNamespace(codec=written), codec)
        assert caught.value.kind == "codec-mismatch"
        assert repr(written) in str(caught.value)
        assert repr(codec.name) in str(caught.value)


@pytest.mark.parametrize(
    ("module", "codec"), [("dill", codecs.Dill(trust=True)), ("msgpack", codecs.Msgpack())]
)
def test_a_missing_package_names_the_line_to_install_it(
    module: str, codec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = codec.dumps({"a": 1})
    monkeypatch.setitem(__import__("sys").modules, module, None)
    for use in (lambda: codec.dumps({"a": 1}), lambda: codec.loads(payload)):
        with pytest.raises(drt.CodecError) as caught:
            use()
        assert caught.value.kind == "missing-dependency"
        assert f"pip install 'datasetrt[{module}]'" in str(caught.value)


def test_caches_with_different_codecs_are_decoded_by_neither(tmp_path: Path, quiet: drt.WriterConfig) -> None:
    records = [codecs.Record({"x": (kind, (1,))}) for kind in ("float32", "int32")]
    folders = []
    for number, codec in enumerate(records):
        source = RowSource(f"s{number}", [(codec.dumps({"x": np.zeros(1, codec.dtype["x"].base)}), {})])
        source.codec = codec  # type: ignore[attr-defined]
        folders.append(drt.write_cache(source, tmp_path, config=quiet).path)
    both = drt.open_dataset(folders)
    for codec in records:
        with pytest.raises(drt.CodecError) as caught:
            both.loader(batch_size=1, transform=codec)
        assert caught.value.kind == "codec-mismatch"


@pytest.mark.parametrize("kind", [drt.codecs.Json, drt.codecs.Record])
def test_the_class_of_a_codec_is_no_codec(kind: Any) -> None:
    for ds in (drt.testing.tiny_dataset(), SimpleNamespace(codec="json")):
        with pytest.raises(drt.InvalidInputError, match=rf"{kind.__name__}'> is the class of a codec"):
            drt.codecs.check(ds, kind)


class UnspeakableError(ValueError):
    def __str__(self) -> str:
        raise KeyError("no text")


class Refusing:
    def __reduce__(self) -> Any:
        raise UnspeakableError


class RefusingState:
    def __init__(self) -> None:
        self.state = 1

    def __setstate__(self, state: object) -> None:
        raise UnspeakableError


@pytest.mark.parametrize("codec", [drt.codecs.Pickle(trust=True), drt.codecs.PickleOOB(trust=True)])
def test_an_exception_that_cannot_say_what_it_is_stays_the_cause(codec: Any) -> None:
    with pytest.raises(drt.CodecError, match="UnspeakableError") as refused:
        codec.dumps(Refusing())
    assert isinstance(refused.value.__cause__, UnspeakableError)
    with pytest.raises(drt.CodecError, match="UnspeakableError") as refused:
        codec.loads(codec.dumps(RefusingState()))
    assert isinstance(refused.value.__cause__, UnspeakableError)


def test_buffers_that_cannot_be_had_are_no_payloads() -> None:
    released = memoryview(b"x")
    released.release()
    for buffer in (released, np.zeros(1, "M8[s]")):
        with pytest.raises(drt.CodecError, match="a payload cannot be"):
            drt.codecs.Json().loads(buffer)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", [None, 5, "npy", object()])
def test_what_is_no_codec_is_refused(codec: Any) -> None:
    with pytest.raises(drt.InvalidInputError, match="give a codec"):
        drt.codecs.check(drt.testing.tiny_dataset(), codec)
