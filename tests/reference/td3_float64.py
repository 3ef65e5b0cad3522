"""TD3 as a textbook would print it: one learner, six plain networks, float64 throughout."""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

torch_optimizers = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


class PlainBatch(NamedTuple):
    state: Tensor
    action: Tensor
    reward: Tensor
    next_state: Tensor
    terminated: Tensor


class PlainLosses(NamedTuple):
    critic: float
    actor: float | None
    mean_q: float


def perceptron(inputs: int, hidden_sizes: Sequence[int], outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in hidden_sizes:
        layers.append(nn.Linear(inputs, size, dtype=torch.float64))
        layers.append(nn.ReLU())
        inputs = size
    layers.append(nn.Linear(inputs, outputs, dtype=torch.float64))
    return nn.Sequential(*layers)


class PlainTD3:
    """One learner. Noise is given from outside, in units of half the action range."""

    def __init__(
        self,
        state_size: int,
        action_low: Sequence[float],
        action_high: Sequence[float],
        hidden_sizes: Sequence[int],
        actor_learning_rate: float,
        critic_learning_rate: float,
        optimizer: str,
        gamma: float,
        tau: float,
        policy_delay: int,
        target_policy_noise: float,
        target_noise_clip: float,
    ) -> None:
        self.low = torch.tensor(action_low, dtype=torch.float64)
        self.high = torch.tensor(action_high, dtype=torch.float64)
        self.gamma, self.tau, self.policy_delay = gamma, tau, policy_delay
        self.target_policy_noise, self.target_noise_clip = target_policy_noise, target_noise_clip

        action_size = len(action_low)
        self.actor = perceptron(state_size, hidden_sizes, action_size)
        self.q1 = perceptron(state_size + action_size, hidden_sizes, 1)
        self.q2 = perceptron(state_size + action_size, hidden_sizes, 1)
        self.actor_target = copy.deepcopy(self.actor)
        self.q1_target = copy.deepcopy(self.q1)
        self.q2_target = copy.deepcopy(self.q2)

        make = torch_optimizers[optimizer]
        self.actor_optimizer = make(self.actor.parameters(), lr=actor_learning_rate)
        self.critic_optimizer = make([*self.q1.parameters(), *self.q2.parameters()], lr=critic_learning_rate)
        self.updates = 0

    def action(self, actor: nn.Module, state: Tensor) -> Tensor:
        """From -1..1 to low..high, dimension by dimension."""
        return self.low + (torch.tanh(actor(state)) + 1) / 2 * (self.high - self.low)

    def score(self, critic: nn.Module, state: Tensor, action: Tensor) -> Tensor:
        return critic(torch.cat([state, action], dim=1))[:, 0]

    def update(self, batch: PlainBatch, noise: Tensor) -> PlainLosses:
        """One update from standard normal noise `[batch, action]`."""
        with torch.no_grad():
            half_range = (self.high - self.low) / 2
            blur = torch.clamp(self.target_policy_noise * noise, -self.target_noise_clip, self.target_noise_clip)
            next_action = self.action(self.actor_target, batch.next_state) + blur * half_range
            next_action = torch.maximum(torch.minimum(next_action, self.high), self.low)
            next_q1 = self.score(self.q1_target, batch.next_state, next_action)
            next_q2 = self.score(self.q2_target, batch.next_state, next_action)
            y = batch.reward + self.gamma * (1 - batch.terminated) * torch.minimum(next_q1, next_q2)

        q1 = self.score(self.q1, batch.state, batch.action)
        q2 = self.score(self.q2, batch.state, batch.action)
        critic_loss = nn.functional.mse_loss(q1, y) + nn.functional.mse_loss(q2, y)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        mean_q = (q1.mean() + q2.mean()).item() / 2

        self.updates += 1
        if self.updates % self.policy_delay != 0:
            return PlainLosses(critic_loss.item(), None, mean_q)

        actor_loss = -self.score(self.q1, batch.state, self.action(self.actor, batch.state)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        for online, target in (
            (self.actor, self.actor_target),
            (self.q1, self.q1_target),
            (self.q2, self.q2_target),
        ):
            for new, old in zip(online.parameters(), target.parameters(), strict=True):
                old.data = (1 - self.tau) * old.data + self.tau * new.data
        return PlainLosses(critic_loss.item(), actor_loss.item(), mean_q)

    def networks(self) -> dict[str, nn.Sequential]:
        return {
            "actor": self.actor,
            "actor_target": self.actor_target,
            "critic_1": self.q1,
            "critic_2": self.q2,
            "critic_target_1": self.q1_target,
            "critic_target_2": self.q2_target,
        }
