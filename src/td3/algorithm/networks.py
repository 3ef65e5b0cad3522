"""Stacked multilayer perceptrons: one small network per member (and twin), computed together.

All parameters of all layers lie in one tensor `[*stack, parameter]`, so that an optimizer step or a Polyak step is a
single pass over memory, and one member's network is a plain slice of it. How a layer is computed is its backend's work.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from td3.backends.backend import Backend
from td3.backends.torch_backend import TORCH


class StackedMLP:
    """Linear layers with an activation between them, for each position of the stack (`member`, or `twin member`).

    With `layer_norm`, the units of each hidden layer are brought to mean 0 and variance 1 before the activation, row by
    row (LayerNorm without learned scale and shift: the parameters stay those of plain linear layers).

    Hidden activations and the parameters' gradient live in buffers that the next call writes again: run backward before
    the next forward of the same network (PyTorch refuses it otherwise), and use a gradient before the next backward.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        parameters: Float[Tensor, "*stack parameter"],
        activation: str = "relu",
        backend: Backend = TORCH,
        layer_norm: bool = False,
    ) -> None:
        self.sizes, self.activation, self.backend = tuple(sizes), activation, backend
        self.layer_norm = layer_norm
        self.parameters = parameters
        self._flat_layers = layer_views(parameters.detach().flatten(0, -2), self.sizes)
        self._buffers: _Buffers | None = None
        self._workspace = Workspace()

    def over(self, parameters: Float[Tensor, "*stack parameter"], backend: Backend | None = None) -> "StackedMLP":
        """A network of the same kind with other parameters."""
        return StackedMLP(self.sizes, parameters, self.activation, backend or self.backend, self.layer_norm)

    @property
    def memory(self) -> object:
        """The buffers of the latest call: who records it keeps them, as a call with another batch size drops them."""
        return self._buffers

    def share_workspace(self, workspace: "Workspace") -> None:
        """Put there what need not be kept; networks that share it must not run at the same time."""
        self._buffers, self._workspace = None, workspace

    @classmethod
    def initialized(
        cls,
        sizes: Sequence[int],
        generators: Sequence[torch.Generator],
        dtype: torch.dtype = torch.float32,
        initialization: str = "uniform",
    ) -> "StackedMLP":
        """One network per generator.

        `uniform` within 1 / sqrt(inputs) is PyTorch's own default for linear layers; `orthogonal` weights have a gain
        of sqrt(2), of 1 in the last layer, and biases of 0.
        """
        network = cls(sizes, torch.empty(len(generators), parameter_count(sizes), dtype=dtype))
        layers = network.layers()
        for index, generator in enumerate(generators):
            for place, (weight, bias) in enumerate(layers):
                if initialization == "orthogonal":
                    gain = 1.0 if place == len(layers) - 1 else math.sqrt(2)
                    torch.nn.init.orthogonal_(weight[index], gain, generator)
                    bias[index].zero_()
                else:
                    bound = sizes[place] ** -0.5
                    weight[index].uniform_(-bound, bound, generator=generator)
                    bias[index].uniform_(-bound, bound, generator=generator)
        return network

    def with_hidden(self, inputs: Float[Tensor, "*any batch inputs"]) -> tuple[Tensor, list[Tensor]]:
        """Outputs, and the activations of every hidden layer `[*stack, batch, units]` until the next call."""
        outputs = self(inputs)
        assert self._buffers is not None
        return outputs, [hidden.view(*outputs.shape[:-1], -1) for hidden in self._buffers.latest]

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Weight `[*stack, inputs, outputs]` and bias `[*stack, outputs]` of each layer, as views."""
        return layer_views(self.parameters, self.sizes)

    def __call__(self, inputs: Float[Tensor, "*any batch inputs"]) -> Float[Tensor, "*stack batch outputs"]:
        """Outputs for inputs that broadcast against the stack (both twins read the same batch)."""
        if inputs.shape[-1] != self.sizes[0] or inputs.dtype != self.parameters.dtype:
            wanted, got = (self.sizes[0], self.parameters.dtype), (inputs.shape[-1], inputs.dtype)
            raise ValueError(f"the network reads {wanted[0]} numbers of {wanted[1]}, not {got[0]} of {got[1]}")
        stack, batch = self.parameters.shape[:-1], inputs.shape[-2]
        given = inputs.shape[:-2]
        repeated = self.backend.repeats_inputs and stack[len(stack) - len(given) :] == given
        if inputs.requires_grad or not repeated:
            inputs = inputs.expand(*stack, *inputs.shape[-2:])
        flat_inputs = inputs.reshape(-1, *inputs.shape[-2:])
        if self._buffers is None or self._buffers.batch != batch:
            self._buffers = _Buffers(self, batch, self._workspace)
        outputs = _ForwardBackward.apply(flat_inputs, self.parameters, self._flat_layers, self._buffers, self)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return cast(Tensor, outputs).view(*stack, batch, self.sizes[-1])


def parameter_count(sizes: Sequence[int]) -> int:
    """Weights and biases of a network with these layer sizes."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))


def layer_views(parameters: Float[Tensor, "*stack parameter"], sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each layer as views into the flat parameters, of which none is left over."""
    if parameters.shape[-1] != parameter_count(sizes):
        raise ValueError(f"{parameters.shape[-1]} numbers are no network of sizes {tuple(sizes)}")
    views, start = [], 0
    for inputs, outputs in pairwise(sizes):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        weight = parameters[..., start:middle].view(*parameters.shape[:-1], inputs, outputs)
        views.append((weight, parameters[..., middle:end]))
        start = end
    return views


class Workspace:
    """Memory for numbers that the next layers read once: what was just used is still in the cache."""

    def __init__(self) -> None:
        self._buffer: dict[int, Tensor] = {}

    def take(self, place: int, like: Tensor, *shape: int) -> Tensor:
        """The memory at this place as a tensor; others may write there as soon as it was read."""
        count, found = math.prod(shape), self._buffer.get(place)
        if found is None or found.numel() < count or (found.dtype, found.device) != (like.dtype, like.device):
            found = self._buffer[place] = like.new_empty(count)
        return found[:count].view(shape)


class _Buffers:
    """Memory for one batch size: fresh memory for every batch costs more than the ReLU that fills it."""

    def __init__(self, network: StackedMLP, batch: int, workspace: Workspace) -> None:
        parameters, self.batch = network.parameters.detach(), batch
        stack = parameters.shape[:-1].numel()
        self._like, self._shapes = parameters, [(stack, batch, size) for size in network.sizes[1:-1]]
        self._saved_activations: list[Tensor] | None = None
        self.scratch = [workspace.take(place, parameters, *shape) for place, shape in enumerate(self._shapes)]
        self.parameters_gradient = torch.empty_like(parameters, memory_format=torch.contiguous_format)
        self.layer_gradients = layer_views(self.parameters_gradient.flatten(0, -2), network.sizes)

    def activations(self, keep: bool) -> list[Tensor]:
        """Where hidden activations go: those that a backward pass will ask for must last until then."""
        if keep and self._saved_activations is None:
            self._saved_activations = [self._like.new_empty(shape) for shape in self._shapes]
        self.latest = self._saved_activations if keep and self._saved_activations else self.scratch
        return self.latest


class _ForwardBackward(torch.autograd.Function):
    """Forward and backward by hand: the gradient comes out flat, and nothing is computed that is not asked for.

    Autograd over the same layers gives the same numbers (`tests/algorithm/test_networks.py`), but a gradient per view,
    to be copied together. Frozen critics (parameters without gradient) and stored states (inputs without gradient)
    cost nothing here.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        parameters: Tensor,
        layers: list[tuple[Tensor, Tensor]],
        buffers: _Buffers,
        network: StackedMLP,
    ) -> Tensor:
        hidden, learns, backend = inputs, any(ctx.needs_input_grad), network.backend
        activations = buffers.activations(keep=learns)
        ctx.normalized = []
        for (weight, bias), out in zip(layers, activations, strict=False):
            hidden = backend.linear(hidden, weight, bias, None if network.layer_norm else network.activation, out)
            if network.layer_norm:
                ctx.normalized.append(backend.normalize_(hidden, network.activation, keep=learns))
        if learns:
            ctx.layers, ctx.buffers, ctx.network = layers, buffers, network
            # Saved for autograd's own check that they were not overwritten in between.
            ctx.save_for_backward(inputs, parameters, *activations)
        weight, bias = layers[-1]
        return backend.linear(
            hidden, weight, bias, None, hidden.new_empty(len(weight), hidden.shape[1], weight.shape[2])
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, _, *activations = ctx.saved_tensors
        wants_inputs, wants_parameters = ctx.needs_input_grad[:2]
        buffers, network = ctx.buffers, ctx.network
        for depth in reversed(range(len(ctx.layers))):
            weight, below = ctx.layers[depth][0], activations[depth - 1] if depth else inputs
            if depth:
                out = buffers.scratch[depth - 1]
            else:
                out = gradient.new_empty(len(weight), *below.shape[1:]) if wants_inputs else None
            gradient = network.backend.linear_backward(
                gradient,
                below,
                weight,
                network.activation if depth else None,
                buffers.layer_gradients[depth] if wants_parameters else None,
                out,
            )
            if depth and network.layer_norm:
                gradient = network.backend.normalize_backward(gradient, *ctx.normalized[depth - 1])
        parameters_gradient = buffers.parameters_gradient if wants_parameters else None
        return (gradient if wants_inputs else None, parameters_gradient, *[None] * 3)
