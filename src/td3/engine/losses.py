"""Running sums of losses and Q-values, kept on the device, so that no update waits for a number."""

from collections.abc import Sequence

import torch

from td3.algorithm.update import Losses
from td3.backends.backend import Backend
from td3.backends.torch_backend import TORCH


class LossSums:
    """Sums per member of critic loss, mean Q, actor loss, and the number of actor turns."""

    def __init__(self, members: int, device: torch.device | str = "cpu", backend: Backend = TORCH) -> None:
        self.sums, self._backend = torch.zeros(4, members, dtype=torch.float64, device=device), backend

    def add_(self, losses: Losses) -> None:
        """Count one update of every member."""
        self._backend.accumulate_(self.sums, losses.critic, losses.mean_q, losses.actor)

    def member(self, index: int) -> "LossSums":
        """The sums of one member only, sharing memory."""
        view = LossSums(0, backend=self._backend)
        view.sums = self.sums[:, index : index + 1]
        return view

    def take(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means, given how many updates it counted; the sums start again."""
        rows = self.sums.T.tolist()
        self.sums.zero_()
        return [
            {
                "critic_loss": critic / count if count else float("nan"),
                "actor_loss": actor / turns if turns else float("nan"),
                "mean_q": mean_q / count if count else float("nan"),
            }
            for (critic, mean_q, actor, turns), count in zip(rows, updates, strict=True)
        ]
