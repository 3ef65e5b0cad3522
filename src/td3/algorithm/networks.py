"""Stacked multilayer perceptrons: one small network per member (and twin), computed together.

This is the only place, with the memory's sampler, that knows how members are laid out. All parameters of all layers lie
in one tensor `[*stack, parameter]`, so that an optimizer step or a Polyak step is a single pass over memory, and one
member's network is a plain slice of it.
"""

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from td3.backends import cpu


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
        self._workspace = Workspace()

    def share_workspace(self, workspace: "Workspace") -> None:
        """Put there what need not be kept; networks that share it must not run at the same time."""
        self._buffers, self._workspace = None, workspace

    @classmethod
    def initialized(
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
        if inputs.shape[-1] != self.sizes[0] or inputs.dtype != self.parameters.dtype:
            wanted, got = (self.sizes[0], self.parameters.dtype), (inputs.shape[-1], inputs.dtype)
            raise ValueError(f"the network reads {wanted[0]} numbers of {wanted[1]}, not {got[0]} of {got[1]}")
        stack, batch = self.parameters.shape[:-1], inputs.shape[-2]
        given = inputs.shape[:-2]
        ours = serves_kernels(inputs) or cpu.serves(inputs)
        if not (ours and not inputs.requires_grad and stack[len(stack) - len(given) :] == given):
            inputs = inputs.expand(*stack, *inputs.shape[-2:])  # our kernels need no copy for the second twin
        flat_inputs = inputs.reshape(-1, *inputs.shape[-2:])
        if self._buffers is None or self._buffers.batch != batch:
            self._buffers = _Buffers(self, batch, self._workspace)
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


class Workspace:
    """Memory for numbers that the next layers read and nobody after them: what was just used is still near."""

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
        if not keep:
            return self.scratch
        if self._saved_activations is None:
            self._saved_activations = [self._like.new_empty(shape) for shape in self._shapes]
        return self._saved_activations


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
        hidden, learns = inputs, any(ctx.needs_input_grad)
        activations = buffers.activations(keep=learns)
        for (weight, bias), activation in zip(layers, activations, strict=False):
            hidden = _layer(hidden, weight, bias, relu=True, out=activation)
        if learns:
            ctx.layers, ctx.buffers = layers, buffers
            # Saved for autograd's own check that nobody has written to them in between.
            ctx.save_for_backward(inputs, parameters, *activations)
        return _layer(hidden, *layers[-1], relu=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        inputs, _, *activations = ctx.saved_tensors
        wants_inputs, wants_parameters = ctx.needs_input_grad[:2]
        buffers = ctx.buffers
        backward_layer = _backward_layer_by_kernels if serves_kernels(gradient) else _backward_layer
        for depth in reversed(range(len(ctx.layers))):
            below = activations[depth - 1] if depth else inputs
            gradient = backward_layer(
                gradient,
                below,
                ctx.layers[depth][0],
                buffers.layer_gradients[depth] if wants_parameters else None,
                buffers.scratch[depth - 1] if depth else None,
                depth > 0 or wants_inputs,
            )
        return (
            gradient if wants_inputs else None,
            buffers.parameters_gradient if wants_parameters else None,
            None,
            None,
        )


def serves_kernels(tensor: Tensor) -> bool:
    """Whether our own GPU kernels can work on this tensor."""
    return tensor.is_cuda and tensor.dtype == torch.float32 and _HAS_TRITON


def _layer(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool, out: Tensor | None = None) -> Tensor:
    """`inputs @ weight + bias` for each of the stack, cut below zero where asked for."""
    out = inputs.new_empty(len(weight), inputs.shape[1], weight.shape[2]) if out is None else out
    if serves_kernels(inputs):
        from td3.backends.triton_kernels import product

        return product(inputs, weight, out, bias=bias, relu=relu)
    return _product_on_cpu(inputs)(inputs, weight, out, bias=bias, relu=relu)


def _backward_layer(
    gradient: Tensor,
    below: Tensor,
    weight: Tensor,
    layer_gradient: tuple[Tensor, Tensor] | None,
    hidden_gradient: Tensor | None,
    goes_on: bool,
) -> Tensor:
    """From the gradient of a layer's outputs to that of its inputs, the weights' and biases' on the way.

    `hidden_gradient` is the buffer for the inputs' gradient where they are another layer's outputs, cut by a ReLU.
    """
    product = _product_on_cpu(gradient)
    if layer_gradient:
        product(below.mT, gradient, layer_gradient[0], column_sums=layer_gradient[1])
    if not goes_on:
        return gradient
    if hidden_gradient is None:
        return product(gradient, weight.mT, gradient.new_empty(len(weight), *below.shape[1:]))
    return product(gradient, weight.mT, hidden_gradient, active=below)


def _backward_layer_by_kernels(
    gradient: Tensor,
    below: Tensor,
    weight: Tensor,
    layer_gradient: tuple[Tensor, Tensor] | None,
    hidden_gradient: Tensor | None,
    goes_on: bool,
) -> Tensor:
    """The same on a GPU; gradients of hidden units lie transposed, so that every product reads along memory."""
    from td3.backends.triton_kernels import product

    if layer_gradient:
        product(gradient.mT, below, layer_gradient[0].mT, row_sums=layer_gradient[1])
    if not goes_on:
        return gradient
    if hidden_gradient is None:
        return product(weight, gradient.mT, gradient.new_empty(len(weight), *below.shape[1:]).mT).mT
    transposed = hidden_gradient.view(len(weight), weight.shape[1], below.shape[1])
    return product(weight, gradient.mT, transposed, active=below.mT).mT


def _product_on_cpu(tensor: Tensor) -> Callable[..., Tensor]:
    return cpu.product if cpu.serves(tensor) else _product


def _product(
    left: Tensor,
    right: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None = None,
    relu: bool = False,
    active: Tensor | None = None,
    column_sums: Tensor | None = None,
) -> Tensor:
    """What `cpu.product` does, by PyTorch's operations.

    Products with very unequal sides are rearranged: a narrow right factor (a layer of a few outputs) is multiplied as
    its transpose, and a column times a row element by element. MKL is two to ten times slower on them as they stand.
    """
    if column_sums is not None:
        torch.sum(right, 1, out=column_sums)
    if right.shape[-2] == 1:
        torch.mul(left, right, out=out)
    elif right.is_cuda or right.shape[-1] > _NARROW:
        torch.bmm(left, right, out=out)
    else:
        out.copy_(torch.bmm(right.mT, left.mT).mT)
    if bias is not None:
        out += bias.unsqueeze(1)
    if relu:
        out.relu_()
    return out if active is None else _RELU_BACKWARD(out, active, 0, grad_input=out)


_RELU_BACKWARD = torch.ops.aten.threshold_backward.grad_input
_HAS_TRITON = find_spec("triton") is not None
_NARROW = 32
"""Columns up to which the transposed product was faster (256 rows, one and two threads)."""
