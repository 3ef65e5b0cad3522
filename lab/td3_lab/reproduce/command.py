"""`td3 reproduce`: list the stored rows, or run rows again and compare them with what is stored."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.errors import RunError
from td3.run.directory import Run, named_seeds, read_facts, versions
from td3.statistics import Comparison, compare
from td3_lab.reproduce.figures import (
    LAST,
    Curve,
    figures,
    last_evaluations,
    of_seeds,
    read_curve,
    shared,
    with_interval,
)
from td3_lab.reproduce.rows import ROWS, TABLES, Row, selected
from td3_lab.reproduce.store import require_same_settings, require_storable, store

MARGIN = 0.1
"""Share of the stored return within which a new run counts as equivalent."""
STORED_DIGITS = 1e-3
"""How exactly evaluations are stored."""


def listing(results: Path) -> list[str]:
    """A line for each row: its figures, or that it was not run."""
    _require_folder(results)
    lines, width = [], max(len(row.name) for row in ROWS)
    for table, title in TABLES.items():
        lines.append(f"{table}: {title}")
        for row in (row for row in ROWS if row.table == table):
            curve = read_curve(results / row.name)
            lines.append(f"  {row.name:<{width}}  {described(curve) if curve else 'not run'}")
    return [*lines, "`td3 reproduce ROW` trains a row and compares it; --seeds and --steps make it shorter."]


def _require_folder(results: Path) -> None:
    if not results.is_dir():
        raise RunError(f"{results} is not a folder: use `td3 reproduce` in a checkout of td3, or give --results.")


def described(curve: Curve) -> str:
    """The mean over the last ten evaluations with its interval, and what it took."""
    found, made = figures(curve), curve.made
    seeds = f"{found.seeds} seed{'s' * (found.seeds > 1)}, {curve.steps[-1]:,} env steps"
    took = f", {made['seconds']:,.0f} s on {made['hardware']}" if made.get("seconds") else ""
    return f"{with_interval(found.last, found.last_low, found.last_high)}, {seeds}{took}"


def reproduce(
    names: Sequence[str],
    results: Path,
    out: Path,
    shorter: dict[str, Any],
    hardware: str | None,
    train: Callable[[Any, Path], Run],
    say: Callable[[str], None],
    interrupted: bool = False,
) -> list[dict[str, Any]]:
    """Run these rows, or continue them in `out`; say how each compares with the stored one, or store it.

    `shorter` has another `first_seed` or other numbers of `seeds` or `steps` than the rows' own; such runs have folders
    of their own. Some of a row's seeds are stored beside those that are stored already.
    `interrupted`: `train` returns runs as they are, and they are stored so.
    """
    rows = selected(tuple(names))
    _require_folder(results)
    if hardware is not None and "steps" in shorter:
        raise RunError("a stored row has its own number of env steps: leave out --steps, or --store.")
    if interrupted and hardware is None:
        raise RunError("--interrupted is for storing a run that has not finished: give --store HARDWARE too.")
    plans = [_plan(row, results, out, shorter, hardware) for row in rows]  # all are checked before one is trained
    found = []
    for row, trained, folder in plans:
        stored = read_curve(results / row.name)
        say(f"{row.name}: {trained.command}")
        if stored is not None and (seconds := stored.made.get("seconds")):
            say(f"{row.name}: the stored run trained for {seconds:,.0f} s on {stored.made['hardware']}")
        if row.dataset:
            train(selected((row.dataset,))[0].config(), out / row.dataset)
        run = train(trained.config(out), folder)
        facts: dict[str, Any] = {"row": row.name, "run": str(run.path)}
        if stored is not None:
            begun = run.config.td3.learning_starts  # an agent that was not trained says nothing
            ours, theirs = shared(Curve(*run.learning_curve(), {}, seeds=run.active_seeds), stored, after=begun)
            if not len(ours.steps):
                raise RunError(
                    f"{run.path} has no evaluation after its {begun:,} random steps at an env step of the stored run: "
                    "give more --steps."
                )
            facts["identical"] = identical(ours, theirs)
            comparison = against(ours, of_seeds(theirs, ours.seeds) if facts["identical"] else theirs)
            says = verdict_line(comparison, min(LAST, len(ours.steps)))
            if facts["identical"]:
                says = f"the same evaluations as in the stored run, {named_seeds(ours.seeds)}"
            say(f"{row.name}: {says}")
            # What so few seeds do not give has no number in JSON either.
            facts |= {name: None if value != value else value for name, value in comparison._asdict().items()}
        if hardware is not None:
            stored_in = store(run, row, results, hardware, interrupted)
            say(f"{row.name}: stored in {stored_in}; `make results` writes the tables.")
        elif stored is None:
            say(f"{row.name}: trained; nothing is stored to compare it with. --store HARDWARE stores it.")
        found.append(facts)
    return found


class _Plan(NamedTuple):
    """A row, what is trained of it, and where."""

    row: Row
    trained: Row
    folder: Path


def _plan(row: Row, results: Path, out: Path, shorter: Mapping[str, Any], hardware: str | None) -> _Plan:
    """What to train of a row; refused if it is to be stored and cannot be."""
    # Shorter data would be another dataset.
    given = {} if any(other.dataset == row.name for other in ROWS) else dict(shorter)
    if not given.get("first_seed"):
        given.pop("first_seed", None)
    elif "seeds" not in given:
        if (first := given["first_seed"]) >= row.seeds:
            raise RunError(
                f"{row.name} has {named_seeds(range(row.seeds))}: give --seeds too, to train {first} and on."
            )
        given = {"seeds": row.seeds - first, **given}  # the others
    trained = replace(row, **given)
    if "steps" in given and not row.dataset:  # the random steps of the whole row, not a tenth of these
        starts = row.config().td3.learning_starts
        if given["steps"] <= starts:
            raise RunError(
                f"--steps is {given['steps']:,}, and the first {starts:,} of {row.name} are random: give more."
            )
        trained = replace(trained, settings={"learning_starts": starts, **row.settings})
    folder = out / f"{row.name}{''.join(f'_{number}_{what}' for what, number in given.items())}"
    if hardware is not None:
        known = read_facts(folder / "versions.json") or versions()
        require_storable(row, trained.config(out).member_seeds, results / row.name, known)
        if (folder / "config.json").exists():
            require_same_settings(Run(folder), row)
    return _Plan(row, trained, folder)


def identical(ours: Curve, theirs: Curve) -> bool:
    """Whether seeds that both have gave the same returns; theirs may have others too."""
    return set(ours.seeds) <= set(theirs.seeds) and np.allclose(
        ours.returns, of_seeds(theirs, ours.seeds).returns, rtol=0, atol=STORED_DIGITS
    )


def against(ours: Curve, theirs: Curve) -> Comparison:
    """The last ten evaluations of a run against those of another at the same env steps."""
    before = last_evaluations(theirs)
    return compare(last_evaluations(ours), before, MARGIN * abs(float(before.mean())))


def verdict_line(comparison: Comparison, evaluations: int) -> str:
    """The comparison of the means of so many evaluations in one sentence."""
    ours, theirs = comparison.seeds
    verdicts = {
        "equivalent": "equivalent to the stored result",
        "better": "better than the stored result",
        "worse": "worse than the stored result",
        "undecided": "no difference shown, but too few seeds to call it equivalent",
        "too_few_seeds": f"no verdict from {min(ours, theirs)} seed{'s' * (min(ours, theirs) > 1)}",
    }
    low, high = comparison.low, comparison.high
    interval = "" if math.isnan(low) else f" (95 % interval {low:+,.1f} to {high:+,.1f})"
    return (
        f"{verdicts[comparison.verdict]}; last {evaluations} evaluation{'s' * (evaluations > 1)} differ by "
        f"{comparison.difference:+,.1f}{interval}, "
        f"margin {comparison.margin:,.1f}, {ours} against {theirs} seeds"
    )
