"""What a pickle asks for, as a tree: nothing is imported or called for it, and no class is ever on its stack.

A pickle is a program for a stack machine. Here its opcodes fill lists, dicts, sets and tuples, and where it names a
class or a function, or calls it, a `Name` or a `Call` says so. What these become is decided elsewhere.
"""

import pickle
import pickletools
from collections.abc import Callable
from typing import Any, NamedTuple

BYTES_PER_OPCODE = 200
"""About what the largest object takes that an opcode of one byte makes: an empty set, or a call and its place."""
LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING"),
    *("SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"),
    *("BINBYTES8", "BYTEARRAY8"),
}
"""Opcodes that put their argument onto the stack."""
EMPTY: dict[str, Callable[[], Any]] = {
    **{"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set, "EMPTY_TUPLE": tuple},
    **{"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False},
}
KEYS = (str, bytes, int, float, bool, type(None))
"""What a set and the keys of a dict hold: hashing a nested tuple can take for ever."""


class Name(NamedTuple):
    """A class or a function that the pickle names; it was not looked up."""

    module: str
    name: str


class Call:
    """An object that the pickle wants made: by which name, from which arguments, and what it is given afterwards."""

    __slots__ = ("arguments", "items", "made_by", "pairs", "state")

    def __init__(self, made_by: Name, arguments: tuple[Any, ...]) -> None:
        self.made_by, self.arguments = made_by, arguments
        self.state: Any = None
        self.items: list[Any] = []
        self.pairs: list[tuple[Any, Any]] = []


def read(content: bytes, memory: float) -> Any:
    """The tree; raises `pickle.UnpicklingError` for opcodes that do more than name data, or need more memory."""
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if count * BYTES_PER_OPCODE > memory:
            raise pickle.UnpicklingError("its opcodes need more memory than is free")
        machine.execute(opcode.name, argument)
    return machine.stack.pop()


class _Machine:
    """The stack machine of pickle, without its power to look up and to call."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        """The stacks under the marks."""
        self.memo: dict[int, Any] = {}

    def execute(self, name: str, argument: Any) -> None:
        """One opcode."""
        if name in LITERALS:
            self.stack.append(argument)
        elif name in EMPTY:
            self.stack.append(EMPTY[name]())
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self.memo[len(self.memo) if argument is None else argument] = self.stack[-1]
        elif name in ("APPEND", "APPENDS"):
            self._append([self.stack.pop()] if name == "APPEND" else self._after_mark())
        elif name in ("SETITEM", "SETITEMS"):
            self._set_items([*self._last(2)] if name == "SETITEM" else self._after_mark())
        elif name not in ("PROTO", "FRAME", "STOP"):
            self._compose(name, argument)

    def _compose(self, name: str, argument: Any) -> None:
        if name == "MARK":
            self.below.append(self.stack)
            self.stack = []
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            self.stack.append(self._last(int(name[-1])))
        elif name in ("TUPLE", "LIST"):
            items = self._after_mark()
            self.stack.append(tuple(items) if name == "TUPLE" else items)
        elif name == "DICT":
            items = self._after_mark()
            self.stack.append({})
            self._set_items(items)
        elif name == "FROZENSET":
            items = _keys(self._after_mark())  # first: it changes which stack is the upper one
            self.stack.append(frozenset(items))
        elif name == "ADDITEMS":
            items = _keys(self._after_mark())
            if type(self.stack[-1]) is not set:
                raise pickle.UnpicklingError("it adds to what is not a set")
            self.stack[-1].update(items)
        elif name == "POP":
            self.stack.pop() if self.stack else self._after_mark()
        elif name == "POP_MARK":
            self._after_mark()
        elif name == "DUP":
            self.stack.append(self.stack[-1])
        else:
            self._ask(name, argument)

    def _ask(self, name: str, argument: Any) -> None:
        if name == "GLOBAL":
            self.stack.append(Name(*argument.split(" ")))
        elif name == "STACK_GLOBAL":
            self.stack.append(Name(*(str(text) for text in self._last(2))))
        elif name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX"):
            by_keyword = self.stack.pop() if name == "NEWOBJ_EX" else {}
            made_by, arguments = self._last(2)
            if type(made_by) is not Name or type(arguments) is not tuple or by_keyword != {}:
                raise pickle.UnpicklingError("it calls what is not a name")
            self.stack.append(Call(made_by, arguments))
        elif name == "BUILD":
            state, built = self.stack.pop(), self.stack[-1]
            if type(built) is not Call or built.state is not None:
                raise pickle.UnpicklingError("it changes what it did not make")
            built.state = state
        else:
            raise pickle.UnpicklingError(f"it has the opcode {name}, which data does not need")

    def _after_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def _last(self, count: int) -> tuple[Any, ...]:
        items = self.stack[-count:]
        if len(items) < count:
            raise pickle.UnpicklingError("its stack is empty")
        del self.stack[-count:]
        return tuple(items)

    def _append(self, items: list[Any]) -> None:
        last = self.stack[-1]
        if type(last) is Call:
            last.items += items
        elif type(last) is list:
            last += items
        else:
            raise pickle.UnpicklingError("it appends to what is not a list")

    def _set_items(self, items: list[Any]) -> None:
        last, pairs = self.stack[-1], zip(_keys(items[::2]), items[1::2], strict=True)
        if type(last) is Call:
            last.pairs += pairs
        elif type(last) is dict:
            last.update(pairs)
        else:
            raise pickle.UnpicklingError("it sets items of what is not a dict")


def _keys(keys: list[Any]) -> list[Any]:
    for key in keys:
        if not all(type(part) in KEYS for part in (key if type(key) is tuple else (key,))):
            raise pickle.UnpicklingError("it has keys that are neither texts nor numbers")
    return keys
