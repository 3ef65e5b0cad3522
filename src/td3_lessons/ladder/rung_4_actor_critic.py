"""Rung 4: actor-critic.

What broke: returns are long sums of luck, so their gradient is noisy, and nothing is learned before an episode ends.
The idea: a second network, the critic, learns what a state is worth; the surprise of a single step replaces the return.

    V(s) approximates V_pi(s) = E[r + gamma * V_pi(s')]                the Bellman expectation equation of this policy
    y_t = r_t + gamma * V(s_{t+1})        one reward and the critic's estimate of the rest, if any follows
    critic: Loss = 1/2 * sum of (y_t - V(s_t))^2
    actor:  grad J = sum of (y_t - V(s_t)) * grad log pi_phi(a_t | s_t)    on-policy: better than expected, more likely

The actor still learns from its own random draws. If the critic knew Q(s, a), its gradient in a would say where to
move: grad J = grad_a Q(s, a) * grad_phi pi_phi(s), the deterministic policy gradient, which is the next rung.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td3_lessons.ladder.common import Actor, Array, Task, Transition, Watch, descend, network, stack

SERVES = ("vectors", "range")


@dataclass(frozen=True)
class Settings:
    """The numbers of this rung."""

    steps: int = 100_000
    gamma: float = 0.99
    exploration_noise: float = 0.3
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-2
    batch_size: int = 32


class Learner:
    """A network that is the policy, one that knows values, and the latest steps."""

    def __init__(self, task: Task, seed: int, settings: Settings) -> None:
        self.task, self.settings, self.random = task, settings, np.random.default_rng(seed)
        self.actor = Actor(task, (seed, 0))
        self.critic = network(task.state_size, 1, (seed, 1))
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), settings.actor_learning_rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), settings.critic_learning_rate)
        self.latest: list[Transition] = []

    def act(self, state: Array) -> Any:
        """A draw from the policy."""
        noise = self.settings.exploration_noise * self.task.half * self.random.normal(size=len(self.task.half))
        return self.policy(state[None])[0] + noise

    def learn(self, step: Transition) -> None:
        """Wait for a few steps; then make those more likely that went better than the critic expected."""
        self.latest.append(step)
        if len(self.latest) < self.settings.batch_size:
            return
        batch = stack(self.latest)
        self.latest.clear()
        with torch.no_grad():
            future = self.critic(batch.next_state).squeeze(-1)
            goal = batch.reward + self.settings.gamma * (1 - batch.terminated) * future
        surprise = goal - self.critic(batch.state).squeeze(-1)
        descend(self.critic_optimizer, 0.5 * surprise.square().sum())
        descend(self.actor_optimizer, -(surprise.detach() * self.log_probability(batch)).sum())

    def log_probability(self, batch: Transition) -> Tensor:
        """The logarithm of pi(a | s), up to a constant."""
        sigma = self.settings.exploration_noise * self.actor.reach
        return torch.sum(-0.5 * ((batch.action - self.actor(batch.state)) / sigma) ** 2, -1)

    @torch.no_grad()
    def policy(self, states: Array) -> Array:
        """The middle of the policy."""
        return np.asarray(self.actor(torch.as_tensor(states)))

    @torch.no_grad()
    def value(self, states: Array) -> Array:
        """What the critic expects."""
        return np.asarray(self.critic(torch.as_tensor(states)).squeeze(-1))


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
