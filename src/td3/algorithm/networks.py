"""Stacked multilayer perceptrons: one small network per member (and twin), computed together.

This is the only place, with the memory's sampler, that knows how members are laid out. All parameters of all layers lie
in one tensor `[*stack, parameter]`, so that an optimiser step or a Polyak step is a single pass over memory, and one
member's network is a plain slice of it.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


class StackedMLP:
    """Linear layers with ReLU between them, for each position of the stack (`member`, or `twin member`).

    Hidden activations and the parameters' gradient live in buffers that the next call writes again: run backward before
    the next forward of the same network (PyTorch refuses it otherwise), and use a gradient before the next backward.
    """

    def __init__(self, sizes: Sequence[int], parameters: Float[Tensor, "*stack parameter"]) -> None:
        self.sizes = tuple(sizes)
        self.parameters = parameters
        self._flat_layers = layer_views(parameters.detach().flatten(0, -2), self.sizes)
        self._buffers: _Buffers | None = None

    @classmethod
    def initialised(
        cls, sizes: Sequence[int], generators: Sequence[torch.Generator], dtype: torch.dtype = torch.float32
    ) -> "StackedMLP":
        """One network per generator, with PyTorch's own default for linear layers: uniform within 1 / sqrt(inputs)."""
        network = cls(sizes, torch.empty(len(generators), parameter_count(sizes), dtype=dtype))
        for index, generator in enumerate(generators):
            for (weight, bias), inputs in zip(network.layers(), sizes, strict=False):
                weight[index].uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
                bias[index].uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
        return network

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weight `[*stack, inputs, outputs]` and bias `[*stack, outputs]` of each layer, as views."""
        return layer_views(self.parameters, self.sizes)

    def __call__(self, inputs: Float[Tensor, "*any batch inputs"]) -> Float[Tensor, "*stack batch outputs"]:
        """Outputs for inputs that broadcast against the stack (both twins read the same batch)."""
        stack, batch = self.parameters.shape[:-1], inputs.shape[-2]
        flat_inputs = inputs.expand(*stack, *inputs.shape[-2:]).reshape(-1, *inputs.shape[-2:])
        if self._buffers is None or self._buffers.batch != batch:
            self._buffers = _Buffers(self, batch)
        arguments = (flat_inputs, self.parameters, self._flat_layers, self._buffers)
        outputs = _ForwardBackward.apply(*arguments)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return cast(Tensor, outputs).view(*stack, batch, self.sizes[-1])


def parameter_count(sizes: Sequence[int]) -> int:
    """Weights and biases of a network with these layer sizes."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))


def layer_views(parameters: Float[Tensor, "*stack parameter"], sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer as views into the flat parameters."""
    views, start = [], 0
    for inputs, outputs in pairwise(sizes):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        weight = parameters[..., start:middle].view(*parameters.shape[:-1], inputs, outputs)
        views.append((weight, parameters[..., middle:end]))
        start = end
    return views


class _Buffers:
    """Memory for one batch size: fresh memory for every batch costs more than the ReLU that fills it."""

    def __init__(self, network: StackedMLP, batch: int) -> None:
        parameters, self.batch = network.parameters.detach(), batch
        stack = parameters.shape[:-1].numel()
        self.activations = [parameters.new_empty(stack, batch, size) for size in network.sizes[1:-1]]
        self.gradients = [torch.empty_like(activation) for activation in self.activations]
        self.parameters_gradient = torch.empty_like(parameters, memory_format=torch.contiguous_format)
        self.layer_gradients = layer_views(self.parameters_gradient.flatten(0, -2), network.sizes)


class _ForwardBackward(torch.autograd.Function):
    """Forward and backward by hand: the gradient comes out flat, and nothing is computed that nobody asked for.

    Autograd over the same layers gives the same numbers (`tests/algorithm/test_networks.py`), but a gradient per view,
    to be copied together. Frozen critics (parameters without gradient) and stored states (inputs without gradient)
    cost nothing here.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, parameters: Tensor, layers: list[tuple[Tensor, Tensor]], buffers: _Buffers
    ) -> Tensor:
        hidden = inputs
        for (weight, bias), activation in zip(layers, buffers.activations, strict=False):
            hidden = _layer(hidden, weight, bias, out=activation)
        weight, bias = layers[-1]
        if any(ctx.needs_input_grad):
            ctx.layers, ctx.buffers = layers, buffers
            # Saved for autograd's own check that nobody has written to them in between.
            ctx.save_for_backward(inputs, parameters, *buffers.activations)
        return _product(hidden, weight) + bias.unsqueeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        inputs, _, *activations = ctx.saved_tensors
        wants_inputs, wants_parameters = ctx.needs_input_grad[:2]
        buffers = ctx.buffers
        for depth in reversed(range(len(ctx.layers))):
            below = activations[depth - 1] if depth else inputs
            if wants_parameters:
                weight_gradient, bias_gradient = buffers.layer_gradients[depth]
                _product(below.mT, gradient, out=weight_gradient)
                _sum_of_rows(gradient, out=bias_gradient)
            weight = ctx.layers[depth][0]
            if depth:
                gradient = _product(gradient, weight.mT, out=buffers.gradients[depth - 1])
                _RELU_BACKWARD(gradient, below, 0, grad_input=gradient)
            elif wants_inputs:
                gradient = _product(gradient, weight.mT)
        return (
            gradient if wants_inputs else None,
            buffers.parameters_gradient if wants_parameters else None,
            None,
            None,
        )


def serves_kernels(tensor: Tensor) -> bool:
    """Whether our own GPU kernels can work on this tensor."""
    return tensor.is_cuda and tensor.dtype == torch.float32 and _HAS_TRITON


def _layer(inputs: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    """`relu(inputs @ weight + bias)` for each of the stack."""
    if serves_kernels(inputs):
        from td3.algorithm.kernels import bias_relu_

        return bias_relu_(torch.bmm(inputs, weight, out=out), bias)
    return torch.baddbmm(bias.unsqueeze(1), inputs, weight, out=out).relu_()


def _sum_of_rows(rows: Tensor, out: Tensor) -> None:
    """The sum over the batch; on a GPU as a product with ones, which is faster than a reduction of this shape."""
    if rows.is_cuda:
        torch.bmm(rows.new_ones(1, 1, 1).expand(rows.shape[0], 1, rows.shape[1]), rows, out=out.unsqueeze(1))
    else:
        torch.sum(rows, 1, out=out)


def _product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """`left @ right` for each of the stack.

    Products with very unequal sides are rearranged: a narrow right factor (a layer of a few outputs) is multiplied as
    its transpose, and a column times a row element by element. MKL is two to ten times slower on them as they stand.
    """
    if right.shape[-2] == 1:
        return torch.mul(left, right, out=out)
    if right.is_cuda or right.shape[-1] > _NARROW:
        return torch.bmm(left, right, out=out)
    product = torch.bmm(right.mT, left.mT).mT
    return product if out is None else out.copy_(product)


_RELU_BACKWARD = torch.ops.aten.threshold_backward.grad_input
_HAS_TRITON = find_spec("triton") is not None
_NARROW = 32
"""Columns up to which the transposed product was faster (256 rows, one and two threads)."""
