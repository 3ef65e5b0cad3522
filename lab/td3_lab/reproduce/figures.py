"""Stored learning curves and the figures that the tables print."""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from td3.errors import RunError
from td3.files import read_regular_file
from td3.policy import Array
from td3.statistics import interquartile_mean, iqm_interval, mean_interval
from td3_lab.reproduce.rows import ABLATED_STEPS, SHORT

LARGEST = 1 << 25
"""Bytes of a table beyond which it is not read."""
LAST = 10
"""Evaluations that the paper averages at the end of a run."""
VALUED_STEPS = np.arange(10_000, ABLATED_STEPS + 1, 10_000)
"""Env steps at which the critics' values of TD3 and of its ablations are compared."""


class Curve(NamedTuple):
    """Mean returns `[seed, evaluation]` at these env steps, and how they were made."""

    steps: Array
    returns: Array
    made: dict[str, Any]
    success: float | None = None
    """Mean success rate of the last ten evaluations, where the environment says whether an episode succeeded."""
    seeds: tuple[int, ...] = ()


class Figures(NamedTuple):
    """What a table says of one curve."""

    seeds: int
    highest: float
    highest_std: float
    highest_at: int
    last: float
    last_low: float
    last_high: float
    iqm: float
    iqm_low: float
    iqm_high: float
    area: float
    early: float | None


def read_curve(folder: Path) -> Curve | None:
    """The stored curve of a row; None where the row has not been run."""
    if not folder.is_dir():
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(read_regular_file(folder / "evaluations.csv", LARGEST).decode())))
        made = json.loads(read_regular_file(folder / "run.json", LARGEST))
        curves: dict[int, dict[int, float]] = defaultdict(dict)
        for row in rows:
            curves[int(row["seed"])][int(row["env_steps"])] = float(row["mean_return"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder} is not a stored result ({error}).") from None
    if not (shared := sorted(set.intersection(*(set(curve) for curve in curves.values())) if curves else ())):
        raise RunError(f"{folder} is not a stored result (its seeds share no evaluation).")
    returns = np.array([[curve[step] for step in shared] for _, curve in sorted(curves.items())])
    rates = [
        float(row["success_rate"]) for row in rows if "success_rate" in row and int(row["env_steps"]) in shared[-LAST:]
    ]
    return Curve(np.array(shared), returns, made, float(np.nanmean(rates)) if rates else None, (*sorted(curves),))


def read_values(folder: Path) -> tuple[Array, Array, Array] | None:
    """Env steps, and `[seed, time]` critic 1's values and the discounted returns that followed; None: not stored."""
    if not (folder / "values.csv").exists():
        return None
    try:
        lines = csv.DictReader(io.StringIO(read_regular_file(folder / "values.csv", LARGEST).decode()))
        found: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)
        for line in lines:
            found[int(line["seed"])][int(line["env_steps"])] = float(line["q_value"]), float(line["discounted_return"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / 'values.csv'} cannot be read ({error}).") from None
    if not found:
        return None
    shared = sorted(set.intersection(*(set(curve) for curve in found.values())))
    if not shared:
        return None
    both = np.array([[curve[step] for step in shared] for _, curve in sorted(found.items())])
    return np.array(shared), both[..., 0], both[..., 1]


def at_steps(curve: Curve, steps: Sequence[int] | Array) -> Curve:
    """The evaluations of a curve at those of these env steps that it has."""
    kept = np.isin(curve.steps, steps)
    return curve._replace(steps=curve.steps[kept], returns=curve.returns[:, kept])


def of_seeds(curve: Curve, seeds: Sequence[int]) -> Curve:
    """The curve of some of its seeds."""
    return curve._replace(returns=curve.returns[[curve.seeds.index(seed) for seed in seeds]], seeds=tuple(seeds))


def last_evaluations(curve: Curve) -> Array:
    """Each seed's mean over the last ten evaluations, as in the paper's table of ablations."""
    return np.asarray(curve.returns[:, -LAST:].mean(1))


def shared(one: Curve, other: Curve, after: int = -1) -> tuple[Curve, Curve]:
    """Two curves at env steps that both have, after this one."""
    steps = np.intersect1d(one.steps, other.steps)
    return at_steps(one, steps[steps > after]), at_steps(other, steps[steps > after])


def areas(curve: Curve) -> Array:
    """Each seed's mean over env steps: the area under its curve, divided by the env steps."""
    between = (curve.returns[:, 1:] + curve.returns[:, :-1]) / 2
    return np.asarray(between @ np.diff(curve.steps) / (curve.steps[-1] - curve.steps[0]))


def figures(curve: Curve) -> Figures:
    """Everything that the tables print of a curve."""
    means = curve.returns.mean(0)
    best, last = int(means.argmax()), last_evaluations(curve)
    low, high = mean_interval(last)
    iqm_low, iqm_high = iqm_interval(last)
    early = np.flatnonzero(curve.steps == SHORT)
    return Figures(
        seeds=len(last),
        highest=float(means[best]),
        highest_std=float(curve.returns[:, best].std()),
        highest_at=int(curve.steps[best]),
        last=float(last.mean()),
        last_low=float(low),
        last_high=float(high),
        iqm=float(interquartile_mean(last)),
        iqm_low=float(iqm_low),
        iqm_high=float(iqm_high),
        area=float(areas(curve).mean()),
        early=float(means[early[0]]) if len(early) else None,
    )


def with_interval(value: float, low: float, high: float) -> str:
    """A number with its interval, where there is one: a lone seed has none."""
    return as_text(value) + ("" if np.isnan(low) else f" ({as_text(low)} to {as_text(high)})")


def as_text(value: float) -> str:
    """A number as the tables print it."""
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
