"""Which globals a pickle names, found by following its opcodes without running any of them.

The stack is followed as the unpickler would have it, but of the values on it only text is known: that is what
a name can be made of. What a global returns, and all that is built from it, is unknown.
"""

from __future__ import annotations

import pickletools
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

#: A payload of more opcodes is not followed to its end. Each costs about a microsecond and up to 60 bytes.
MAX_OPCODES: Final = 5_000_000
#: Longer text is not taken for a part of a name.
MAX_NAME_BYTES: Final = 1_000

#: Stands for a part of a name that the pickle computes while it is loaded.
COMPUTED: Final = "<computed>"
_TOO_LONG: Final = "<too long>"

_NEWEST_PROTOCOL: Final = 5
_LONGEST_NUMBER: Final = 20


@dataclass(slots=True)
class Walk:
    """What was found in one pickle.

    Args:
        names: The globals, as ``module.qualname``, in the order in which they are named first.
        end: Where the pickle ended, or could not be followed any further.
        problem: Why it could not be followed to its end; None if it was. What comes before the problem is
            loaded nevertheless: names may not be empty.
    """

    names: dict[str, None] = field(default_factory=dict)
    end: int = 0
    problem: str | None = None


def walk(data: bytes) -> Walk:
    """Follow the pickle that ``data`` begins with. Never raises, whatever the bytes are."""
    found = Walk()
    walker = _Walker(data, found.names)
    try:
        walker.run()
    except _LostError as lost:
        found.problem = str(lost)
    found.end = walker.position
    return found


class _LostError(Exception):
    """The opcodes cannot be followed any further."""


class _Mark:
    """Where a group of values on the stack begins."""


_MARK: Final = _Mark()

#: Known text, None for any other value, or a mark.
_Value = str | None | _Mark


class _Walker:
    __slots__ = ("_data", "_memo", "_names", "_protocol", "_stack", "position")

    def __init__(self, data: bytes, names: dict[str, None]) -> None:
        self.position = 0
        self._data = data
        self._names = names
        self._protocol = 0
        self._stack: list[_Value] = []
        self._memo: dict[int, _Value] = {}

    def run(self) -> None:
        """Follow the opcodes up to STOP."""
        data, size, stack = self._data, len(self._data), self._stack
        for _ in range(MAX_OPCODES):
            if self.position >= size:
                raise _LostError("it is cut off")
            code = data[self.position]
            step = _STEPS[code]
            if step is None:
                raise _LostError(f"byte {code:#04x} at {self.position} is no opcode")
            self.position += 1
            if step.special is not None:
                if step.special(self):
                    return
                continue
            self.position = self._after(step)
            self._pop(step.pops, step.to_mark)
            stack.extend([None] * step.pushes)
        raise _LostError(f"it has more than {MAX_OPCODES:,} opcodes")

    # The argument of an opcode.

    def _after(self, step: _Step) -> int:
        """Where the argument of an opcode ends."""
        if step.argument >= 0:
            return self._checked(self.position + step.argument)
        if step.argument == pickletools.UP_TO_NEWLINE:
            return self._line_end() + 1
        return self._span(step)[1]

    def _span(self, step: _Step) -> tuple[int, int]:
        """Where the bytes begin and end whose length comes before them."""
        width = step.length_bytes
        start = self._checked(self.position + width)
        length = int.from_bytes(self._data[self.position : start], "little", signed=step.signed)
        if length < 0:
            raise _LostError(f"a length at {self.position} is negative")
        return start, self._checked(start + length)

    def _checked(self, end: int) -> int:
        if end > len(self._data):
            raise _LostError(f"an argument at {self.position} is cut off")
        return end

    def _line_end(self) -> int:
        end = self._data.find(b"\n", self.position)
        if end < 0:
            raise _LostError(f"a line at {self.position} has no end")
        return end

    def _line(self) -> bytes:
        """The next line; of a long one, no more than shows that it is too long."""
        end = self._line_end()
        line = self._data[self.position : min(end, self.position + MAX_NAME_BYTES + 1)]
        self.position = end + 1
        return line

    # The stack.

    def _pop(self, count: int, to_mark: bool) -> None:
        stack = self._stack
        if to_mark:
            while True:
                if not stack:
                    raise _LostError(f"there is no mark for the opcode at {self.position - 1}")
                if stack.pop() is _MARK:
                    break
        for _ in range(count):
            self._pop_value()

    def _pop_value(self) -> str | None:
        value = self._stack.pop() if self._stack else _MARK
        if isinstance(value, _Mark):
            raise _LostError(f"the stack is empty before the opcode that ends at {self.position}")
        return value

    def _top(self) -> _Value:
        if not self._stack:
            raise _LostError(f"the stack is empty before the opcode that ends at {self.position}")
        return self._stack[-1]

    # Names.

    def _name(self, module: str, qualname: str) -> None:
        if self._protocol < 3:
            # The unpickler loads what Python 2 wrote under the names of today.
            if (module, qualname) in NAME_MAPPING:
                module, qualname = NAME_MAPPING[module, qualname]
            else:
                module = IMPORT_MAPPING.get(module, module)
        self._names[f"{module}.{qualname}"] = None
        self._stack.append(None)

    # Opcodes with more to them than what they take from the stack and put on it. True ends the walk.

    def mark(self) -> bool:
        self._stack.append(_MARK)
        return False

    def pop(self) -> bool:
        self._top()
        self._stack.pop()
        return False

    def dup(self) -> bool:
        self._stack.append(self._top())
        return False

    def stop(self) -> bool:
        self._pop_value()
        return True

    def protocol(self) -> bool:
        self._checked(self.position + 1)
        self._protocol = self._data[self.position]
        if self._protocol > _NEWEST_PROTOCOL:
            raise _LostError(f"its protocol is {self._protocol}, the newest is {_NEWEST_PROTOCOL}")
        self.position += 1
        return False

    def text(self) -> bool:
        """UTF-8 behind its length."""
        start, self.position = self._span(_step_at(self._data, self.position))
        self._stack.append(_text(self._data[start : self.position], "utf-8", "surrogatepass"))
        return False

    def ascii_text(self) -> bool:
        """What Python 2 wrote as a byte string, which is read as ASCII."""
        start, self.position = self._span(_step_at(self._data, self.position))
        self._stack.append(_text(self._data[start : self.position], "ascii", "strict"))
        return False

    def text_line(self) -> bool:
        self._stack.append(_text(self._line(), "raw-unicode-escape", "strict"))
        return False

    def quoted_line(self) -> bool:
        quoted = self._line().strip()
        if len(quoted) > MAX_NAME_BYTES:
            self._stack.append(_TOO_LONG)
        elif len(quoted) >= 2 and quoted[:1] == quoted[-1:] and quoted[:1] in {b"'", b'"'}:
            # No name needs an escape; one that has it counts as computed.
            escaped = b"\\" in quoted
            self._stack.append(None if escaped else _text(quoted[1:-1], "ascii", "strict"))
        else:
            raise _LostError(f"the text before {self.position} has no quotes")
        return False

    def global_lines(self) -> bool:
        module = _text(self._line(), "utf-8", "strict")
        qualname = _text(self._line(), "utf-8", "strict")
        if module is None or qualname is None:
            raise _LostError(f"the name of a global before {self.position} is no text")
        self._name(module, qualname)
        return False

    def instance_lines(self) -> bool:
        # The values above the mark are arguments; the name comes from the lines alone.
        self._pop(0, to_mark=True)
        return self.global_lines()

    def stack_global(self) -> bool:
        qualname, module = self._pop_value(), self._pop_value()
        self._name(
            COMPUTED if module is None else module,
            COMPUTED if qualname is None else qualname,
        )
        return False

    def extension(self) -> bool:
        width = {0x82: 1, 0x83: 2, 0x84: 4}[self._data[self.position - 1]]
        end = self._checked(self.position + width)
        code = int.from_bytes(self._data[self.position : end], "little", signed=width == 4)
        self.position = end
        # What it means is decided by whoever calls `copyreg.add_extension` in the loading process.
        self._names[f"<extension {code}>"] = None
        self._stack.append(None)
        return False

    def put(self) -> bool:
        self._memo[self._number_line()] = self._top()
        return False

    def get(self) -> bool:
        return self._recall(self._number_line())

    def binput(self) -> bool:
        self._memo[self._number(1)] = self._top()
        return False

    def long_binput(self) -> bool:
        self._memo[self._number(4)] = self._top()
        return False

    def binget(self) -> bool:
        return self._recall(self._number(1))

    def long_binget(self) -> bool:
        return self._recall(self._number(4))

    def memoize(self) -> bool:
        self._memo[len(self._memo)] = self._top()
        return False

    def _recall(self, key: int) -> bool:
        if key not in self._memo:
            raise _LostError(f"nothing was kept under {key}, which is asked for before {self.position}")
        self._stack.append(self._memo[key])
        return False

    def _number(self, width: int) -> int:
        end = self._checked(self.position + width)
        number = int.from_bytes(self._data[self.position : end], "little")
        self.position = end
        return number

    def _number_line(self) -> int:
        line = self._line()
        try:
            return int(line if len(line) <= _LONGEST_NUMBER else b"")
        except ValueError:
            raise _LostError(f"the line before {self.position} is no number") from None


@dataclass(frozen=True, slots=True)
class _Step:
    """An opcode: how long its argument is, and what it takes from the stack and puts on it."""

    argument: int
    length_bytes: int
    signed: bool
    pops: int
    to_mark: bool
    pushes: int
    special: Callable[[_Walker], bool] | None


_SPECIAL: Final[dict[str, Callable[[_Walker], bool]]] = {
    "MARK": _Walker.mark,
    "POP": _Walker.pop,
    "DUP": _Walker.dup,
    "STOP": _Walker.stop,
    "PROTO": _Walker.protocol,
    "SHORT_BINUNICODE": _Walker.text,
    "BINUNICODE": _Walker.text,
    "BINUNICODE8": _Walker.text,
    "SHORT_BINSTRING": _Walker.ascii_text,
    "BINSTRING": _Walker.ascii_text,
    "UNICODE": _Walker.text_line,
    "STRING": _Walker.quoted_line,
    "GLOBAL": _Walker.global_lines,
    "INST": _Walker.instance_lines,
    "STACK_GLOBAL": _Walker.stack_global,
    "EXT1": _Walker.extension,
    "EXT2": _Walker.extension,
    "EXT4": _Walker.extension,
    "PUT": _Walker.put,
    "BINPUT": _Walker.binput,
    "LONG_BINPUT": _Walker.long_binput,
    "GET": _Walker.get,
    "BINGET": _Walker.binget,
    "LONG_BINGET": _Walker.long_binget,
    "MEMOIZE": _Walker.memoize,
}

# How many bytes of length come before the bytes of an argument, by pickletools' own codes.
_LENGTH_BYTES: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}


def _step(opcode: pickletools.OpcodeInfo) -> _Step:
    before = opcode.stack_before
    argument = 0 if opcode.arg is None else opcode.arg.n
    to_mark = pickletools.markobject in before
    return _Step(
        argument=argument,
        length_bytes=_LENGTH_BYTES.get(argument, 0),
        signed=argument == pickletools.TAKEN_FROM_ARGUMENT4,
        pops=before.index(pickletools.markobject) if to_mark else len(before),
        to_mark=to_mark,
        pushes=len(opcode.stack_after),
        special=_SPECIAL.get(opcode.name),
    )


def _table() -> list[_Step | None]:
    steps: list[_Step | None] = [None] * 256
    for opcode in pickletools.opcodes:
        steps[ord(opcode.code)] = _step(opcode)
    return steps


_STEPS: Final = _table()


def _step_at(data: bytes, position: int) -> _Step:
    step = _STEPS[data[position - 1]]
    assert step is not None
    return step


def _text(value: bytes, encoding: str, errors: str) -> str | None:
    """Text that a name may be made of; None for bytes that are no text."""
    if len(value) > MAX_NAME_BYTES:
        return _TOO_LONG
    try:
        return value.decode(encoding, errors)
    except UnicodeDecodeError:
        return None
