"""Reads what a CIFAR batch is, a pickle of plain values and NumPy arrays, without executing anything.

A pickle is a program for a small stack machine, and the usual reader runs whatever functions it names. This one knows
the instructions that build numbers, texts, bytes, lists, tuples and dictionaries, and the few names that NumPy writes
for an array. Any other instruction or name is refused. Names are never looked up: arrays are made from their bytes.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt


class ForeignObjectError(ValueError):
    """The pickle names something that is not plain data; the text says what."""


class DamagedPickleError(ValueError):
    """The bytes are no pickle, or not a whole one."""


def read_pickle(content: bytes) -> Any:
    """Plain value of a pickle: None, bool, int, float, str, bytes, list, tuple, dict, or a NumPy array of numbers.

    Raises:
        ForeignObjectError: if it holds or calls anything else.
        DamagedPickleError: if it cannot be read to its end.
    """
    machine = _Machine()
    try:
        for opcode, argument, position in pickletools.genops(content):
            if opcode.name == "STOP":
                return _plain(machine.pop())
            if opcode.name not in _STEPS:
                raise ForeignObjectError(f"the instruction {opcode.name} at byte {position}")  # noqa: TRY301  # passed on below
            _STEPS[opcode.name](machine, argument)
    except ForeignObjectError:
        raise
    # Whatever is wrong with the bytes ends in one of these; a hostile file gets no further.
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise DamagedPickleError(str(error) or type(error).__name__) from error
    raise DamagedPickleError("it has no end")


@dataclass(frozen=True, slots=True)
class _Name:
    """A global name as the pickle has it; nothing is ever looked up."""

    text: str


@dataclass(slots=True)
class _Type:
    """A NumPy dtype to be: its code, and its byte order once it is known."""

    code: str
    order: str = "|"


@dataclass(slots=True)
class _Array:
    """A NumPy array to be: filled by BUILD."""

    content: npt.NDArray[Any] | None = None


_MARK = object()


class _Machine:
    """The stack machine that a pickle is written for, without those of its instructions that call something."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def push_bytes(self, text: str) -> None:
        """Push a text of Python 2: bytes, as `encoding="bytes"` would have it."""
        self.push(text.encode("latin1"))

    def put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def pop(self) -> Any:
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        """Take everything above the last mark, and the mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                above = self.stack[place + 1 :]
                del self.stack[place:]
                return above
        raise IndexError("a mark is missing")

    def take(self, count: int) -> None:
        """Replace the last values by a tuple of them."""
        if count > len(self.stack):
            raise IndexError("the stack is empty")
        values = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.push(values)

    def name(self, text: str) -> None:
        """Push a global name, if it is one of NumPy's."""
        if text not in _CALLS and text not in _TYPES:
            raise ForeignObjectError(text)
        self.push(_Name(text))

    def name_from_stack(self) -> None:
        function, module = self.pop(), self.pop()
        self.name(f"{_text(module)}.{_text(function)}")

    def reduce(self) -> None:
        """Make what NumPy's few functions would make."""
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Name) or function.text not in _CALLS:
            raise ForeignObjectError(f"a call of {getattr(function, 'text', type(function).__name__)}")
        self.push(_CALLS[function.text](*arguments))

    def build(self) -> None:
        """Fill an array or a dtype."""
        state, made = self.pop(), self.stack[-1]
        if isinstance(made, _Type):
            made.order = _text(state[1])
        elif isinstance(made, _Array):
            _, shape, dtype, fortran, content = state
            made.content = _array(content, dtype, shape, "F" if fortran else "C")
        else:
            raise ForeignObjectError(f"a state for {type(made).__name__}")

    def add_items(self, values: list[Any]) -> None:
        """Add keys and values, which alternate, to the dictionary on the stack."""
        found = self.stack[-1]
        if not isinstance(found, dict):
            raise TypeError("items for what is no dictionary")
        found.update(_pairs(values))

    def append(self, values: list[Any]) -> None:
        """Add to the list on the stack."""
        if not isinstance(self.stack[-1], list):
            raise TypeError("items for what is no list")
        self.stack[-1].extend(values)


def _pairs(values: list[Any]) -> dict[Any, Any]:
    keys = values[::2]
    if len(values) % 2 or not all(isinstance(key, str | bytes | int) for key in keys):
        raise TypeError("a dictionary's key is not a text or a number")
    return dict(zip(keys, values[1::2], strict=True))


def _encode(text: Any, encoding: Any) -> bytes:
    """Bytes, as Python 3 writes them for Python 2."""
    if encoding != "latin1" or not isinstance(text, str):
        raise ForeignObjectError(f"a text in the encoding {_text(encoding)!r}")
    return text.encode("latin1")


def _empty_bytes(*content: Any) -> bytes:
    """Nothing, as Python 3 writes it for Python 2."""
    if content:
        raise ForeignObjectError("a call of bytes")
    return b""


_CALLS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "numpy.core.multiarray._reconstruct": lambda *_: _Array(),  # an empty one, which BUILD fills
        "numpy._core.multiarray._reconstruct": lambda *_: _Array(),  # an empty one, which BUILD fills
        "numpy.core.numeric._frombuffer": lambda *made_of: _Array(_array(*made_of)),
        "numpy._core.numeric._frombuffer": lambda *made_of: _Array(_array(*made_of)),
        "numpy.dtype": lambda code, *_: _Type(_text(code)),
        "_codecs.encode": _encode,
        "__builtin__.bytes": _empty_bytes,
    }
)
"""What NumPy's functions for reading arrays are replaced by."""

_TYPES = frozenset({"numpy.ndarray"})
"""Names that are only handed to those functions."""


def _array(content: Any, dtype: Any, shape: Any, order: str) -> npt.NDArray[Any]:
    if isinstance(content, str):
        content = content.encode("latin1")
    if not isinstance(dtype, _Type) or not isinstance(content, bytes | bytearray):
        raise ForeignObjectError(f"an array of {type(content).__name__}")
    order_of_bytes = {"<": "<", ">": ">", "=": "=", "|": ""}[dtype.order]
    if dtype.code[:1] not in ("b", "i", "u", "f"):
        raise ForeignObjectError(f"an array of the type {dtype.code!r}")
    number = np.dtype(order_of_bytes + dtype.code)
    shape = tuple(map(int, shape))
    if min(shape, default=0) < 0 or prod(shape) * number.itemsize != len(content):
        raise ValueError(f"an array of shape {shape} and type {number} in {len(content)} bytes")
    if order not in ("C", "F"):
        raise ValueError(f"an array in the order {_text(order)!r}")
    return np.frombuffer(content, number).reshape(shape, order="C" if order == "C" else "F")


def _text(value: Any) -> str:
    """A text or bytes as text; never str() of anything else, for of lists in lists that takes as long as they like."""
    if not isinstance(value, str | bytes):
        raise TypeError(f"a {type(value).__name__} in the place of a text")
    return value.decode("ascii") if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    """Put the arrays in their places, in the result and in the dictionary that it is."""
    if isinstance(value, dict):
        return {key: _filled(inner) for key, inner in value.items()}
    return _filled(value)


def _filled(value: Any) -> Any:
    if isinstance(value, _Array):
        if value.content is None:
            raise ValueError("an array has no content")
        return value.content
    if isinstance(value, _Name | _Type) or value is _MARK:
        raise ForeignObjectError(f"{getattr(value, 'text', 'a NumPy type')} as a value")
    return value


_STEPS: Mapping[str, Callable[[_Machine, Any], None]] = MappingProxyType(
    {
        **dict.fromkeys(("PROTO", "FRAME"), lambda *_: None),
        **dict.fromkeys(
            (
                *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
                *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
                *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
            ),
            _Machine.push,
        ),
        **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _Machine.push_bytes),
        "NONE": lambda machine, _: machine.push(None),
        "NEWTRUE": lambda machine, _: machine.push(True),
        "NEWFALSE": lambda machine, _: machine.push(False),
        "EMPTY_DICT": lambda machine, _: machine.push({}),
        "EMPTY_LIST": lambda machine, _: machine.push([]),
        "EMPTY_TUPLE": lambda machine, _: machine.push(()),
        "MARK": lambda machine, _: machine.push(_MARK),
        "DICT": lambda machine, _: machine.push(_pairs(machine.pop_to_mark())),
        "LIST": lambda machine, _: machine.push(machine.pop_to_mark()),
        "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
        **{f"TUPLE{count}": partial(lambda count, machine, _: machine.take(count), count) for count in (1, 2, 3)},
        "SETITEMS": lambda machine, _: machine.add_items(machine.pop_to_mark()),
        "SETITEM": lambda machine, _: machine.add_items([machine.pop(), machine.pop()][::-1]),
        "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
        "APPEND": lambda machine, _: machine.append([machine.pop()]),
        **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
        "MEMOIZE": lambda machine, _: machine.put(len(machine.memo)),
        **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda machine, place: machine.push(machine.memo[place])),
        "GLOBAL": lambda machine, names: machine.name(names.replace(" ", ".")),
        "STACK_GLOBAL": lambda machine, _: machine.name_from_stack(),
        "REDUCE": lambda machine, _: machine.reduce(),
        "BUILD": lambda machine, _: machine.build(),
    }
)
"""Every instruction that is known. What is not here is refused."""
