"""What the project has measured, as the page shows it: ten seeds of four bodies, and of TD3 with one part changed.

`data/bodies.json` comes from the stored rows of results/, which a wheel does not have (`make results` writes it).
`verdict` says what a change did to the return, as everywhere in this project: from at least five seeds, or not at all.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from td3.policy import Array
from td3.statistics import Comparison, compare, difference_interval, mean_interval
from td3_lessons.explain.breaks import RACE_UPDATES, RACES
from td3_lessons.explain.trace import lesson_trace
from td3_lessons.ladder.exact import solve

EVERY_UPDATES = 500
"""Updates between two stored moments of a race."""
MARGIN = 0.1
"""A change of the return below this share is called none, as in docs/results.md."""


def band(values: Array) -> list[list[float]]:
    """Mean over the seeds and both ends of its 95 % interval, point by point."""
    low, high = mean_interval(values)
    return [[rounded(value) for value in line] for line in (values.mean(0), low, high)]


def rounded(value: Any) -> float:
    """Five digits, as the page stores and shows them."""
    return float(f"{float(value):.5g}")


def _data(name: str) -> Any:
    return json.loads(resources.files("td3_lessons.explain").joinpath("data", name).read_text(encoding="utf-8"))


@cache
def stored_bodies() -> dict[str, Any]:
    """Belief, earnings and returns of DDPG and TD3 on four bodies, and what removing one part did to the return."""
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
        made[who] = {"believed": band(races()[who]["q"]), "earned": band(races()[who]["earned"])}
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
            "return": [rounded(at_the_end(one, "return").mean()) for one in (name, "td3")],
            "difference": [rounded(value) for value in (earned.difference, earned.low, earned.high)],
            "measure": [rounded(at_the_end(one, race.measure).mean()) for one in (name, "td3")],
            "apart": [rounded(end) for end in own],
            "bodies": {body: row["removed"][name] for body, row in stored_bodies().items() if name in row["removed"]},
        }
    return made
