"""The replay buffer on the device: a ring of rounds, each with one transition of every world."""

from dataclasses import dataclass

import torch
from torch import Tensor

from td3_lab.worlds.task import Step


@dataclass
class Batch:
    """Transitions over up to n env steps; the target is `reward + discount * value(next_observation)`."""

    observation: Tensor
    action: Tensor
    next_observation: Tensor
    reward: Tensor
    discount: Tensor


class ReplayBuffer:
    """A ring of `rounds` rounds; nothing about it is read by the host, so adding and sampling can be captured."""

    def __init__(self, rounds: int, worlds: int, observations: int, actions: int, device: torch.device) -> None:
        self.rounds, self.worlds, self.sizes = rounds, worlds, [observations, actions, observations, 3]
        self.table = torch.zeros(rounds, worlds, sum(self.sizes), device=device)
        self.head, self.filled = (torch.zeros(1, dtype=torch.long, device=device) for _ in range(2))

    def add(self, observation: Tensor, action: Tensor, step: Step) -> None:
        """Write the transitions of a round over the oldest ones."""
        ends = torch.stack([step.reward, step.terminated.float(), step.ended.float()], 1)
        row = torch.cat([observation, action, step.observation, ends], 1)
        self.table.index_copy_(0, self.head, row[None])
        self.head.add_(1).remainder_(self.rounds)
        self.filled.add_(1).clamp_(max=self.rounds)

    def rewards(self, rounds: int) -> Tensor:
        """Return the rewards of the first rounds, before the ring has closed."""
        return self.table[:rounds, :, -3]

    def sample(self, size: int, n_step: int, gamma: float, generator: torch.Generator) -> Batch:
        """Draw transitions evenly; returns over `n_step` env steps stop where an episode ends."""
        device = self.table.device
        draws = torch.rand((2, size), generator=generator, device=device)
        age = (draws[0] * (self.filled - n_step + 1).clamp(min=1)).long()
        world = (draws[1] * self.worlds).long()
        first = self.head - self.filled + age
        rows = self.table.view(-1, sum(self.sizes))

        def index(offset: int) -> Tensor:
            return (first + offset).remainder(self.rounds) * self.worlds + world

        start = last = index(0)
        observation, action, next_observation, ends = torch.split(rows[start], self.sizes, 1)
        reward, terminated, running = ends[:, 0], ends[:, 1], 1 - ends[:, 2]
        discount = torch.full_like(reward, gamma)
        for offset in range(1, n_step):
            following = index(offset)
            ends = rows[following, -3:]
            reward = reward + running * discount * ends[:, 0]
            terminated = terminated + running * ends[:, 1]
            discount = torch.where(running > 0, discount * gamma, discount)
            last = torch.where(running > 0, following, last)
            running = running * (1 - ends[:, 2])
        if n_step > 1:
            next_observation = rows[last, -self.sizes[2] - 3 : -3]
        return Batch(observation, action, next_observation, reward, discount * (1 - terminated))
