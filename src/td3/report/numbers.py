"""Numbers as a report prints them: few digits, a true minus sign."""

from typing import Any

import numpy as np

MISSING = "\u2013"


def number(value: float, sign: str = "") -> str:
    """As many digits as are meaningful, with a true minus sign."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    return f"{value:{sign},.{digits}f}".replace("-", "\u2212")


def span(low: float, high: float, sign: str = "") -> str:
    """`1.0 to 2.0`."""
    return f"{number(low, sign)} to {number(high, sign)}"


def interval(low: float, high: float) -> str:
    """A confidence interval; a dash if there is none."""
    return MISSING if np.isnan(low) else span(low, high)


def duration(seconds: float) -> str:
    """`12 s`, `5 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f}\u00a0s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}\u00a0h {minutes}\u00a0min" if hours else f"{minutes}\u00a0min"


def setting(value: Any) -> str:
    """The value of a setting."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
