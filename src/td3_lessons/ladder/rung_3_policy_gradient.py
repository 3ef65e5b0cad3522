"""Rung 3: policy gradient.

What broke: the best Q can be picked only from a list of actions; a force is any number, and a body has many of them.
The idea: forget Q; let a network be the policy, and make what was followed by a high return more likely.

    pi_phi(a | s) = a normal distribution around the network's action, of width sigma
    R_t = sum over i >= t of gamma^(i - t) * r_i            the return after step t, to the end of the episode
    grad pi_phi = pi_phi * grad log pi_phi                  the log-derivative: an expectation again, so samples serve
    J(phi) = E[R_0];   grad J = E[ sum over t of R_t * grad log pi_phi(a_t | s_t) ]
    phi <- phi + alpha * grad J                             on-policy: the samples must come from pi_phi itself
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td3_lessons.ladder.common import Actor, Array, Task, Transition, Watch, descend, stack

SERVES = ("vectors", "range")


@dataclass(frozen=True)
class Settings:
    """The numbers of this rung."""

    steps: int = 100_000
    gamma: float = 0.99
    exploration_noise: float = 0.3
    actor_learning_rate: float = 1e-3


class Learner:
    """A network that is the policy, and the episode under way."""

    def __init__(self, task: Task, seed: int, settings: Settings) -> None:
        self.task, self.settings, self.random = task, settings, np.random.default_rng(seed)
        self.actor = Actor(task, (seed, 0))
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), settings.actor_learning_rate)
        self.episode: list[Transition] = []

    def act(self, state: Array) -> Any:
        """A draw from the policy."""
        noise = self.settings.exploration_noise * self.task.half * self.random.normal(size=len(self.task.half))
        return self.policy(state[None])[0] + noise

    def learn(self, step: Transition) -> None:
        """Wait for the end of the episode; then make its better actions more likely."""
        self.episode.append(step)
        if not step.ended:
            return
        batch = stack(self.episode)
        self.episode.clear()
        returns = torch.zeros_like(batch.reward)
        following = 0.0
        for t in reversed(range(len(returns))):
            returns[t] = following = float(batch.reward[t]) + self.settings.gamma * following
        descend(self.actor_optimizer, -(returns * self.log_probability(batch)).sum())

    def log_probability(self, batch: Transition) -> Tensor:
        """The logarithm of pi(a | s), up to a constant."""
        sigma = self.settings.exploration_noise * self.actor.reach
        return torch.sum(-0.5 * ((batch.action - self.actor(batch.state)) / sigma) ** 2, -1)

    @torch.no_grad()
    def policy(self, states: Array) -> Array:
        """The middle of the policy."""
        return np.asarray(self.actor(torch.as_tensor(states)))

    def value(self, states: Array) -> None:
        """Nothing: this rung keeps no values."""


def train(task: Task, seed: int, settings: Settings, watch: Watch) -> Learner:
    """Act, learn from the result, and repeat; the same loop on every rung."""
    learner, state = Learner(task, seed, settings), task.reset(seed)
    for number in range(1, settings.steps + 1):
        action = learner.act(state)
        step = Transition(state, action, *task.step(action))
        learner.learn(step)
        state = task.reset() if step.ended else step.next_state
        watch(number, learner)
    return learner
