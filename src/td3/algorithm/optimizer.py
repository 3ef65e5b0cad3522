"""Gradient descent on flat stacked parameters, with optimizer state per member."""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.backends.backend import Backend, Moments
from td3.backends.backend import NonFinite as NonFinite
from td3.backends.torch_backend import TORCH


def require_finite(total: Float[Tensor, ""], name: str) -> None:
    """Refuse a sum that is NaN or infinite, as it is if any of its terms is.

    On a GPU, asking would make everything wait: there the gradients are checked, and their members frozen.
    """
    if not total.is_cuda and not math.isfinite(total.item()):
        raise NonFinite(f"{name} is too large or not a number")


@runtime_checkable
class Optimizer(Protocol):
    """Changes parameters in place, given their gradient."""

    learning_rate: float
    rate: Tensor
    """The learning rate where it is read: recorded updates and CUDA graphs see it change."""
    backend: Backend
    active: Tensor
    """`[member]`, int32. On a GPU: 0 from the first gradient on that was not finite; nothing of it moves any more."""

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "Optimizer":
        """The same optimizer of one member only, sharing its state."""

    def copied(self, parameters: Float[Tensor, "*stack parameter"], backend: Backend) -> "Optimizer":
        """The same optimizer for a copy of the parameters, with state of its own."""


class _WithLearningRate:
    """An optimizer whose learning rate is a tensor that may be shared."""

    rate: Float[Tensor, ""]

    @property
    def learning_rate(self) -> float:
        """The learning rate; on a GPU, asking waits for it."""
        return float(self.rate)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.rate.fill_(rate)


class Adam(_WithLearningRate):
    """Adam over all members at once; each network counts its own steps."""

    def __init__(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        learning_rate: float | Float[Tensor, ""],
        backend: Backend = TORCH,
        moments: Moments | None = None,
        active: Int[Tensor, " member"] | None = None,
    ) -> None:
        self.parameters, self.rate, self.backend = parameters.detach(), _rate(learning_rate, parameters), backend
        self.active = _all_active(parameters) if active is None else active
        self._moments = moments or Moments(
            torch.zeros_like(self.parameters),
            torch.zeros_like(self.parameters),
            torch.zeros(parameters.shape[:-1], dtype=torch.float32, device=parameters.device),
        )

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""
        self.backend.adam_(self.parameters, gradient, self._moments, self.rate, self.active)
        torch.autograd.graph.increment_version(self.parameters)  # a backward pass from before would mix old and new

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""
        first, second, steps = self._moments
        return {"first_moment": first, "second_moment": second, "steps": steps}

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "Adam":
        """The same optimizer of one member only, sharing its state."""
        own, (first, second, steps) = slice(index, index + 1), self._moments
        moments = Moments(first[..., own, :], second[..., own, :], steps[..., own])
        return Adam(parameters, self.rate, self.backend, moments, self.active[own])

    def copied(self, parameters: Float[Tensor, "*stack parameter"], backend: Backend) -> "Adam":
        """The same optimizer for a copy of the parameters, with state of its own."""
        moments = Moments(*(tensor.to(parameters.device, copy=True) for tensor in self._moments))
        active = self.active.to(parameters.device, copy=True)
        return Adam(parameters, self.learning_rate, backend, moments, active)


class SGD(_WithLearningRate):
    """Plain gradient descent, for the lesson that says so."""

    def __init__(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        learning_rate: float | Float[Tensor, ""],
        backend: Backend = TORCH,
        active: Int[Tensor, " member"] | None = None,
    ) -> None:
        self.parameters, self.rate, self.backend = parameters.detach(), _rate(learning_rate, parameters), backend
        self.active = _all_active(parameters) if active is None else active

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""
        self.backend.check_gradient_(gradient, self.active)
        if gradient.is_cuda:
            gradient = gradient.where(self.active.unsqueeze(-1) > 0, 0)
        self.parameters.sub_(gradient * self.rate)

    def state(self) -> dict[str, Tensor]:
        """Nothing: the parameters are all there is."""
        return {}

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "SGD":
        """The same optimizer of one member only."""
        return SGD(parameters, self.rate, self.backend, self.active[index : index + 1])

    def copied(self, parameters: Float[Tensor, "*stack parameter"], backend: Backend) -> "SGD":
        """The same optimizer for a copy of the parameters."""
        return SGD(parameters, self.learning_rate, backend, self.active.to(parameters.device, copy=True))


class JointOptimizer:
    """The critics' optimizer and the encoder's, which step together."""

    def __init__(self, critics: Optimizer, encoder: Optimizer) -> None:
        self.critics, self.encoder = critics, encoder
        encoder.active, encoder.rate = critics.active, critics.rate

    @property
    def learning_rate(self) -> float:
        """Of both."""
        return self.critics.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.critics.learning_rate = rate

    @property
    def rate(self) -> Tensor:
        """The learning rate of both, where it is read."""
        return self.critics.rate

    @rate.setter
    def rate(self, rate: Tensor) -> None:
        self.critics.rate = self.encoder.rate = rate

    @property
    def active(self) -> Tensor:
        """On a GPU: 0 for a member from its first gradient on, of either, that was not finite."""
        return self.critics.active

    def step_(self, gradient: Tensor, encoder_gradient: Tensor) -> None:
        """One step downhill of both, or of neither where either gradient is refused."""
        self.encoder.backend.check_gradient_(encoder_gradient, self.active)  # the critics' step checks its own
        self.critics.step_(gradient)
        self.encoder.step_(encoder_gradient)

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""
        return self.critics.state() | {f"encoder.{name}": tensor for name, tensor in self.encoder.state().items()}


def _rate(given: float | Tensor, parameters: Tensor) -> Float[Tensor, ""]:
    """The given tensor, to be shared, or a new one, as the device's Adam reads it."""
    if isinstance(given, Tensor):
        return given
    return torch.tensor(given, dtype=torch.float32 if parameters.is_cuda else torch.float64, device=parameters.device)


def _all_active(parameters: Float[Tensor, "*stack parameter"]) -> Int[Tensor, " member"]:
    return torch.ones(parameters.shape[-2], dtype=torch.int32, device=parameters.device)


OPTIMIZERS = {"adam": Adam, "sgd": SGD}
