"""What follows from a definition, from the code, or from the one update that is drawn, as sentences that are recomputed."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from td3.environments.rail import FALL, move
from td3.policy import Array
from td3_lessons.explain.claim import Computed, claim
from td3_lessons.explain.rail_run import approaching
from td3_lessons.explain.trace import lesson_trace
from td3_lessons.ladder.climb import EPISODE


def _settings() -> Mapping[str, Any]:
    return dict(lesson_trace().facts["settings"])


@claim(
    "lag.half",
    "A target covers half of a jump in {moves} of its own moves, which is {updates} updates with a delay of {delay}; behind a "
    "steady drift it stays {behind:.0f} updates back.",
)
def _() -> Computed:
    tau, delay = _settings()["tau"], _settings()["policy_delay"]
    moves = int(np.ceil(np.log(0.5) / np.log(1 - tau)))
    return delay == 2, {"moves": moves, "updates": moves * delay, "delay": delay, "behind": delay * (1 / tau - 1)}


@claim(
    "lag.share",
    "Polyak averaging is not copying now and then: a target moves at every actor update, each time by {share:.1%}.",
)
def _() -> Computed:
    return True, {"share": _settings()["tau"]}


@claim(
    "lag.drawn",
    "One weight and its target over {updates:,} updates, with half-life and delay to scale; below, this update.",
)
def _() -> Computed:
    return True, {"updates": len(lesson_trace().arrays["lag.online"]) - 1}


@claim("delay.once", "The critics are fitted {delay} times between two changes of the policy that they evaluate.")
def _() -> Computed:
    return True, {"delay": {2: "two"}[_settings()["policy_delay"]]}


@claim(
    "task.reward",
    "Every step costs −(x² + 0.1 v² + 0.001 a²), so the middle is best; falling off an end costs {fall:.0f} more and ends the "
    "task; after 100 steps the time is up.",
)
def _() -> Computed:
    reward = float(move(np.float64(1.5), np.float64(0.5), np.float64(-0.3))[0])
    wanted = -(1.5**2 + 0.1 * 0.5**2 + 0.001 * 0.3**2)
    return abs(reward - wanted) < 1e-9 and EPISODE == 100, {"fall": FALL}


@claim(
    "task.settings", "Networks of {width} and {width} units, batches of {batch}, τ = {tau}, exploration noise {noise}."
)
def _() -> Computed:
    settings, sizes = _settings(), lesson_trace().facts["sizes"]["actor"]
    return sizes[1] == sizes[2], {
        "width": sizes[1],
        "batch": settings["batch_size"],
        "tau": settings["tau"],
        "noise": settings["exploration_noise"],
    }


@claim(
    "row.numbers",
    "A row is {count} numbers: two of s, one of a, two of s', r and d. The buffer holds {capacity:,} rows; the newest then "
    "takes the place of the oldest.",
)
def _() -> Computed:
    return lesson_trace().arrays["memory"].shape[1] == 7, {"count": "seven", "capacity": _settings()["buffer_size"]}


@claim(
    "noise.both",
    "Exploration noise here has a standard deviation of {explore}, and the environment receives it; smoothing noise has "
    "{smooth}, is cut at {clip}, and only moves the point at which y is read.",
)
def _() -> Computed:
    settings = _settings()
    return True, {
        "explore": settings["exploration_noise"],
        "smooth": settings["target_policy_noise"],
        "clip": settings["target_noise_clip"],
    }


@cache
def _update(number: int) -> dict[str, Array]:
    """What was recorded of one update, with its batch."""
    trace = lesson_trace()
    index = trace.facts["updates"].index(number)
    record = {name: trace.arrays[f"{name}.{index}"] for name in ("rows", "q_values", "target_q", "critics_after")}
    batch = trace.arrays["memory"][record["rows"].astype(int)]
    return record | {"batch": batch, "errors": record["q_values"] - record["target_q"]}


@claim(
    "puzzle.rows",
    "In update {update} only {rows} of 64 rows approach y: one row, a fall with r = {r:.1f}, makes {share:.0%} of critic 1's "
    "loss, all rows share the weights that move for it, and Adam still moves by the gradients before.",
)
def _() -> Computed:
    number = int(lesson_trace().facts["puzzle"])
    made, squares = _update(number), np.square(_update(number)["errors"][0])
    worst = int(squares.argmax())
    values = {
        "update": number,
        "rows": approaching(number),
        "r": made["batch"][worst, 5],
        "share": squares[worst] / squares.sum(),
    }
    return bool(made["batch"][worst, 6] == 1 and approaching(number) < 32 and values["share"] > 0.5), values


@claim("film.updates", "The drawing runs through {updates} updates.")
def _() -> Computed:
    return True, {"updates": len(lesson_trace().arrays["film.y"]) - 1}


@claim(
    "film.chosen",
    "These updates, {first} to {last}, and this row were chosen: of the first {all:,} updates those in which critic 1 closes "
    "the largest share of its distance to y while the action climbs far; it goes from {before:.2f} to {after:.2f} away.",
)
def _() -> Computed:
    arrays, facts, grid = lesson_trace().arrays, lesson_trace().facts, np.linspace(-1, 1, 61)
    stored = float(arrays["film.action"][0, 2])
    before, after = (abs(float(np.interp(stored, grid, arrays["film.q"][at])) - arrays["film.y"][at]) for at in (0, -1))
    actions = [float(np.interp(arrays["film.action"][at, 0], grid, arrays["film.q"][-1])) for at in (0, -1)]
    values = {
        "first": facts["film"],
        "last": facts["film"] + len(arrays["film.y"]) - 1,
        "all": len(arrays["lag.online"]) - 1,
    }
    return bool(after < 0.1 * before and actions[1] > actions[0]), values | {"before": before, "after": after}
