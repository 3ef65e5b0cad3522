"""The list of the fifteen steps: what `@step` marks, in the order in which TD3 takes them."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Step(NamedTuple):
    """One of the fifteen steps: its number, its title in plain words, and the function that does it."""

    number: int
    title: str
    function: Callable[..., Any]


STEPS: dict[int, Step] = {}


def step(number: int, title: str) -> Callable[[Function], Function]:
    """Register a function as a step and hand it back unchanged, so that calling it costs nothing more."""

    def register(function: Function) -> Function:
        if number in STEPS:
            raise ValueError(f"step {number} is already {STEPS[number].function.__name__}")
        STEPS[number] = Step(number, title, function)
        return function

    return register
