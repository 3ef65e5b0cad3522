"""Single episodes in a user's vector environment, for evaluation: what follows the end of one is ignored."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from td3.environments.checked_vector import CheckedVectorEnv, last_numbers
from td3.environments.guarded import Array
from td3.environments.stepped_vector import StepResult


class VectorEpisodes:
    """A vector environment with the interface that `evaluate.play` uses; all environments step until the last ends."""

    def __init__(self, environments: CheckedVectorEnv) -> None:
        self._environments, self.num_envs = environments, environments.num_envs
        self._action_shape = environments.single_action_space.shape or ()
        self.faults: dict[int, str] = {}
        """None: what goes wrong is raised, for it concerns all."""

    def reset(
        self, *, seed: Sequence[int | None], options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode in every environment, whatever the mask says: those of others are not looked at."""
        seeds = [0 if value is None else value for value in seed]
        self._shown, _ = self._environments.reset(seed=seeds)
        return self._shown.copy(), {}

    def step_some(self, actions: Array, indices: Sequence[int]) -> StepResult:
        """One step; the environments at other places show what they showed last (reward 0, not ended)."""
        shaped = actions.reshape(self.num_envs, *self._action_shape).astype(np.float32)
        observations, rewards, terminated, truncated, infos = self._environments.step(shaped)
        ended, mode = terminated | truncated, self._environments.autoreset
        if mode == AutoresetMode.SAME_STEP and ended.any():
            observations[ended] = infos["final_obs"][ended]
        playing = np.zeros(self.num_envs, bool)
        playing[list(indices)] = True
        self._shown = np.where(playing[:, None], observations, self._shown)
        if mode == AutoresetMode.DISABLED and ended.any():
            self._environments.reset(options={"reset_mask": ended})
        last = {int(index): last_numbers(infos, int(index), mode) for index in np.flatnonzero(ended & playing)}
        return (
            self._shown.copy(),
            np.where(playing, rewards, 0.0),
            terminated & playing,
            truncated & playing,
            {index: info for index, info in last.items() if info},
        )

    def replace(self, index: int) -> list[int]:
        """Nothing: a single environment of it cannot be replaced."""
        return []

    def close(self) -> None:
        """Close the vector environment."""
        self._environments.close()
