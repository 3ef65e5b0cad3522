"""The whole state of the learners: named networks with targets and optimizers, and a count of updates, per member."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64, Shaped
from torch import Tensor

from td3.algorithm.learner import Learner
from td3.algorithm.networks import StackedMLP
from td3.algorithm.normalizer import Normalizer
from td3.algorithm.optimizer import OPTIMIZERS, JointOptimizer, Optimizer
from td3.algorithm.replacing import Replacement, StepChanges
from td3.algorithm.step_01_replay_buffer import Batch
from td3.algorithm.step_02_actor import ActionRange, Actor, make_actor_and_target
from td3.algorithm.step_03_twin_critics import TwinCritics, make_twin_critics_and_targets
from td3.algorithm.streams import RandomStreams
from td3.backends.backend import Backend
from td3.backends.choose import choose_backend
from td3.backends.torch_backend import TORCH
from td3.pixels.encoder import Encoder, EncoderPlan, ShiftStreams, encode, make_encoder_and_target
from td3.settings import TD3Config


class Task(NamedTuple):
    """What an agent reads and does."""

    state_size: int
    """Numbers in a state, as the environment gives it."""
    action_low: Sequence[float]
    action_high: Sequence[float]
    normalized: bool = False
    """Whether the networks read normalized observations."""
    encoder: EncoderPlan | None = None
    """Where states are images: the networks read the features of this encoder."""

    @property
    def input_size(self) -> int:
        """Numbers that the networks read of a state."""
        return self.state_size if self.encoder is None else self.encoder.features

    @property
    def action_size(self) -> int:
        """Numbers in an action."""
        return len(self.action_low)


@dataclass
class Agent:
    """Everything that learning changes, and nothing else."""

    task: Task
    learners: dict[str, Learner]
    """`actor`, `critics` and, where states are images, `encoder`."""
    updates: Int64[np.ndarray, " member"]
    normalizer: Normalizer | None = None
    """What the networks read is normalized by it; None where they read observations as they are."""
    backend: Backend = TORCH
    """What computes its layers and its optimizer steps, chosen when it was made."""
    changes: StepChanges | None = None
    """Functions in the place of steps, where a run replaces some."""
    actor: Actor = field(init=False)
    actor_target: Actor = field(init=False)
    critics: TwinCritics = field(init=False)
    critics_target: TwinCritics = field(init=False)
    encoder: Encoder | None = field(init=False, default=None)
    encoder_target: Encoder | None = field(init=False, default=None)
    actor_optimizer: Optimizer = field(init=False)
    critics_optimizer: Optimizer | JointOptimizer = field(init=False)
    """Of the critics and, where there is one, of the encoder, which the critics' loss trains too."""

    def __post_init__(self) -> None:
        """Name the parts as the steps call them, and have all optimizers share one flag per member."""
        actor, critics, encoder = (self.learners.get(name) for name in ("actor", "critics", "encoder"))
        assert actor is not None
        assert critics is not None
        self.actor, self.actor_target, self.actor_optimizer = actor.online, actor.target, actor.optimizer
        self.critics, self.critics_target, self.critics_optimizer = critics.online, critics.target, critics.optimizer
        if encoder is not None:
            self.encoder, self.encoder_target = encoder.online, encoder.target
            self.critics.encoder, self.critics_target.encoder = encoder.online, encoder.target
            self.critics_optimizer = JointOptimizer(critics.optimizer, encoder.optimizer)
        self.actor_optimizer.active = self.critics_optimizer.active

    @property
    def active(self) -> Int[Tensor, " member"]:
        """1 for members that are updated, 0 for frozen ones: on a GPU nothing of those changes in an update."""
        return self.critics_optimizer.active

    @classmethod
    def create(
        cls,
        task: Task,
        settings: TD3Config,
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
        backend = backend or choose_backend(device, dtype, settings.activation)
        low, high = (torch.tensor(bound, dtype=dtype, device=device) for bound in (task.action_low, task.action_high))
        make_optimizer, action_range = OPTIMIZERS[settings.optimizer], ActionRange(low, high)

        def learner(online: Any, target: Any, rate: float) -> Learner:
            return Learner(online, target, make_optimizer(online.parameters, rate, backend))

        learners = {
            "actor": learner(
                *make_actor_and_target(seeds, task.input_size, action_range, settings, backend),
                settings.actor_learning_rate,
            ),
            "critics": learner(
                *make_twin_critics_and_targets(
                    seeds, task.input_size, task.action_size, settings, device, dtype, backend
                ),
                settings.critic_learning_rate,
            ),
        }
        if task.encoder is not None:
            encoder_and_target = make_encoder_and_target(seeds, task.encoder, device, dtype)
            learners["encoder"] = learner(*encoder_and_target, settings.critic_learning_rate)
        return cls(
            task,
            learners,
            np.zeros(len(seeds), np.int64),
            Normalizer(len(seeds), task.input_size, device, dtype) if task.normalized else None,
            backend,
            StepChanges.create(replacements, len(seeds), capacity, device, dtype) if replacements else None,
        )

    @property
    def members(self) -> int:
        """How many independent learners there are."""
        return self.actor.parameters.shape[0]

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.actor.parameters.device

    def encode_batch(self, batch: Batch, random: RandomStreams) -> Batch:
        """The batch as the steps read it: as it is, or, where states are images, with features in their place."""
        if self.encoder is None or self.encoder_target is None:
            return batch
        assert isinstance(random, ShiftStreams)
        state, next_state = encode(self.encoder, self.encoder_target, batch.state, batch.next_state, random)
        return batch._replace(state=state, next_state=next_state)

    def features(self, states: Shaped[Tensor, "member batch state"]) -> Float[Tensor, "member batch feature"]:
        """What actor and critics read of these states: themselves, or an encoder's features, never moved."""
        if self.encoder is None:
            return states
        with torch.no_grad():
            return self.encoder(states)

    def member(self, index: int) -> "Agent":
        """One member's learner. It shares this one's memory: updating it updates this one."""
        return Agent(
            self.task,
            {name: learner.member(index) for name, learner in self.learners.items()},
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
        return Agent(
            self.task,
            {name: learner.copied(device, backend) for name, learner in self.learners.items()},
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

    @contextlib.contextmanager
    def only(self, due: Bool[Tensor, " member"] | None, *others: Tensor) -> Iterator[None]:
        """Change these members alone: of the others, everything is put back. None: all change.

        `others` are more tensors of the members, whose axis is their last.
        """
        if due is None:
            yield
            return
        named = self.tensors()
        masks = [(tensor, due if name.endswith("steps") else due.unsqueeze(-1)) for name, tensor in named.items()]
        masks += [(tensor, due) for tensor in (self.active, *others)]
        before = [tensor.clone() for tensor, _ in masks]
        yield
        for (tensor, mask), kept in zip(masks, before, strict=True):
            tensor.copy_(torch.where(mask, tensor, kept))

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that learning changes, by name, the `member` axis second to last (last in `steps`)."""
        found = {name: t for label, learner in self.learners.items() for name, t in learner.tensors(label).items()}
        if self.normalizer is not None:
            found |= {f"observations.{name}": tensor for name, tensor in self.normalizer.tensors().items()}
        return found | (self.changes.tensors() if self.changes else {})
