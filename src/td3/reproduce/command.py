"""`td3 reproduce`: list the stored rows, or run rows again and compare them with what is stored."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from td3.errors import RunError
from td3.reproduce.figures import Curve, Figures, at_steps, figures, last_evaluations, read_curve
from td3.reproduce.rows import ROWS, TABLES, selected
from td3.reproduce.store import store
from td3.run.directory import Run
from td3.statistics import Comparison, compare

MARGIN = 0.1
"""Share of the stored return within which a new run counts as equivalent."""


def listing(results: Path) -> list[str]:
    """A line for each row: its figures, or that it was not run."""
    _require_folder(results)
    lines = []
    for table, title in TABLES.items():
        lines.append(f"{table}: {title}")
        for row in (row for row in ROWS if row.table == table):
            curve = read_curve(results / row.name)
            lines.append(f"  {row.name:<32} {described(figures(curve)) if curve else 'not run'}")
    return lines


def _require_folder(results: Path) -> None:
    if not results.is_dir():
        raise RunError(f"{results} is not a folder: use `td3 reproduce` in a checkout of td3, or give --results.")


def described(found: Figures) -> str:
    """The mean over the last ten evaluations with its interval."""
    return (
        f"{found.last:,.1f} (95 % interval {found.last_low:,.1f} to {found.last_high:,.1f}, {found.seeds} seeds); "
        f"highest mean {found.highest:,.1f}"
    )


def reproduce(
    names: Sequence[str],
    results: Path,
    out: Path,
    seeds: int | None,
    hardware: str | None,
    train: Callable[[Any, Path], Run],
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Run these rows, or continue them in `out`; say how each compares with the stored one, or store it."""
    rows = selected(tuple(names))
    _require_folder(results)
    if hardware is not None and seeds is not None:
        raise RunError("a stored row has its own number of seeds: leave out --seeds, or --store.")
    found = []
    for row in rows:
        stored = read_curve(results / row.name)
        data = any(other.dataset == row.name for other in ROWS)  # with more seeds, it would be another dataset
        given = None if data else seeds
        say(f"{row.name}: {(row if given is None else replace(row, seeds=given)).command}")
        if stored is not None and (seconds := stored.made.get("seconds")):
            say(f"{row.name}: the stored run trained for {seconds:,.0f} s on {stored.made['hardware']}")
        if row.dataset:
            train(selected((row.dataset,))[0].config(), out / row.dataset)
        run = train(row.config(given, out), out / row.name)
        facts: dict[str, Any] = {"row": row.name, "run": str(run.path)}
        if stored is not None:
            comparison = against(run, stored)
            say(f"{row.name}: {verdict_line(comparison)}")
            # What so few seeds do not give has no number in JSON either.
            facts |= {name: None if value != value else value for name, value in comparison._asdict().items()}
        if hardware is not None:
            say(f"{row.name}: stored in {store(run, row, results, hardware)}; `make results` writes the tables.")
        elif stored is None:
            say(f"{row.name}: trained; nothing is stored to compare it with. --store HARDWARE stores it.")
        found.append(facts)
    return found


def against(run: Run, stored: Curve) -> Comparison:
    """The last ten evaluations of a new run against those of the stored one, at shared env steps."""
    steps, returns = run.learning_curve()
    new = Curve(steps, returns, {})
    ours, theirs = at_steps(new, stored.steps), at_steps(stored, steps)
    if not len(ours.steps):
        raise RunError(f"{run.path} has no evaluation at an env step of the stored run.")
    before = last_evaluations(theirs)
    return compare(last_evaluations(ours), before, MARGIN * abs(float(before.mean())))


def verdict_line(comparison: Comparison) -> str:
    """The comparison in one sentence."""
    ours, theirs = comparison.seeds
    verdicts = {
        "equivalent": "equivalent to the stored result",
        "better": "better than the stored result",
        "worse": "worse than the stored result",
        "undecided": "no verdict: the interval is too wide",
        "too_few_seeds": f"no verdict from {min(ours, theirs)} seed{'s' * (min(ours, theirs) > 1)}",
    }
    low, high = comparison.low, comparison.high
    interval = "" if math.isnan(low) else f" (95 % interval {low:+,.1f} to {high:+,.1f})"
    return (
        f"{verdicts[comparison.verdict]}; last ten evaluations differ by {comparison.difference:+,.1f}{interval}, "
        f"margin {comparison.margin:,.1f}, {ours} against {theirs} seeds"
    )
