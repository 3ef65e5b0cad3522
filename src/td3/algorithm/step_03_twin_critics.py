"""Step 3: two critics, which estimate the value of an action in a state, and their target networks."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm.networks import StackedMLP
from td3.algorithm.registry import step
from td3.algorithm.streams import derive_seed
from td3.backends.backend import Backend
from td3.backends.torch_backend import TORCH
from td3.pixels.encoder import Encoder
from td3.settings import TD3Config


class TwinCritics:
    """(state, action) -> two Q-values: two networks that differ only in their initial weights.

    Where a state is an image, they share the encoder that turns it into features.
    """

    def __init__(self, network: StackedMLP, encoder: Encoder | None = None) -> None:
        self.network, self.encoder = network, encoder
        self._first_frozen = network.over(network.parameters.detach()[0])

    @property
    def networks(self) -> tuple[StackedMLP, StackedMLP]:
        """Both critics, and critic 1 alone with frozen weights."""
        return self.network, self._first_frozen

    @property
    def parameters(self) -> Float[Tensor, "2 member parameter"]:
        """All weights and biases of each twin of each member."""
        return self.network.parameters

    @property
    def learning(self) -> tuple[Tensor, ...]:
        """What the critics' loss trains: their own weights, and those of the encoder that they share."""
        own = self.network.parameters
        return (own,) if self.encoder is None else (own, self.encoder.parameters)

    def over(self, parameters: Float[Tensor, "2 member parameter"], backend: Backend | None = None) -> "TwinCritics":
        """Critics of the same kind with other parameters, without an encoder."""
        return TwinCritics(self.network.over(parameters, backend))

    def __call__(
        self, state: Float[Tensor, "member batch state"], action: Float[Tensor, "member batch action"]
    ) -> Float[Tensor, "2 member batch"]:
        """The Q-values of both critics."""
        return self.network(torch.cat((state, action), -1)).squeeze(-1)

    def first_frozen(
        self, state: Float[Tensor, "member batch state"], action: Float[Tensor, "member batch action"]
    ) -> Float[Tensor, "member batch"]:
        """The Q-value of critic 1, which is frozen: gradients pass through it to the action, not to its weights."""
        return self._first_frozen(torch.cat((state, action), -1)).squeeze(-1)


@step(3, "Build two critics and their targets")
def make_twin_critics_and_targets(
    seeds: Sequence[int],
    state_size: int,
    action_size: int,
    settings: TD3Config,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    backend: Backend = TORCH,
) -> tuple[TwinCritics, TwinCritics]:
    """Two critics per seed, each with initial weights of its own, and targets that start as exact copies.

    What: four networks; two learn Q(s, a) from different initial weights, two follow them slowly (step 15).
    Why: the two are not entirely independent (same y, same replay buffer), but they err differently.
    If you leave it out: with one critic, its errors upwards are taken for value, and the actor ascends them.
    """
    sizes = (state_size + action_size, *settings.critic_sizes, 1)
    twins = []
    for twin in range(2):
        generators = [torch.Generator().manual_seed(derive_seed(seed, "critics", twin)) for seed in seeds]
        twins.append(StackedMLP.initialized(sizes, generators, dtype, settings.initialization).parameters)
    parameters = torch.stack(twins).to(device)
    online = StackedMLP(sizes, parameters, settings.activation, backend, settings.critic_layer_norm)
    target = online.over(parameters.clone())
    parameters.requires_grad_()
    return TwinCritics(online), TwinCritics(target)
