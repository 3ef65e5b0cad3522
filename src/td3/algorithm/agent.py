"""The whole state of the learners: six networks, two optimizers and a count of updates, for every member."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Int64, Shaped
from torch import Tensor

from td3.algorithm.networks import StackedMLP
from td3.algorithm.normalizer import Normalizer
from td3.algorithm.optimizer import OPTIMIZERS, Optimizer
from td3.algorithm.replacing import Replacement, StepChanges
from td3.algorithm.spec import AgentSpec
from td3.algorithm.step_01_replay_buffer import Batch
from td3.algorithm.step_02_actor import ActionRange, Actor, make_actor_and_target
from td3.algorithm.step_03_twin_critics import TwinCritics, make_twin_critics_and_targets
from td3.algorithm.streams import RandomStreams
from td3.backends.backend import Backend
from td3.backends.choose import choose_backend
from td3.backends.torch_backend import TORCH
from td3.pixels.encoder import JointOptimizer, ShiftStreams, encode, make_encoder_and_target


@dataclass
class Agent:
    """Everything that learning changes, and nothing else."""

    actor: Actor
    actor_target: Actor
    critics: TwinCritics
    critics_target: TwinCritics
    actor_optimizer: Optimizer
    critics_optimizer: Optimizer | JointOptimizer
    updates: Int64[np.ndarray, " member"]
    normalizer: Normalizer | None = None
    """What the networks read is normalized by it; None where they read observations as they are."""
    backend: Backend = TORCH
    """What computes its layers and its optimizer steps, chosen when it was made."""
    changes: StepChanges | None = None
    """Functions in the place of steps, where a run replaces some."""

    def __post_init__(self) -> None:
        """Have both optimizers share one flag per member."""
        self.actor_optimizer.active = self.critics_optimizer.active

    @property
    def active(self) -> Int[Tensor, " member"]:
        """1 for members that are updated, 0 for frozen ones: on a GPU nothing of those changes in an update."""
        return self.critics_optimizer.active

    @classmethod
    def create(
        cls,
        spec: AgentSpec,
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        backend: Backend | None = None,
        replacements: Sequence[Replacement] = (),
        capacity: int = 0,
    ) -> "Agent":
        """Newly initialized learners, one per seed (steps 2 and 3); a member's weights depend on its own seed alone.

        `capacity`, the rows of a member's replay buffer, is for replacements that keep a number for each.
        """
        backend = backend or choose_backend(device, dtype, spec.activation)
        low, high = (torch.tensor(bound, dtype=dtype, device=device) for bound in (spec.action_low, spec.action_high))
        kind = (spec.activation, backend, spec.initialization)
        actor, actor_target = make_actor_and_target(
            seeds, spec.input_size, spec.actor_hidden_sizes, ActionRange(low, high), *kind
        )
        critic_sizes = spec.critic_hidden_sizes or spec.actor_hidden_sizes
        critics, critics_target = make_twin_critics_and_targets(
            *(seeds, spec.input_size, critic_sizes, len(low), device, dtype, *kind),
            layer_norm=spec.critic_layer_norm,
        )
        if spec.encoder is not None:
            critics.encoder, critics_target.encoder = make_encoder_and_target(seeds, spec.encoder, device, dtype)
        make_optimizer = OPTIMIZERS[spec.optimizer]
        optimizers = [make_optimizer(weights, spec.critic_learning_rate, backend) for weights in critics.learning]
        return cls(
            actor,
            actor_target,
            critics,
            critics_target,
            make_optimizer(actor.parameters, spec.actor_learning_rate, backend),
            JointOptimizer(*optimizers) if spec.encoder else optimizers[0],
            np.zeros(len(seeds), np.int64),
            Normalizer(len(seeds), spec.input_size, device, dtype) if spec.normalized else None,
            backend,
            StepChanges.create(replacements, len(seeds), capacity, device, dtype) if replacements else None,
        )

    @property
    def members(self) -> int:
        """How many independent learners there are."""
        return self.actor.parameters.shape[0]

    @property
    def state_size(self) -> int:
        """Numbers in a state, as the environment gives it."""
        encoder = self.critics.encoder
        return self.actor.network.sizes[0] if encoder is None else encoder.plan.pixels

    def encode_batch(self, batch: Batch, random: RandomStreams) -> Batch:
        """The batch as the steps read it: as it is, or, where states are images, with features in their place."""
        encoder, encoder_target = self.critics.encoder, self.critics_target.encoder
        if encoder is None or encoder_target is None:
            return batch
        assert isinstance(random, ShiftStreams)
        state, next_state = encode(encoder, encoder_target, batch.state, batch.next_state, random)
        return batch._replace(state=state, next_state=next_state)

    def features(self, states: Shaped[Tensor, "member batch state"]) -> Float[Tensor, "member batch feature"]:
        """What actor and critics read of these states: themselves, or an encoder's features, never moved."""
        if self.critics.encoder is None:
            return states
        with torch.no_grad():
            return self.critics.encoder(states)

    def member(self, index: int) -> "Agent":
        """One member's learner. It shares this one's memory: updating it updates this one."""

        def slice_of(network: StackedMLP, learns: bool) -> StackedMLP:
            # Not `detach`: members that learn in threads of their own must not share autograd's count of changes.
            parameters = network.parameters.data[..., index : index + 1, :]
            return network.with_parameters(parameters.requires_grad_(learns))

        action_range = self.actor.action_range
        actor = Actor(slice_of(self.actor.network, learns=True), action_range)
        encoders = [c.encoder and c.encoder.member(index) for c in (self.critics, self.critics_target)]
        critics = TwinCritics(slice_of(self.critics.network, learns=True), encoders[0])
        return Agent(
            actor,
            Actor(slice_of(self.actor_target.network, learns=False), action_range),
            critics,
            TwinCritics(slice_of(self.critics_target.network, learns=False), encoders[1]),
            self.actor_optimizer.member(actor.parameters, index),
            _of_critics(critics, self.critics_optimizer, lambda own, weights: own.member(weights, index)),
            self.updates[index : index + 1],
            self.normalizer and self.normalizer.member(index),
            self.backend,
            self.changes and self.changes.member(index),
        )

    def copied(self, device: torch.device | str = "cpu") -> "Agent":
        """The same learners again, in memory of their own."""
        weights = self.actor.parameters
        same = torch.device(device).type == weights.device.type
        backend = self.backend if same else choose_backend(device, weights.dtype, self.actor.network.activation)

        def copy_of(network: StackedMLP) -> StackedMLP:
            given = network.parameters.detach()
            # Laid out alike, so that products of matrices round alike: of one member among many, a copy has gaps too.
            alike = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=device)
            parameters = alike.copy_(given).requires_grad_(network.parameters.requires_grad)
            return network.with_parameters(parameters, backend)

        low, high = (bound.to(device) for bound in (self.actor.action_range.low, self.actor.action_range.high))
        action_range = ActionRange(low, high)
        actor = Actor(copy_of(self.actor.network), action_range)
        encoders = [c.encoder and c.encoder.copied(device) for c in (self.critics, self.critics_target)]
        critics = TwinCritics(copy_of(self.critics.network), encoders[0])
        return Agent(
            actor,
            Actor(copy_of(self.actor_target.network), action_range),
            critics,
            TwinCritics(copy_of(self.critics_target.network), encoders[1]),
            self.actor_optimizer.copied(actor.parameters, backend),
            _of_critics(critics, self.critics_optimizer, lambda own, weights: own.copied(weights, backend)),
            self.updates.copy(),
            self.normalizer and self.normalizer.copied(device),
            backend,
            self.changes and self.changes.copied(device),
        )

    @property
    def networks(self) -> tuple[StackedMLP, ...]:
        """All that an update calls: actors, critics, critic 1 alone, and their targets."""
        actors = self.actor.network, self.actor_target.network
        return *actors, *self.critics.networks, *self.critics_target.networks

    @property
    def trains_critics(self) -> bool:
        """Whether its critics learn: replaced steps may have others in their own state, and leave these untrained."""
        if self.changes is None or self.changes.trains_critics:
            return True
        moments = self.critics_optimizer.state()
        return any(bool(moments[name].any()) for name in moments if name != "steps")

    def share_learning_rates(self, other: "Agent") -> None:
        """Learn at the rates of another agent, also when they change."""
        self.actor_optimizer.rate = other.actor_optimizer.rate
        self.critics_optimizer.rate = other.critics_optimizer.rate

    def normalized(self, states: Float[Tensor, "member count state"]) -> Float[Tensor, "member count state"]:
        """States as the networks read them."""
        return states if self.normalizer is None else self.normalizer(states)

    def of_active(self, tau: float) -> float | Float[Tensor, "member 1"]:
        """The Polyak share of each member: 0 for frozen ones. On a CPU these are not updated, and all have the same."""
        active = self.active
        return (active * tau).to(self.actor.parameters.dtype).unsqueeze(-1) if active.is_cuda else tau

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that learning changes, by name, the `member` axis second to last (last in `steps`)."""
        return {
            "actor": self.actor.parameters.detach(),
            "actor_target": self.actor_target.parameters,
            "critics": self.critics.parameters.detach(),
            "critics_target": self.critics_target.parameters,
            **self._encoders(),
            **{f"actor_optimizer.{name}": tensor for name, tensor in self.actor_optimizer.state().items()},
            **{f"critics_optimizer.{name}": tensor for name, tensor in self.critics_optimizer.state().items()},
            **{f"observations.{name}": t for name, t in (self.normalizer.tensors() if self.normalizer else {}).items()},
            **(self.changes.tensors() if self.changes else {}),
        }

    def _encoders(self) -> dict[str, Tensor]:
        online, target = self.critics.encoder, self.critics_target.encoder
        if online is None or target is None:
            return {}
        return {"encoder": online.parameters.detach(), "encoder_target": target.parameters}


def _of_critics(
    critics: TwinCritics, optimizer: Optimizer | JointOptimizer, derive: Callable[[Optimizer, Tensor], Optimizer]
) -> Optimizer | JointOptimizer:
    """An optimizer for these critics, and for their encoder where they have one, derived from the given one."""
    if isinstance(optimizer, JointOptimizer):
        pairs = zip((optimizer.critics, optimizer.encoder), critics.learning, strict=True)
        return JointOptimizer(*(derive(own, weights) for own, weights in pairs))
    return derive(optimizer, critics.parameters)
