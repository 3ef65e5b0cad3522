"""The numbers in an environment's `info`: what of it callbacks and logs get at the end of an episode."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

MOST_NUMBERS, LONGEST_NAME = 64, 64
"""Entries of an `info` that are kept, and characters of a name."""
FORMULA = ("=", "+", "-", "@")
"""How a formula begins in a spreadsheet."""
INFO_BYTES = 8_192
"""Room for the `info` of one environment in shared memory."""


def numbers_of(info: Any) -> dict[str, float]:
    """The finite numbers in an `info`, by printable name; True is 1. Everything else in it is left out."""
    numbers: dict[str, float] = {}
    for name, value in info.items() if isinstance(info, Mapping) else ():
        number = _number(value)
        if number is not None and isinstance(name, str) and len(name) <= LONGEST_NAME and len(numbers) < MOST_NUMBERS:
            numbers[_printable(name)] = number
    return numbers


def numbers_at(infos: Mapping[str, Any], index: int) -> dict[str, float]:
    """The same of one environment in the infos of a vector environment, where `_name` says who has a `name`."""
    row = {}
    for name, values in infos.items():
        present = infos.get(f"_{name}")
        if present is not None and not isinstance(values, Mapping) and index < len(values) and present[index]:
            row[name] = values[index]
    return numbers_of(row)


def encoded(numbers: Mapping[str, float]) -> bytes:
    """JSON for the shared memory, with as many numbers as there is room for."""
    entries = list(numbers.items())
    while len(text := json.dumps(dict(entries)).encode()) > INFO_BYTES:
        del entries[len(entries) // 2 :]
    return text


def decoded(text: bytes) -> dict[str, float]:
    """What was encoded."""
    numbers: dict[str, float] = json.loads(text) if text else {}
    return numbers


def _printable(name: str) -> str:
    """The name for a table: other characters are escaped, and nothing that a spreadsheet takes for a formula."""
    if name.isprintable() and not name.startswith(FORMULA):
        return name
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return f"'{printable}" if printable.startswith(FORMULA) else printable


def _number(value: Any) -> float | None:
    if isinstance(value, np.ndarray) and value.size == 1 and value.ndim == 0:
        value = value[()]
    if not isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
