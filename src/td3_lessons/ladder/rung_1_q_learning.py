"""Rung 1: Q-learning in a table.

What broke: nothing yet. A table of values is the simplest thing that learns.
The idea: keep a number per cell and action, and pull it towards the reward plus the best number of what follows.

    G_t = sum over k >= 0 of gamma^k * r_{t+k}              the return: all rewards from step t on, discounted
    V_pi(s) = E[G_t | s_t = s]                              the value of a state under the policy pi
    Q_pi(s, a) = E[G_t | s_t = s, a_t = a]                  the value of an action, pi from then on
    Q_pi(s, a) = E[r + gamma * Q_pi(s', pi(s'))]            Bellman expectation equation: the value of one policy
    Q*(s, a) = E[r + gamma * max_a' Q*(s', a')]             Bellman optimality equation: the value of the best one
    TD_t = r + gamma * max_a' Q(s', a') - Q(s, a)           the temporal difference; r - Q(s, a) after a termination
    Q(s, a) <- Q(s, a) + alpha * TD_t                       off-policy: any behavior may have chosen a

The lesson draws s and a at random at every step (`train_from_random_states`); an agent in an environment follows its
trajectory and mostly takes the action of highest Q (`train`). Both correct the same table by the same rule.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from td3_lessons.ladder.common import Array, Task, Transition, Watch

SERVES = ("cells", "list")


@dataclass(frozen=True)
class Settings:
    """The numbers of this rung."""

    steps: int = 150_000
    gamma: float = 0.99
    exploration: float = 0.1
    alpha: float = 0.2
    cells: int = 11


class Learner:
    """A table Q, one row per cell of states and one column per action."""

    def __init__(self, task: Task, seed: int, settings: Settings) -> None:
        self.task, self.settings, self.random = task, settings, np.random.default_rng(seed)
        self.per_side = task.cells or settings.cells
        self.q = np.zeros((self.per_side**task.state_size, len(task.choices)))

    def act(self, state: Array) -> Any:
        """Mostly the best action, sometimes any: what is never tried is never learned."""
        row = self.q[self.cell(state[None])[0]]
        if self.random.random() < self.settings.exploration:
            return self.random.integers(len(row))
        return self.random.choice(np.flatnonzero(row == row.max()))

    def learn(self, step: Transition) -> None:
        """Correct one number of the table."""
        here, there = self.cell(np.stack((step.state, step.next_state)))
        future = 0.0 if step.terminated else self.q[there].max()
        td = step.reward + self.settings.gamma * future - self.q[here, step.action]
        self.q[here, step.action] += self.settings.alpha * td

    def policy(self, states: Array) -> Array:
        """The action with the highest Q."""
        return np.asarray(self.q[self.cell(states)].argmax(-1))

    def value(self, states: Array) -> Array:
        """The highest Q."""
        return np.asarray(self.q[self.cell(states)].max(-1))

    def cell(self, states: Array) -> Array:
        """The number of the cell in which each state lies."""
        share = (states - self.task.low) / (self.task.high - self.task.low)
        place = np.clip((share * self.per_side).astype(int), 0, self.per_side - 1)
        return np.asarray(place @ self.per_side ** np.arange(self.task.state_size))


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


def train_from_random_states(task: Task, seed: int, settings: Settings, watch: Watch) -> Learner:
    """The lesson's first form: a random state, a random action, one correction. Needs a task that starts where told."""
    learner, _ = Learner(task, seed, settings), task.reset(seed)
    for number in range(1, settings.steps + 1):
        state = task.reset(state=learner.random.uniform(task.low, task.high))
        action = learner.random.integers(len(task.choices))
        learner.learn(Transition(state, action, *task.step(action)))
        watch(number, learner)
    return learner
