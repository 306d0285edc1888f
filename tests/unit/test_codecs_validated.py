"""Validated: another codec whose objects pydantic checks."""

import dataclasses
import datetime
import json
import pickle
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    TypeAdapter,
    ValidationError,
    field_validator,
    with_config,
)
from typing_extensions import TypedDict

import datasetrt as drt
from datasetrt.codecs import Json, Msgpack, Pickle, PickleOOB, Record, Validated


class Box(BaseModel):
    label: int
    corners: tuple[float, float] = (0.0, 0.0)
    seen: datetime.date | None = None


class Aliased(BaseModel):
    class_: Annotated[int, Field(alias="class")]


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@with_config(ConfigDict(arbitrary_types_allowed=True))
class Sample(TypedDict):
    image: InstanceOf[np.ndarray[Any, Any]]
    label: int


Positive = Annotated[int, Field(gt=0)]


def error_of(call: Any, *args: Any) -> drt.CodecError:
    with pytest.raises(drt.CodecError) as caught:
        call(*args)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("inner", [Json(), Msgpack(), Pickle(allow=[])], ids=["json", "msgpack", "pickle"])
def test_models_and_dataclasses_come_back_as_such(inner: Any) -> None:
    codec = Validated(inner, Point)
    assert codec.loads(codec.dumps(Point(1, 2))) == Point(1, 2)
    aliased = Validated(inner, Aliased)
    value = Aliased.model_validate({"class": 3})
    assert aliased.loads(aliased.dumps(value)) == value
    assert inner.loads(aliased.dumps(value)) == {"class": 3}


def test_json_gets_dates_and_tuples_in_its_own_spelling() -> None:
    codec = Validated(Json(), Box)
    value = Box(label=1, corners=(0.5, 1.0), seen=datetime.date(2020, 1, 2))
    assert codec.dumps(value) == b'{"label":1,"corners":[0.5,1.0],"seen":"2020-01-02"}'
    assert codec.loads(codec.dumps(value)) == value


@pytest.mark.parametrize("inner", [Pickle(allow="numpy"), PickleOOB(trust=True)], ids=["pickle", "oob"])
def test_arrays_pass_as_they_are(inner: Any) -> None:
    codec = Validated(inner, Sample)
    back = codec.loads(codec.dumps({"image": np.ones(3), "label": 2}))
    assert back["image"].tolist() == [1, 1, 1]
    assert back["label"] == 2


def test_records_may_be_checked_too() -> None:
    codec = Validated(
        Record({"image": ("u1", (2,)), "label": ("i8", ())}), dict[str, InstanceOf[np.ndarray[Any, Any]]]
    )
    back = codec.loads(codec.dumps({"image": np.zeros(2, np.uint8), "label": np.array(3)}))
    assert back["label"] == 3


def test_the_name_is_the_inner_codecs() -> None:
    assert Validated(Json(), Box).name == "json"
    record = Record({"x": ("f4", ())})
    assert Validated(record, dict[str, Any]).name == record.name


def test_what_is_not_of_the_type_is_refused_with_its_place() -> None:
    codec = Validated(Json(), Box)
    error = error_of(codec.loads, b'{"label":"x","corners":[0,1,2]}')
    assert error.kind == "decode"
    assert "label" in str(error)
    assert "valid integer" in str(error)
    assert "and 1 more" in str(error)
    assert "Box" in str(error)
    assert isinstance(error.__cause__, ValidationError)
    assert error.__cause__.error_count() == 2
    whole = error_of(Validated(Json(), Positive).loads, b"0")
    assert "greater than 0" in str(whole)


def test_objects_are_checked_before_they_are_packed() -> None:
    error = error_of(Validated(Json(), Box).dumps, {"label": "x"})
    assert error.kind == "encode"
    assert isinstance(error.__cause__, ValidationError)
    assert Validated(Json(), Box).dumps({"label": "7"}) == b'{"label":7,"corners":[0.0,0.0],"seen":null}'  # type: ignore[arg-type]


def test_checking_before_packing_may_be_left_out() -> None:
    codec = Validated(Json(), Positive, validate_on_dump=False)
    assert codec.dumps(-1) == b"-1"
    assert error_of(codec.loads, b"-1").kind == "decode"
    assert error_of(Validated(Json(), Positive).dumps, -1).kind == "encode"
    with pytest.raises(drt.InvalidInputError):
        Validated(Json(), Positive, validate_on_dump=1)  # type: ignore[arg-type]


def test_errors_of_the_inner_codec_pass() -> None:
    assert "JSON" in str(error_of(Validated(Json(), Any).loads, b"NaN"))
    assert error_of(Validated(Pickle(), Any).loads, b"").kind == "untrusted"
    assert error_of(Validated(Json(), Sample).dumps, {"image": np.ones(1), "label": 1}).kind == "encode"
    assert error_of(Validated(Msgpack(), Box).dumps, Box(label=1)).kind == "encode"


def test_an_adapter_or_its_type_make_the_same_codec() -> None:
    assert Validated(Json(), TypeAdapter(Box)) == Validated(Json(), Box)
    assert Validated(Json(), Box) != Validated(Json(), Point)
    assert Validated(Json(), Box) != Validated(Msgpack(), Box)
    assert Validated(Json(), Box) != Validated(Json(), Box, validate_on_dump=False)
    assert repr(Validated(Json(), Box)) == "Validated(Json(), Box, validate_on_dump=True)"


@pytest.mark.parametrize("kind", [Box, Point, Sample, list[Box], dict[str, int]], ids=range(5))
def test_a_codec_is_picklable_though_its_adapter_may_not_be(kind: Any) -> None:
    codec = Validated(Pickle(allow="numpy"), TypeAdapter(kind))
    twin = pickle.loads(pickle.dumps(codec))
    assert twin == codec
    assert hash(twin) == hash(codec)


def test_annotated_types_travel_too() -> None:
    twin = pickle.loads(pickle.dumps(Validated(Json(), Positive)))
    assert error_of(twin.loads, b"0").kind == "decode"


def test_an_adapter_alone_could_not_travel() -> None:
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        pickle.dumps(TypeAdapter(Sample))


def test_the_adapters_config_is_kept() -> None:
    codec = Validated(Json(), TypeAdapter(list[int], config=ConfigDict(strict=True)))
    for twin in (codec, pickle.loads(pickle.dumps(codec))):
        assert error_of(twin.loads, b'["1"]').kind == "decode"
    assert Validated(Json(), list[int]).loads(b'["1"]') == [1]
    assert codec != Validated(Json(), list[int])


@pytest.mark.parametrize("codec", [None, "json", Json, object()], ids=range(4))
def test_what_is_no_codec_is_refused(codec: Any) -> None:
    with pytest.raises(drt.InvalidInputError, match="no codec"):
        Validated(codec, Box)


def test_a_type_that_pydantic_does_not_know_is_refused() -> None:
    class Opaque:
        pass

    with pytest.raises(drt.InvalidInputError, match="no adapter") as caught:
        Validated(Json(), Opaque)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_an_adapter_that_hides_its_type_is_refused() -> None:
    adapter = TypeAdapter(int)
    adapter._type = None
    with pytest.raises(drt.InvalidInputError, match="give the type"):
        Validated(Json(), adapter)


def test_it_is_immutable() -> None:
    codec = Validated(Json(), Box)
    with pytest.raises(AttributeError, match="immutable"):
        codec._codec = Msgpack()  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        del codec._codec


class Fussy(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def refuse_seven(cls, value: int) -> int:
        if value == 7:
            raise KeyError("seven")
        return value


def test_what_a_validator_raises_is_the_cause_of_a_codec_error() -> None:
    codec = drt.codecs.Validated(drt.codecs.Json(), Fussy)
    with pytest.raises(drt.CodecError, match="KeyError: 'seven'") as read:
        codec.loads(b'{"x":7}')
    with pytest.raises(drt.CodecError, match="KeyError: 'seven'") as written:
        codec.dumps({"x": 7})  # type: ignore[arg-type]
    assert (read.value.kind, written.value.kind) == ("decode", "encode")
    assert isinstance(read.value.__cause__, KeyError)
    assert isinstance(written.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("kind", "value"), [(bytes, b"\xff"), (dict[str, bytes], {"a": b"\xff"})], ids=["b", "d"]
)
def test_bytes_that_json_cannot_spell_are_a_codec_error(kind: Any, value: Any) -> None:
    with pytest.raises(drt.CodecError) as refused:
        drt.codecs.Validated(drt.codecs.Json(), kind).dumps(value)
    assert refused.value.kind == "encode"


def test_a_type_that_is_not_defined_is_refused_at_once() -> None:
    with pytest.raises(drt.InvalidInputError, match="no adapter for 'zzz'"):
        drt.codecs.Validated(drt.codecs.Json(), "zzz")  # type: ignore[arg-type]


def test_messages_are_one_short_line_whatever_the_payload_has() -> None:
    codec = drt.codecs.Validated(drt.codecs.Json(), dict[str, int])
    for key in ("a\nb", "a\u202eb", "x" * 100_000):
        with pytest.raises(drt.CodecError) as refused:
            codec.loads(json.dumps({key: "x"}).encode())
        assert len(str(refused.value)) < 1_000
        assert str(refused.value).isprintable()


def test_what_is_no_codec_is_shown_on_one_line() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise KeyError("no text")

    with pytest.raises(drt.InvalidInputError, match="<Odd> is no codec"):
        drt.codecs.Validated(Odd(), int)  # type: ignore[arg-type]
