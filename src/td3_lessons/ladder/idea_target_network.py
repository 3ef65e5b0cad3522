"""Idea: target networks.

What broke: Q is fitted to r + gamma * max Q, which moves with every step of Q itself, so values chase their own errors.
The idea: a second network, a slow copy of Q, computes what Q is fitted to.

    y = r + gamma * (1 - terminated) * max_a' Q'(s', a')        Q' is the target network
    Loss = 1/2 * sum over the batch of (y - Q(s, a))^2
    theta' <- tau * theta + (1 - tau) * theta'                  Polyak averaging: Q' lags by about 1 / tau updates

Half of TD3's networks are targets: those of the actor and of both critics.
"""

from collections import deque
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from td3_lessons.ladder.common import Array, Task, Transition, Watch, descend, network, stack

SERVES = ("vectors", "list")


@dataclass(frozen=True)
class Settings:
    """The numbers of this idea."""

    steps: int = 15_000
    gamma: float = 0.99
    exploration: float = 0.1
    learning_rate: float = 1e-3
    buffer_size: int = 20_000
    batch_size: int = 64
    tau: float = 0.01


class Learner:
    """A network Q, one output per action, its slow copy, and a buffer."""

    def __init__(self, task: Task, seed: int, settings: Settings) -> None:
        self.task, self.settings, self.random = task, settings, np.random.default_rng(seed)
        self.q = network(task.state_size, len(task.choices), (seed, 0))
        self.target = deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), settings.learning_rate)
        self.buffer: deque[Transition] = deque(maxlen=settings.buffer_size)

    def act(self, state: Array) -> Any:
        """Mostly the best action, sometimes any: what is never tried is never learned."""
        if self.random.random() < self.settings.exploration:
            return self.random.integers(len(self.task.choices))
        return self.policy(state[None])[0]

    def learn(self, step: Transition) -> None:
        """Remember the step, improve the network on a batch of others, and let its copy follow."""
        self.buffer.append(step)
        rows = self.random.integers(len(self.buffer), size=self.settings.batch_size)
        batch = stack([self.buffer[row] for row in rows])
        with torch.no_grad():
            future = self.target(batch.next_state).max(-1).values
            goal = batch.reward + self.settings.gamma * (1 - batch.terminated) * future
        q = self.q(batch.state).gather(-1, batch.action[:, None]).squeeze(-1)
        descend(self.optimizer, 0.5 * (goal - q).square().sum())
        for slow, fast in zip(self.target.parameters(), self.q.parameters(), strict=True):
            slow.data.lerp_(fast.data, self.settings.tau)

    @torch.no_grad()
    def policy(self, states: Array) -> Array:
        """The action with the highest Q."""
        return np.asarray(self.q(torch.as_tensor(states)).argmax(-1))

    @torch.no_grad()
    def value(self, states: Array) -> Array:
        """The highest Q."""
        return np.asarray(self.q(torch.as_tensor(states)).max(-1).values)


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
