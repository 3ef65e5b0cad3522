"""Rung 6: TD3, twin delayed DDPG.

What broke: the actor seeks out what the critic overrates, the critic learns from that, and values rise above the truth.
The idea: use the lower of two critics, add noise to the target policy's action, and update the actor less often.

    a~ = clip(pi'(s') + clip(noise, -c, c), low, high)                  target policy smoothing
    y = r + gamma * (1 - terminated) * min(Q1'(s', a~), Q2'(s', a~))    twin critics
    critics: Loss = MSE(Q1(s, a), y) + MSE(Q2(s, a), y)
    every second update: the actor ascends Q1(s, pi_phi(s)), and all targets follow        delay

Why Double DQN does not suffice: its y = r + gamma * Q'(s', argmax_a' Q(s', a')) picks the action with one network and
evaluates it with another, so that one network's lucky error does not choose and rate at once. With an actor there is
no argmax: pi' changes slowly, so Q and Q' are nearly the same network, and evaluating with the other one changes
little. Two critics with separate initial weights differ more, and the minimum never exceeds either.

This rung is no copy: it calls `td3.algorithm`, the same fifteen steps that `td3 train` runs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from td3.algorithm.agent import Agent
from td3.algorithm.agent import Task as AgentTask
from td3.algorithm.step_01_replay_buffer import make_replay_buffer
from td3.algorithm.streams import MemberStreams
from td3.engine import update_once
from td3.settings import TD3Config
from td3_lessons.ladder.common import HIDDEN, Array, Task, Transition, Watch

SERVES = ("vectors", "range")


@dataclass(frozen=True)
class Settings(TD3Config):
    """The numbers of this rung."""

    steps: int = 12_000
    hidden_sizes: tuple[int, ...] = HIDDEN
    exploration_noise: float = 0.2
    actor_learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    buffer_size: int = 20_000
    batch_size: int = 128
    learning_starts: int = 1_000
    tau: float = 0.01


class Learner:
    """An actor, two critics that score its actions, a slow copy of each, and a buffer."""

    def __init__(self, task: Task, seed: int, settings: Settings) -> None:
        self.task, self.settings, self.random = task, settings, np.random.default_rng(seed)
        bounds = task.action_low.tolist(), task.action_high.tolist()
        self.agent = Agent.create(AgentTask(task.state_size, *bounds), settings, [seed])
        self.buffer = make_replay_buffer(1, settings.buffer_size, task.state_size, len(task.half))
        self.streams = MemberStreams([seed])

    def act(self, state: Array) -> Any:
        """The actor's action and a little noise; at first any action."""
        noise = self.settings.exploration_noise * self.task.half * self.random.normal(size=len(self.task.half))
        if len(self.buffer) < self.settings.learning_starts:
            return self.random.uniform(self.task.action_low, self.task.action_high)
        return np.clip(self.policy(state[None])[0] + noise, self.task.action_low, self.task.action_high)

    def learn(self, step: Transition) -> None:
        """Remember the step, then one update."""
        row = np.hstack((step.state, step.action, step.next_state, step.reward, step.terminated))
        self.buffer.add_(torch.as_tensor(row, dtype=torch.float32)[None, None])
        if len(self.buffer) < self.settings.learning_starts:
            return
        self.improve()

    def improve(self) -> None:
        """Steps 4 to 15 of the algorithm."""
        update_once(self.agent, self.buffer, self.streams, self.settings)

    @torch.no_grad()
    def policy(self, states: Array) -> Array:
        """The actor's action."""
        return np.asarray(self.agent.actor(torch.as_tensor(states)[None])[0])

    @torch.no_grad()
    def value(self, states: Array) -> Array:
        """Critic 1's score of the actor's action."""
        seen = torch.as_tensor(states)[None]
        return np.asarray(self.agent.critics(seen, self.agent.actor(seen))[0, 0])


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
