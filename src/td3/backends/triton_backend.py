"""The GPU's backend: kernels in Triton, where PyTorch would launch several. For float32 and ReLU."""

from jaxtyping import Float, Float64, Int
from torch import Tensor

from td3.backends import triton_kernels as kernels
from td3.backends.backend import NORM_EPSILON, Moments
from td3.backends.torch_backend import TorchBackend


class TritonBackend(TorchBackend):
    """Layers, their normalization, Adam, gathers and sums of losses as one GPU kernel each."""

    name = "triton"
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
        return kernels.product(inputs, weight, out, bias=bias, relu=activation is not None)

    def linear_backward(
        self,
        gradient: Float[Tensor, "stack rows outputs"],
        inputs: Float[Tensor, "some rows inputs"],
        weight: Float[Tensor, "stack inputs outputs"],
        activation: str | None,
        weight_and_bias: tuple[Tensor, Tensor] | None,
        out: Float[Tensor, "stack rows inputs"] | None,
    ) -> Tensor:
        """From the gradient of a layer's outputs to that of its inputs, the parameters' gradients on the way.

        Gradients of hidden units lie transposed in `out`, so that every product reads along memory.
        """
        if weight_and_bias is not None:
            kernels.product(gradient.mT, inputs, weight_and_bias[0].mT, row_sums=weight_and_bias[1])
        if out is None:
            return gradient
        if activation is None:
            return kernels.product(weight, gradient.mT, out.mT).mT
        transposed = out.view(len(weight), weight.shape[1], inputs.shape[1])
        return kernels.product(weight, gradient.mT, transposed, active=inputs.mT).mT

    def normalize_(
        self, values: Float[Tensor, "stack rows units"], activation: str, keep: bool
    ) -> tuple[Tensor, Tensor] | None:
        """LayerNorm without scale and shift, then ReLU, of each row in place."""
        return kernels.normalize_(values, NORM_EPSILON, keep)

    def normalize_backward(
        self,
        gradient: Float[Tensor, "stack rows units"],
        normalized: Float[Tensor, "stack rows units"],
        inverse_deviation: Float[Tensor, "stack rows 1"],
    ) -> Float[Tensor, "stack rows units"]:
        """From the gradient of the normalized numbers to that of the numbers before, in its memory."""
        return kernels.normalize_backward_(gradient, normalized, inverse_deviation)

    def adam_(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        gradient: Float[Tensor, "*stack parameter"],
        moments: Moments,
        learning_rate: Float[Tensor, ""],
        active: Int[Tensor, " member"],
    ) -> None:
        """One step of Adam in one kernel, for parameters that lie side by side."""
        if parameters.is_contiguous():
            kernels.adam_(parameters, gradient.contiguous(), *moments, active, learning_rate)
        else:
            super().adam_(parameters, gradient, moments, learning_rate, active)

    def check_gradient_(self, gradient: Float[Tensor, "*stack parameter"], active: Int[Tensor, " member"]) -> None:
        """Set the members to 0 in `active` whose gradient is not finite or too large."""
        if gradient.is_contiguous():
            kernels.check_(gradient, active)
        else:
            super().check_gradient_(gradient, active)

    def gather(
        self, rows: Float[Tensor, "member capacity row"], indices: Int[Tensor, "member batch"]
    ) -> Float[Tensor, "member batch row"]:
        """The rows at these indices, each member's from its own."""
        return kernels.gather(rows, indices)

    def indices_at(
        self, numbers: Int[Tensor, "member slot batch"], cursor: Int[Tensor, " member"], filled: Int[Tensor, ""]
    ) -> Int[Tensor, "member batch"]:
        """`numbers.flatten(0, 1)[cursor] % filled`, for numbers that are not negative."""
        return kernels.rows_at(numbers, cursor, filled)

    def accumulate_(
        self,
        sums: Float64[Tensor, "4 member"],
        critic: Float[Tensor, " member"],
        mean_q: Float[Tensor, " member"],
        actor: Float[Tensor, " member"] | None,
    ) -> None:
        """Add critic losses, mean Q-values and, where they are given, actor losses and a count of them."""
        kernels.add_losses_(sums, critic, mean_q, actor)
