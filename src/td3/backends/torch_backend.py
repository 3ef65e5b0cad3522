"""The reference backend: PyTorch's own operations, on every device, in every precision, for every activation."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from td3.backends.backend import LARGEST_GRADIENT, NORM_EPSILON, Moments, NonFinite

_ATEN = torch.ops.aten
_NARROW = 32
"""Columns up to which the transposed product was faster (256 rows, one and two threads)."""


class Activation(NamedTuple):
    """An activation, both ways in place; its derivative is a function of its output."""

    forward_: Callable[[Tensor], Tensor]
    backward_: Callable[[Tensor, Tensor], Tensor]
    """Of the gradient of its output, and the output."""


ACTIVATIONS = {
    "relu": Activation(
        torch.relu_,
        lambda gradient, output: _ATEN.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient),
    ),
    "tanh": Activation(
        torch.tanh_, lambda gradient, output: _ATEN.tanh_backward.grad_input(gradient, output, grad_input=gradient)
    ),
    "elu": Activation(
        _ATEN.elu_,
        lambda gradient, output: _ATEN.elu_backward.grad_input(gradient, 1, 1, 1, True, output, grad_input=gradient),
    ),
    "leaky_relu": Activation(
        _ATEN.leaky_relu_,
        lambda gradient, output: _ATEN.leaky_relu_backward.grad_input(
            gradient, output, 0.01, True, grad_input=gradient
        ),
    ),
}
"""Between the layers of a network, by the name in the configuration; `td3.policy` has the same in numpy."""


class TorchBackend:
    """Everything by PyTorch. The other backends are tested against this one, operation by operation."""

    name = "torch"
    repeats_inputs = False

    def __init__(self, slower_because: str | None = None) -> None:
        self.slower_because = slower_because

    def linear(
        self,
        inputs: Float[Tensor, "some rows inputs"],
        weight: Float[Tensor, "stack inputs outputs"],
        bias: Float[Tensor, "stack outputs"],
        activation: str | None,
        out: Float[Tensor, "stack rows outputs"],
    ) -> Tensor:
        """`out = activation(inputs @ weight + bias)` for each of the stack."""
        _multiply(inputs, weight, out)
        out += bias.unsqueeze(1)
        return out if activation is None else ACTIVATIONS[activation].forward_(out)

    def linear_backward(
        self,
        gradient: Float[Tensor, "stack rows outputs"],
        inputs: Float[Tensor, "some rows inputs"],
        weight: Float[Tensor, "stack inputs outputs"],
        activation: str | None,
        weight_and_bias: tuple[Tensor, Tensor] | None,
        out: Float[Tensor, "stack rows inputs"] | None,
    ) -> Tensor:
        """From the gradient of a layer's outputs to that of its inputs, the parameters' gradients on the way."""
        if weight_and_bias is not None:
            torch.sum(gradient, 1, out=weight_and_bias[1])
            _multiply(inputs.mT, gradient, weight_and_bias[0])
        if out is None:
            return gradient
        _multiply(gradient, weight.mT, out)
        return out if activation is None else ACTIVATIONS[activation].backward_(out, inputs)

    def normalize_(
        self, values: Float[Tensor, "stack rows units"], activation: str, keep: bool
    ) -> tuple[Tensor, Tensor] | None:
        """LayerNorm without scale and shift, then the activation, of each row in place."""
        normalized, _, inverse_deviation = torch.native_layer_norm(values, values.shape[-1:], None, None, NORM_EPSILON)
        ACTIVATIONS[activation].forward_(values.copy_(normalized))
        return (normalized, inverse_deviation) if keep else None

    def normalize_backward(
        self,
        gradient: Float[Tensor, "stack rows units"],
        normalized: Float[Tensor, "stack rows units"],
        inverse_deviation: Float[Tensor, "stack rows 1"],
    ) -> Float[Tensor, "stack rows units"]:
        """From the gradient of the normalized numbers to that of the numbers before."""
        along = (gradient * normalized).mean(-1, keepdim=True)
        return (gradient - gradient.mean(-1, keepdim=True) - normalized * along) * inverse_deviation

    def adam_(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        gradient: Float[Tensor, "*stack parameter"],
        moments: Moments,
        learning_rate: Float[Tensor, ""],
        active: Int[Tensor, " member"],
    ) -> None:
        """One step of Adam by PyTorch's fused kernel, one network after another.

        One entry per network, so that a lone member and a slice of many run the very same arithmetic.
        """
        self.check_gradient_(gradient, active)
        tensors = [list(t.flatten(0, -2).unbind()) for t in (parameters, gradient, moments.first, moments.second)]
        steps = list(moments.steps.flatten().unbind())
        with torch.no_grad():
            if not gradient.is_cuda:
                moments.steps.add_(1)
                _fused_adam_(*tensors, [], steps, learning_rate=learning_rate)
                return
            moments.steps.add_(active)
            members = len(active)
            for member, frozen in enumerate((active == 0).float().unbind()):
                own = [some[member::members] for some in (*tensors, steps)]
                # Where `frozen` is 1, nothing moves.
                _fused_adam_(*own[:4], [], own[4], learning_rate=learning_rate, found_inf=frozen)

    def check_gradient_(self, gradient: Float[Tensor, "*stack parameter"], active: Int[Tensor, " member"]) -> None:
        """Refuse a gradient that is not finite or too large: by `NonFinite`, on a GPU by 0 in `active`."""
        if gradient.is_cuda:
            finite = (gradient.abs() < LARGEST_GRADIENT).all(-1)
            active *= finite.view(-1, len(active)).all(0)
            return
        # Scaled so that a number beyond the bound is infinite: a recording checks whether it is finite.
        scale = torch.finfo(gradient.dtype).max / LARGEST_GRADIENT
        if not math.isfinite((gradient.detach().abs().amax() * scale).item()):
            refuse_gradient()

    def gather(
        self, rows: Float[Tensor, "member capacity row"], indices: Int[Tensor, "member batch"]
    ) -> Float[Tensor, "member batch row"]:
        """The rows at these indices, each member's from its own."""
        members, capacity, width = rows.shape
        if members > 1:
            indices = indices + torch.arange(members, device=rows.device).unsqueeze(1) * capacity
        return rows.flatten(0, 1).index_select(0, indices.flatten()).view(*indices.shape, width)

    def indices_at(
        self, numbers: Int[Tensor, "member slot batch"], cursor: Int[Tensor, " member"], filled: Int[Tensor, ""]
    ) -> Int[Tensor, "member batch"]:
        """`numbers.flatten(0, 1)[cursor] % filled`, for numbers that are not negative."""
        return numbers.flatten(0, 1).index_select(0, cursor).remainder_(filled)

    def accumulate_(
        self,
        sums: Float64[Tensor, "4 member"],
        critic: Float[Tensor, " member"],
        mean_q: Float[Tensor, " member"],
        actor: Float[Tensor, " member"] | None,
    ) -> None:
        """Add critic losses, mean Q-values and, where they are given, actor losses and a count of them."""
        critic_sums, mean_q_sums, actor_sums, actor_updates = sums.unbind()
        critic_sums += critic
        mean_q_sums += mean_q
        if actor is not None:
            actor_sums += actor
            actor_updates += 1

    def set_threads(self, count: int) -> None:
        """Have PyTorch use so many threads."""
        torch.set_num_threads(count)

    def get_threads(self) -> int:
        """How many threads PyTorch uses."""
        return torch.get_num_threads()


def refuse_gradient() -> None:
    """Raise `NonFinite`."""
    raise NonFinite("a gradient is too large or not a number")


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """`out = left @ right` for each of the stack.

    Products with very unequal sides are rearranged: a narrow right factor (a layer of a few outputs) is multiplied as
    its transpose, and a column times a row element by element. MKL is two to ten times slower on them as they stand.
    """
    if right.shape[-2] == 1:
        torch.mul(left, right, out=out)
    elif right.is_cuda or right.shape[-1] > _NARROW:
        torch.bmm(left, right, out=out)
    else:
        out.copy_(torch.bmm(right.mT, left.mT).mT)


def _fused_adam_(*tensors: list[Tensor], learning_rate: Tensor, found_inf: Tensor | None = None) -> None:
    torch._fused_adam_(  # what PyTorch's own Adam calls, after a longer way
        *tensors,
        lr=learning_rate,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
        found_inf=found_inf,
    )


TORCH = TorchBackend()
