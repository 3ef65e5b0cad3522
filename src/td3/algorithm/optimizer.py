"""Gradient descent on flat stacked parameters, with optimiser state per member."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.adam import adam

from td3.algorithm.networks import serves_kernels


@runtime_checkable
class Optimizer(Protocol):
    """Changes parameters in place, given their gradient."""

    learning_rate: float

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "Optimizer":
        """The same optimiser of one member only, sharing its state."""

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "Optimizer":
        """The same optimiser for a copy of the parameters, with state of its own."""


class Adam:
    """PyTorch's fused Adam over all members at once; each network counts its own steps."""

    def __init__(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        learning_rate: float,
        state: dict[str, Tensor] | None = None,
    ) -> None:
        self.parameters, self.learning_rate = parameters.detach(), learning_rate
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
            adam_(self.parameters, gradient, first, second, steps, self.learning_rate)
            return
        with torch.no_grad():
            adam(
                self._networks,
                list(gradient.flatten(0, -2).unbind()),
                self._first_moments,
                self._second_moments,
                [],
                self._steps,
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.learning_rate,
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""
        return self._state

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "Adam":
        """The same optimiser of one member only, sharing its state."""
        moments = {name: self._state[name][..., index : index + 1, :] for name in ("first_moment", "second_moment")}
        return Adam(parameters, self.learning_rate, {**moments, "steps": self._state["steps"][..., index : index + 1]})

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "Adam":
        """The same optimiser for a copy of the parameters, with state of its own."""
        state = {name: tensor.to(parameters.device, copy=True) for name, tensor in self._state.items()}
        return Adam(parameters, self.learning_rate, state)


class SGD:
    """Plain gradient descent, for the lesson that says so."""

    def __init__(self, parameters: Float[Tensor, "*stack parameter"], learning_rate: float) -> None:
        self.parameters, self.learning_rate = parameters.detach(), learning_rate

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""
        self.parameters.sub_(gradient, alpha=self.learning_rate)

    def state(self) -> dict[str, Tensor]:
        """Nothing: the parameters are all there is."""
        return {}

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "SGD":
        """The same optimiser of one member only."""
        return SGD(parameters, self.learning_rate)

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "SGD":
        """The same optimiser for a copy of the parameters."""
        return SGD(parameters, self.learning_rate)


OPTIMIZERS = {"adam": Adam, "sgd": SGD}
