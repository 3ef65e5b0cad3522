"""A network, the target that follows it, and the optimizer that moves it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from td3.algorithm.optimizer import Optimizer
from td3.backends.backend import Backend


@dataclass
class Learner:
    """One named part of an agent.

    A network is what has `parameters`, `[*stack, member, parameter]`, and `over(parameters)`, which gives the same kind
    of network with other ones.
    """

    online: Any
    target: Any
    optimizer: Optimizer

    def member(self, index: int) -> "Learner":
        """One member's part, sharing memory."""

        def slice_of(network: Any, learns: bool) -> Any:
            # Not `detach`: members that learn in threads of their own must not share autograd's count of changes.
            return network.over(network.parameters.data[..., index : index + 1, :].requires_grad_(learns))

        online = slice_of(self.online, learns=True)
        target = slice_of(self.target, learns=False)
        return Learner(online, target, self.optimizer.member(online.parameters, index))

    def copied(self, device: torch.device | str, backend: Backend) -> "Learner":
        """The same again, in memory of its own."""

        def copy_of(network: Any) -> Any:
            given = network.parameters.detach()
            # Laid out alike, so that products of matrices round alike: of one member among many, a copy has gaps too.
            alike = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=device)
            parameters = alike.copy_(given).requires_grad_(network.parameters.requires_grad)
            return network.over(parameters, backend)

        online = copy_of(self.online)
        return Learner(online, copy_of(self.target), self.optimizer.copied(online.parameters, backend))

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Every tensor that learning changes, by name."""
        return {
            name: self.online.parameters.detach(),
            f"{name}_target": self.target.parameters,
            **{f"{name}_optimizer.{part}": tensor for part, tensor in self.optimizer.state().items()},
        }
