"""Rail: a cart on a line, small enough that its exact values can be computed and drawn (`td3_lessons.ladder.exact`).

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
PAPER, INK, CART, PUSH, END_OF_RAIL = (253, 253, 252), (91, 97, 107), (0, 114, 178), (213, 94, 0), (204, 51, 17)
"""Colors of the image: background, rail, cart with its velocity, force, and the rail's ends."""
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

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  # as Gymnasium has it

    def __init__(self, reward_noise: float = 0.0, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self._force = 0.0
        self.observation_space, self.action_space = Box(-END, END, (2,)), Box(-1, 1, (1,))
        self.reward_noise = reward_noise
        self._state = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start at a random state, or where `options={"state": (position, velocity)}` says."""
        super().reset(seed=seed)
        start = self.np_random.uniform((-START_POSITION, -START_VELOCITY), (START_POSITION, START_VELOCITY))
        self._state, self._force = np.asarray((options or {}).get("state", start), np.float64), 0.0
        return self._state.astype(np.float32), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """One push; a force beyond the range counts as the range's end."""
        force = np.clip(np.asarray(action, np.float64)[0], -1, 1)
        self._force = float(force)
        reward, position, velocity, left = move(self._state[0], self._state[1], force)
        self._state = np.array((position, velocity))
        noise = self.reward_noise * self.np_random.normal() if self.reward_noise else 0.0
        return self._state.astype(np.float32), float(reward + noise), bool(left), False, {}

    def render(self) -> Array | None:
        """The cart on its rail, an arrow for its velocity and one for the force; None without render_mode."""
        if self.render_mode != "rgb_array":
            return None
        height, width = 160, 320
        image = np.full((height, width, 3), PAPER, np.uint8)

        def bar(left: float, right: float, top: int, bottom: int, color: tuple[int, int, int]) -> None:
            ends = sorted((round(left), round(right)))
            image[top:bottom, max(ends[0], 0) : max(ends[1], 0)] = color

        middle, unit = width / 2, (width - 60) / (2 * END)
        bar(middle - END * unit, middle + END * unit, 110, 113, INK)
        for end in (-END, END):
            bar(middle + end * unit - 2, middle + end * unit + 2, 90, 113, END_OF_RAIL)
        bar(middle - 1, middle + 1, 113, 120, INK)
        position, velocity = self._state
        cart = middle + position * unit
        bar(cart - 16, cart + 16, 86, 110, CART)
        bar(cart, cart + 30 * velocity, 72, 76, CART)
        bar(cart, cart + 40 * self._force, 62, 66, PUSH)
        return image
