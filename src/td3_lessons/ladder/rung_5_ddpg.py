"""Rung 5: DDPG, deep deterministic policy gradient.

What broke: the actor-critic must draw an action and see how lucky it was, and throws every step away after one use.
The idea: a critic of (s, a) has a gradient in a; the actor follows it, so any old step from a replay buffer will do.

    y = r + gamma * (1 - terminated) * Q'(s', pi'(s'))      Q' and pi' are target networks (see the idea after rung 2)
    critic: Loss = mean of (Q(s, a) - y)^2                  the Bellman expectation equation of pi'
    J(phi) = mean of Q(s, pi_phi(s))                        the deterministic policy, valued by the critic
    grad_phi J = mean of grad_a Q(s, a) at a = pi_phi(s) * grad_phi pi_phi(s)        the chain rule, through Q
    targets: theta' <- tau * theta + (1 - tau) * theta'     off-policy: the buffer's actions need not be pi's
"""

from collections import deque
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from td3_lessons.ladder.common import Actor, Array, Task, Transition, Watch, descend, network, stack

SERVES = ("vectors", "range")


@dataclass(frozen=True)
class Settings:
    """The numbers of this rung."""

    steps: int = 12_000
    gamma: float = 0.99
    exploration_noise: float = 0.2
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    buffer_size: int = 20_000
    batch_size: int = 128
    learning_starts: int = 1_000
    tau: float = 0.01


class Learner:
    """An actor, a critic that scores its actions, a slow copy of each, and a buffer."""

    def __init__(self, task: Task, seed: int, settings: Settings) -> None:
        self.task, self.settings, self.random = task, settings, np.random.default_rng(seed)
        self.actor = Actor(task, (seed, 0))
        self.critic = network(task.state_size + len(task.half), 1, (seed, 1))
        self.actor_target, self.critic_target = deepcopy(self.actor), deepcopy(self.critic)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), settings.actor_learning_rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), settings.critic_learning_rate)
        self.buffer: deque[Transition] = deque(maxlen=settings.buffer_size)

    def act(self, state: Array) -> Any:
        """The actor's action and a little noise; at first any action."""
        noise = self.settings.exploration_noise * self.task.half * self.random.normal(size=len(self.task.half))
        if len(self.buffer) < self.settings.learning_starts:
            return self.random.uniform(self.task.action_low, self.task.action_high)
        return np.clip(self.policy(state[None])[0] + noise, self.task.action_low, self.task.action_high)

    def learn(self, step: Transition) -> None:
        """Remember the step; improve critic and actor on a batch of others; let the targets follow."""
        self.buffer.append(step)
        if len(self.buffer) < self.settings.learning_starts:
            return
        rows = self.random.integers(len(self.buffer), size=self.settings.batch_size)
        batch = stack([self.buffer[row] for row in rows])
        with torch.no_grad():
            future = score(self.critic_target, batch.next_state, self.actor_target(batch.next_state))
            goal = batch.reward + self.settings.gamma * (1 - batch.terminated) * future
        surprise = goal - score(self.critic, batch.state, batch.action)
        descend(self.critic_optimizer, surprise.square().mean())
        descend(self.actor_optimizer, -score(self.critic, batch.state, self.actor(batch.state)).mean())
        for target, online in ((self.actor_target, self.actor), (self.critic_target, self.critic)):
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.data.lerp_(fast.data, self.settings.tau)

    @torch.no_grad()
    def policy(self, states: Array) -> Array:
        """The actor's action."""
        return np.asarray(self.actor(torch.as_tensor(states)))

    @torch.no_grad()
    def value(self, states: Array) -> Array:
        """The critic's score of the actor's action."""
        seen = torch.as_tensor(states)
        return np.asarray(score(self.critic, seen, self.actor(seen)))


def score(critic: nn.Module, states: Tensor, actions: Tensor) -> Tensor:
    """Q(s, a), one number per row."""
    return cast(Tensor, critic(torch.cat((states, actions), -1)).squeeze(-1))


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
