"""Timing in rotating order: short slices of every case in turn, so that other load on the machine affects all alike."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Clock = Callable[[], float]
Name = TypeVar("Name", bound=Hashable)
SLICE_SECONDS = 0.15
"""Long compared with one update (a few ms) and a change of threads, short compared with changes of other load."""


def _nothing() -> None:
    """Preparation and end of a case that needs neither."""


@dataclass(frozen=True)
class Case:
    """One case: `prepare` before a slice, `work` repeatedly (returns the amount done), `finish` to synchronize.

    `kind` says how the work is done, in a word or two; ask it afterwards.
    """

    work: Callable[[], float]
    prepare: Callable[[], None] = _nothing
    finish: Callable[[], None] = _nothing
    kind: Callable[[], str] = str


def interleave(
    cases: Mapping[Name, Case],
    seconds: float,
    slice_seconds: float = SLICE_SECONDS,
    clock: Clock = time.perf_counter,
) -> dict[Name, list[float]]:
    """Work per second of each case in each round; at least one round, then as many as fit into the time.

    Each round starts with another case: none always follows the same one.
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
    """Speedup, round by round: other load in a round affects both."""
    return summary([mine / other for mine, other in zip(ours, theirs, strict=True)])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for the terminal, in Markdown."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (cell.ljust(width) if not i else cell.rjust(width) for i, (cell, width) in places(cells))
        return "| " + " | ".join((first, *others)) + " |"

    def places(cells: Sequence[str]) -> enumerate[tuple[str, int]]:
        return enumerate(zip(cells, widths, strict=True))

    ruler = ["-" * width if not i else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(headings), line(ruler), *map(line, rows)])


def spread(figures: Mapping[str, float], digits: int = 0) -> str:
    """Median and quartiles as text: `295 (281-301)`."""
    return "{median:,.{d}f} ({low:,.{d}f}-{high:,.{d}f})".format(**figures, d=digits)
