"""What an agent is made of: everything but seeds, device and precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from td3.pixels.encoder import EncoderPlan


@dataclass(frozen=True)
class AgentSpec:
    """Sizes, action range, activation and optimizers of the six networks."""

    state_size: int
    """Numbers in a state, as the environment gives it."""
    action_low: Sequence[float]
    action_high: Sequence[float]
    actor_hidden_sizes: Sequence[int]
    actor_learning_rate: float
    critic_learning_rate: float
    optimizer: str = "adam"
    critic_hidden_sizes: Sequence[int] | None = None
    """None: as the actor's."""
    activation: str = "relu"
    """Between the layers of the actor and of the critics: a name in `td3.backends.torch_backend.ACTIVATIONS`."""
    normalized: bool = False
    """Whether the networks read normalized observations."""
    encoder: EncoderPlan | None = None
    """Where states are images: the networks read the features of this encoder."""
    critic_layer_norm: bool = False
    """Whether the critics have LayerNorm before their activations."""

    @classmethod
    def from_settings(
        cls,
        settings: "NetworkSettings",
        state_size: int,
        action_low: Sequence[float],
        action_high: Sequence[float],
        normalized: bool = False,
        encoder: EncoderPlan | None = None,
    ) -> "AgentSpec":
        """The agent that a configuration describes, for a task with these spaces."""
        return cls(
            state_size,
            action_low,
            action_high,
            settings.actor_sizes,
            settings.actor_learning_rate,
            settings.critic_learning_rate,
            settings.optimizer,
            settings.critic_sizes,
            settings.activation,
            normalized,
            encoder,
            settings.critic_layer_norm,
        )

    @property
    def input_size(self) -> int:
        """Numbers that the networks read of a state."""
        return self.state_size if self.encoder is None else self.encoder.features


@runtime_checkable
class NetworkSettings(Protocol):
    """The settings that an agent is made from; `td3.config.TD3Config` has them all."""

    @property
    def actor_sizes(self) -> tuple[int, ...]: ...  # noqa: D102  # explained once, in config.py
    @property
    def critic_sizes(self) -> tuple[int, ...]: ...  # noqa: D102  # as above
    @property
    def activation(self) -> str: ...  # noqa: D102  # as above
    @property
    def critic_layer_norm(self) -> bool: ...  # noqa: D102  # as above
    @property
    def actor_learning_rate(self) -> float: ...  # noqa: D102  # as above
    @property
    def critic_learning_rate(self) -> float: ...  # noqa: D102  # as above
    @property
    def optimizer(self) -> str: ...  # noqa: D102  # as above
