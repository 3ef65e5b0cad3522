"""Stacked multilayer perceptrons: one small network per member (and twin), computed together.

This is the only place, with the memory's sampler, that knows how members are laid out. All parameters of all layers lie
in one tensor `[*stack, parameter]`, so that an optimiser step or a Polyak step is a single pass over memory, and one
member's network is a plain slice of it.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


class StackedMLP:
    """Linear layers with ReLU between them, for each position of the stack (`member`, or `twin member`)."""

    def __init__(self, sizes: Sequence[int], parameters: Float[Tensor, "*stack parameter"]) -> None:
        self.sizes = tuple(sizes)
        self.parameters = parameters

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
        stack = self.parameters.shape[:-1]
        flat_inputs = inputs.expand(*stack, *inputs.shape[-2:]).reshape(-1, *inputs.shape[-2:])
        flat_parameters = self.parameters.reshape(-1, self.parameters.shape[-1])
        # torch leaves Function.apply untyped.
        outputs = cast(Tensor, _ForwardBackward.apply(flat_inputs, flat_parameters, self.sizes))  # type: ignore[no-untyped-call]
        return outputs.view(*stack, *outputs.shape[-2:])


def parameter_count(sizes: Sequence[int]) -> int:
    """Weights and biases of a network with these layer sizes."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))


def layer_views(parameters: Float[Tensor, "*stack parameter"], sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer as views into the flat parameters."""
    views, start = [], 0
    for inputs, outputs in pairwise(sizes):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        views.append(
            (parameters[..., start:middle].view(*parameters.shape[:-1], inputs, outputs), parameters[..., middle:end])
        )
        start = end
    return views


class _ForwardBackward(torch.autograd.Function):
    """Forward and backward by hand: the gradient comes out flat, and nothing is computed that nobody asked for.

    Autograd over the same layers gives the same numbers but writes a gradient per view and then copies; `td3 bench
    update` shows the difference. Frozen critics (parameters without gradient) and stored states (inputs without
    gradient) cost nothing here.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, parameters: Tensor, sizes: tuple[int, ...]) -> Tensor:
        activations = [inputs]
        layers = layer_views(parameters, sizes)
        for weight, bias in layers[:-1]:
            activations.append(torch.baddbmm(bias.unsqueeze(1), activations[-1], weight).relu_())
        weight, bias = layers[-1]
        ctx.sizes = sizes
        ctx.save_for_backward(parameters, *activations)
        return torch.baddbmm(bias.unsqueeze(1), activations[-1], weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        parameters, *activations = ctx.saved_tensors
        wants_inputs, wants_parameters = ctx.needs_input_grad[:2]
        parameters_gradient = torch.empty_like(parameters) if wants_parameters else None
        layers = layer_views(parameters, ctx.sizes)
        for depth in reversed(range(len(layers))):
            if parameters_gradient is not None:
                weight_gradient, bias_gradient = layer_views(parameters_gradient, ctx.sizes)[depth]
                torch.bmm(activations[depth].transpose(1, 2), gradient, out=weight_gradient)
                torch.sum(gradient, 1, out=bias_gradient)
            if depth > 0 or wants_inputs:
                gradient = torch.bmm(gradient, layers[depth][0].transpose(1, 2))
            if depth > 0:
                gradient = torch.ops.aten.threshold_backward(gradient, activations[depth], 0)
        return (gradient if wants_inputs else None), parameters_gradient, None
