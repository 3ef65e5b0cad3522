"""Climb: run a rung, measure it against the exact answer, and compare rungs over many seeds."""

import ast
import difflib
import inspect
import io
import multiprocessing
import time
import tokenize
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from td3 import statistics
from td3.environments.rail import END, START_POSITION, START_VELOCITY, move
from td3.errors import ConfigError, EnvironmentFault
from td3.resources import available_threads, one_thread
from td3_lessons.ladder.common import Array, Learner, Task, Unserved
from td3_lessons.ladder.exact import GAMMA, solve
from td3_lessons.ladder.ideas import IDEAS, idea_module

RAIL = "Rail-v0"
MODULES = (
    "rung_1_q_learning",
    "rung_2_deep_q_learning",
    "rung_3_policy_gradient",
    "rung_4_actor_critic",
    "rung_5_ddpg",
    "rung_6_td3",
)
NUMBERS = range(1, len(MODULES) + 1)
EVALUATIONS = 25
"""Points of a learning curve, the one before the first step not counted."""
EPISODES = 10
"""Episodes of an evaluation on tasks other than Rail."""
LONG = 600
"""Env steps after which what is left of a discounted return is nothing (0.99^600 = 0.0024)."""
EPISODE = 100
"""Env steps of an episode on Rail."""
STATES = np.random.default_rng(0).uniform(
    (-START_POSITION, -START_VELOCITY), (START_POSITION, START_VELOCITY), (200, 2)
)
"""The starts of all evaluations on Rail, of every rung and every seed alike."""
MAP = np.stack(np.meshgrid(*[np.linspace(-END, END, 61)] * 2, indexing="xy"), -1)
"""States `[velocity, position, 2]` at which values are drawn."""


class Lesson(NamedTuple):
    """What a rung's docstring says."""

    title: str
    broke: str
    idea: str
    formulas: str


class Diff(NamedTuple):
    """How the code of a rung differs from the one below: docstrings, comments and blank lines do not count."""

    lines: list[str]
    added: int
    removed: int
    changed: int


@dataclass(frozen=True)
class Result:
    """One run of one rung. The rows from `exact` on are known on Rail only."""

    number: int
    env: str
    seed: int
    reward_noise: float
    seconds: float
    steps: Array
    returns: Array
    """Without exploration: on Rail the mean discounted return from the 200 starts, elsewhere the mean return."""
    overestimate: Array | None = None
    """At each evaluation: the learner's value minus the exact optimal Q of its own action, mean over the starts."""
    self_deception: Array | None = None
    """At each evaluation: the learner's value minus what its policy really earns, mean over the starts."""
    values: Array | None = None
    """On Rail, at the states of `MAP`: its values (NaN: never learned), or what its policy earns if it keeps none."""
    idea: str = ""
    """A name of `ideas.IDEAS` if the rung was run with that idea added."""


def rung_module(number: int) -> ModuleType:
    """The file of a rung."""
    if number not in NUMBERS:
        raise ConfigError(f"there is no rung {number}: they go from 1 to {len(MODULES)}; `td3 ladder` lists them.")
    return import_module(f"td3_lessons.ladder.{MODULES[number - 1]}")


@cache
def lesson(number: int) -> Lesson:
    """Title, what broke, the idea and the formulas, from the docstring of the file."""
    title, told, *rest = (inspect.getdoc(rung_module(number)) or "").split("\n\n")
    broke, idea = told.split("\nThe idea: ")
    title = title.partition(": ")[2].rstrip(".")
    return Lesson(title, broke.removeprefix("What broke: "), idea, inspect.cleandoc("\n" + rest[0]))


@cache
def notes(number: int) -> list[str]:
    """The paragraphs below the formulas in the docstring of the file."""
    return [" ".join(part.split()) for part in (inspect.getdoc(rung_module(number)) or "").split("\n\n")[3:]]


def code_lines(number: int, imports: bool = True) -> list[str]:
    """The code of a rung, without docstrings, comments and blank lines, with or without its imports."""
    return _code_of(rung_module(number), imports)


@cache
def _code_of(module: ModuleType, imports: bool) -> list[str]:
    source = inspect.getsource(module)
    hidden: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if text or (not imports and isinstance(node, ast.Import | ast.ImportFrom)):
            hidden.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]  # statements have lines
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line.strip() == token.string:
            hidden.add(token.start[0])
    lines = source.splitlines()
    return [line for index, line in enumerate(lines, 1) if line.strip() and index not in hidden]


@cache
def diff_to_below(number: int) -> Diff:
    """The changes from the rung below but for its imports; a replaced line counts once in `changed`, not twice."""
    return diff(code_lines(number - 1, imports=False), code_lines(number, imports=False))


@cache
def diff_of_idea(name: str) -> Diff:
    """The changes that an idea with a file of its own makes to its rung."""
    return diff(code_lines(IDEAS[name].rung, imports=False), _code_of(idea_module(name), False))


def diff(below: list[str], here: list[str]) -> Diff:
    """The changes from one list of lines to another."""
    blocks = [block for block in difflib.SequenceMatcher(None, below, here, False).get_opcodes() if block[0] != "equal"]
    lines = [line.rstrip("\n") for line in difflib.unified_diff(below, here, "below", "here", n=1, lineterm="")][2:]
    removed = sum(end - start for _, start, end, _, _ in blocks)
    added = sum(end - start for _, _, _, start, end in blocks)
    changed = sum(max(end - start, stop - first) for _, start, end, first, stop in blocks)
    return Diff(lines, added, removed, changed)


def make_task(number: int, env: str = RAIL, reward_noise: float = 0.0) -> Task:
    """The task as this rung sees it; one that it cannot serve is refused with the rungs that can."""
    if reward_noise and env != RAIL:
        raise ConfigError(f"reward_noise is made for {RAIL}, but {env} was given: leave it out.")
    kwargs: dict[str, Any] = {"reward_noise": reward_noise} if env == RAIL else {}
    try:
        return Task(env, *rung_module(number).SERVES, **kwargs)
    except Unserved as fault:
        able = [str(other) for other in NUMBERS if _serves(other, env)]
        others = f"rung{'s' if len(able) > 1 else ''} {', '.join(able)} can" if able else "no rung can"
        raise EnvironmentFault(
            f"{fault}, so rung {number} ({lesson(number).title}) cannot learn it: {others}."
        ) from None


def _serves(number: int, env: str) -> bool:
    try:
        Task(env, *rung_module(number).SERVES).environment.close()
    except Unserved:
        return False
    return True


def run_rung(
    number: int,
    env: str = RAIL,
    seed: int = 0,
    steps: int | None = None,
    reward_noise: float = 0.0,
    evaluations: int = EVALUATIONS,
    idea: str = "",
) -> Result:
    """Train one rung, or its variant with an idea, and evaluate it along the way; in one thread, as it is small."""
    with one_thread():
        return _run_rung(number, env, seed, steps, reward_noise, evaluations, idea)


def _run_rung(
    number: int, env: str, seed: int, steps: int | None, reward_noise: float, evaluations: int, idea: str
) -> Result:
    module = idea_module(idea) if idea else rung_module(number)
    settings = module.Settings() if steps is None else replace(module.Settings(), steps=steps)
    task = make_task(number, env, reward_noise)
    watch = Recorder(make_task(number, env), settings.steps, evaluations)
    watch.evaluate(0, module.Learner(task, seed, settings))
    start = time.perf_counter()
    learner = module.train(task, seed, settings, watch)
    seconds = time.perf_counter() - start
    task.environment.close()
    watch.task.environment.close()
    bias = np.array(watch.bias) if watch.bias else None
    return Result(
        number,
        env,
        seed,
        reward_noise,
        seconds,
        np.array(watch.steps),
        np.array(watch.returns),
        None if bias is None else bias[:, 0],
        None if bias is None else bias[:, 1],
        value_map(watch.task, learner) if env == RAIL else None,
        idea,
    )


class Recorder:
    """Evaluates a learner on a schedule, on a task of its own without reward noise."""

    def __init__(self, task: Task, steps: int, evaluations: int) -> None:
        self.task = task
        self._when = {round(steps * part / evaluations) for part in range(1, evaluations + 1)} - {0}
        self.steps: list[int] = []
        self.returns: list[float] = []
        self.bias: list[tuple[float, float]] = []

    def __call__(self, step: int, learner: Any) -> None:
        """Evaluate if it is time."""
        if step in self._when:
            self.evaluate(step, learner)

    def evaluate(self, step: int, learner: Learner) -> None:
        """Add a point to the curves."""
        self.steps.append(step)
        if self.task.env != RAIL:
            self.returns.append(play_episodes(self.task, learner))
            return
        self.returns.append(float(play_rail(force_of(self.task, learner), STATES, EPISODE).mean()))
        value = learner.value(STATES.astype(np.float32))
        if value is not None:
            force = force_of(self.task, learner)
            optimal = solve().q(STATES, force(STATES))
            earned = play_rail(force, STATES, LONG)
            self.bias.append((float((value - optimal).mean()), float((value - earned).mean())))


def force_of(task: Task, learner: Learner) -> Callable[[Array], Array]:
    """The learner's policy on Rail as a function from states to forces."""
    listed = np.array(task.choices)[:, 0]

    def force(states: Array) -> Array:
        action = learner.policy(states.astype(np.float32))
        return np.asarray(listed[action] if task.takes_list else np.clip(action[:, 0], -1, 1), np.float64)

    return force


def play_rail(force: Callable[[Array], Array], states: Array, steps: int) -> Array:
    """The discounted return from each state, without reward noise; all carts are moved at once."""
    total, on_rail = np.zeros(len(states)), np.ones(len(states), bool)
    for step in range(steps):
        reward, position, velocity, left = move(states[:, 0], states[:, 1], force(states))
        total += GAMMA**step * on_rail * reward
        states, on_rail = np.stack((position, velocity), -1), on_rail & ~left
    return total


def play_episodes(task: Task, learner: Learner) -> float:
    """The mean return of a few episodes, the same at every evaluation."""
    total = 0.0
    for episode in range(EPISODES):
        state, ended = task.reset(seed=10_000 + episode), False
        while not ended:
            state, reward, terminated, truncated = task.step(learner.policy(state[None])[0])
            total, ended = total + reward, terminated or truncated
    return total / EPISODES


def value_map(task: Task, learner: Learner) -> Array:
    """The learner's values over the plane of states."""
    states = MAP.reshape(-1, 2)
    values = learner.value(states.astype(np.float32))
    if values is None:
        values = play_rail(force_of(task, learner), states, LONG)
    # A number of a table that is still exactly 0 was never learned: on Rail it would look like the best value of all.
    return np.where(np.asarray(values) == 0, np.nan, values).reshape(MAP.shape[:2])


@cache
def optimum() -> float:
    """What the optimal policy earns from the starts of the evaluations."""
    exact = solve()
    return float(play_rail(lambda states: exact.policy(states)[:, 0], STATES, EPISODE).mean())


@cache
def chance() -> float:
    """What uniformly random forces earn from the same starts."""
    random = np.random.default_rng(1)
    many = np.repeat(STATES, 50, 0)
    return float(play_rail(lambda states: random.uniform(-1, 1, len(states)), many, EPISODE).mean())


def share(returns: Any) -> Any:
    """Returns on Rail as a share of the way from random forces (0) to the optimum (1)."""
    return (returns - chance()) / (optimum() - chance())


def interval(values: Array) -> tuple[Array, Array]:
    """The 95 % bootstrap interval of the mean over the first axis, the seeds."""
    return statistics.bootstrap_interval(np.asarray(values), draws=10_000)


def climb(
    jobs: Sequence[tuple[Any, ...]], workers: int | None = None, said: Callable[[Result], None] = lambda result: None
) -> list[Result]:
    """The results of `run_rung(*job)` for every job, in their order, spread over processes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or available_threads(), context) as pool:
        futures = [pool.submit(run_rung, *job) for job in jobs]
        for future in as_completed(futures):
            said(future.result())
        return [future.result() for future in futures]
