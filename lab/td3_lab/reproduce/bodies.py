"""The rows of results/ that the explaining page shows; `make results` stores them in the page's data."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from td3.errors import RunError
from td3.policy import Array
from td3.statistics import compare, mean_interval
from td3_lab.reproduce.figures import VALUED_STEPS, Curve, at_steps, last_evaluations, read_curve, read_values
from td3_lessons.explain.evidence import MARGIN, band, rounded

BODIES = ("Hopper-v5", "Walker2d-v5", "Ant-v5", "HalfCheetah-v5")
VALUED = {"Hopper-v5": "hopper_v5_again"}
"""Rows of TD3 that have values, where the row with the returns was run before values were stored."""
REMOVED = {"first": "no_twin", "nosmooth": "no_smoothing", "nodelay": "no_delay", "timeout": "timeouts_terminate"}
"""Changes of the page that were also trained on the four bodies, by the name of their switch."""
EVERY = 20_000
"""Env steps between two drawn points."""


def row_of(body: str, change: str = "") -> str:
    """The name of a row in results/."""
    return body.lower().replace("-", "_") + (f"_{change}" if change else "")


def bodies(results: Path) -> dict[str, Any]:
    """Belief, earnings and returns of DDPG and TD3 on four bodies, and what removing one part did to the return."""
    return {body: _body(results, body) for body in BODIES}


def _body(results: Path, body: str) -> dict[str, Any]:
    td3, ddpg = (_returns(results, row_of(body, change)) for change in ("", "ddpg"))
    assert td3 is not None
    assert ddpg is not None
    removed = {
        change: _compared(run, td3)
        for change, row in REMOVED.items()
        if (run := _returns(results, row_of(body, row))) is not None
    }
    return {
        "td3": _believed(results, VALUED.get(body, row_of(body))) | {"return": rounded(td3.mean())},
        "ddpg": _believed(results, row_of(body, "ddpg")) | {"return": rounded(ddpg.mean())},
        "difference": _compared(ddpg, td3),
        "removed": removed,
    }


def _returns(results: Path, row: str) -> Array | None:
    """Each seed's mean return over its last ten evaluations up to 500,000 env steps."""
    curve: Curve | None = read_curve(results / row)
    return None if curve is None else last_evaluations(at_steps(curve, VALUED_STEPS))


def _believed(results: Path, row: str) -> dict[str, Any]:
    values = read_values(results / row)
    if values is None:
        raise RunError(f"{results / row} has no values.csv.")
    steps, believed, earned = values
    drawn = np.isin(steps, np.arange(0, VALUED_STEPS[-1] + 1, EVERY))
    last = np.isin(steps, VALUED_STEPS[-10:])
    apart = (believed - earned)[:, last].mean(1)
    low, high = mean_interval(apart)
    return {
        "row": row,
        "seeds": len(believed),
        "steps": steps[drawn].tolist(),
        "believed": band(believed[:, drawn]),
        "earned": band(earned[:, drawn]),
        "too_much": [rounded(apart.mean()), rounded(low), rounded(high)],
        "share": rounded(believed[:, last].mean() / earned[:, last].mean()),
    }


def _compared(ours: Array, theirs: Array) -> dict[str, Any]:
    made = compare(ours, theirs, MARGIN * abs(float(theirs.mean())))
    return {
        "verdict": made.verdict,
        "ours": rounded(ours.mean()),
        "theirs": rounded(theirs.mean()),
        "difference": [rounded(value) for value in (made.difference, made.low, made.high)],
        "seeds": min(made.seeds),
    }


if __name__ == "__main__":
    stored = Path(str(resources.files("td3_lessons.explain").joinpath("data", "bodies.json")))
    stored.write_text(json.dumps(bodies(Path("results")), separators=(",", ":")), encoding="utf-8")
