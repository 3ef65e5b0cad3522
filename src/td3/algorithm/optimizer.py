"""Gradient descent on flat stacked parameters, with optimiser state per member."""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.algorithm import native
from td3.algorithm.networks import serves_kernels


class NonFinite(ArithmeticError):
    """NaN or infinity in a loss or a gradient, found before anything was changed by it."""


def require_finite(total: Float[Tensor, ""], name: str) -> None:
    """Refuse a sum that is NaN or infinite, as it is if any of its terms is.

    On a GPU, asking would make everything wait: there the optimisers leave a mark that the engine looks for.
    """
    if not total.is_cuda and not math.isfinite(total.item()):
        raise NonFinite(f"{name} is too large or not a number")


def _refuse_gradient() -> None:
    raise NonFinite("a gradient is too large or not a number")


def _sound(gradient: Float[Tensor, "*stack parameter"], broken: Int[Tensor, " 1"]) -> Tensor:
    """The gradient if Adam can keep its squares; if not, an error, or on a GPU a mark and no gradient at all."""
    if not gradient.is_cuda:
        flat = gradient.flatten()
        require_finite(flat.dot(flat), "a gradient")
        return gradient
    finite = gradient.square().sum().isfinite()
    broken |= ~finite
    return gradient.where(finite, 0)


@runtime_checkable
class Optimizer(Protocol):
    """Changes parameters in place, given their gradient."""

    learning_rate: float
    broken: Tensor
    """On a GPU: 1 from the first gradient on that was not finite and therefore was not followed."""

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "Optimizer":
        """The same optimiser of one member only, sharing its state."""

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "Optimizer":
        """The same optimiser for a copy of the parameters, with state of its own."""


class Adam:
    """Adam over all members at once, by a kernel of ours or PyTorch's fused one; each network counts its own steps."""

    def __init__(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        learning_rate: float,
        state: dict[str, Tensor] | None = None,
    ) -> None:
        self.parameters, self.learning_rate = parameters.detach(), learning_rate
        self.broken = torch.zeros(1, dtype=torch.int32, device=parameters.device)
        state = state or {
            "first_moment": torch.zeros_like(self.parameters),
            "second_moment": torch.zeros_like(self.parameters),
            "steps": torch.zeros(parameters.shape[:-1], dtype=torch.float32, device=parameters.device),
        }
        self._state = state
        # One entry per network, so that a lone member and a slice of many run the very same arithmetic.
        self._networks = list(self.parameters.flatten(0, -2).unbind())
        self._first_moments = list(state["first_moment"].flatten(0, -2).unbind())
        self._second_moments = list(state["second_moment"].flatten(0, -2).unbind())
        self._steps = list(state["steps"].flatten().unbind())

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""
        if serves_kernels(gradient) and self.parameters.is_contiguous():
            from td3.algorithm.kernels import adam_

            first, second, steps = (self._state[name] for name in ("first_moment", "second_moment", "steps"))
            adam_(self.parameters, gradient, first, second, steps, self.broken, self.learning_rate)
            return
        if native.serves(gradient):
            first, second = (self._state[name].flatten(0, -2) for name in ("first_moment", "second_moment"))
            parameters, steps = self.parameters.flatten(0, -2), self._state["steps"].flatten()
            gradient = gradient.flatten(0, -2)
            native.adam_(parameters, gradient, first, second, steps, self.learning_rate, _refuse_gradient)
            return
        gradients = list(_sound(gradient, self.broken).flatten(0, -2).unbind())
        moments = self._first_moments, self._second_moments
        with torch.no_grad():
            self._state["steps"] += 1
            torch._fused_adam_(  # what PyTorch's own Adam calls, after a longer way
                self._networks,
                gradients,
                *moments,
                [],
                self._steps,
                lr=self.learning_rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""
        return self._state

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "Adam":
        """The same optimiser of one member only, sharing its state."""
        moments = {name: self._state[name][..., index : index + 1, :] for name in ("first_moment", "second_moment")}
        alone = Adam(parameters, self.learning_rate, {**moments, "steps": self._state["steps"][..., index : index + 1]})
        alone.broken = self.broken
        return alone

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "Adam":
        """The same optimiser for a copy of the parameters, with state of its own."""
        state = {name: tensor.to(parameters.device, copy=True) for name, tensor in self._state.items()}
        return Adam(parameters, self.learning_rate, state)


class SGD:
    """Plain gradient descent, for the lesson that says so."""

    def __init__(self, parameters: Float[Tensor, "*stack parameter"], learning_rate: float) -> None:
        self.parameters, self.learning_rate = parameters.detach(), learning_rate
        self.broken = torch.zeros(1, dtype=torch.int32, device=parameters.device)

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""
        self.parameters.sub_(_sound(gradient, self.broken), alpha=self.learning_rate)

    def state(self) -> dict[str, Tensor]:
        """Nothing: the parameters are all there is."""
        return {}

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "SGD":
        """The same optimiser of one member only."""
        alone = SGD(parameters, self.learning_rate)
        alone.broken = self.broken
        return alone

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "SGD":
        """The same optimiser for a copy of the parameters."""
        return SGD(parameters, self.learning_rate)


OPTIMIZERS = {"adam": Adam, "sgd": SGD}
