"""The whole state of the learners: six networks, two optimisers and a count of updates, for every member."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from td3.algorithm.networks import StackedMLP
from td3.algorithm.normaliser import Normaliser
from td3.algorithm.optimizer import OPTIMIZERS, NonFinite, Optimizer
from td3.algorithm.step_02_actor import ActionRange, Actor, make_actor_and_target
from td3.algorithm.step_03_twin_critics import TwinCritics, make_twin_critics_and_targets


@dataclass
class Agent:
    """Everything that learning changes, and nothing else."""

    actor: Actor
    actor_target: Actor
    critics: TwinCritics
    critics_target: TwinCritics
    actor_optimizer: Optimizer
    critics_optimizer: Optimizer
    updates: Int64[np.ndarray, " member"]
    normaliser: Normaliser | None = None
    """What the networks read is normalised by it; None where they read observations as they are."""

    @classmethod
    def create(
        cls,
        seeds: Sequence[int],
        state_size: int,
        action_low: Sequence[float],
        action_high: Sequence[float],
        hidden_sizes: Sequence[int],
        actor_learning_rate: float,
        critic_learning_rate: float,
        optimizer: str = "adam",
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        normalised: bool = False,
    ) -> "Agent":
        """Newborn learners, one per seed (steps 2 and 3); a member's weights depend on its own seed alone."""
        low, high = (torch.tensor(bound, dtype=dtype, device=device) for bound in (action_low, action_high))
        actor, actor_target = make_actor_and_target(seeds, state_size, hidden_sizes, ActionRange(low, high))
        critics, critics_target = make_twin_critics_and_targets(
            seeds, state_size, hidden_sizes, len(action_low), device, dtype
        )
        make_optimizer = OPTIMIZERS[optimizer]
        return cls(
            actor,
            actor_target,
            critics,
            critics_target,
            make_optimizer(actor.parameters, actor_learning_rate),
            make_optimizer(critics.parameters, critic_learning_rate),
            np.zeros(len(seeds), np.int64),
            Normaliser(len(seeds), state_size, device, dtype) if normalised else None,
        )

    @property
    def members(self) -> int:
        """How many independent learners there are."""
        return self.actor.parameters.shape[0]

    def member(self, index: int) -> "Agent":
        """One member's learner. It shares this one's memory: updating it updates this one."""

        def slice_of(network: StackedMLP, learns: bool) -> StackedMLP:
            parameters = network.parameters.detach()[..., index : index + 1, :]
            return StackedMLP(network.sizes, parameters.requires_grad_(learns))

        action_range = self.actor.action_range
        actor = Actor(slice_of(self.actor.network, learns=True), action_range)
        critics = TwinCritics(slice_of(self.critics.network, learns=True))
        return Agent(
            actor,
            Actor(slice_of(self.actor_target.network, learns=False), action_range),
            critics,
            TwinCritics(slice_of(self.critics_target.network, learns=False)),
            self.actor_optimizer.member(actor.parameters, index),
            self.critics_optimizer.member(critics.parameters, index),
            self.updates[index : index + 1],
            self.normaliser and self.normaliser.member(index),
        )

    def copied(self, device: torch.device | str = "cpu") -> "Agent":
        """The same learners again, in memory of their own."""

        def copy_of(network: StackedMLP) -> StackedMLP:
            parameters = network.parameters.detach().to(device, copy=True)
            return StackedMLP(network.sizes, parameters.requires_grad_(network.parameters.requires_grad))

        low, high = (bound.to(device) for bound in (self.actor.action_range.low, self.actor.action_range.high))
        action_range = ActionRange(low, high)
        actor = Actor(copy_of(self.actor.network), action_range)
        critics = TwinCritics(copy_of(self.critics.network))
        return Agent(
            actor,
            Actor(copy_of(self.actor_target.network), action_range),
            critics,
            TwinCritics(copy_of(self.critics_target.network)),
            self.actor_optimizer.copied(actor.parameters),
            self.critics_optimizer.copied(critics.parameters),
            self.updates.copy(),
            self.normaliser and self.normaliser.copied(device),
        )

    def normalised(self, states: Float[Tensor, "member count state"]) -> Float[Tensor, "member count state"]:
        """States as the networks read them."""
        return states if self.normaliser is None else self.normaliser(states)

    def require_sound(self) -> None:
        """Raise `NonFinite` if an optimiser on a GPU met a gradient that it could not follow."""
        if self.actor_optimizer.broken.item() or self.critics_optimizer.broken.item():
            raise NonFinite("a gradient is too large or not a number")

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that learning changes, by name, the `member` axis second to last (last in `steps`)."""
        return {
            "actor": self.actor.parameters.detach(),
            "actor_target": self.actor_target.parameters,
            "critics": self.critics.parameters.detach(),
            "critics_target": self.critics_target.parameters,
            **{f"actor_optimizer.{name}": tensor for name, tensor in self.actor_optimizer.state().items()},
            **{f"critics_optimizer.{name}": tensor for name, tensor in self.critics_optimizer.state().items()},
            **{f"observations.{name}": t for name, t in (self.normaliser.tensors() if self.normaliser else {}).items()},
        }
