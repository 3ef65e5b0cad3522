"""The story in six screens: predict, see it run, then read why; and what stands around the instrument.

Each right answer is computed from the recorded data, as every number in the explanations is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from td3.explain import toy
from td3.explain.claims import marked
from td3.explain.evidence import stored_bodies
from td3.explain.trace import lesson_trace


class Screen(NamedTuple):
    """One screen: what is shown, what is asked, which answer is right, and why."""

    title: str
    text: str
    question: str
    options: tuple[str, str, str]
    right: Callable[[], int]
    because: str
    drawing: str


def _curve(name: str) -> Any:
    return np.asarray(lesson_trace().arrays[f"curve.{name}"], float)


def _guess() -> int:
    apart = _curve("td3_q")[:, 1] - _curve("td3_earned")[:, 1]
    return 2 if apart.mean() > 1 else 0 if apart.mean() < -1 else 1


def _climb() -> int:
    arrays, grid = lesson_trace().arrays, np.linspace(-1, 1, 61)
    first, last = (float(np.interp(arrays["film.action"][at, 0], grid, arrays["film.q"][-1])) for at in (0, -1))
    return 1 if last > first else 0


def _blur() -> int:
    removed = [stored_bodies()[body]["removed"]["nosmooth"]["verdict"] for body in stored_bodies()]
    return 0 if set(removed) == {"worse"} else 2 if "worse" in removed else 1


def _lag() -> int:
    settings = lesson_trace().facts["settings"]
    updates = np.log(0.5) / np.log(1 - settings["tau"]) * settings["policy_delay"]
    return int(np.argmin(np.abs(np.log(np.array([2, 280, 10_000]) / updates))))


SCREENS = (
    Screen(
        "A guess is wrong",
        "A critic is a network that predicts the Q-value: all rewards from now on, discounted, after this action in this "
        "state. It begins with random weights, so it begins with a guess.",
        "TD3 has just begun on Rail. What does critic 1 predict for the starts of episodes?",
        ("less than its policy earns", "about what its policy earns", "more than its policy earns"),
        _guess,
        "{{rail.early}} A new network says something near 0, and 0 is the best there is on Rail. That alone would wash out.",
        "early",
    ),
    Screen(
        "The actor finds it",
        "The actor is a network that turns a state into an action. It never sees a reward. It sees critic 1, and moves "
        "its action along dQ1/da.",
        "Here is critic 1 over all actions in one state. {{film.updates}} Where does the actor go?",
        ("where the reward is high", "where critic 1 is high", "where it explored"),
        _climb,
        "Uphill on critic 1, right or wrong. A peak that is an error is found like a peak that is true. {{film.chosen}}",
        "climb",
    ),
    Screen(
        "It feeds on itself",
        "The critic is fitted to y = r + γ Q'(s', a'), and a' is the actor's pick. Here every action is worth exactly 0, "
        "and one critic sees it with errors in both directions.",
        "After ten rounds of y, what does one critic believe of the actor's pick?",
        ("about 0: errors cancel", "far above 0", "far below 0"),
        lambda: 1 if toy.believed()[0] > 5 else 0,
        "{{toy.loop}} Errors cancel on average over actions. The pick is no average: it is where the error is highest.",
        "loop",
    ),
    Screen(
        "A second opinion",
        "TD3's first idea: a second critic with weights of its own, and y takes the smaller of the two. The actor still "
        "picks by critic 1.",
        "Which count of critics comes closest to the truth, 0?",
        ("one", "two", "ten"),
        lambda: int(np.abs(toy.errors()[[0, 1, 9]]).argmin()),
        "{{toy.once}} {{toy.count}} {{bodies.ant.first}} {{bodies.cheetah.first}}",
        "minimum",
    ),
    Screen(
        "A blurred target",
        "TD3's second idea: y is not read at one action but at noisy ones near it, so a peak that is narrower than the "
        "noise counts for little.",
        "Does target policy smoothing raise the return?",
        ("on every body", "on none", "on some; on others ten seeds do not decide"),
        _blur,
        "{{bodies.hopper.nosmooth}} {{bodies.nosmooth.undecided}}",
        "blur",
    ),
    Screen(
        "Patience",
        "TD3's third idea: the actor and all targets move at every second update only, and a target moves by a small share "
        "of the way.",
        "A weight jumps. After how many updates has its target covered half of the way?",
        ("about 2", "about 280", "about 10,000"),
        _lag,
        "{{lag.half}} {{bodies.ant.nodelay}}",
        "lag",
    ),
)

PROMISE = "A learner that believes its own mistakes. TD3 is three ways not to."
EVIDENCE = (
    ("Hopper-v5", "{{bodies.hopper}}"),
    ("Walker2d-v5", "{{bodies.walker}}"),
    ("Ant-v5", "{{bodies.ant}}"),
    ("HalfCheetah-v5", "{{bodies.cheetah}}"),
)
PARTS = {
    "OPENING": "{{rail.belief}} {{rail.impossible}}",
    "TASK": "{{task.reward}} There is no noise in the reward.",
    "SETTINGS": "{{task.settings}}",
    "SHOWS": "{{rail.belief}} {{rail.impossible}}",
    "NOT": "{{rail.returns}} {{rail.failures}} So Rail is a microscope, not the proof: on it every number of an update can be "
    "seen. The proof is on the bodies above.",
    "OVER": "{{census.rows}} {{census.largest}} The updates that can be opened were chosen: in each the loss of both critics "
    "falls and mean Q1 rises. One was chosen because few of its rows come closer to y. The eight rows are chosen by their "
    "next Q-value, from low to high, with a fall and a time-out where the batch has them; the page opens with the one "
    "whose movement can be seen best.",
    "RACE": "{{race.count}} {{race.verdicts}}",
}
"""Texts of the page that stand outside of steps and questions."""

INTRODUCTION = """Every line of code here is the one that runs, every drawing shows recorded numbers: TD3 learning to hold
a cart in the middle of a rail (`Rail-v0`). {{task.settings}} `td3 explain` opens the page that these drawings come from:
it opens in motion, tells in six screens why TD3 has three ideas more than DDPG, and then lets every step move, be changed
and be broken; its exercises check what you write. `td3 explain --run RUN` makes it from a run of your own; of a run with
[replaced steps](modify.md) it shows the functions that replaced them, and their numbers (with `--trust`, since that
executes their file). Of the code shown here, types, decorators and docstrings are left out."""
HOW_TO_READ = """Above each drawing is the same map. A network shows what it says in every state of the cart: an actor its
force (purple above zero, gray below), a critic its Q-value of the actor's force (darker is higher); targets are dashed.
What a step does not use is faded. Below it the chosen transition: the cart before, the force, the cart after. This file,
the drawings and the film are made by `make steps`; a test fails when they differ from the code, or when a sentence with a
number differs from the recorded data."""
FILMED = """*Critic 1 over all actions in one state of the cart; its target dashed, y a star, the actor's action orange.*
{{film.chosen}}"""
IN_README = """*TD3's critic 1 over all actions in one state: fitted to y (star), its target late (dashed), climbed by the actor
(orange).* `td3 explain` opens the page it comes from: [every step, with its drawing](docs/fifteen_steps.md)."""
"""The last four: what stands in docs/fifteen_steps.md and in the README."""


def parts() -> dict[str, str]:
    """The same as HTML."""
    return {"PROMISE": PROMISE} | {name: marked(text) for name, text in PARTS.items()}


def screens() -> list[dict[str, Any]]:
    """For the page's script."""
    return [
        screen._asdict()
        | {"right": screen.right(), "because": marked(screen.because), "question": marked(screen.question)}
        for screen in SCREENS
    ]
