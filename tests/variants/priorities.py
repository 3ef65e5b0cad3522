"""Priorities of a ring of rows in plain Python, slowly."""

import torch

from td3.algorithm.replacing import Replacement, StepChanges
from td3.algorithm.step_01_replay_buffer import Batch, ReplayBuffer
from td3.settings import TD3Config
from td3.variants import prioritized

SETTINGS = TD3Config(priority_exponent=0.4)


def zeros(members: int, capacity: int, dtype=torch.float32) -> dict[str, torch.Tensor]:
    """The state of a run that has not begun."""
    replacement = Replacement(4, prioritized.sample_by_priority, prioritized.STATE)
    (state,) = StepChanges.create([replacement], members, capacity, "cpu", dtype).state.values()
    return state


class Learner:
    """A member's buffer, its state by the variant, and what its priorities should be."""

    def __init__(
        self, capacity: int, envs: int = 1, seed: int = 0, settings: TD3Config = SETTINGS, copies: int = 0
    ) -> None:
        self.buffer, self.settings = ReplayBuffer(1, capacity, 1, 1), settings
        self.buffer.rows_per_env_step = 1 + copies
        self.buffer.stride = self.buffer.rows_per_round = envs * (1 + copies)
        self.state, self.generator = zeros(1, capacity), torch.Generator().manual_seed(seed)
        self.expected: list[float] = []
        self.largest, self.new = 1.0, 0

    def store(self, rows: int) -> None:
        """New transitions."""
        self.buffer.add_(torch.randn(1, rows, 5, generator=self.generator))
        self.new += rows

    def sample(self, batch_size: int) -> Batch:
        """A batch, and the largest priority for the transitions that are new."""
        first = self.buffer.added - self.new
        for number in range(first, self.buffer.added):
            place = number % self.buffer.capacity
            self.expected[place : place + 1] = [self.largest]
        self.new = 0
        return prioritized.sample_by_priority(self.buffer, self, batch_size, self.state, self.settings)

    def learn(self, batch: Batch, errors: torch.Tensor) -> torch.Tensor:
        """The loss of critics with these errors `[2, 1, batch]`, and the priorities that follow from them."""
        for place in set(batch.indices[0].tolist()):
            self.expected[place] = 0.0
        for place, error in zip(batch.indices[0].tolist(), errors.abs().amax(0)[0].tolist(), strict=True):
            priority = max(error, 1.0) ** self.settings.priority_exponent
            self.expected[place] = max(self.expected[place], priority)
            self.largest = max(self.largest, priority)
        target = torch.zeros(errors.shape[1:])
        return prioritized.prioritized_loss(errors, target, self.state, self.settings, batch)

    def rows(self, filled, count):
        """Random numbers, as a stream of the run gives them."""
        drawn = torch.empty(1, count, dtype=torch.int64).random_(generator=self.generator)
        return drawn.remainder(filled)

    def normal(self, count, size):
        raise NotImplementedError

    @property
    def priorities(self) -> list[float]:
        """What the variant has of each stored row."""
        return (1 + self.state["excess"][0, : len(self.buffer)]).tolist()
