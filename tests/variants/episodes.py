"""Random episodes in a ring, and n-step returns of them in plain Python, slowly."""

from typing import NamedTuple

import numpy as np
import torch

from td3.algorithm.step_01_replay_buffer import Batch, ReplayBuffer

STATE, ACTION = 2, 1


class Transition(NamedTuple):
    """One step of one environment; `last` says that its episode ended with it, by termination or otherwise."""

    state: float
    reward: float
    next_state: float
    terminated: bool
    last: bool


class Episodes:
    """Environments of one member that take turns, and the ring of their transitions. No two states are equal."""

    def __init__(self, seed: int, envs: int, capacity: int, rounds: int) -> None:
        random, self.envs = np.random.default_rng(seed), envs
        self.added: list[Transition] = []
        self.buffer = ReplayBuffer(1, capacity, STATE, ACTION, dtype=torch.float64)
        self.buffer.rows.fill_(float("nan"))
        self.buffer.stride = self.buffer.rows_per_round = envs
        shown = [1000.0 * (env + 1) for env in range(envs)]
        for _ in range(rounds):
            for env in range(envs):
                terminated, cut = random.random() < 0.15, random.random() < 0.15
                after = shown[env] + 1
                self.added.append(Transition(shown[env], random.normal(), after, terminated, terminated or cut))
                shown[env] = after + (0.5 if terminated or cut else 0.0)
            self.buffer.add_(torch.tensor([[_row(one) for one in self.added[-envs:]]], dtype=torch.float64))
        self.first = len(self.added) - len(self.buffer)

    def n_step(self, index: int, n: int, gamma: float) -> tuple[float, float, float]:
        """Sum of discounted rewards, the state after them, and the factor of its value, gamma^m (1 - d)."""
        number = next(
            one for one in range(self.first, len(self.added)) if one % self.buffer.capacity == index
        )  # of the transition in this place of the ring, since the beginning
        total, factor = 0.0, 1.0
        for _ in range(n):
            one = self.added[number]
            total, factor = total + factor * one.reward, factor * gamma
            if one.last or number + self.envs >= len(self.added):
                break
            number += self.envs
        else:
            number -= self.envs
        one = self.added[number]
        return total, one.next_state, factor * (1 - one.terminated)


def _row(one: Transition) -> list[float]:
    return [one.state, -one.state, 0.0, one.next_state, -one.next_state, one.reward, float(one.terminated)]


class Given:
    """Row numbers instead of random ones."""

    def __init__(self, indices: torch.Tensor) -> None:
        self.indices = indices

    def rows(self, filled, count):
        return self.indices

    def normal(self, count, size):
        raise NotImplementedError


def every_row(episodes: Episodes, sample, settings, buffer: ReplayBuffer | None = None) -> Batch:
    """The batch of all rows in the ring, by a replacement of step 4."""
    from td3.algorithm.step_04_to_09_bellman_target import sample_batch

    indices = torch.arange(len(episodes.buffer)).unsqueeze(0)
    return sample(buffer or episodes.buffer, Given(indices), indices.shape[1], sample_batch, settings)
