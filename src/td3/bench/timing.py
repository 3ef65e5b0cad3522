"""Side by side: short slices of every rival in turn, so that whatever else the machine does meets them all alike."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Clock = Callable[[], float]
Name = TypeVar("Name", bound=Hashable)
SLICE_SECONDS = 0.15
"""Long against one update (a few ms) and against the change of threads, short against a neighbor's moods."""


def _nothing() -> None:
    """What a lane does that needs no preparation and waits for nobody."""


@dataclass(frozen=True)
class Case:
    """One rival: `prepare` before a slice, `work` again and again (it returns how much it did), `finish` to wait."""

    work: Callable[[], float]
    prepare: Callable[[], None] = _nothing
    finish: Callable[[], None] = _nothing


def interleave(
    cases: Mapping[Name, Case],
    seconds: float,
    slice_seconds: float = SLICE_SECONDS,
    clock: Clock = time.perf_counter,
) -> dict[Name, list[float]]:
    """Work per second of each lane in each round; rounds go on while another one fits into the time (one at least).

    Each round starts with another lane: nobody always follows the same neighbor.
    """
    names = list(cases)
    rates: dict[Name, list[float]] = {name: [] for name in names}
    start, longest = clock(), 0.0
    while True:
        began = clock()
        first = len(rates[names[0]]) % len(names)
        for name in names[first:] + names[:first]:
            rates[name].append(_rate(cases[name], slice_seconds, clock))
        longest = max(longest, clock() - began)
        if clock() - start + longest > seconds:
            return rates


def _rate(case: Case, seconds: float, clock: Clock) -> float:
    case.prepare()
    case.work()  # unmeasured: threads wake up, caches fill
    case.finish()
    start, done = clock(), 0.0
    while clock() - start < seconds:
        done += case.work()
    case.finish()
    return done / (clock() - start)


def summary(values: Sequence[float]) -> dict[str, float]:
    """The median over rounds, and the quartiles as its spread."""
    low, median, high = np.percentile(values, (25, 50, 75))
    return {"median": float(median), "low": float(low), "high": float(high)}


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """How many times as fast, round by round: what slowed down a round slowed down both."""
    return summary([mine / other for mine, other in zip(ours, theirs, strict=True)])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that reads well in a terminal and in Markdown."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (cell.ljust(width) if not i else cell.rjust(width) for i, (cell, width) in places(cells))
        return "| " + " | ".join((first, *others)) + " |"

    def places(cells: Sequence[str]) -> enumerate[tuple[str, int]]:
        return enumerate(zip(cells, widths, strict=True))

    ruler = ["-" * width if not i else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(headings), line(ruler), *map(line, rows)])


def spread(figures: Mapping[str, float], digits: int = 0) -> str:
    """Median and quartiles in words: `295 (281-301)`."""
    return "{median:,.{d}f} ({low:,.{d}f}-{high:,.{d}f})".format(**figures, d=digits)
