"""What a replaced step does that a repetition of its tensor operations would leave out."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import jaxtyping
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from td3.algorithm.replacing import outer_variables

PACKAGE = str(Path(__file__).parents[1])
LIBRARIES = (str(Path(torch.__file__).parent), str(Path(jaxtyping.__file__).parent), "<@beartype")
"""PyTorch, and the shape checks of the tests."""


@contextlib.contextmanager
def watched(function: Callable[..., Any], found: set[str]) -> Iterator[None]:
    """Add what a call of the function does, in words that follow its name."""
    variables, generators = _variables(function), _generators()
    with _Numbers(found):
        yield
    now = _variables(function)
    found |= {f"changes {name}, which is not in step_state" for name in now if now[name] != variables.get(name)}
    if _generators() != generators:
        found.add("draws random numbers that do not come from `random`, so the run cannot be repeated")


class _Numbers(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Notes that a number was read out of a tensor, except by the steps of the package themselves."""

    def __init__(self, found: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._found = found

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if operation is torch.ops.aten._local_scalar_dense.default and not _asked_by_package():
            self._found.add("reads a number out of a tensor (`.item()`, or an `if` on a tensor)")
        return operation(*arguments, **(keywords or {}))


def _asked_by_package() -> bool:
    """Whether the innermost caller, of those that are not libraries, is code of the package."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*LIBRARIES, __file__)):
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(PACKAGE)


def _variables(function: Callable[..., Any]) -> dict[str, Any]:
    """What the function knows beside its arguments, as it is now: global variables, enclosing ones, attributes."""
    if not isinstance(function, FunctionType):
        return {}
    known = outer_variables(function)
    known |= {f"{function.__name__}.{name}": value for name, value in vars(function).items()}
    return {name: _seen(value) for name, value in known.items() if not isinstance(value, (ModuleType, type))}


def _seen(value: Any) -> Any:
    """Something that is equal as long as the value is the same."""
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        return value
    if isinstance(value, (list, tuple, set, dict)):
        return type(value), len(value), repr(value)[:1000]
    simple = (bool, int, float, str, type(None))
    return id(value), [item for item in getattr(value, "__dict__", {}).items() if isinstance(item[1], simple)]


def _generators() -> list[bytes]:
    """The states of PyTorch's and NumPy's random generators that all code shares."""
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [])]
    _, keys, *position = np.random.get_state()  # what a step might use
    return [*(state.numpy().tobytes() for state in states), np.asarray(keys).tobytes(), repr(position).encode()]
