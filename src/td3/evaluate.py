"""How good is the policy? Noise off, environments and seeds of its own."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from td3.algorithm.streams import derive_seed
from td3.environments import EnvironmentRow
from td3.policy import Array, Policy

LONGEST_EPISODE = 100_000
"""Env steps after which an episode without a time limit of its own is cut."""


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths `[member, episode]`."""

    returns: Array
    lengths: Array


class Evaluator:
    """Runs the same episodes (the same seeds) at every evaluation, as the author's code does: changes are the policy's.

    The environments are apart from those of training, and are all stepped together.
    """

    def __init__(self, make: Callable[[], gym.Env[Any, Any]], seeds: Sequence[int], episodes: int) -> None:
        self.episodes, self.members = episodes, len(seeds)
        self.environments = EnvironmentRow([make() for _ in range(self.members * episodes)])
        self._seeds = [
            derive_seed(seed, "evaluation", episode) % 2**31 for seed in seeds for episode in range(episodes)
        ]

    def __call__(self, policy: Policy) -> Evaluation:
        """Play every episode to its end."""
        states, _ = self.environments.reset(seed=list(self._seeds))
        returns, lengths = np.zeros(len(self._seeds)), np.zeros(len(self._seeds), np.int64)
        playing = list(range(len(self._seeds)))
        while playing:
            actions = policy(states.reshape(self.members, self.episodes, -1))
            # Rounding may carry the edge of the range out by an ulp; some environments refuse that.
            actions = np.clip(actions, policy.low, policy.high).reshape(len(self._seeds), -1)
            states, rewards, terminated, truncated, _ = self.environments.step_some(actions, playing)
            returns += rewards
            lengths[playing] += 1
            over = terminated | truncated | (lengths >= LONGEST_EPISODE)
            playing = [index for index in playing if not over[index]]
        shape = (self.members, self.episodes)
        return Evaluation(returns.reshape(shape), lengths.reshape(shape))

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()
