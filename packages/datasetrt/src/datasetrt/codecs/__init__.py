"""Codecs: how records become payload bytes and come back.

Convenience over the bytes contract, never implicit: a cache stores bytes, and a codec packs them in the
source and unpacks them in a read transform. A source that names its codec has the name recorded in the
manifest.

- `Record`: named arrays of a fixed layout; a whole batch decodes in a handful of numpy calls.
- `Npy`: one array. `Json`, `Msgpack`: plain values, exactly.
- `Pickle`, `PickleOOB`, `Dill`: Python objects; reading takes consent, because a pickle can run code.
- `Validated`: any of them, with every object checked by pydantic.
- `check`: refuses to decode a dataset with another codec than it was written with.
- `Codec`, `BatchCodec`: what a codec of your own looks like.
"""

from ._base import BatchCodec, Codec, check
from ._dill import Dill
from ._json import Json
from ._msgpack import Msgpack
from ._npy import Npy
from ._oob import PickleOOB
from ._pickle import Pickle
from ._record import Record
from ._validated import Validated

__all__ = [
    "BatchCodec",
    "Codec",
    "Dill",
    "Json",
    "Msgpack",
    "Npy",
    "Pickle",
    "PickleOOB",
    "Record",
    "Validated",
    "check",
]
