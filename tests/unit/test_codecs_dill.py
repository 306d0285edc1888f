"""Dill: what pickle cannot do, by consent only."""

import dill
import pytest

import datasetrt as drt
from datasetrt.codecs import Dill

CODEC = Dill(trust=True)


def test_lambdas_and_local_classes_come_back() -> None:
    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

    assert CODEC.loads(CODEC.dumps(lambda x: x + 1))(2) == 3
    assert CODEC.loads(CODEC.dumps(Local(4))).x == 4


def test_payloads_are_plain_dill() -> None:
    assert dill.loads(CODEC.dumps({"a": 1})) == {"a": 1}
    assert CODEC.loads(dill.dumps({"a": 1})) == {"a": 1}


def test_reading_takes_trust() -> None:
    with pytest.raises(drt.CodecError) as caught:
        Dill().loads(CODEC.dumps(1))
    assert caught.value.kind == "untrusted"
    assert "Dill(trust=True)" in str(caught.value)
    with pytest.raises(drt.InvalidInputError):
        Dill(trust="yes")  # type: ignore[arg-type]


def test_there_is_no_list_of_globals() -> None:
    with pytest.raises(TypeError):
        Dill(allow=["numpy"])  # type: ignore[call-arg]


@pytest.mark.parametrize("damaged", [b"", b"N", b"garbage", CODEC.dumps([1])[:-1], CODEC.dumps([1]) + b"N."])
def test_damage_is_refused(damaged: bytes) -> None:
    with pytest.raises(drt.CodecError) as caught:
        CODEC.loads(damaged)
    assert caught.value.kind == "decode"


def test_exceptions_of_the_users_classes_are_causes() -> None:
    class Stubborn:
        def __init__(self, of: str) -> None:
            self.of = of

        def __getstate__(self) -> object:
            if self.of == "pack":
                raise KeyError("not today")
            return {"of": self.of}

        def __setstate__(self, state: object) -> None:
            raise KeyError("nor tomorrow")

    with pytest.raises(drt.CodecError) as packing:
        CODEC.dumps(Stubborn("pack"))
    with pytest.raises(drt.CodecError) as unpacking:
        CODEC.loads(CODEC.dumps(Stubborn("unpack")))
    assert (packing.value.kind, unpacking.value.kind) == ("encode", "decode")
    assert isinstance(packing.value.__cause__, KeyError)
    assert isinstance(unpacking.value.__cause__, KeyError)
