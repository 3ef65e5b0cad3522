"""Rules for the fields of a configuration: which values are valid, and the error for the others."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

from td3.errors import ConfigError

Rule = tuple[str, str, Callable[[Any], bool]]
"""A field, what its value must be, and whether a value is."""
LARGEST = 2**63 - 1
"""Largest number in a configuration: counts have 64 bits."""


def whole(low: int, high: float = math.inf) -> Callable[[Any], bool]:
    """Whole numbers from `low` to `high`."""
    return lambda given: isinstance(given, int) and not isinstance(given, bool) and low <= given <= high


def within(low: float, high: float) -> Callable[[Any], bool]:
    """Numbers from `low` to `high`."""
    return lambda given: _number(given) and low <= given <= high


def up_to(high: float) -> Callable[[Any], bool]:
    """Positive numbers up to `high`."""
    return lambda given: _number(given) and 0 < given <= high


def _number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def one_of(kind: Any) -> Callable[[Any], bool]:
    """The values of a Literal type."""
    return lambda given: given in get_args(kind)


def optional(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """What a rule accepts, or None."""
    return lambda given: given is None or holds(given)


def is_a(kind: type) -> Callable[[Any], bool]:
    """Values of a type."""
    return lambda given: isinstance(given, kind)


def are_kwargs(given: Any) -> bool:
    """Whether these are keyword arguments of an environment that JSON can store."""
    if not isinstance(given, dict) or not all(isinstance(name, str) and name.isidentifier() for name in given):
        return False
    try:
        return (
            "render_mode" not in given
            and _is_shallow(given)
            and bool(json.loads(json.dumps(given, allow_nan=False)) == given)
        )
    except ValueError:
        return False


def _is_shallow(value: Any, levels: int = 32) -> bool:
    """Whether a value can be copied and written: Python's own stack ends some hundred levels down."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)


def check_fields(config: Any, rules: Sequence[Rule]) -> None:
    """Raise a `ConfigError` for the first field that breaks its rule."""
    for name, rule, holds in rules:
        given = getattr(config, name)
        numbers = given if isinstance(given, tuple | list) else (given,)
        if any(isinstance(number, int) and number > LARGEST for number in numbers):
            raise ConfigError(f"must be at most {LARGEST:,}, but {given!r} was given.", name)
        if not _holds(holds, given):
            raise ConfigError(f"must be {rule}, but {given!r} was given.", name)


def _holds(rule: Callable[[Any], bool], given: Any) -> bool:
    try:
        return rule(given)
    except TypeError:
        return False


def are_sizes(given: Any) -> bool:
    """Whether these are sizes of hidden layers."""
    return len(given) > 0 and all(map(whole(1), given))
