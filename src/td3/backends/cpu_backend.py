"""The CPU's backend: layers and Adam by the C kernels, everything else by PyTorch. For float32 and ReLU."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.backends import cpu
from td3.backends.backend import Moments
from td3.backends.torch_backend import TorchBackend, refuse_gradient


class CpuBackend(TorchBackend):
    """Layers and Adam in C."""

    name = "cpu"
    repeats_inputs = True

    def linear(
        self,
        inputs: Float[Tensor, "some rows inputs"],
        weight: Float[Tensor, "stack inputs outputs"],
        bias: Float[Tensor, "stack outputs"],
        activation: str | None,
        out: Float[Tensor, "stack rows outputs"],
    ) -> Tensor:
        """`out = activation(inputs @ weight + bias)` for each of the stack."""
        return cpu.product(inputs, weight, out, bias=bias, relu=activation is not None)

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
            cpu.product(inputs.mT, gradient, weight_and_bias[0], column_sums=weight_and_bias[1])
        if out is None:
            return gradient
        return cpu.product(gradient, weight.mT, out, active=None if activation is None else inputs)

    def normalize_(
        self, values: Float[Tensor, "stack rows units"], activation: str, keep: bool
    ) -> tuple[Tensor, Tensor] | None:
        """LayerNorm without scale and shift, then the activation, of each row in place."""
        kept = (torch.empty_like(values), values.new_empty(*values.shape[:2], 1)) if keep else None
        cpu.normalize_(values, kept)
        return kept

    def normalize_backward(
        self,
        gradient: Float[Tensor, "stack rows units"],
        normalized: Float[Tensor, "stack rows units"],
        inverse_deviation: Float[Tensor, "stack rows 1"],
    ) -> Float[Tensor, "stack rows units"]:
        """From the gradient of the normalized numbers to that of the numbers before."""
        return cpu.normalize_backward_(gradient, normalized, inverse_deviation)

    def adam_(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        gradient: Float[Tensor, "*stack parameter"],
        moments: Moments,
        learning_rate: Float[Tensor, ""],
        active: Int[Tensor, " member"],
    ) -> None:
        """One step of Adam in one pass over memory."""
        cpu.adam_(
            parameters.flatten(0, -2),
            gradient.flatten(0, -2),
            moments.first.flatten(0, -2),
            moments.second.flatten(0, -2),
            moments.steps.flatten(),
            learning_rate,
            refuse_gradient,
        )

    def set_threads(self, count: int) -> None:
        """Have so many threads of the kernels; PyTorch's have nothing to do, and must not wait for work beside them."""
        cpu.set_threads(count)

    def get_threads(self) -> int:
        """How many threads of the kernels do the work that is asked for by this thread."""
        return cpu.get_threads()
