"""Gradient descent on flat stacked parameters, with optimizer state per member."""

import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.algorithm.networks import serves_kernels
from td3.backends import cpu

LARGEST_GRADIENT = 1e18
"""Adam keeps squares of gradients, and float32 has none of larger ones; the kernels have the same bound."""


class NonFinite(ArithmeticError):
    """A loss or a gradient that is NaN, infinite or too large, found before a step was taken along it."""


def require_finite(total: Float[Tensor, ""], name: str) -> None:
    """Refuse a sum that is NaN or infinite, as it is if any of its terms is.

    On a GPU, asking would make everything wait: there the gradients are checked, and their members frozen.
    """
    if not total.is_cuda and not math.isfinite(total.item()):
        raise NonFinite(f"{name} is too large or not a number")


def _refuse_gradient() -> None:
    raise NonFinite("a gradient is too large or not a number")


def check_gradient_(gradient: Float[Tensor, "*stack parameter"], active: Int[Tensor, " member"]) -> None:
    """Refuse a gradient that is not finite, or too large: by an error, or on a GPU by setting its member to 0."""
    if not gradient.is_cuda:
        # Scaled so that a number beyond the bound is infinite: a recording checks whether it is finite.
        scale = torch.finfo(gradient.dtype).max / LARGEST_GRADIENT
        require_finite(gradient.detach().abs().amax() * scale, "a gradient")
    elif serves_kernels(gradient) and gradient.is_contiguous():
        from td3.backends.triton_kernels import check_

        check_(gradient, active)
    else:
        finite = (gradient.abs() < LARGEST_GRADIENT).all(-1)
        active *= finite.view(-1, len(active)).all(0)


@runtime_checkable
class Optimizer(Protocol):
    """Changes parameters in place, given their gradient."""

    learning_rate: float
    active: Tensor
    """`[member]`, int32. On a GPU: 0 from the first gradient on that was not finite; nothing of it moves any more."""

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "Optimizer":
        """The same optimizer of one member only, sharing its state."""

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "Optimizer":
        """The same optimizer for a copy of the parameters, with state of its own."""


class Adam:
    """Adam over all members at once, by a kernel of ours or PyTorch's fused one; each network counts its own steps."""

    def __init__(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        learning_rate: float,
        state: dict[str, Tensor] | None = None,
        active: Int[Tensor, " member"] | None = None,
    ) -> None:
        self.parameters, self.learning_rate = parameters.detach(), learning_rate
        self.active = _all_active(parameters) if active is None else active
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
            from td3.backends.triton_kernels import adam_

            first, second, steps = (self._state[name] for name in ("first_moment", "second_moment", "steps"))
            adam_(self.parameters, gradient, first, second, steps, self.active, self.learning_rate)
            return
        if cpu.serves(gradient):
            first, second = (self._state[name].flatten(0, -2) for name in ("first_moment", "second_moment"))
            parameters, steps = self.parameters.flatten(0, -2), self._state["steps"].flatten()
            gradient = gradient.flatten(0, -2)
            cpu.adam_(parameters, gradient, first, second, steps, self.learning_rate, _refuse_gradient)
            return
        check_gradient_(gradient, self.active)
        tensors = self._networks, list(gradient.flatten(0, -2).unbind()), self._first_moments, self._second_moments
        members = len(self.active)
        with torch.no_grad():
            if not gradient.is_cuda:
                self._state["steps"] += 1
                self._fused(*tensors, [], self._steps)
                return
            self._state["steps"] += self.active
            for member, frozen in enumerate((self.active == 0).float().unbind()):
                own = [some[member::members] for some in (*tensors, self._steps)]
                self._fused(*own[:4], [], own[4], found_inf=frozen)  # where it is 1, nothing moves

    def _fused(self, *tensors: list[Tensor], found_inf: Tensor | None = None) -> None:
        torch._fused_adam_(  # what PyTorch's own Adam calls, after a longer way
            *tensors,
            lr=self.learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
            found_inf=found_inf,
        )

    def state(self) -> dict[str, Tensor]:
        """The tensors that must be saved to go on exactly."""
        return self._state

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "Adam":
        """The same optimizer of one member only, sharing its state."""
        moments = {name: self._state[name][..., index : index + 1, :] for name in ("first_moment", "second_moment")}
        state = {**moments, "steps": self._state["steps"][..., index : index + 1]}
        return Adam(parameters, self.learning_rate, state, self.active[index : index + 1])

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "Adam":
        """The same optimizer for a copy of the parameters, with state of its own."""
        state = {name: tensor.to(parameters.device, copy=True) for name, tensor in self._state.items()}
        return Adam(parameters, self.learning_rate, state, self.active.to(parameters.device, copy=True))


class SGD:
    """Plain gradient descent, for the lesson that says so."""

    def __init__(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        learning_rate: float,
        active: Int[Tensor, " member"] | None = None,
    ) -> None:
        self.parameters, self.learning_rate = parameters.detach(), learning_rate
        self.active = _all_active(parameters) if active is None else active

    def step_(self, gradient: Float[Tensor, "*stack parameter"]) -> None:
        """One step downhill."""
        check_gradient_(gradient, self.active)
        if gradient.is_cuda:
            gradient = gradient.where(self.active.unsqueeze(-1) > 0, 0)
        self.parameters.sub_(gradient, alpha=self.learning_rate)

    def state(self) -> dict[str, Tensor]:
        """Nothing: the parameters are all there is."""
        return {}

    def member(self, parameters: Float[Tensor, "*stack parameter"], index: int) -> "SGD":
        """The same optimizer of one member only."""
        return SGD(parameters, self.learning_rate, self.active[index : index + 1])

    def copied(self, parameters: Float[Tensor, "*stack parameter"]) -> "SGD":
        """The same optimizer for a copy of the parameters."""
        return SGD(parameters, self.learning_rate, self.active.to(parameters.device, copy=True))


def _all_active(parameters: Float[Tensor, "*stack parameter"]) -> Int[Tensor, " member"]:
    return torch.ones(parameters.shape[-2], dtype=torch.int32, device=parameters.device)


OPTIMIZERS = {"adam": Adam, "sgd": SGD}
