"""Other functions in the place of some of the fifteen steps, and the state that they keep."""

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from td3.algorithm.registry import STEPS

Function = TypeVar("Function", bound=Callable[..., Any])
FIRST = 4
REPLACEABLE = range(FIRST, 16)
"""Steps of an update. Steps 1 to 3 run once, when the agent is made."""
EXTRA = ("original", "step_state", "settings", "batch")
"""What a replacement may take besides the arguments of the step: the function it replaces, its own tensors, the
settings of TD3, and the batch of the update."""
State = Mapping[str, int | str]
"""Names of tensors, and how many numbers each member has of them: a number, `capacity` (the rows of its replay buffer),
`capacity/N` (an Nth of them, rounded up) or `capacity/N*M` (M times as many)."""


class Replacement(NamedTuple):
    """One function in the place of a step, and its state; functions with the same `state` object share its tensors."""

    number: int
    function: Callable[..., Any]
    state: State

    @property
    def step_name(self) -> str:
        """The function that it replaces."""
        return STEPS[self.number].function.__name__


def replace_step(number: int, state: State | None = None) -> Callable[[Function], Function]:
    """Mark a function as a replacement of a step: `td3.train(env, replace_steps=[function])`.

    The function takes the arguments of the step under the same names. It may also take

    - `original`: the function that it replaces, to wrap it;
    - `step_state`: a dictionary of tensors `[member, size]` of its own, which start at 0, are changed in place, and are
      saved and restored with the agent. `state={"scale": 1}` declares them. The size "capacity" has a number for each
      row of the replay buffer, "capacity/N" one for each N rows, "capacity/N*M" M times as many. Functions that are
      given the same dictionary share its tensors;
    - `settings`: the settings of TD3 (`td3.config.TD3Config`);
    - `batch`: the batch of the update, with its `indices` in the replay buffer (from step 5 on).
    """
    if callable(number):
        raise ValueError(
            f"{getattr(number, '__name__', number)} is decorated with @td3.replace_step without a number: write "
            "@td3.replace_step(NUMBER), with the number of the step that it replaces (`td3 steps` lists them)."
        )

    def mark(function: Function) -> Function:
        declared = {} if state is None else state
        function.__td3_replacement__ = Replacement(number, function, declared)  # type: ignore[attr-defined]  # a mark
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
        if not inspect.isfunction(inspect.unwrap(function)):
            raise ValueError(f"{function!r} replaces step {mark.number} and is no function: write one with def.")
        _require_fitting(mark)
        before = next((other for other in found if other.number == mark.number), None)
        if before is not None and "original" not in _names(function):
            raise ValueError(
                f"step {mark.number} is replaced twice, by {before.function.__name__} and {function.__name__}: let the "
                "second take the argument `original` and wrap the first."
            )
        found.append(mark)
    return tuple(found)


def outer_variables(function: FunctionType) -> dict[str, Any]:
    """Variables that a function and those inside it use beside their own: global ones and enclosing ones."""
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    names = dict.fromkeys(name for code in codes for name in code.co_names if name in function.__globals__)
    found = {name: function.__globals__[name] for name in names}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            found[name] = cell.cell_contents
    return found


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
            f"for it: take the same arguments in the same order (and after them, if needed, {' or '.join(EXTRA)})."
        )
    if mark.number == FIRST and "batch" in _names(mark.function):
        raise ValueError(f"{name} takes `batch`, which step {FIRST} itself samples: take it in a later step.")
    if not isinstance(mark.state, Mapping):
        raise ValueError(f'{name} declares state {mark.state!r}: give names and sizes, as in state={{"scale": 1}}.')
    if mark.state and "step_state" not in _names(mark.function):
        raise ValueError(f"{name} declares state, but takes no argument `step_state`: add it.")
    for key, size in mark.state.items():
        if not isinstance(key, str) or not key.isidentifier() or _size(size, 1) < 1:
            raise ValueError(
                f"{name} declares state {key!r} of size {size!r}: give a name, and a whole number of at least 1, "
                "capacity, capacity/N or capacity/N*M."
            )


def _size(size: int | str, capacity: int) -> int:
    """The numbers that a declared size means; 0 if it means nothing."""
    if not isinstance(size, str):
        return size if isinstance(size, int) and not isinstance(size, bool) else 0
    found = re.fullmatch(r"capacity(?:/([1-9][0-9]{0,8})(?:\*([1-9][0-9]{0,8}))?)?", size)
    return 0 if found is None else -(-capacity // int(found[1] or 1)) * int(found[2] or 1)


def state_numbers(replacements: Sequence[Replacement], capacity: int) -> int:
    """The numbers that a member's state has, of all declarations."""
    declared = {id(one.state): one.state for one in replacements}
    return sum(_size(size, capacity) for state in declared.values() for size in state.values())


def _names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


class StepState(dict[str, Tensor]):
    """The state of replaced steps: tensors that are changed in place, as recorded updates know them."""

    def __setitem__(self, name: str, value: Tensor) -> None:
        """Accept the result of `step_state["x"] += 1`, which is the same tensor; refuse another one."""
        if value is not self.get(name):
            raise TypeError(f"step_state[{name!r}] is another tensor now: change it in place, by .copy_() or .add_()")

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("step_state keeps its tensors: change them in place, by .copy_() or .add_()")

    update = __ior__ = __delitem__ = pop = popitem = clear = setdefault = _refuse


class StepChanges:
    """The replacements of an agent's update, in order, and one dictionary of state for each declaration."""

    batch: Any = None
    """The batch of the update under way, for the functions that take it."""
    trains_critics = True
    """Whether the critics of the package changed when the steps were tried."""

    def __init__(
        self, replacements: Sequence[Replacement], state: Mapping[int, dict[str, Tensor]], capacity: int
    ) -> None:
        self.replacements, self.state, self.capacity = tuple(replacements), dict(state), capacity

    @classmethod
    def create(
        cls,
        replacements: Sequence[Replacement],
        members: int,
        capacity: int,
        device: torch.device | str,
        dtype: torch.dtype,
    ) -> "StepChanges":
        """State of zeros, for replay buffers of so many rows."""

        def zeros(size: int | str) -> Tensor:
            return torch.zeros(members, _size(size, capacity), device=device, dtype=dtype)

        declared = {id(one.state): one.state for one in replacements}
        state = {key: StepState({name: zeros(size) for name, size in one.items()}) for key, one in declared.items()}
        return cls(replacements, state, capacity)

    def functions(self, settings: Any) -> dict[str, Callable[..., Any]]:
        """What is called instead, by the name of the step; a later replacement wraps an earlier one."""
        found: dict[str, Callable[..., Any]] = {}
        for number, function, state in self.replacements:
            step = STEPS[number].function
            original = found.get(step.__name__, step)
            known = {"original": original, "step_state": self.state[id(state)], "settings": settings}
            taken = {name: known[name] for name in known if name in _names(function)}
            bound = partial(function, **taken) if taken else function
            found[step.__name__] = self._with_batch(bound) if "batch" in _names(function) else bound
        return found

    def _with_batch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **keywords: function(*arguments, batch=self.batch, **keywords)

    def member(self, index: int) -> "StepChanges":
        """One member's part, in the same memory."""
        # Not a slice of the tensor itself: members that learn in threads must not share autograd's count of changes.
        return self._derived(lambda tensor: tensor.data[index : index + 1])

    def copied(self, device: torch.device | str) -> "StepChanges":
        """The same again, in memory of its own."""
        return self._derived(lambda tensor: tensor.detach().to(device, copy=True))

    def _derived(self, derive: Callable[[Tensor], Tensor]) -> "StepChanges":
        state = {
            key: StepState({name: derive(tensor) for name, tensor in one.items()}) for key, one in self.state.items()
        }
        derived = StepChanges(self.replacements, state, self.capacity)
        derived.trains_critics = self.trains_critics
        return derived

    def tensors(self) -> dict[str, Tensor]:
        """All state by name, the member axis second to last."""
        return {
            f"{prefix}.{name}": tensor
            for prefix, one in self._declared().items()
            for name, tensor in self.state[id(one)].items()
        }

    def growing(self) -> set[str]:
        """The names of state whose size depends on the capacity of the replay buffer, which a longer run may raise."""
        declared = self._declared().items()
        return {f"{prefix}.{name}" for prefix, one in declared for name, size in one.items() if isinstance(size, str)}

    def _declared(self) -> dict[str, State]:
        """Each declaration of state once, by the first function that has it."""
        names: dict[int, tuple[str, State]] = {}
        for place, one in enumerate(self.replacements):
            names.setdefault(id(one.state), (f"step_{one.number}.{place}", one.state))
        return dict(names.values())
