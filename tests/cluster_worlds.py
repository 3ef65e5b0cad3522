"""Environments for collectors on other machines, which import this file by its name."""

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Counting(gym.Env):
    """Observation [two halves of the episode's seed, step, last action]; the seed says how long it is and how it ends.

    Where the folder in TD3_TEST_PROCESSES exists, every environment leaves its process number there.
    """

    def __init__(self, seconds: float = 0.0):
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        self.seconds = seconds
        folder = Path(os.environ.get("TD3_TEST_PROCESSES", "/nowhere"))
        if folder.is_dir():
            (folder / str(os.getpid())).touch()

    def reset(self, *, seed: int | None = None, options: Any = None):
        assert seed is not None or not hasattr(self, "episode"), "every episode has a seed of its own"
        self.episode, self.step_number = seed or 0, 0
        return self.observation(0.0), {}

    def step(self, action):
        time.sleep(self.seconds)
        self.step_number += 1
        over = self.step_number >= length_of(self.episode)
        ends = self.episode % 2 == 0
        return self.observation(float(action[0])), float(self.step_number), over and ends, over and not ends, {}

    def observation(self, action: float):
        # Both halves are exact in 32 bits, so that no two of thousands of episodes have the same name.
        return np.array([self.episode >> 16, self.episode & 0xFFFF, self.step_number, action], np.float32)


def length_of(episode: int) -> int:
    return 3 + episode % 7


class Failing(Counting):
    """It fails in every third step."""

    def step(self, action):
        if self.step_number == 2:
            raise RuntimeError("the gripper is stuck")
        return super().step(action)


class Wounded(Counting):
    """It takes its process with it, once: the first that finds the file in TD3_TEST_WOUND removes it and dies."""

    def step(self, action):
        wound = Path(os.environ.get("TD3_TEST_WOUND", "/nowhere"))
        if self.step_number == 2 and wound.exists():
            wound.unlink()
            os._exit(1)
        return super().step(action)


gym.register("Counting-v0", entry_point=Counting)
gym.register("SlowCounting-v0", entry_point=Counting, kwargs={"seconds": 0.005})
gym.register("Failing-v0", entry_point=Failing)
gym.register("Wounded-v0", entry_point=Wounded)
