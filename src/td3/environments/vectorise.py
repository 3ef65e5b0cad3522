"""Several environments stepped as one, in this process, without autoreset: who resets is the collector's business."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from td3.errors import EnvironmentFault

Array = NDArray[Any]


class EnvironmentRow(VectorEnv[Array, Array, Array]):
    """A row of environments; `reset` with `options={"reset_mask": mask}` resets those and leaves the others be."""

    def __init__(self, environments: Sequence[gym.Env[Any, Any]]) -> None:
        self.environments = list(environments)
        first = self.environments[0]
        self.num_envs = len(self.environments)
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        self._observation_shape, self._action_shape = first.observation_space.shape, first.action_space.shape
        self._observations = np.zeros((self.num_envs, int(np.prod(self._observation_shape or ()))), np.float32)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start new episodes, in all environments or in those of the mask; the rest keep their observation."""
        seeds = list(seed) if isinstance(seed, Sequence) else [seed] * self.num_envs
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        observations = self._observations.copy()
        for index in np.flatnonzero(mask).tolist():
            observation, _ = self.environments[index].reset(seed=seeds[index])
            observations[index] = self._vector(observation, index)
        self._observations = observations
        return observations, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step of every environment; an episode that ended waits for its reset."""
        return self.step_some(actions, range(self.num_envs))

    def step_some(self, actions: Array, indices: Sequence[int]) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step of the environments at these places; the others stand still (reward 0, not ended)."""
        observations = self._observations.copy()
        rewards = np.zeros(self.num_envs, np.float64)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for index in indices:
            action = actions[index].reshape(self._action_shape)
            observation, reward, ended, cut, _ = self.environments[index].step(action)
            observations[index] = self._vector(observation, index)
            rewards[index], terminated[index], truncated[index] = float(reward), ended, cut
        self._observations = observations
        return observations, rewards, terminated, truncated, {}

    def _vector(self, observation: Any, index: int) -> Array:
        array = np.asarray(observation)
        if array.shape != self._observation_shape:
            name = getattr(self.environments[index].spec, "id", "the environment")
            raise EnvironmentFault(
                f"{name} gave an observation of shape {array.shape}, but its observation_space says "
                f"{self._observation_shape}: make the two agree."
            )
        return array.ravel()

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        for environment in self.environments:
            environment.close()
