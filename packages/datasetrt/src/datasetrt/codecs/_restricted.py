"""Reads pickles that anybody may have written: allowed globals only, and nothing that ends the process.

A pickle is a program for a small stack machine. `pickle.Unpickler` with a checked ``find_class`` still lets
that program set attributes of allowed classes, feed numpy forged states and nest values until the C stack
ends. So this is the machine itself, in Python: each step takes only what a pickler writes. Protocols 0 to 5
of Python 3 are read; what only Python 2 wrote, persistent references and the extension registry are refused.
"""

from __future__ import annotations

import enum
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from datasetrt.errors import CodecError
from datasetrt.wording import a_type, reason, with_article

from ._arrays import CURE
from ._globals import expand, full_name, refused_global, resolve
from ._nesting import Nesting, too_much
from ._numpy_pickle import NUMPY_GLOBALS, NumpyBuilder, UnfinishedDtype

_INT32: Final = struct.Struct("<i").unpack_from
_FLOAT64: Final = struct.Struct(">d").unpack_from
# Never changed, even where their class is allowed: others hold them too, or numpy believes their state.
_SHARED: Final = (enum.Enum, np.ndarray, np.dtype, type)
# Longer integers cost seconds to hash or to print.
_MAX_INT_BYTES = 1024


def loads_restricted(data: memoryview, allow: tuple[str, ...], buffers: Iterable[memoryview] = ()) -> object:
    """The object in a pickle that names only allowed globals.

    Args:
        data: The whole pickle, as plain bytes.
        allow: Normalised allow-list.
        buffers: Out-of-band buffers, in the pickle's order.

    Raises:
        CodecError: A global is not allowed (``refused-global``) or the pickle is not sound (``decode``).
    """
    machine = _Machine(data, expand(allow), list(buffers))
    try:
        return machine.run()
    except CodecError:
        raise
    except Exception as error:
        # Anything can come here: an allowed class's own exception, or whatever a damaged stream leads to.
        raise CodecError(
            f"the pickle cannot be decoded at byte {machine.position} ({reason(error)})",
            kind="decode",
            offset=machine.position,
        ) from error


class _Machine:
    """One run over one pickle. The steps below follow the order of the opcodes in `pickletools`."""

    __slots__ = (
        "_allowed",
        "_buffers",
        "_data",
        "_globals",
        "_memo",
        "_nesting",
        "_numpy",
        "_outer",
        "_stack",
        "_stated_protocol",
        "position",
    )

    def __init__(self, data: memoryview, allowed: frozenset[str], buffers: list[memoryview]) -> None:
        self.position = 0
        self._data = data
        self._allowed = allowed
        self._buffers: Iterator[memoryview] = iter(buffers)
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        # What may be called: by identity, the object (so that its identity stays its own) and the call.
        self._globals: dict[int, tuple[object, Callable[..., Any] | None]] = {}
        # Protocol 0 does not state itself.
        self._stated_protocol = 0
        self._nesting = Nesting()
        self._numpy = NumpyBuilder(self._nesting, len(data) + sum(len(buffer) for buffer in buffers))

    def run(self) -> object:
        data, size = self._data, len(self._data)
        while self.position < size:
            opcode = data[self.position]
            self.position += 1
            if opcode == _STOP:
                return self._result()
            step = _STEPS[opcode]
            if step is None:
                raise self._damaged(f"opcode {bytes([opcode])!r} is not one that Python 3 writes")
            step(self)
        raise self._damaged("it is cut off")

    def _result(self) -> object:
        if self.position != len(self._data):
            raise self._damaged(f"{len(self._data) - self.position} bytes follow its end")
        if self._outer or len(self._stack) != 1 or self._numpy.unfinished_dtypes:
            raise self._damaged("it ends in the middle of an object")
        if next(self._buffers, None) is not None:
            raise self._damaged("it leaves out-of-band buffers unused")
        return self._stack.pop()

    def _damaged(self, what: str) -> CodecError:
        return CodecError(
            f"the pickle is damaged at byte {self.position}: {what}; {CURE}",
            kind="decode",
            offset=self.position,
        )

    # Reading.

    def _take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self._data):
            raise self._damaged(f"{size} bytes are named, {len(self._data) - self.position} are left")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def _number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "little")

    def _line(self) -> bytes:
        start = self.position
        while self.position < len(self._data):
            # Lines are short: a byte string of a few hundred bytes finds the end without copying the payload.
            found = bytes(self._data[self.position : self.position + 256]).find(b"\n")
            if found >= 0:
                self.position += found + 1
                return bytes(self._data[start : self.position - 1])
            self.position += 256
        raise self._damaged("a line has no end")

    # Plain values. The commonest steps make no further calls, which would take most of their time.

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _byte(self) -> None:
        self._stack.append(self._data[self.position])
        self.position += 1

    def _int32(self) -> None:
        self._stack.append(_INT32(self._data, self.position)[0])
        self.position += 4

    def _float64(self) -> None:
        self._stack.append(_FLOAT64(self._data, self.position)[0])
        self.position += 8

    def _short_text(self) -> None:
        start = self.position + 1
        self.position = start + self._data[self.position]
        # One that is cut off ends the run, because nothing follows it.
        self._stack.append(str(self._data[start : self.position], "utf-8", "surrogatepass"))

    def _frame(self) -> None:
        size = self._number(8)
        if size > len(self._data) - self.position:
            raise self._damaged(f"a frame of {size} bytes is cut off")

    def _protocol(self) -> None:
        protocol = self._number(1)
        if protocol > 5:
            raise self._damaged(f"protocol {protocol} is newer than 5; upgrade datasetrt")
        self._stated_protocol = protocol

    def _int_line(self) -> None:
        line = self._line()
        self._push(line == b"01" if line in (b"00", b"01") else int(line))

    def _long_line(self) -> None:
        self._push(int(self._line().removesuffix(b"L")))

    def _long(self, length_bytes: int) -> None:
        size = self._number(length_bytes)
        if size > _MAX_INT_BYTES:
            raise too_much(f"an integer of {size:,} bytes, more than {_MAX_INT_BYTES:,}")
        self._push(int.from_bytes(self._take(size), "little", signed=True))

    def _text(self, length_bytes: int) -> None:
        self._push(str(self._take(self._number(length_bytes)), "utf-8", "surrogatepass"))

    def _bytes(self, length_bytes: int) -> None:
        self._push(bytes(self._take(self._number(length_bytes))))

    def _next_buffer(self) -> None:
        buffer = next(self._buffers, None)
        if buffer is None:
            raise self._damaged("it wants an out-of-band buffer that is not there")
        self._push(buffer)

    def _readonly_buffer(self) -> None:
        if not isinstance(self._stack[-1], memoryview):
            raise self._damaged("a buffer is expected")
        self._stack[-1] = self._stack[-1].toreadonly()

    # Stack and memo.

    def _mark(self) -> None:
        self._outer.append(self._stack)
        self._stack = []

    def _pop_mark(self) -> list[Any]:
        items = self._stack
        self._stack = self._outer.pop()
        return items

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _drop_mark(self) -> None:
        self._pop_mark()

    def _put(self, key: int) -> None:
        value = self._stack[-1]
        if type(value) is UnfinishedDtype:
            value.memo_key = key
        self._memo[key] = value

    def _memoize(self) -> None:
        value, memo = self._stack[-1], self._memo
        if type(value) is UnfinishedDtype:
            value.memo_key = len(memo)
        memo[len(memo)] = value

    def _get(self, key: int) -> None:
        if key not in self._memo:
            raise self._damaged(f"memo entry {key} is used before it is set")
        value = self._memo[key]
        if type(value) is UnfinishedDtype:
            raise self._damaged("a dtype is used before its state")
        self._push(value)

    # Containers.

    def _tuple(self, items: list[Any]) -> None:
        value = tuple(items)
        self._nesting.add(value, value)
        self._push(value)

    def _tuple_of(self, count: int) -> None:
        if len(self._stack) < count:
            raise self._damaged(f"a tuple of {count} lacks items")
        items = self._stack[-count:]
        del self._stack[-count:]
        self._tuple(items)

    def _dict(self) -> None:
        items = self._pop_mark()
        self._push({})
        self._set_items(items)

    def _frozenset(self) -> None:
        items = self._pop_mark()
        for item in items:
            self._nesting.check_key(item)
        value = frozenset(items)
        self._nesting.add(value, value)
        self._push(value)

    def _append_all(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            self._check_instance(target)
        for item in items:
            target.append(item)

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict:
            self._check_instance(target)
        if len(items) % 2:
            raise self._damaged("a dict key has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self._nesting.check_key(key)
            target[key] = value

    def _add_items(self) -> None:
        items = self._pop_mark()
        target = self._stack[-1]
        if type(target) is not set:
            self._check_instance(target)
        for item in items:
            self._nesting.check_key(item)
            target.add(item)

    # Globals and calls.

    def _global(self, module: object, name: object) -> None:
        full = full_name(module, name, self._stated_protocol)
        if full not in self._allowed:
            raise refused_global(full)
        if full in NUMPY_GLOBALS:
            value, method = NUMPY_GLOBALS[full]
            self._admit(value, None if method is None else partial(method, self._numpy))
        else:
            value = resolve(full)
            self._admit(value, value if callable(value) else None)

    def _admit(self, value: object, call: Callable[..., Any] | None) -> None:
        self._globals[id(value)] = (value, call)
        self._push(value)

    def _global_lines(self) -> None:
        module = self._line().decode()
        self._global(module, self._line().decode())

    def _global_stack(self) -> None:
        name = self._stack.pop()
        self._global(self._stack.pop(), name)

    def _callable(self, value: object) -> Callable[..., Any]:
        known = self._globals.get(id(value))
        if known is None or known[1] is None:
            raise self._damaged(f"{a_type(value)} is called")
        return known[1]

    def _reduce(self) -> None:
        args = self._stack.pop()
        value = self._stack.pop()
        call = self._callable(value)
        if type(args) is not tuple:
            raise self._damaged("the arguments of a call are no tuple")
        self._made(call(*args))

    def _new(self, kwargs: object) -> None:
        args = self._stack.pop()
        cls = self._stack.pop()
        call = self._callable(cls)
        if not isinstance(cls, type) or call is not cls:
            raise self._damaged(f"{a_type(cls)} is instantiated")
        if type(args) is not tuple or type(kwargs) is not dict:
            raise self._damaged("the arguments of a class are no tuple and dict")
        self._made(cls.__new__(cls, *args, **kwargs))

    def _made(self, value: object) -> None:
        if isinstance(value, tuple | frozenset):
            self._nesting.add(value, value)
        self._push(value)

    def _build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if type(target) is UnfinishedDtype:
            self._stack[-1] = self._numpy.finish(target, state)
            if target.memo_key is not None:
                self._memo[target.memo_key] = self._stack[-1]
        elif type(target) is np.ndarray:
            self._numpy.fill(target, state)
        else:
            self._check_instance(target)
            _set_state(target, state)

    def _check_instance(self, target: object) -> None:
        """Only objects of allowed classes change: never a class, a function, an enum's member or an array."""
        cls = type(target)
        name = f"{cls.__module__}.{cls.__qualname__}"
        allowed = name in self._allowed and name not in NUMPY_GLOBALS and resolve(name) is cls
        if isinstance(target, np.ndarray):
            raise CodecError(
                f"the pickle has {with_article(name)}, whose state is not read without trust; "
                "use trust=True for data that you wrote yourself, or pack np.asarray(value)",
                kind="refused-global",
            )
        if not allowed or id(target) in self._globals or isinstance(target, _SHARED):
            raise CodecError(
                f"the pickle changes {with_article(name)}, which is of no allowed class; add it to allow=[…] "
                "if it is harmless, or use trust=True for data that you wrote yourself",
                kind="refused-global",
            )


def _set_state(target: Any, state: Any) -> None:
    """What `pickle` does with an object's state, less the special names."""
    set_state = getattr(target, "__setstate__", None)
    if set_state is not None:
        set_state(state)
        return
    slots = None
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    if state:
        _check_names(state)
        target.__dict__.update(state)
    if slots:
        _check_names(slots)
        for name, value in slots.items():
            setattr(target, name, value)


def _check_names(state: object) -> None:
    # Setting `__class__` or `__dict__` would turn an object into another one.
    if type(state) is not dict or not all(type(name) is str for name in state):
        raise CodecError("the pickle has an object whose state is no dict of attributes", kind="decode")
    special = [name for name in state if name.startswith("__") and name.endswith("__")]
    if special:
        raise CodecError(f"the pickle sets the special attribute {special[0][:80]!r}", kind="decode")


_STOP: Final = pickle.STOP[0]

# Absent, and so refused: what only Python 2 wrote (STRING, BINSTRING, SHORT_BINSTRING, INST, OBJ, DUP),
# persistent references (PERSID, BINPERSID) and the extension registry (EXT1, EXT2, EXT4).
_BY_OPCODE: Final[dict[bytes, Callable[[_Machine], None]]] = {
    pickle.PROTO: _Machine._protocol,
    pickle.FRAME: _Machine._frame,
    pickle.NONE: lambda m: m._push(None),
    pickle.NEWTRUE: lambda m: m._push(True),
    pickle.NEWFALSE: lambda m: m._push(False),
    pickle.INT: _Machine._int_line,
    pickle.BININT: _Machine._int32,
    pickle.BININT1: _Machine._byte,
    pickle.BININT2: lambda m: m._push(m._number(2)),
    pickle.LONG: _Machine._long_line,
    pickle.LONG1: lambda m: m._long(1),
    pickle.LONG4: lambda m: m._long(4),
    pickle.FLOAT: lambda m: m._push(float(m._line())),
    pickle.BINFLOAT: _Machine._float64,
    pickle.UNICODE: lambda m: m._push(str(m._line(), "raw-unicode-escape")),
    pickle.SHORT_BINUNICODE: _Machine._short_text,
    pickle.BINUNICODE: lambda m: m._text(4),
    pickle.BINUNICODE8: lambda m: m._text(8),
    pickle.SHORT_BINBYTES: lambda m: m._bytes(1),
    pickle.BINBYTES: lambda m: m._bytes(4),
    pickle.BINBYTES8: lambda m: m._bytes(8),
    pickle.BYTEARRAY8: lambda m: m._push(bytearray(m._take(m._number(8)))),
    pickle.NEXT_BUFFER: _Machine._next_buffer,
    pickle.READONLY_BUFFER: _Machine._readonly_buffer,
    pickle.MARK: _Machine._mark,
    pickle.POP: _Machine._pop,
    pickle.POP_MARK: _Machine._drop_mark,
    pickle.PUT: lambda m: m._put(int(m._line())),
    pickle.BINPUT: lambda m: m._put(m._number(1)),
    pickle.LONG_BINPUT: lambda m: m._put(m._number(4)),
    pickle.MEMOIZE: _Machine._memoize,
    pickle.GET: lambda m: m._get(int(m._line())),
    pickle.BINGET: lambda m: m._get(m._number(1)),
    pickle.LONG_BINGET: lambda m: m._get(m._number(4)),
    pickle.EMPTY_TUPLE: lambda m: m._push(()),
    pickle.TUPLE1: lambda m: m._tuple_of(1),
    pickle.TUPLE2: lambda m: m._tuple_of(2),
    pickle.TUPLE3: lambda m: m._tuple_of(3),
    pickle.TUPLE: lambda m: m._tuple(m._pop_mark()),
    pickle.EMPTY_LIST: lambda m: m._push([]),
    pickle.LIST: lambda m: m._push(m._pop_mark()),
    pickle.APPEND: lambda m: m._append_all([m._stack.pop()]),
    pickle.APPENDS: lambda m: m._append_all(m._pop_mark()),
    pickle.EMPTY_DICT: lambda m: m._push({}),
    pickle.DICT: _Machine._dict,
    pickle.SETITEM: lambda m: m._set_items([m._stack.pop(), m._stack.pop()][::-1]),
    pickle.SETITEMS: lambda m: m._set_items(m._pop_mark()),
    pickle.EMPTY_SET: lambda m: m._push(set()),
    pickle.ADDITEMS: _Machine._add_items,
    pickle.FROZENSET: _Machine._frozenset,
    pickle.GLOBAL: _Machine._global_lines,
    pickle.STACK_GLOBAL: _Machine._global_stack,
    pickle.REDUCE: _Machine._reduce,
    pickle.NEWOBJ: lambda m: m._new({}),
    pickle.NEWOBJ_EX: lambda m: m._new(m._stack.pop()),
    pickle.BUILD: _Machine._build,
}
_STEPS: Final = [_BY_OPCODE.get(bytes([opcode])) for opcode in range(256)]
