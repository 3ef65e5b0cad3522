"""What a replaced step does that a repetition of its tensor operations would leave out."""

import contextlib
import copy
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import jaxtyping
import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from td3.algorithm.replacing import outer_variables
from td3.algorithm.step_01_replay_buffer import ReplayBuffer

PACKAGE = str(Path(__file__).parents[1])
LIBRARIES = (contextlib.__file__, str(Path(torch.__file__).parent), str(Path(jaxtyping.__file__).parent), "<@beartype")
"""Decorators, PyTorch, and the shape checks of the tests."""

SIMPLE = (bool, int, float, complex, str, bytes, type(None))
TENSORS = (Tensor, np.ndarray)


class Unrepeated(NamedTuple):
    """What a step does, in words that follow its name."""

    what: str
    lost: bool = False
    """Whether a resumed run could not find it again."""


@contextlib.contextmanager
def watched(function: Callable[..., Any], found: set[Unrepeated]) -> Iterator[None]:
    """Add what a call of the function does that a recording would not repeat."""
    variables, generators = _variables(function), _generators()
    with _Arrays(found), _Numbers(found):
        yield
    now = _variables(function)
    changed = (name for name in now if now[name] != variables.get(name))
    found |= {Unrepeated(f"changes {name}, which is not in step_state", lost=True) for name in changed}
    if _generators() != generators:
        drawn = "draws random numbers that do not come from `random`, so the run cannot be repeated"
        found.add(Unrepeated(drawn, lost=True))


def noting_reads(buffer: ReplayBuffer, found: set[Unrepeated]) -> ReplayBuffer:
    """The same replay buffer, which notes that a Python number was read: a recording keeps it as it was."""
    kind, same = type(buffer), copy.copy(buffer)

    def noting(name: str, read: Callable[[Any], int]) -> Callable[[Any], int]:
        def noted(self: Any) -> int:
            if not _asked_by_package():
                found.add(Unrepeated(f"reads {name}, a Python number (buffer.filled and buffer.total are tensors)"))
            return read(self)

        return noted

    reads = {name: property(noting(f"buffer.{name}", getattr(kind, name).fget)) for name in ("added", "oldest")}
    same.__class__ = type(kind.__name__, (kind,), {**reads, "__len__": noting("len(buffer)", kind.__len__)})
    return same


class _Arrays(TorchFunctionMode):
    """Notes that a tensor became an array or a list, which is no operation on tensors."""

    def __init__(self, found: set[Unrepeated]) -> None:
        super().__init__()
        self._found = found

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if getattr(function, "__name__", "") in ("numpy", "tolist", "__array__") and not _asked_by_package():
            self._found.add(Unrepeated("reads numbers out of a tensor (`.numpy()` or `.tolist()`)"))
        return function(*arguments, **(keywords or {}))


class _Numbers(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Notes that a number was read out of a tensor, or a size, except by the steps of the package themselves."""

    def __init__(self, found: set[Unrepeated]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._found = found

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if operation is torch.ops.aten._local_scalar_dense.default and not _asked_by_package():
            self._found.add(Unrepeated("reads a number out of a tensor (`.item()`, or an `if` on a tensor)"))
        if _has_a_size_of_its_own(operation, arguments) and not _asked_by_package():
            sized = "has a tensor whose size depends on numbers (a mask as an index: use torch.where)"
            self._found.add(Unrepeated(sized))
        return operation(*arguments, **(keywords or {}))


def _has_a_size_of_its_own(operation: Any, arguments: Any) -> bool:
    """Whether the size of the result depends on the numbers in the arguments, as with masks and `nonzero`."""
    if operation.overloadpacket is torch.ops.aten.index:
        return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in arguments[1])
    return torch.Tag.dynamic_output_shape in operation.tags


def _asked_by_package() -> bool:
    """Whether the innermost caller, of those that are not libraries, is code of the package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*LIBRARIES, __file__)):
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(PACKAGE)


def _variables(function: Callable[..., Any]) -> dict[str, Any]:
    """What the function, and those of its file that it calls, know beside their arguments, as it is now.

    These are global variables, enclosing ones, and attributes of functions.
    """
    found: dict[str, Any] = {}
    functions = [inspect.unwrap(function)]
    for one in functions:
        if not isinstance(one, FunctionType):
            continue
        for name, value in (outer_variables(one) | {f"{one.__name__}.{k}": v for k, v in vars(one).items()}).items():
            inner = inspect.unwrap(value) if callable(value) else None
            if isinstance(inner, FunctionType) and inner.__code__.co_filename == one.__code__.co_filename:
                functions += [inner] * (inner not in functions)
            if value is random:
                found["the state of the module random"] = random.getstate()
            elif not isinstance(value, ModuleType):
                found[name] = _seen(value)
    return found


def _seen(value: Any) -> Any:
    """Something that is equal as long as the value is the same."""
    if isinstance(value, SIMPLE):
        return value
    if isinstance(value, TENSORS):
        return id(value), value._version if isinstance(value, Tensor) else value.tobytes()
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, random.Random):
        return value.getstate()
    held = getattr(value, "__dict__", None)
    if held is None:  # lists, dictionaries, itertools.count, ...: what they show
        return id(value), repr(value)
    return id(value), [(name, _seen(one)) for name, one in held.items() if isinstance(one, (*SIMPLE, *TENSORS))]


def _generators() -> list[bytes]:
    """The states of PyTorch's and NumPy's random generators that all code shares."""
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]
    _, keys, *position = np.random.get_state()  # what a step might use
    return [*(state.numpy().tobytes() for state in states), np.asarray(keys).tobytes(), repr(position).encode()]
