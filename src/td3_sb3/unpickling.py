"""Unpickling of data alone: numbers, arrays, spaces, noises, buffers, and the names of known classes.

A pickle is a program, so it is not run: `opcodes` reads it into a tree, and the few types that files of
Stable-Baselines3 hold are made from the tree's data, after a check of each. Nothing is imported for a file, nothing
of a file is executed, and what it can change are the objects that were made for it.
"""

import math
import pathlib
import pickle
import re
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from td3.policy import Array
from td3.resources import available_memory
from td3_sb3.opcodes import Call, Name, read

DTYPE = re.compile(r"[?bBiufcSU][0-9]{1,9}|O8?")
"""Numbers, texts and objects; nothing that consists of several fields."""
NUMBER_TYPES = {"bool", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64"} | {
    *("uint8", "uint16", "uint32", "uint64")
}
SCHEDULES = {"ConstantSchedule", "FloatSchedule", "LinearSchedule"}
PLAIN = {int, float, bool, str, bytes, bytearray, set, frozenset, type(None)}
LONGEST_RANGE = 1_000_000
SMALL = 1 << 26
"""Bytes that any file may take."""


def loads(content: bytes) -> Any:
    """The pickled data; raises `pickle.UnpicklingError` with the reason for anything that is more than data."""
    free = available_memory() or math.inf
    try:
        return _Builder(4 * len(content) + SMALL).build(read(content, free / 2))
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None


class _Builder:
    """Makes objects of a tree, each once, also where the tree has it several times; `room` is in bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.built: dict[int, tuple[Any, Any]] = {}
        """By the id of what is in the tree: that, which keeps its id, and the object; None while it is made."""

    def build(self, value: Any) -> Any:
        """The object for a part of the tree."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is Name:
            return _known_class(value)
        if id(value) not in self.built:
            self.built[id(value)] = value, None
            self.built[id(value)] = value, MAKERS_BY_KIND[kind](self, value)
        elif self.built[id(value)][1] is None:
            raise pickle.UnpicklingError("it contains itself")
        return self.built[id(value)][1]

    def _list(self, values: list[Any]) -> list[Any]:
        self.built[id(values)] = values, values
        for index, value in enumerate(values):
            values[index] = self.build(value)
        return values

    def _dict(self, values: dict[Any, Any]) -> dict[Any, Any]:
        self.built[id(values)] = values, values
        for key in values:
            values[key] = self.build(values[key])
        return values

    def _tuple(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([self.build(value) for value in values])

    def _call(self, call: Call) -> Any:
        maker, has = MAKERS.get(call.made_by, (None, ""))
        if maker is None:
            return self._instance(call, _known_class(call.made_by, gym.Space, BaseBuffer, ActionNoise))
        for part in ("state", "items", "pairs"):
            if part not in has and getattr(call, part):
                raise pickle.UnpicklingError(f"it gives {part} to {call.made_by.name}, which has none")
        return maker(self, call)

    def _instance(self, call: Call, known: type) -> Any:
        """An object of a known class, with its attributes and without a call of its constructor."""
        _require(not call.arguments and not call.items and not call.pairs, call)
        instance: Any = object.__new__(known)
        self.built[id(call)] = call, instance
        state = {} if call.state is None else self.build(call.state)
        named = type(state) is dict and all(type(name) is str and not name.startswith("__") for name in state)
        _require(named, call)
        if hasattr(known, "__setstate__"):
            instance.__setstate__(state)
        else:
            vars(instance).update(state)
        return instance

    def _schedule(self, call: Call) -> Any:
        return self._instance(call, vars(sys.modules[call.made_by.module])[call.made_by.name])

    def _reconstructed(self, call: Call) -> Any:
        """As classes are pickled by protocols before 2, and rows by `RowReplayBuffer`."""
        known, *rest = call.arguments
        _require(type(known) is Name and rest == [Name("builtins", "object"), None], call)
        same = Call(known, ())
        same.state = call.state
        return self.build(same)

    def _take(self, count: int) -> None:
        self.room -= count
        if self.room < 0:
            raise pickle.UnpicklingError("its objects need far more memory than the file has bytes")

    # Containers and numbers of Python

    def _numbers(self, call: Call, *kinds: type) -> list[Any]:
        _require(all(type(value) in kinds for value in call.arguments), call)
        return list(call.arguments)

    def _range(self, call: Call) -> range:
        made = range(*self._numbers(call, int))
        _require(len(made) <= LONGEST_RANGE, call)
        return made

    def _slice(self, call: Call) -> slice:
        return slice(*self._numbers(call, int, type(None)))

    def _complex(self, call: Call) -> complex:
        return complex(*self._numbers(call, int, float))

    def _bytearray(self, call: Call) -> bytearray:
        content, *encoding = call.arguments or (b"",)
        if type(content) is str and encoding == ["latin-1"]:
            content = content.encode("latin-1")
        _require(type(content) is bytes, call)
        self._take(len(content))
        return bytearray(content)

    def _set(self, call: Call) -> Any:
        (items,) = call.arguments or ([],)
        _require(type(items) is list and all(type(item) in PLAIN for item in items), call)
        self._take(100 * len(items))
        return {"set": set, "frozenset": frozenset}[call.made_by.name](items)

    def _deque(self, call: Call) -> deque[Any]:
        items, longest = (*call.arguments, None)[:2] if call.arguments else ((), None)
        _require(type(items) in (list, tuple) and type(longest) in (int, type(None)), call)
        made = deque[Any](maxlen=longest)
        self.built[id(call)] = call, made
        self._take(10 * len(items))
        made.extend(self.build(item) for item in [*items, *call.items])
        return made

    def _ordered_dict(self, call: Call) -> OrderedDict[Any, Any]:
        _require(call.arguments == (), call)
        made = OrderedDict[Any, Any]()
        self.built[id(call)] = call, made
        made.update((key, self.build(value)) for key, value in call.pairs)
        return made

    def _path(self, call: Call) -> pathlib.PurePath:
        _require(all(type(part) is str for part in call.arguments), call)
        pure = call.made_by.name if call.made_by.name.startswith("Pure") else "Path"
        return getattr(pathlib, pure)(*call.arguments)  # type: ignore[no-any-return]  # one of three names

    def _device(self, call: Call) -> torch.device:
        name, *index = call.arguments
        _require(type(name) is str and all(type(number) is int for number in index), call)
        return torch.device(name, *index)

    def _train_freq(self, call: Call) -> TrainFreq:
        frequency, unit = call.arguments
        return TrainFreq(self.build(frequency), self.build(unit))

    def _member(self, call: Call) -> Any:
        (value,) = call.arguments
        _require(type(value) in (str, int), call)
        return {"TrainFrequencyUnit": TrainFrequencyUnit}.get(call.made_by.name, GoalSelectionStrategy)(value)

    # NumPy

    def _dtype(self, call: Call) -> np.dtype[Any]:
        code, state = call.arguments[0], call.state
        _require(type(code) is str and DTYPE.fullmatch(code) is not None, call)
        made: np.dtype[Any] = np.dtype(code)
        _require(made.itemsize > 0, call)
        if state is not None:
            _require(type(state) is tuple and state[1] in ("<", ">", "|", "=") and state[2:5] == (None,) * 3, call)
            made = made.newbyteorder(state[1]) if state[1] in "<>" else made
        return made

    def _raw(self, call: Call, raw: Any, dtype: Any, shape: Any) -> np.dtype[Any]:
        """The data type of an array whose bytes fit its shape."""
        _require(type(dtype) is Call and type(raw) in (bytes, bytearray), call)
        known: np.dtype[Any] = self.build(dtype)
        _require(type(shape) is tuple and all(type(size) is int and size >= 0 for size in shape), call)
        _require(isinstance(known, np.dtype) and known.kind != "O", call)
        _require(math.prod(shape) * known.itemsize == len(raw), call)
        self._take(len(raw))
        return known

    def _array(self, call: Call) -> Array:
        _require(call.arguments[0] == Name("numpy", "ndarray") and type(call.state) is tuple, call)
        _, shape, dtype, by_columns, content = call.state
        if type(content) is list:
            _require(self.build(dtype) == np.dtype("O") and math.prod(shape) == len(content), call)
            flat = np.empty(len(content), object)
            self._take(flat.nbytes)
            for index, value in enumerate(content):
                flat[index] = self.build(value)
            return flat.reshape(shape, order="F" if by_columns else "C")
        known = self._raw(call, content, dtype, shape)
        made: Array = np.ndarray((0,), np.uint8)
        cast(Any, made).__setstate__((1, shape, known, bool(by_columns), bytes(content)))
        return made

    def _array_of_buffer(self, call: Call) -> Array:
        raw, dtype, shape, order, *axes = call.arguments
        known = self._raw(call, raw, dtype, shape)
        made = np.frombuffer(raw, known) if raw else np.empty(0, known)
        if order == "K" and axes:
            return made.reshape(shape).transpose(axes[0])
        return made.reshape(shape, order=order)

    def _scalar(self, call: Call) -> Any:
        dtype, raw = call.arguments
        return np.frombuffer(raw, self._raw(call, raw, dtype, ()))[0]

    # Random streams of NumPy

    def _bit_generator(self, call: Call) -> np.random.BitGenerator:
        (named,) = call.arguments
        name = named.name if type(named) is Name else named
        _require(name in ("PCG64", "MT19937"), call)
        state, seeds = call.state if type(call.state) is tuple else (call.state, None)
        made: np.random.BitGenerator = getattr(np.random, name)(0 if seeds is None else self.build(seeds))
        if state is not None:
            inner = self.build(state)["state"]
            if name == "MT19937":  # not checked by NumPy, which reads there
                _require(len(inner["key"]) == 624 and type(inner["pos"]) is int and 0 <= inner["pos"] <= 624, call)
            made.state = state
        return made

    def _generator(self, call: Call) -> np.random.Generator:
        made = self.build(call.arguments[0])
        _require(isinstance(made, np.random.BitGenerator), call)
        return np.random.Generator(made)

    def _random_state(self, call: Call) -> np.random.RandomState:
        source, state = call.arguments[0], call.state
        if type(source) is str:
            source = Call(Name("numpy.random._pickle", "__bit_generator_ctor"), (source,))
        if state is not None:  # checked as that of a bit generator
            source.state = {name: state[name] for name in ("bit_generator", "state")}
        made = np.random.RandomState(self.build(source))
        if state is not None:
            made.set_state(self.build(state))
        return made

    def _seed_sequence(self, call: Call) -> np.random.SeedSequence:
        state = call.arguments[2] or call.state
        entropy, spawned, _, size, spawn_key = state
        _require(type(spawned) is int and type(size) is int and 4 <= size <= 1_000, call)
        _require(type(spawn_key) is tuple and all(type(number) is int for number in spawn_key), call)
        _require(type(entropy) is int or all(type(number) is int for number in entropy), call)
        return np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=size, n_children_spawned=spawned)


MAKERS_BY_KIND: dict[type, Callable[[_Builder, Any], Any]] = {
    **{list: _Builder._list, dict: _Builder._dict, tuple: _Builder._tuple, Call: _Builder._call},
}
_PATHS = ("Path", "PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath")
_MAKERS: dict[tuple[str, ...], tuple[Callable[[_Builder, Call], Any], str]] = {
    ("builtins.bytearray",): (_Builder._bytearray, ""),
    ("builtins.complex",): (_Builder._complex, ""),
    ("builtins.range",): (_Builder._range, ""),
    ("builtins.set", "builtins.frozenset"): (_Builder._set, ""),
    ("builtins.slice",): (_Builder._slice, ""),
    ("collections.OrderedDict",): (_Builder._ordered_dict, "pairs"),
    ("collections.deque",): (_Builder._deque, "items"),
    ("copyreg._reconstructor",): (_Builder._reconstructed, "state"),
    ("numpy.dtype",): (_Builder._dtype, "state"),
    ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"): (_Builder._array, "state"),
    ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"): (_Builder._scalar, ""),
    ("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer"): (_Builder._array_of_buffer, ""),
    ("numpy.random._pickle.__bit_generator_ctor",): (_Builder._bit_generator, "state"),
    ("numpy.random._pickle.__generator_ctor",): (_Builder._generator, ""),
    ("numpy.random._pickle.__randomstate_ctor",): (_Builder._random_state, "state"),
    ("numpy.random.bit_generator.__pyx_unpickle_SeedSequence",): (_Builder._seed_sequence, "state"),
    tuple(f"{module}.{name}" for module in ("pathlib", "pathlib._local") for name in _PATHS): (_Builder._path, ""),
    ("torch.device",): (_Builder._device, ""),
    ("stable_baselines3.common.type_aliases.TrainFreq",): (_Builder._train_freq, ""),
    ("stable_baselines3.common.type_aliases.TrainFrequencyUnit",): (_Builder._member, ""),
    ("stable_baselines3.her.goal_selection_strategy.GoalSelectionStrategy",): (_Builder._member, ""),
    tuple(f"stable_baselines3.common.utils.{name}" for name in SCHEDULES): (_Builder._schedule, "state"),
}
MAKERS = {Name(*name.rsplit(".", 1)): maker for names, maker in _MAKERS.items() for name in names}
"""How each type is made, and which of state, items and pairs it takes after its arguments."""


def _known_class(named: Name, *kinds: type) -> type:
    """A class that a file may name: of numbers, or one of these kinds that the process has already."""
    if named.module == "numpy" and named.name in NUMBER_TYPES and not kinds:
        return getattr(np, named.name)  # type: ignore[no-any-return]  # a class of numbers
    found = vars(sys.modules[named.module]).get(named.name) if named.module in sys.modules else None
    usual = gym.Space, BaseBuffer, ActionNoise, torch.nn.Module, torch.optim.Optimizer
    if not isinstance(found, type) or not issubclass(found, kinds or usual):
        raise pickle.UnpicklingError(f"it names {named.module}.{named.name}, which is not data")
    return found


def _require(condition: bool, call: Call) -> None:
    if not condition:
        raise pickle.UnpicklingError(f"its {call.made_by.name} is not as Stable-Baselines3 writes it")
