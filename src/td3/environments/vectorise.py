"""Several environments stepped as one, in this process, without autoreset: who resets is the collector's business.

They are stepped one after another, or each in a thread of its own.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from td3.errors import EnvironmentFault

Array = NDArray[Any]
StepResult = tuple[Array, Array, Array, Array, dict[str, Any]]


class EnvironmentRow(VectorEnv[Array, Array, Array]):
    """A row of environments; `reset` with `options={"reset_mask": mask}` resets those and leaves the others be.

    What a stranger's environment does wrong in a step stands in `faults`, by place: the others have done their step.
    `step` is `begin_step` and `finish_step`; with threads, the environments step between the two.
    """

    seeds_episodes = True
    """Whether every reset takes a seed, so that an episode can be played again from its seed and its actions."""

    def __init__(
        self,
        environments: Sequence[gym.Env[Any, Any]],
        make: Callable[[], gym.Env[Any, Any]] | None = None,
        threads: int = 0,
    ) -> None:
        self.environments, self._make = list(environments), make
        self._threads = ThreadPoolExecutor(threads, "td3 environment") if threads else None
        first = self.environments[0]
        self.num_envs = len(self.environments)
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._observation_shape, self._action_shape = first.observation_space.shape, first.action_space.shape
        self._observations = np.zeros((self.num_envs, int(np.prod(self._observation_shape or ()))), np.float32)
        self.faults: dict[int, str] = {}
        self._complaints = _hear_mujoco()

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start new episodes, in all environments or in those of the mask; the rest keep their observation."""
        seeds = list(seed) if isinstance(seed, Sequence) else [seed] * self.num_envs
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        observations = self._observations.copy()
        for index in np.flatnonzero(mask).tolist():
            try:
                observation, _ = self.environments[index].reset(seed=seeds[index])
                observations[index] = self._vector(observation, index)
            except Exception as error:  # a stranger's code may raise anything
                raise EnvironmentFault(_sentence("reset", error)) from error
        self._observations = observations
        return observations, {}

    def step(self, actions: Array) -> StepResult:
        """One step of every environment; an episode that ended waits for its reset."""
        return self.step_some(actions, range(self.num_envs))

    def step_some(self, actions: Array, indices: Sequence[int]) -> StepResult:
        """One step of the environments at these places; the others stand still (reward 0, not ended)."""
        self.begin_step(actions, indices)
        return self.finish_step()

    def begin_step(self, actions: Array, indices: Sequence[int] | None = None) -> None:
        """Take the actions; threads begin at once."""
        self._begun: list[tuple[int, Callable[[], tuple[Array, float, bool, bool]]]] = []
        for index in range(self.num_envs) if indices is None else indices:
            if self._threads is None:
                self._begun.append((index, partial(self.step_one, actions[index], index)))
            else:
                future: Future[tuple[Array, float, bool, bool]]
                future = self._threads.submit(self.step_one, actions[index], index)
                self._begun.append((index, future.result))

    def finish_step(self) -> StepResult:
        """Step, or wait for the threads that do."""
        observations = self._observations.copy()
        rewards = np.zeros(self.num_envs, np.float64)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        self.faults = {}
        for index, result in self._begun:
            try:
                observations[index], rewards[index], terminated[index], truncated[index] = result()
            except EnvironmentFault as fault:
                self.faults[index] = str(fault)
        self._observations = observations
        return observations, rewards, terminated, truncated, {}

    def step_one(self, action: Array, index: int) -> tuple[Array, float, bool, bool]:
        """One step of one environment: observation, reward, terminated, truncated; faults are raised."""
        try:
            observation, reward, ended, cut, _ = self.environments[index].step(action.reshape(self._action_shape))
            result = self._vector(observation, index), float(reward), bool(ended), bool(cut)
        except Exception as error:  # a stranger's code may raise anything
            raise EnvironmentFault(_sentence("step", error)) from error
        if self._complaints:
            complaints = self._complaints.pop(threading.get_ident(), [])
            if any("unstable" in complaint for complaint in complaints):
                raise EnvironmentFault("MuJoCo found its simulation unstable and reset it inside a step")
        return result

    def replace(self, index: int) -> list[int]:
        """A new environment in the place of a faulty one; returns which others lost their episode by it: none."""
        if self._make is not None:
            with contextlib.suppress(Exception):  # what is broken may also fail to close
                self.environments[index].close()
            self.environments[index] = self._make()
        return []

    def _vector(self, observation: Any, index: int) -> Array:
        array = np.asarray(observation)
        if array.shape != self._observation_shape:
            name = getattr(self.environments[index].spec, "id", "the environment")
            raise EnvironmentFault(
                f"{name} gave an observation of shape {array.shape}, but its observation_space says "
                f"{self._observation_shape}: make the two agree"
            )
        return array.ravel()

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        if self._threads:
            self._threads.shutdown()
        for environment in self.environments:
            environment.close()


def _sentence(doing: str, error: Exception) -> str:
    if isinstance(error, EnvironmentFault):
        return str(error)
    return f"an environment failed in {doing}(): {type(error).__name__}: {' '.join(str(error).split())}"


def _hear_mujoco() -> dict[int, list[str]]:
    """Where MuJoCo's warnings arrive from now on, by the thread that caused them, instead of in a file.

    When its numbers explode, MuJoCo resets the simulation by itself and only warns: the step looks like any other.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is None:
        return {}
    mujoco.set_mju_user_warning(_hear)  # again, for dm_control listens by itself from the moment it is imported
    return _heard


def _hear(complaint: str) -> None:
    _heard.setdefault(threading.get_ident(), []).append(complaint)


_heard: dict[int, list[str]] = {}
