"""Rail: a cart on a line, small enough that its exact values can be computed and drawn (`td3.ladder.exact`).

The state is (position, velocity), each within [-2, 2]; the action is a force within [-1, 1]. Staying in the middle
costs nothing. Leaving the rail is a true termination; 100 env steps, the time limit of `Rail-v0`, are a truncation.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

Array = NDArray[Any]

END = 2.0
"""The rail goes from -END to END, and this is also the highest speed."""
FALL = 60.0
"""What leaving the rail costs: about what bad driving on it does. At 30 giving up was better than driving badly, and a
policy that climbs from where it is (rung 3 of the ladder) gave up more often than not."""
START_POSITION, START_VELOCITY = 1.6, 0.8
"""Episodes start uniformly within these bounds, from where a fall can always be avoided."""


def move(position: Any, velocity: Any, force: Any) -> tuple[Any, Any, Any, Any]:
    """Reward, next position, next velocity and whether the cart left the rail, of one cart or of arrays of them."""
    next_velocity = np.clip(0.9 * velocity + 0.4 * force, -END, END)
    next_position = position + 0.1 * next_velocity
    left = np.abs(next_position) > END
    reward = -(position**2 + 0.1 * velocity**2 + 0.001 * force**2) - FALL * left
    return reward, np.clip(next_position, -END, END), next_velocity, left


class Rail(gym.Env[Array, Array]):
    """One cart; `reward_noise` is the standard deviation of normal noise on every reward."""

    def __init__(self, reward_noise: float = 0.0) -> None:
        self.observation_space, self.action_space = Box(-END, END, (2,)), Box(-1, 1, (1,))
        self.reward_noise = reward_noise
        self._state = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start at a random state, or where `options={"state": (position, velocity)}` says."""
        super().reset(seed=seed)
        start = self.np_random.uniform((-START_POSITION, -START_VELOCITY), (START_POSITION, START_VELOCITY))
        self._state = np.asarray((options or {}).get("state", start), np.float64)
        return self._state.astype(np.float32), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One push; a force beyond the range counts as the range's end."""
        force = np.clip(np.asarray(action, np.float64)[0], -1, 1)
        reward, position, velocity, left = move(self._state[0], self._state[1], force)
        self._state = np.array((position, velocity))
        noise = self.reward_noise * self.np_random.normal() if self.reward_noise else 0.0
        return self._state.astype(np.float32), float(reward + noise), bool(left), False, {}
