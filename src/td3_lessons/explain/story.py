"""The story in six screens: predict, see it run, then read why; the questions; what stands around the instrument.

Each right answer is computed from the recorded data, as every number in the explanations is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from td3_lessons.explain import toy
from td3_lessons.explain.claims import marked
from td3_lessons.explain.evidence import races, stored_bodies
from td3_lessons.explain.trace import lesson_trace


class Screen(NamedTuple):
    """One screen: what is shown, what is asked, which answer is right, and why."""

    title: str
    text: str
    question: str
    options: tuple[str, str, str]
    right: Callable[[], int]
    because: str
    drawing: str


def _guess() -> int:
    apart = races()["td3"]["q"][:, 1] - races()["td3"]["earned"][:, 1]
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


class Question(NamedTuple):
    """A question on a misreading, its answer, and the moment of the page that shows it."""

    question: str
    answer: str
    moment: str


SCREENS = (
    Screen(
        "A guess is wrong",
        "A critic is a network that predicts the Q-value: all rewards from now on, discounted, after this action in this "
        "state. It begins with random weights, so it begins with a guess.",
        "TD3 has just begun on Rail. What does critic 1 predict for the starts of episodes?",
        ("less than its policy earns", "about what its policy earns", "more than its policy earns"),
        _guess,
        "{{rail.early}} A new network says something near 0, which no policy on Rail earns. That alone would wash out.",
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
        "{{lag.half}} {{bodies.ant.nodelay}} {{bodies.nodelay.undecided}}",
        "lag",
    ),
)

# fmt: off
QUESTIONS = (
    Question("What is a Q-value, and which numbers of the task does it add up?",
        "The discounted sum of all rewards from now on, after doing action a in state s and following the policy. {{task.reward}}", "step=10&t=1"),
    Question("Where does overestimation come from, in three numbers?",
        "Three actions are all worth 0, and a critic sees them as +1, 0 and −1: right on average. The actor picks the +1, so what is "
        "believed of the pick is 1 above the truth. Then y copies the belief into the state before. {{toy.once}} {{toy.loop}}", "step=8&t=1"),
    Question("Why a minimum of two critics, and not of ten?",
        "{{toy.count}} Each further critic sinks the minimum. Try N in screen 4.", "step=8&t=1"),
    Question("Is the minimum unbiased, and why is too low less harmful than too high?",
        "It is biased low. {{bodies.hopper}} The actor goes where Q is high: an action rated above its worth is chosen, and its error enters y. "
        "An action rated below its worth is avoided, and its error goes nowhere.", "step=8&t=1"),
    Question("Which critic does the actor ascend, and what does critic 2 do then?",
        "Critic 1 alone. Critic 2 rests in step 13. It is fitted in step 12 like critic 1, and its target takes part in every minimum of step 8.", "step=13&t=0.6"),
    Question("Why one y and one ã for both critics?",
        "So that they differ in their answer alone. With a noise for each, the minimum would compare two actions. With a y for each, "
        "each critic would feed on its own errors again; one y from the minimum protects both.", "step=7&t=1"),
    Question("Is the noise of step 6 how TD3 explores?",
        "No. Step 0 explores: noise on the action that the environment receives. Step 6 smooths: noise on the action at which y is read. {{noise.both}}", "step=0&t=1"),
    Question("What harm does unclipped target noise do?",
        "Rare large draws read y far from the policy's action, where the critics have little data. The bound c keeps the average local.", "step=6&t=1&break=noclip&sigma=0.6"),
    Question("An episode was stopped by the time limit. Does its last row bootstrap?",
        "Yes. A time-out ends the episode, not the task: y = r + γ min as in any other row. {{bodies.timeout}}", "step=9&t=1&row=3"),
    Question("A cart fell off the rail. What is y of that row, and what does it do to the loss?",
        "y is the reward alone: (1 − terminated) is 0. Its error is squared. {{census.largest}} The gradient of a batch with a fall is about the fall.", "step=11&t=1&row=2"),
    Question("Why do rows move away from y in an update that lowers the loss?",
        "All rows share the weights, and the loss is their sum. {{puzzle.rows}} {{census.rows}}", "update=puzzle&step=12&t=1"),
    Question("Does minimizing the loss also change y?",
        "No. y comes from the target networks, and no gradient passes into them (the wall on the map): in step 12 only the two critics move.", "step=12&t=0.5"),
    Question("Is step 12 stochastic gradient descent?",
        "Lessons say so; published code uses Adam, and so does the recorded run (`--td3.optimizer sgd` is the lessons').", "step=12&t=1"),
    Question("Why is the actor's loss minus Q?",
        "Optimizers minimize, and Q1 is to be maximized: minimizing −Q1 is gradient ascent on Q1.", "step=13&t=1"),
    Question("Why is the deterministic policy gradient off-policy, without importance weights?",
        "The gradient is dQ1/da at the actor's own action. No expectation over actions is taken, so it does not matter who chose the stored "
        "action; the stored states alone are used. A policy gradient with random actions would have to weight them.", "step=13&t=1&break=stored"),
    Question("What is the landscape that the actor climbs?",
        "Q1 over states and actions. In one state it is a curve (step 13); over all states the map shows it as a picture: the critics' nodes "
        "show Q at the actor's own action, the actor's node shows its force. Press a node to see it large.", "step=13&t=1"),
    Question("Why do actor and targets move only every second update?",
        "{{delay.once}} {{bodies.ant.nodelay}} {{bodies.nodelay.undecided}}", "update=odd&step=13&t=1"),
    Question("How long is the lag of a target network?", "{{lag.half}} Change τ in the drawing.", "step=14&t=1"),
    Question("Would TD3 work without target networks?",
        "On Rail it does. {{race.notargets}} y then moves with every step of the networks that are fitted to it, and on harder tasks nothing damps that loop.", "step=15&t=1"),
    Question("What is the deadly triad, and where is it here?",
        "A network as table (step 3), bootstrapping (step 9), data of other policies (step 4). Each is harmless alone; together an error can feed itself. "
        "Targets, minimum and delay damp that loop.", "step=9&t=1"),
    Question("What is the best possible Q, and how is it known?",
        "Q* is the value of an optimal policy. On Rail the state has two numbers, so dynamic programming on a grid computes it. What a policy really "
        "earns is another curve: the cart is driven by the policy from there on, and its rewards are added up.", "step=10&t=1&compare=both"),
    Question("What is one row of the buffer, and when is it overwritten?", "{{row.numbers}}", "step=1&t=1&capacity=500"),
    Question("Which shape has every tensor?",
        "The table below the questions has them all. B is the batch; the two critics come first, [2, B].", "step=7&t=1"),
    Question("How do I see overestimation in a run of my own?",
        "`td3 doctor RUN` compares the critic's prediction with the observed discounted return and remarks on a large difference; the report "
        "draws both over training, as here for Rail. Prediction above return, and growing, is overestimation.", "step=15&t=1"),
)
# fmt: on

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
    "NOT": "{{rail.returns}} {{rail.gap}} {{rail.failures}} So Rail is a microscope, not the proof: on it every number of an update can be "
    "seen. The proof is on the bodies above.",
    "OVER": "{{census.rows}} {{census.largest}} The updates that can be opened were chosen: in each the loss of both critics "
    "falls and mean Q1 rises. One was chosen because few of its rows approach y. The eight rows are chosen by their "
    "next Q-value, from low to high, with a fall and a time-out where the batch has them; the page opens with one "
    "whose movement the eye can follow.",
    "RACE": "{{race.count}} {{race.verdicts}}",
}
"""Texts of the page that stand outside of steps and questions."""

LADDER = {
    "luck": "{{ladder.luck}}",
    "believed": "{{ladder.belief}} {{ladder.noisy}} {{ladder.best}}",
    "not": "{{ladder.ideas}} {{ladder.returns}}",
}
"""Sentences of docs/ladder.md."""
INTRODUCTION = """Every line of code here is the one that runs, every drawing shows recorded numbers: TD3 learning to hold
a cart in the middle of a rail (`Rail-v0`). {{task.settings}} `td3 explain` opens the page that these drawings come from:
it opens in motion, tells in six screens why TD3 has three ideas that DDPG lacks, and then lets every step move, be changed
and be broken; its exercises check what you write. `td3 explain --run RUN` makes it from a run of your own; of a run with
[replaced steps](modify.md) it shows the functions that replaced them, and their numbers (with `--trust`, since that
executes their file)."""
HOW_TO_READ = """Above each drawing is the same map. A network shows what it says in every state of the cart: an actor its
force (purple above zero, gray below), a critic its Q-value of the actor's force (from pale, low, to dark, high); targets are dashed.
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
