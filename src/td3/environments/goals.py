"""Environments with goals: where goals lie in a flattened observation, and what a transition is worth for another goal.

Such an environment has Dict observations with the parts of `PARTS` and a method `compute_reward(achieved_goal,
desired_goal, info)`, as Gymnasium-Robotics defines them.
"""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, flatdim
from gymnasium.wrappers import FlattenObservation, TimeLimit
from numpy.typing import NDArray

from td3.environments.requirements import guarded_call
from td3.errors import EnvironmentFault
from td3.pixels.wrappers import RepeatAction

Array = NDArray[Any]
PARTS = ("observation", "achieved_goal", "desired_goal")
METHOD = "compute_reward(achieved_goal, desired_goal, info)"


def parts_of(environment: gym.Env[Any, Any]) -> dict[str, slice]:
    """Where each part of a Dict observation lies in the flattened one; empty if it was no Dict."""
    flattened = _wrapper(environment, FlattenObservation)
    space = flattened.env.observation_space if flattened else None
    if not isinstance(space, Dict):
        return {}
    ends = np.cumsum([flatdim(subspace) for subspace in space.values()]).tolist()
    return {name: slice(end - flatdim(space[name]), end) for name, end in zip(space, ends, strict=True)}


def has_goals(environment: gym.Env[Any, Any]) -> bool:
    """Whether its observations have the parts of an environment with goals."""
    return {*PARTS} <= {*parts_of(environment)}


class GoalTask:
    """Goals of one environment: their place in observations, the longest episode, and rewards for other goals.

    The environment is only asked for `compute_reward` and, where it has it, `compute_terminated`.
    """

    def __init__(self, environment: gym.Env[Any, Any], name: str) -> None:
        task: Any = environment.unwrapped
        parts, limit = parts_of(environment), _wrapper(environment, TimeLimit)
        if has_goals(environment) and not callable(getattr(task, "compute_reward", None)):
            raise EnvironmentFault(f"{name} has no method {METHOD}: add it.")
        if not has_goals(environment):
            raise EnvironmentFault(
                f"{name} has no goals, and variant hindsight needs Dict observations with {', '.join(PARTS)} and a "
                f"method {METHOD}: train it without hindsight."
            )
        flattened = _wrapper(environment, FlattenObservation)
        assert flattened is not None
        spaces = [flattened.env.observation_space[part] for part in PARTS[1:]]
        if not all(isinstance(space, Box) for space in spaces) or spaces[0].shape != spaces[1].shape:
            raise EnvironmentFault(
                f"{name} has the goals {spaces[0]} and {spaces[1]}, and hindsight needs two arrays (Box) of one shape."
            )
        if limit is None:
            raise EnvironmentFault(
                f"{name} has no time limit, and hindsight must know when an episode is over: give one with "
                "--env-kwargs max_episode_steps=NUMBER, or wrap it with gymnasium.wrappers.TimeLimit."
            )
        self.name, self._task, self._shape, self._dtype = name, task, spaces[0].shape, spaces[0].dtype
        self.achieved, self.desired = parts["achieved_goal"], parts["desired_goal"]
        self.max_episode_steps = int(limit._max_episode_steps)
        self._check_rewards(environment)

    def rewards(self, achieved: Array, desired: Array) -> Array:
        """Rewards `[count]` of having achieved goals `[count, size]` where others were desired, in one call."""
        goals = self._goals(achieved), self._goals(desired)
        source, advice = f"{self.name}.compute_reward()", "make it accept arrays of goals, and an empty dict as info."
        array = np.asarray(guarded_call(source, lambda: self._task.compute_reward(*goals, {}), advice))
        if array.shape != (len(achieved),) or not np.isfinite(array).all():
            raise EnvironmentFault(
                f"{self.name}.compute_reward() gave an array of shape {array.shape} for {len(achieved)} goals, or NaN: "
                "make it accept arrays of goals and return a finite reward for each."
            )
        return array

    def terminated(self, achieved: Array, desired: Array) -> Array | None:
        """Whether the environment would end there, `[count]`; None where it does not say (no `compute_terminated`)."""
        ask = getattr(self._task, "compute_terminated", None)
        if ask is None:
            return None
        source, goals = (
            f"{self.name}.compute_terminated()",
            zip(self._goals(achieved), self._goals(desired), strict=True),
        )
        # One by one: it is for single goals.
        return np.array([bool(guarded_call(source, partial(ask, *pair, {}))) for pair in goals])

    def _goals(self, flat: Array) -> Array:
        return flat.astype(self._dtype).reshape(-1, *self._shape)

    def _check_rewards(self, environment: gym.Env[Any, Any]) -> None:
        """Refuse rewards that are not those of `compute_reward`, and one that takes no batches."""
        environment.reset(seed=0)
        middle = (environment.action_space.low + environment.action_space.high) / 2  # type: ignore[attr-defined]  # a Box
        observation, reward, *_ = environment.step(middle.astype(np.float32))
        both = np.stack([observation, observation])
        computed = self.rewards(both[:, self.achieved], both[:, self.desired])
        if not np.allclose(computed, float(reward), rtol=1e-3, atol=1e-5):
            advice = "make the two agree; in hindsight info is an empty dict, and rewards of wrappers are left out."
            if _wrapper(environment, RepeatAction):
                advice = "hindsight cannot be used with --action-repeat."
            raise EnvironmentFault(
                f"{self.name}.step() gave the reward {reward}, and compute_reward() gives {computed[0]} for the same "
                f"goals: {advice}"
            )


def _wrapper(environment: gym.Env[Any, Any], wanted: type[gym.Wrapper[Any, Any, Any, Any]]) -> Any:
    """The outermost wrapper of this kind; None if there is none."""
    while isinstance(environment, gym.Wrapper):
        if isinstance(environment, wanted):
            return environment
        environment = environment.env
    return None
