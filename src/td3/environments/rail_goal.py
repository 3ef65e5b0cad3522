"""RailGoal: the cart of `Rail` sent to another position in every episode, with a sparse reward, for variant hindsight.

Observations are Dicts, as Gymnasium-Robotics has them: `observation` (position, velocity), `achieved_goal` (position)
and `desired_goal`. The reward is 0 within `CLOSE` of the goal and -1 elsewhere. The rail's ends are walls, so nothing
terminates; 50 env steps, the time limit of `RailGoal-v0`, are a truncation.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from td3.environments.rail import END, START_POSITION, move

Array = NDArray[Any]
CLOSE = 0.05
"""Distance from the goal that counts as success: random forces end there in few episodes."""


class RailGoal(gym.Env[Any, Array]):
    """One cart and one goal."""

    def __init__(self) -> None:
        self.observation_space = Dict(
            {
                "observation": Box(-END, END, (2,)),
                "achieved_goal": Box(-END, END, (1,)),
                "desired_goal": Box(-END, END, (1,)),
            }
        )
        self.action_space = Box(-1, 1, (1,))
        self._position = self._velocity = self._goal = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Start at rest at a random position, with a random goal."""
        super().reset(seed=seed)
        self._position, self._goal = self.np_random.uniform(-START_POSITION, START_POSITION, 2).tolist()
        self._velocity = 0.0
        return self._observation(), {}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """One push; `is_success` in the info says whether the cart is at its goal."""
        force = np.clip(np.asarray(action, np.float64)[0], -1, 1)
        _, self._position, self._velocity, hit = move(self._position, self._velocity, force)
        if hit:
            self._velocity = 0.0
        observation = self._observation()
        reward = float(self.compute_reward(observation["achieved_goal"], observation["desired_goal"], {}))
        return observation, reward, False, False, {"is_success": reward == 0}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Any:
        """0 where the goal is achieved and -1 elsewhere, for one goal or for arrays of them."""
        return -(np.abs(achieved_goal - desired_goal)[..., 0] > CLOSE).astype(np.float64)

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> bool:
        """Never: to stay at the goal is part of the task."""
        return False

    def _observation(self) -> dict[str, Array]:
        position, goal = (np.array([value], np.float32) for value in (self._position, self._goal))
        return {
            "observation": np.array([self._position, self._velocity], np.float32),
            "achieved_goal": position,
            "desired_goal": goal,
        }
