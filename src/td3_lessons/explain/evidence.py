"""What the project has measured, as the page shows it: ten seeds of four bodies, and of TD3 with one part changed.

`bodies` reads the stored rows of results/; the export keeps what it gives in `data/bodies.json`, since a wheel has no
results/ (tests/lessons/explain/test_claims.py compares the two). `verdict` says what a change did to the return, as
everywhere in this project: from at least five seeds, or not at all.
"""

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from td3_lab.reproduce.figures import VALUED_STEPS, Curve, at_steps, last_evaluations, read_curve, read_values

from td3.errors import RunError
from td3.policy import Array
from td3.statistics import Comparison, compare, difference_interval, mean_interval
from td3_lessons.explain.breaks import RACE_UPDATES, RACES
from td3_lessons.explain.trace import lesson_trace
from td3_lessons.ladder.exact import solve

BODIES = ("Hopper-v5", "Walker2d-v5", "Ant-v5", "HalfCheetah-v5")
VALUED = {"Hopper-v5": "hopper_v5_again"}
"""Rows of TD3 that have values, where the row with the returns was run before values were stored."""
REMOVED = {"first": "no_twin", "nosmooth": "no_smoothing", "nodelay": "no_delay", "timeout": "timeouts_terminate"}
"""Changes of the page that were also trained on the four bodies, by the name of their switch."""
EVERY = 20_000
"""Env steps between two drawn points."""
EVERY_UPDATES = 500
"""Updates between two stored moments of a race."""
MARGIN = 0.1
"""A change of the return below this share is called none, as in docs/results.md."""


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
        "td3": _believed(results, VALUED.get(body, row_of(body))) | {"return": _rounded(td3.mean())},
        "ddpg": _believed(results, row_of(body, "ddpg")) | {"return": _rounded(ddpg.mean())},
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
        "believed": _band(believed[:, drawn]),
        "earned": _band(earned[:, drawn]),
        "too_much": [_rounded(apart.mean()), _rounded(low), _rounded(high)],
        "share": _rounded(believed[:, last].mean() / earned[:, last].mean()),
    }


def _band(values: Array) -> list[list[float]]:
    """Mean over the seeds and both ends of its 95 % interval, point by point."""
    low, high = mean_interval(values)
    return [[_rounded(value) for value in line] for line in (values.mean(0), low, high)]


def _compared(ours: Array, theirs: Array) -> dict[str, Any]:
    made = compare(ours, theirs, MARGIN * abs(float(theirs.mean())))
    return {
        "verdict": made.verdict,
        "ours": _rounded(ours.mean()),
        "theirs": _rounded(theirs.mean()),
        "difference": [_rounded(value) for value in (made.difference, made.low, made.high)],
        "seeds": min(made.seeds),
    }


def _rounded(value: Any) -> float:
    return float(f"{float(value):.5g}")


def _data(name: str) -> Any:
    return json.loads(resources.files("td3_lessons.explain").joinpath("data", name).read_text(encoding="utf-8"))


@cache
def stored_bodies() -> dict[str, Any]:
    """What the export has kept of `bodies`."""
    made: dict[str, Any] = _data("bodies.json")
    return made


@cache
def races() -> dict[str, dict[str, Array]]:
    """TD3 and each change of it trained on Rail: every measure as `[seed, moment]`."""
    stored = _data("race.json")
    return {name: {measure: np.array(values) for measure, values in run.items()} for name, run in stored.items()}


def at_the_end(name: str, measure: str) -> Array:
    """Each seed's mean over the last 1,000 updates of a race."""
    return np.asarray(races()[name][measure][:, -1_000 // EVERY_UPDATES :].mean(1))


def verdict(name: str, measure: str = "return") -> Comparison:
    """What a change did on Rail, against TD3 with the same seeds."""
    ours, theirs = at_the_end(name, measure), at_the_end("td3", measure)
    return compare(ours, theirs, MARGIN * abs(float(theirs.mean())))


SAID = {
    "better": "helps here",
    "worse": "hurts here",
    "equivalent": "makes no difference here",
    "undecided": "is undecided",
    "too_few_seeds": "cannot be judged from so few seeds",
}


def rail() -> dict[str, Any]:
    """Belief and earnings of both learners on Rail, as the bodies have them, and what the best policy earns."""
    moments = races()["td3"]["q"].shape[1]
    made: dict[str, Any] = {"steps": np.linspace(0, RACE_UPDATES, moments).tolist()}
    made["best"] = float(solve().v(lesson_trace().arrays["starts"].astype(float)).mean())
    for who in ("td3", "ddpg"):
        made[who] = {"believed": _band(races()[who]["q"]), "earned": _band(races()[who]["earned"])}
    return made


def verdicts() -> dict[str, dict[str, Any]]:
    """For the page: what every change did to the return and to its own measure, on Rail and on the four bodies."""
    made = {}
    for name, race in RACES.items():
        earned, own = (
            verdict(name),
            difference_interval(at_the_end(name, race.measure), at_the_end("td3", race.measure)),
        )
        made[name] = {
            "verdict": earned.verdict,
            "said": SAID[earned.verdict],
            "seeds": min(earned.seeds),
            "return": [_rounded(at_the_end(one, "return").mean()) for one in (name, "td3")],
            "difference": [_rounded(value) for value in (earned.difference, earned.low, earned.high)],
            "measure": [_rounded(at_the_end(one, race.measure).mean()) for one in (name, "td3")],
            "apart": [_rounded(end) for end in own],
            "bodies": {body: row["removed"][name] for body, row in stored_bodies().items() if name in row["removed"]},
        }
    return made
