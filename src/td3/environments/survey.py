"""What random actions show of an environment before it is trained on: spaces, scales, ends, repeatability, speed."""

import contextlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from td3.environments import guarded
from td3.environments.goals import GoalTask, has_goals
from td3.environments.guarded import MOST_FAULTS, Array, Shapes
from td3.environments.make import make_environment
from td3.environments.requirements import TaskSpaces, check_environment, option_with_limit
from td3.environments.vector import FirstOfVector, vector_source_named
from td3.errors import EnvironmentFault
from td3.scales import LARGE_OBSERVATION, LARGE_REWARD, SMALL_REWARD, SMALL_SPREAD
from td3.user_code import fault_of


class Survey(NamedTuple):
    """What was seen, and a sentence for each thing to look at."""

    spaces: TaskSpaces
    steps: int
    seconds_per_step: float
    episodes: int
    terminated: int
    truncated: int
    mean_return: float
    mean_length: float
    observation_scale: float
    observation_spread: float
    constant_dimensions: tuple[int, ...]
    reward_scale: float
    repeatable: bool
    findings: tuple[str, ...]


class _Walk(NamedTuple):
    observations: NDArray[np.float64]
    rewards: NDArray[np.float64]
    ends: list[tuple[int, bool]]
    seconds: float
    faults: list[str]


def survey(env: str, env_kwargs: Mapping[str, Any], steps: int = 2_000, seed: int = 0) -> Survey:
    """Step the environment with random actions; raises `EnvironmentFault` when TD3 cannot be trained on it.

    Of a function that makes vector environments, a vector of one.
    """
    source = vector_source_named(env)
    environment = (
        FirstOfVector(source.with_kwargs(env_kwargs).make(1, seed)) if source else make_environment(env, env_kwargs)
    )
    walker = _Walker(environment, env, partial(make_environment, env, env_kwargs) if source is None else None)
    try:
        spaces = check_environment(environment, env)
        goals = _hindsight_finding(environment, env)
        walk = walker.walk(spaces, steps, seed)
        again = walker.walk(spaces, steps, seed)
    finally:
        walker.environment.close()
    if not np.all(np.isfinite(walk.observations)) or not np.all(np.isfinite(walk.rewards)):
        raise EnvironmentFault(f"{env} gave NaN or infinity within {steps:,} random steps: fix the environment.")
    same = np.array_equal(walk.observations, again.observations) and np.array_equal(walk.rewards, again.rewards)
    observations = walk.observations.reshape(len(walk.observations), -1)
    scale = float(np.sqrt(np.square(observations).mean(0)).max())
    spreads = observations.std(0)
    constant = tuple(int(dimension) for dimension in np.flatnonzero(spreads == 0)) if not spaces.frames else ()
    truncated = sum(cut for _, cut in walk.ends)
    starts = [0, *(at + 1 for at, _ in walk.ends)]
    returns = [walk.rewards[a : b + 1].sum() for a, (b, _) in zip(starts, walk.ends, strict=False)]
    lengths = [b + 1 - a for a, (b, _) in zip(starts, walk.ends, strict=False)]
    result = Survey(
        spaces=spaces,
        steps=steps,
        seconds_per_step=walk.seconds / steps,
        episodes=len(walk.ends),
        terminated=len(walk.ends) - truncated,
        truncated=truncated,
        mean_return=float(np.mean(returns)) if returns else float("nan"),
        mean_length=float(np.mean(lengths)) if lengths else float("nan"),
        observation_scale=scale,
        observation_spread=float(spreads.max()),
        constant_dimensions=constant,
        reward_scale=float(np.sqrt(np.square(walk.rewards).mean())),
        repeatable=same,
        findings=(),
    )
    limited = bool(spaces.time_limit or truncated or source)
    faults = list(dict.fromkeys([*walk.faults, *again.faults]))
    return result._replace(findings=(*_fault_findings(faults), *_findings(result, env, env_kwargs, limited), *goals))


def _hindsight_finding(environment: gym.Env[Any, Any], env: str) -> list[str]:
    """Why an environment that has goals cannot be trained on with variant hindsight."""
    try:
        if has_goals(environment):
            GoalTask(environment, env)
    except EnvironmentFault as fault:
        return [f"Variant hindsight cannot be used: {fault}"]
    return []


class _Walker:
    """Takes random steps; after a fault it goes on in a new environment, as training does."""

    def __init__(self, environment: gym.Env[Any, Any], name: str, make: Callable[[], gym.Env[Any, Any]] | None) -> None:
        self.environment, self._name, self._make = environment, name, make

    def walk(self, spaces: TaskSpaces, steps: int, seed: int) -> _Walk:
        """Random actions from one seed; every episode has a seed of its own, as in training."""
        random = np.random.default_rng(seed)
        low, high = (np.asarray(bound, np.float32) for bound in (spaces.action_low, spaces.action_high))
        shapes, faults, in_a_row, began = Shapes.of(self.environment), [], 0, time.perf_counter()
        observations: list[Array] = []
        rewards, ends = np.empty(steps), []
        observation, episodes, first = None, 0, 0
        while len(observations) < steps:
            try:
                if observation is None:
                    observation = guarded.reset(self.environment, seed + episodes, shapes)
                action = random.uniform(low, high).astype(np.float32)
                after, reward, terminated, truncated, _ = guarded.step(self.environment, action, shapes)
            except EnvironmentFault as fault:
                in_a_row += 1
                faults.append(str(fault))
                if in_a_row == MOST_FAULTS or self._make is None:
                    sentence = f"{self._name} under random actions: {fault}: fix the environment."
                    raise fault_of(fault, sentence) from fault.__cause__
                self._replace()
                del observations[first:]  # what the unfinished episode showed
                observation, episodes = None, episodes + 1
                continue
            rewards[len(observations)] = reward
            observations.append(observation.astype(np.uint8) if spaces.frames else observation)
            observation = after
            if terminated or truncated:
                ends.append((len(observations) - 1, truncated and not terminated))
                observation, episodes, first, in_a_row = None, episodes + 1, len(observations), 0
        return _Walk(np.stack(observations), rewards, ends, time.perf_counter() - began, faults)

    def _replace(self) -> None:
        with contextlib.suppress(EnvironmentFault):  # what is broken may also fail to close
            guarded.close(self.environment)
        assert self._make is not None
        self.environment = guarded.construct(self._make)


def _fault_findings(faults: list[str]) -> list[str]:
    """A sentence where steps failed now and then: training begins a new episode there."""
    if not faults:
        return []
    more = f" (and {len(faults) - 1} other faults)" if len(faults) > 1 else ""
    return [
        f"Sometimes {faults[0]}{more}: training then begins a new episode in a new environment, and "
        f"{MOST_FAULTS} faults with no finished episode between them end the run."
    ]


def _findings(result: Survey, env: str, env_kwargs: Mapping[str, Any], limited: bool) -> list[str]:
    sentences = []
    if not result.repeatable:
        sentences.append(
            "The same seed and actions gave another episode: take all randomness from self.np_random, or results "
            "cannot be repeated and resumed exactly."
        )
    if not limited:
        ended = "was truncated" if result.episodes else "ended"
        sentences.append(
            f"There is no time limit, and no episode {ended} in {result.steps:,} steps: a trained policy may stay in "
            f"one for ever. Give a limit, unless step() has one:  td3 check {env} {option_with_limit(env_kwargs)}"
        )
    elif not result.episodes:
        sentences.append(f"No episode ended in {result.steps:,} steps: check with more --steps.")
    if not result.spaces.frames and result.observation_scale > LARGE_OBSERVATION:
        sentences.append(
            f"Observations reach a root mean square of {result.observation_scale:,.4g}: divide them by known ranges, "
            "or train with --normalize-observations."
        )
    if not result.spaces.frames and 0 < result.observation_spread < SMALL_SPREAD:
        sentences.append(
            f"Observations hardly vary (largest standard deviation {result.observation_spread:.2g}): scale them up, or "
            "train with --normalize-observations."
        )
    if len(result.constant_dimensions) == result.spaces.state_size and not result.spaces.frames:
        sentences.append("Observations never change: the networks cannot learn from them.")
    if result.reward_scale > LARGE_REWARD:
        sentences.append(f"Rewards have a root mean square of {result.reward_scale:,.4g}: divide them.")
    if result.reward_scale < SMALL_REWARD:
        sentences.append(
            f"Rewards have a root mean square of {result.reward_scale:.2g} under random actions: multiply them or, if "
            "almost all are 0, give a denser reward."
        )
    return sentences
