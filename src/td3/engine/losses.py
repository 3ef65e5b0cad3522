"""Running sums of losses and Q-values, kept on the device, so that no update waits for a number."""

from collections.abc import Sequence

import torch
from torch import Tensor

from td3.algorithm import Losses
from td3.algorithm.networks import serves_kernels


class LossSums:
    """Sums per member of critic loss, mean Q, actor loss, and the number of actor turns."""

    def __init__(self, members: int, device: torch.device | str = "cpu") -> None:
        self._hold(torch.zeros(4, members, dtype=torch.float64, device=device))

    def _hold(self, sums: Tensor) -> None:
        self.sums = sums
        self._critic, self._mean_q, self._actor, self._turns = sums.unbind()

    def add_(self, losses: Losses) -> None:
        """Count one update of every member."""
        if serves_kernels(losses.critic):
            from td3.backends.triton_kernels import add_losses_

            add_losses_(self.sums, losses.critic, losses.mean_q, losses.actor)
            return
        self._critic += losses.critic
        self._mean_q += losses.mean_q
        if losses.actor is not None:
            self._actor += losses.actor
            self._turns += 1

    def member(self, index: int) -> "LossSums":
        """The sums of one member only, sharing memory."""
        view = LossSums(0)
        view._hold(self.sums[:, index : index + 1])
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
