"""Unpickling of data alone: numbers, arrays, spaces, noises, buffers, and the names of known classes.

A pickle is a program. This reader resolves the functions and classes that stand for data in files of
Stable-Baselines3, and no others: nothing is imported for a file, and nothing of a file is executed.
"""

import io
import pickle
import sys
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.noise import ActionNoise

DATA = {
    "builtins": {"bytearray", "complex", "frozenset", "object", "range", "set", "slice"},
    "collections": {"OrderedDict", "deque"},
    "copyreg": {"_reconstructor"},
    "numpy": {"bool", "bool_", "dtype", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "ndarray"}
    | {"uint8", "uint16", "uint32", "uint64"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.random._pickle": {"__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"},
    "numpy.random._pcg64": {"PCG64"},
    "numpy.random._mt19937": {"MT19937"},
    "numpy.random.bit_generator": {"__pyx_unpickle_SeedSequence", "SeedSequence"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
    "pathlib._local": {"Path", "PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
    "torch": {"device"},
    "stable_baselines3.common.type_aliases": {"TrainFreq", "TrainFrequencyUnit"},
    "stable_baselines3.common.utils": {"ConstantSchedule", "FloatSchedule", "LinearSchedule"},
    "stable_baselines3.her.goal_selection_strategy": {"GoalSelectionStrategy"},
}
"""Functions and classes that make data of data, by module."""


class Reference:
    """A class that is named in a pickle, and that the pickle cannot call."""

    def __init__(self, named: type) -> None:
        self.named = named


def loads(content: bytes) -> Any:
    """The pickled data; raises `pickle.UnpicklingError` with the reason for anything that is more than data."""
    try:
        return _resolved(_Reader(io.BytesIO(content)).load())
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """A class that makes data; a reference to one that a model names; nothing else."""
        if "." not in name and module in sys.modules:
            found = getattr(sys.modules[module], name, None)
            if name in DATA.get(module, ()) or _is(found, gym.Space, BaseBuffer, ActionNoise):
                return found
            if isinstance(found, type) and _is(found, torch.nn.Module, torch.optim.Optimizer):
                return Reference(found)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is not data")


def _is(found: Any, *kinds: type) -> bool:
    return isinstance(found, type) and issubclass(found, kinds)


def _resolved(value: Any) -> Any:
    """The value with classes in the place of references to them, in containers too."""
    if isinstance(value, Reference):
        return value.named
    if type(value) in (list, tuple):
        return type(value)(_resolved(one) for one in value)
    if type(value) is dict:
        return {key: _resolved(one) for key, one in value.items()}
    return value
