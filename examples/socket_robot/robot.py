"""The robot as a Gymnasium environment: train on it with `td3 train robot:Robot`."""

import gymnasium as gym
import numpy as np
from connection import Connection, observation

CONNECTIONS: dict[int, Connection] = {}
"""By port: there is one robot, and the environments for training and evaluation share the line to it."""


class Robot(gym.Env):
    """Move the slider to the middle of the rail and hold it there."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)  # share of the largest force

    def __init__(self, port: int = 47001) -> None:
        self.driver = CONNECTIONS.setdefault(port, Connection(port))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        side = self.np_random.choice([-1.0, 1.0])  # never near the middle: one episode is all that an evaluation plays
        answer = self.driver.ask(home=side * self.np_random.uniform(0.5, 1.0))
        self.driver.user, self.missed = self, 0.0
        return observation(answer, 0.0), {}

    def step(self, action):
        if self.driver.user is not self:
            raise RuntimeError("an evaluation has moved the robot since this episode's last step")
        force = float(action[0])
        answer = self.driver.ask(force=force)
        self.missed += answer["missed"]
        reward = -abs(answer["position"]) - 0.01 * force**2
        info = {"is_success": abs(answer["position"]) < 0.1, "missed_periods": self.missed}
        return observation(answer, force), reward, False, False, info

    def close(self):
        """Leave the line open: another environment may use it."""
