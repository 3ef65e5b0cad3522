"""Other functions in the place of some of the fifteen steps, and the state that they keep."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from td3.algorithm.registry import STEPS

Function = TypeVar("Function", bound=Callable[..., Any])
REPLACEABLE = range(4, 16)
"""Steps of an update. Steps 1 to 3 run once, when the agent is made."""
EXTRA = ("original", "step_state")
"""What a replacement may take besides the arguments of the step: the function it replaces, and its own tensors."""


class Replacement(NamedTuple):
    """One function in the place of a step, and its state: names, and numbers of each member under that name."""

    number: int
    function: Callable[..., Any]
    state: Mapping[str, int]

    @property
    def step_name(self) -> str:
        """The function that it replaces."""
        return STEPS[self.number].function.__name__


def replace_step(number: int, state: Mapping[str, int] | None = None) -> Callable[[Function], Function]:
    """Mark a function as a replacement of a step: `td3.train(env, replace=[function])`.

    The function takes the arguments of the step under the same names. It may also take `original`, the function that it
    replaces, to wrap it, and `step_state`, a dictionary of tensors `[member, size]` of its own, which start at 0, are
    changed in place, and are saved and restored with the agent: `state={"scale": 1}`.
    """

    def mark(function: Function) -> Function:
        function.__td3_replacement__ = Replacement(number, function, dict(state or {}))  # type: ignore[attr-defined]  # a mark
        return function

    return mark


def replacements_of(functions: Sequence[Callable[..., Any]]) -> tuple[Replacement, ...]:
    """The marks of these functions; raises `ValueError` for one that does not fit the step that it replaces."""
    found: list[Replacement] = []
    for function in functions:
        mark = getattr(function, "__td3_replacement__", None)
        if mark is None:
            name = getattr(function, "__name__", repr(function))
            raise ValueError(f"{name} replaces no step: mark it with @td3.replace_step(NUMBER).")
        _require_fitting(mark)
        before = next((other for other in found if other.number == mark.number), None)
        if before is not None and "original" not in _names(function):
            raise ValueError(
                f"step {mark.number} is replaced twice, by {before.function.__name__} and {function.__name__}: let the "
                "second take the argument `original` and wrap the first."
            )
        found.append(mark)
    return tuple(found)


def _require_fitting(mark: Replacement) -> None:
    name = mark.function.__name__
    if mark.number not in REPLACEABLE:
        raise ValueError(
            f"{name} is marked as step {mark.number!r}, and the steps of an update are 4 to 15: `td3 steps` lists them."
        )
    wanted = list(inspect.signature(STEPS[mark.number].function).parameters)
    given = [argument for argument in _names(mark.function) if argument not in EXTRA]
    if given != wanted:
        raise ValueError(
            f"step {mark.number} is {mark.step_name}({', '.join(wanted)}), and {name}({', '.join(given)}) was given "
            "for it: take the same arguments in the same order (and `original` or `step_state` after them, if needed)."
        )
    if mark.state and "step_state" not in _names(mark.function):
        raise ValueError(f"{name} declares state, but takes no argument `step_state`: add it.")
    for key, size in mark.state.items():
        if not key.isidentifier() or not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} declares state {key!r} of size {size!r}: give a name and a number of at least 1.")


def _names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


class StepChanges:
    """The replacements of an agent's update, in order, with their state."""

    def __init__(self, replacements: Sequence[Replacement], state: Sequence[dict[str, Tensor]]) -> None:
        self.replacements, self.state = tuple(replacements), list(state)

    @classmethod
    def create(
        cls, replacements: Sequence[Replacement], members: int, device: torch.device | str, dtype: torch.dtype
    ) -> "StepChanges":
        """State of zeros."""
        state = [
            {name: torch.zeros(members, size, device=device, dtype=dtype) for name, size in one.state.items()}
            for one in replacements
        ]
        return cls(replacements, state)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What is called instead, by the name of the step; a later replacement wraps an earlier one."""
        found: dict[str, Callable[..., Any]] = {}
        for (number, function, _), state in zip(self.replacements, self.state, strict=True):
            step = STEPS[number].function
            known = {"original": found.get(step.__name__, step), "step_state": state}
            taken = {name: known[name] for name in EXTRA if name in _names(function)}
            found[step.__name__] = partial(function, **taken) if taken else function
        return found

    def member(self, index: int) -> "StepChanges":
        """One member's part, in the same memory."""
        return self._derived(lambda tensor: tensor[index : index + 1])

    def copied(self, device: torch.device | str) -> "StepChanges":
        """The same again, in memory of its own."""
        return self._derived(lambda tensor: tensor.detach().to(device, copy=True))

    def _derived(self, derive: Callable[[Tensor], Tensor]) -> "StepChanges":
        return StepChanges(self.replacements, [{k: derive(t) for k, t in one.items()} for one in self.state])

    def tensors(self) -> dict[str, Tensor]:
        """All state by name, the member axis second to last."""
        return {
            f"step_{one.number}.{place}.{name}": tensor
            for place, (one, state) in enumerate(zip(self.replacements, self.state, strict=True))
            for name, tensor in state.items()
        }
