"""Which values a text-like format brings back exactly as they were; shared by Json and Msgpack."""

from __future__ import annotations

import numpy as np

from datasetrt.errors import CodecError

# Types that a format has beside list and dict.
Scalars = frozenset[type]

_CURES: dict[type, str] = {
    tuple: "give list(…)",
    set: "give sorted(…)",
    bytearray: "give bytes(…)",
    memoryview: "give bytes(…)",
}


def check_plain(value: object, scalars: Scalars, codec_name: str) -> None:
    """Refuse what would come back as another type: subclasses, tuples, keys that are not str.

    Args:
        value: What is about to be packed.
        scalars: Types that the format has beside list and dict.
        codec_name: For the message, which also says where the value is, such as ``$.boxes[3]``.
    """
    try:
        _check(value, scalars, codec_name, "$")
    except RecursionError:
        raise CodecError(
            f"{codec_name}: the object is nested too deeply, or contains itself", kind="encode"
        ) from None


def _check(value: object, scalars: Scalars, codec_name: str, where: str) -> None:
    kind = type(value)
    if kind in scalars:
        return
    if kind is list:
        for index, item in enumerate(value):  # type: ignore[arg-type, var-annotated]  # a list
            _check(item, scalars, codec_name, f"{where}[{index}]")
    elif kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]  # a dict
            if type(key) is not str:
                raise _refused(
                    codec_name, where, f"the key {key!r:.80} is a {type(key).__name__}", "give a str"
                )
            _check(item, scalars, codec_name, f"{where}.{key}")
    else:
        raise _refused(codec_name, where, f"the value is a {kind.__name__}", _cure(value))


def _cure(value: object) -> str:
    if isinstance(value, np.generic):
        return "give value.item()"
    if isinstance(value, np.ndarray):
        return "give value.tolist(), or pack with Npy or Record"
    return _CURES.get(type(value), "give a plain dict, list, str, number, bool or None")


def _refused(codec_name: str, where: str, what: str, cure: str) -> CodecError:
    return CodecError(
        f"{codec_name}: at {where[:200]} {what}, which would not come back as it was; {cure}", kind="encode"
    )
