"""What the vector environments of this package share: resets of some, steps in two halves, faults by index."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from td3.environments.guarded import Array, Shapes
from td3.user_code import fault_of

StepResult = tuple[Array, Array, Array, Array, dict[Any, Any]]
"""Observations, rewards, terminated, truncated, and of episodes that ended the numbers in their info, by index."""


class SteppedVectorEnv(VectorEnv[Array, Array, Array]):
    """A vector environment whose `step` is `begin_step` and `finish_step`, and which the collector resets.

    What an environment does wrong in a step, in `reset_some` or in `replace` stands in `faults`, by index: the others
    have done what was asked. `reset` with `options={"reset_mask": mask}` resets those only.
    """

    seeds_episodes = True
    """Whether every reset takes a seed, so that an episode can be replayed from its seed and actions."""

    def _describe(self, environment: gym.Env[Any, Any], count: int) -> None:
        """Take the spaces from one of the environments."""
        self.num_envs, self._shapes = count, Shapes.of(environment)
        self.faults: dict[int, str] = {}
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = (
            environment.observation_space,
            environment.action_space,
        )
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)

    @abstractmethod
    def reset_some(self, seeds: Sequence[int | None], indices: Sequence[int]) -> Array:
        """Start new episodes in these environments; returns the observations of all."""

    @abstractmethod
    def begin_step(self, actions: Array, indices: Sequence[int] | None = None) -> None:
        """Send the actions, to all environments or to those at these indices."""

    @abstractmethod
    def finish_step(self) -> StepResult:
        """Wait for what was begun."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start new episodes, in all environments or in those of the mask; the others keep their observation."""
        seeds = list(seed) if isinstance(seed, Sequence) else [seed] * self.num_envs
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        observations = self.reset_some(seeds, np.flatnonzero(mask).tolist())
        if self.faults:
            raise fault_of(next(iter(self.faults.values())))
        return observations, {}

    def step(self, actions: Array) -> StepResult:
        """One step of every environment; an episode that ended waits for its reset."""
        return self.step_some(actions, range(self.num_envs))

    def step_some(self, actions: Array, indices: Sequence[int]) -> StepResult:
        """One step of the environments at these indices; the others are not stepped (reward 0, not ended)."""
        self.begin_step(actions, indices)
        return self.finish_step()
