"""Environments with a known script: what they give follows from their seed, the episode, the step and the action."""

import importlib.util
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from td3.policy import Policy

LOW, HIGH = (-1.0, 0.25), (3.0, 0.5)
LENGTHS = (3, 5, 2, 4)
ENDINGS = ((True, False), (False, True), (True, True))


class Scripted(gym.Env):
    """Observation [seed, episode, step + a little of the action]; episodes end by termination, truncation, both, ..."""

    def __init__(self, lengths=LENGTHS, endings=ENDINGS, fault=None, fault_at=3, render_mode=None):
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = Box(np.array(LOW, np.float32), np.array(HIGH, np.float32))
        self.lengths, self.endings, self.fault, self.fault_at = lengths, endings, fault, fault_at
        self.render_mode = render_mode
        self.seed_number, self.episode, self.total_steps = 0, -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None):
        if seed is not None:
            self.seed_number, self.episode = seed % 1_000_003, -1
        self.episode, self.step_number = self.episode + 1, 0
        return self.observation(0.0), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, np.float32)), f"{action} is out of range"
        self.step_number += 1
        self.total_steps += 1
        over = self.step_number >= self.length
        terminated, truncated = self.endings[self.episode % len(self.endings)] if over else (False, False)
        broken = self.total_steps >= self.fault_at
        reward = np.nan if self.fault == "reward" and broken else self.step_number + float(action[1])
        observation = self.observation(float(action[0]))
        if self.fault == "observation" and broken:
            observation[1] = np.inf
        if self.fault == "shape" and broken:
            observation = observation[:2]
        return observation, reward, terminated, truncated, {}

    @property
    def length(self) -> int:
        return self.lengths[(self.episode + self.seed_number) % len(self.lengths)]

    def observation(self, moved: float):
        return np.array([self.seed_number, self.episode, self.step_number + 0.01 * moved], np.float32)


class Told(Scripted):
    """The scripted environment with an info of many kinds; every third episode has no `is_success`."""

    def step(self, action):
        *result, _ = super().step(action)
        info = {"steps": self.step_number, "share": np.float32(0.5), "array": np.ones(2), "text": "x", 3: 4.0}
        info |= {"nan": np.nan, "nested": {"a": 1}, "one": np.array(2), "nothing": None}
        if self.episode_kind < 2:
            info["is_success"] = bool(self.episode_kind)
        return *result, info

    @property
    def episode_kind(self) -> int:
        return (self.episode + self.seed_number) % 3


class Changed(Scripted):
    """The scripted environment with something of it replaced."""

    def __init__(self, action_space=None, observation_space=None, first=None, result=None):
        super().__init__()
        self.action_space = action_space or self.action_space
        self.observation_space = observation_space or self.observation_space
        self.first, self.result = first, result

    def reset(self, *, seed=None, options=None):
        usual = super().reset(seed=seed)
        return usual if self.first is None else self.first(*usual)

    def step(self, action):
        usual = super().step(action)
        return usual if self.result is None else self.result(*usual)


def box(low, high) -> Box:
    return Box(np.array(low, np.float32), np.array(high, np.float32))


FAULTY: dict[str, dict[str, Any]] = {
    "DiscreteActions-v0": {"action_space": Discrete(3)},
    "DictActions-v0": {"action_space": Dict({"arm": Box(-1, 1, (2,))})},
    "InfiniteActions-v0": {"action_space": box([-1, -np.inf], [1, np.inf])},
    "ZeroWidthActions-v0": {"action_space": box([-1, 2], [1, 2])},
    "DiscreteObservations-v0": {"observation_space": Discrete(4)},
    "Images-v0": {"observation_space": Box(0, 255, (300, 300, 3), np.uint8)},
    "WrongShape-v0": {"observation_space": Box(-1, 1, (5,))},
    "NanAtReset-v0": {"first": lambda observation, info: (observation * np.nan, info)},
    "TextAtReset-v0": {"first": lambda observation, info: (np.array(["a", "b", "c"]), info)},
    "OldReset-v0": {"first": lambda observation, info: observation},
    "OldStep-v0": {"result": lambda observation, reward, terminated, truncated, info: (observation, reward, True, {})},
    "ListReward-v0": {"result": lambda o, r, *rest: (o, np.array([r, r]), *rest)},
    "NanRewardAtOnce-v0": {"result": lambda o, r, *rest: (o, np.nan, *rest)},
    "NumberAsEnd-v0": {"result": lambda o, r, terminated, truncated, info: (o, r, 0.0, truncated, info)},
}


def register() -> None:
    gym.register("Scripted-v0", entry_point=Scripted)
    gym.register("Told-v0", entry_point=Told)
    gym.register("Steady-v0", entry_point=Scripted, kwargs={"lengths": (10,), "endings": ((False, True),)})
    gym.register("NanReward-v0", entry_point=Scripted, kwargs={"fault": "reward"})
    gym.register("NanObservation-v0", entry_point=Scripted, kwargs={"fault": "observation"})
    gym.register("ChangedShape-v0", entry_point=Scripted, kwargs={"fault": "shape"})
    for name, kwargs in FAULTY.items():
        gym.register(name, entry_point=Changed, kwargs=kwargs)


if "Scripted-v0" not in gym.registry:
    register()


class FormulaPolicy(Policy):
    """An action that follows from the state by a formula, the same in every vectorization."""

    def __init__(self):
        super().__init__([], LOW, HIGH, (3,), (2,))

    def __call__(self, states):
        first = np.sin(states[..., 0] + 3 * states[..., 1] + 7 * states[..., 2])
        return np.stack([1 + 2 * first, 0.375 + 0.125 * first], axis=-1).astype(np.float32)


def linear_policy(seed: int = 0, hidden: int = 8) -> Policy:
    """A small random actor for the scripted environment."""
    generator = np.random.default_rng(seed)
    sizes = (3, hidden, 2)
    layers = [
        (generator.normal(size=shape).astype(np.float32), generator.normal(size=shape[1]).astype(np.float32))
        for shape in pairwise(sizes)
    ]
    return Policy(layers, LOW, HIGH, (3,), (2,))


def needs(package: str) -> None:
    """Skip a test where this is not installed; not imported, for importing Box2D under strict warnings is a crash."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")


SMALL = {
    "hidden_sizes": (8, 8),
    "batch_size": 8,
    "buffer_size": 1000,
    "learning_starts": 20,
    "threads": 1,
    "eval_episodes": 2,
    "device": "cpu",
}
SMALL_OPTIONS = [
    *("--td3.hidden-sizes", "8", "8", "--td3.batch-size", "8", "--td3.buffer-size", "1000"),
    *("--td3.learning-starts", "20", "--threads", "1", "--eval-episodes", "2", "--device", "cpu"),
]
