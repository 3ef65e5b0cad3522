"""Step 2: the actor, which turns a state into an action, and its target."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.networks import StackedMLP
from td3.algorithm.registry import step
from td3.algorithm.streams import derive_seed
from td3.backends.backend import Backend
from td3.backends.torch_backend import TORCH
from td3.settings import TD3Config


class ActionRange:
    """The box of allowed actions, each dimension with its own bounds."""

    def __init__(self, low: Float[Tensor, " action"], high: Float[Tensor, " action"]) -> None:
        self.low, self.high = low, high
        self.middle, self.half = (low + high) / 2, (high - low) / 2

    def to(self, device: torch.device) -> "ActionRange":
        """The same on a device."""
        return self if device == self.low.device else ActionRange(self.low.to(device), self.high.to(device))


class Actor:
    """state -> action: a network whose tanh output is stretched to exactly the range of each dimension."""

    def __init__(self, network: StackedMLP, action_range: ActionRange) -> None:
        self.network, self.action_range = network, action_range

    @property
    def parameters(self) -> Float[Tensor, "member parameter"]:
        """All weights and biases of each member."""
        return self.network.parameters

    def over(self, parameters: Float[Tensor, "member parameter"], backend: Backend | None = None) -> "Actor":
        """An actor of the same kind with other parameters."""
        return Actor(self.network.over(parameters, backend), self.action_range.to(parameters.device))

    def __call__(self, state: Float[Tensor, "member batch state"]) -> Float[Tensor, "member batch action"]:
        """The action for each state."""
        return self.action_range.middle + self.action_range.half * torch.tanh(self.network(state))


@step(2, "Build the actor and its target")
def make_actor_and_target(
    seeds: Sequence[int],
    state_size: int,
    action_range: ActionRange,
    settings: TD3Config,
    backend: Backend = TORCH,
) -> tuple[Actor, Actor]:
    """An actor per seed, and a target that starts as its exact copy.

    What: two networks with equal weights; the first is trained, the second follows it slowly (step 14).
    Why: the Bellman target needs a policy that stays nearly fixed while the critics are fitted to it.
    If you leave it out: without a target actor, y changes with every step of the actor, and Q-values can diverge.
    """
    low = action_range.low
    sizes = (state_size, *settings.actor_sizes, len(low))
    generators = [torch.Generator().manual_seed(derive_seed(seed, "actor")) for seed in seeds]
    parameters = StackedMLP.initialized(sizes, generators, low.dtype, settings.initialization).parameters.to(low.device)
    online = StackedMLP(sizes, parameters, settings.activation, backend)
    target = online.over(parameters.clone())
    parameters.requires_grad_()
    return Actor(online, action_range), Actor(target, action_range)
