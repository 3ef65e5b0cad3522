"""`td3 reproduce`: list the stored rows, or run rows again and compare them with what is stored."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from td3.config import resolve
from td3.errors import RunError
from td3.policy import Array
from td3.reproduce.figures import Curve, Figures, figures, last_evaluations, read_curve
from td3.reproduce.rows import ROWS, TABLES, Row, selected
from td3.run.directory import Run
from td3.statistics import Comparison, compare

MARGIN = 0.1
"""Share of the stored return within which a new run counts as equivalent."""


def listing(results: Path) -> list[str]:
    """A line for each row: its figures, or that it was not run."""
    lines = []
    for table, title in TABLES.items():
        lines.append(f"{table}: {title}")
        for row in (row for row in ROWS if row.table == table):
            curve = read_curve(results / row.name)
            lines.append(f"  {row.name:<32} {described(figures(curve)) if curve else 'not run'}")
    return lines


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
    train: Callable[[Any, Path], Run],
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Run these rows, or continue them in `out`, and say of each how it compares with the stored one."""
    rows = selected(tuple(names))
    missing = [row.name for row in rows if not (results / row.name).is_dir()]
    if len(missing) == len(rows):
        raise RunError(
            f"{results} has no stored result of {', '.join(missing)}: run `td3 reproduce` in a checkout of td3, or "
            "give its results folder by --results."
        )
    found = []
    for row in rows:
        stored = read_curve(results / row.name)
        if stored is None:
            say(f"{row.name}: not stored, skipped")
            continue
        say(f"{row.name}: {row.command}")
        run = train(config_of(row, seeds), out / row.name)
        comparison = against(run, stored)
        say(f"{row.name}: {verdict_line(comparison)}")
        found.append({"row": row.name, "run": str(run.path), **comparison._asdict()})
    return found


def config_of(row: Row, seeds: int | None = None) -> Any:
    """The configuration that trains a row."""
    given = {
        "steps": row.steps,
        "seeds": seeds or row.seeds,
        "eval_every": row.eval_every,
        "env_kwargs": row.env_kwargs,
        **row.settings,
        **({"variant": (row.variant,)} if row.variant else {}),
    }
    return resolve(row.env, row.preset, **given)


def against(run: Run, stored: Curve) -> Comparison:
    """The last ten evaluations of a new run against those of the stored one, at shared env steps."""
    steps, returns = run.learning_curve()
    new = Curve(steps, returns, {})
    shared = [step for step in steps.tolist() if step in set(stored.steps.tolist())]
    if not shared:
        raise RunError(f"{run.path} has no evaluation at an env step of the stored run.")
    return compare(_at(new, shared), _at(stored, shared), MARGIN * abs(float(_at(stored, shared).mean())))


def _at(curve: Curve, shared: Sequence[int]) -> Array:
    columns = [place for place, step in enumerate(curve.steps.tolist()) if step in set(shared)]
    return last_evaluations(curve._replace(steps=curve.steps[columns], returns=curve.returns[:, columns]))


def verdict_line(comparison: Comparison) -> str:
    """The comparison in one sentence."""
    ours, theirs = comparison.seeds
    verdicts = {
        "equivalent": "equivalent to the stored result",
        "better": "better than the stored result",
        "worse": "worse than the stored result",
        "undecided": "no verdict: the interval is too wide",
        "too_few_seeds": f"no verdict from {min(ours, theirs)} seeds",
    }
    interval = f"95 % interval {comparison.low:+,.1f} to {comparison.high:+,.1f}"
    return (
        f"{verdicts[comparison.verdict]}; difference {comparison.difference:+,.1f} ({interval}), "
        f"margin {comparison.margin:,.1f}, {ours} against {theirs} seeds"
    )
