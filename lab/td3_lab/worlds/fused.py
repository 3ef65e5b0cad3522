"""Triton kernels of the fast update: bias, LayerNorm and ReLU in one pass each way, and the target distribution.

Each is an operation of PyTorch that torch.compile leaves as it is. `bench.py update` compares them with plain PyTorch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

EPSILON = 1e-5
ROWS = 32
"""Rows that one program of the backward pass sums the parameters' gradients over."""


@triton.jit
def _forward(
    x, bias, gain, shift, y, mean, rstd, batch, width: tl.constexpr, block: tl.constexpr, epsilon: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    mask = column < width
    own = row // batch * width + column
    value = tl.load(x + row * width + column, mask, 0.0).to(tl.float32) + tl.load(bias + own, mask, 0.0)
    center = tl.sum(value, 0) / width
    value = tl.where(mask, value - center, 0.0)
    scale = 1 / tl.sqrt(tl.sum(value * value, 0) / width + epsilon)
    out = value * scale * tl.load(gain + own, mask, 0.0) + tl.load(shift + own, mask, 0.0)
    tl.store(y + row * width + column, tl.maximum(out, 0.0), mask)
    tl.store(mean + row, center)
    tl.store(rstd + row, scale)


@triton.jit
def _backward(
    dy, x, bias, gain, shift, mean, rstd, dx, sums, batch, width: tl.constexpr, block: tl.constexpr, rows: tl.constexpr
):
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    mask = column < width
    own = program * rows // batch * width + column
    b, g, s = (tl.load(bias + own, mask, 0.0), tl.load(gain + own, mask, 0.0), tl.load(shift + own, mask, 0.0))
    gain_sum = tl.zeros([block], tl.float32)
    shift_sum = tl.zeros([block], tl.float32)
    bias_sum = tl.zeros([block], tl.float32)
    for offset in range(rows):
        row = program * rows + offset
        scale = tl.load(rstd + row)
        normal = (tl.load(x + row * width + column, mask, 0.0).to(tl.float32) + b - tl.load(mean + row)) * scale
        gradient = tl.load(dy + row * width + column, mask, 0.0).to(tl.float32)
        gradient = tl.where(mask & (normal * g + s > 0), gradient, 0.0)
        shift_sum += gradient
        gain_sum += gradient * normal
        inner = gradient * g
        first = tl.sum(inner, 0) / width
        second = tl.sum(inner * normal, 0) / width
        out = tl.where(mask, scale * (inner - first - normal * second), 0.0)
        bias_sum += out
        tl.store(dx + row * width + column, out, mask)
    place = sums + program * 3 * width + column
    tl.store(place, bias_sum, mask)
    tl.store(place + width, gain_sum, mask)
    tl.store(place + 2 * width, shift_sum, mask)


@triton.jit
def _distribution(
    logits, atoms, reward, discount, target, value, batch, stride, count: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    atom = tl.arange(0, block)
    mask = atom < count
    z = tl.load(atoms + atom, mask, 0.0)
    first = tl.load(logits + row * stride + atom, mask, float("-inf")).to(tl.float32)
    second = tl.load(logits + (batch + row) * stride + atom, mask, float("-inf")).to(tl.float32)
    first = tl.exp(first - tl.max(first, 0))
    second = tl.exp(second - tl.max(second, 0))
    first = first / tl.sum(first, 0)
    second = second / tl.sum(second, 0)
    first_value, second_value = tl.sum(first * z, 0), tl.sum(second * z, 0)
    mass = tl.where(first_value < second_value, first, second)
    low, high = tl.load(atoms), tl.load(atoms + count - 1)
    moved = tl.load(reward + row) + tl.load(discount + row) * z
    slot = (tl.minimum(tl.maximum(moved, low), high) - low) * ((count - 1) / (high - low))
    share = 1 - tl.abs(slot[None, :] - atom[:, None].to(tl.float32))
    out = tl.sum(tl.maximum(share, 0.0) * mass[None, :], 1)
    tl.store(target + row * count + atom, out, mask)
    tl.store(value + row, tl.minimum(first_value, second_value))


@torch.library.custom_op("td3_lab::norm_relu", mutates_args=())
def norm_relu(x: Tensor, bias: Tensor, gain: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ReLU of LayerNorm of `x + bias` for `[network, batch, width]`, and each row's mean and 1/deviation."""
    networks, batch, width = x.shape
    x, y = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    mean, rstd = (torch.empty(networks, batch, device=x.device) for _ in range(2))
    block = triton.next_power_of_2(width)
    grid = (networks * batch,)
    _forward[grid](x, bias, gain, shift, y, mean, rstd, batch, width, block, EPSILON, num_warps=_warps(block))
    return y, mean, rstd


@norm_relu.register_fake
def _(x: Tensor, bias: Tensor, gain: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = torch.empty(x.shape[:2], device=x.device)
    return torch.empty_like(x, memory_format=torch.contiguous_format), rows, torch.empty_like(rows)


@torch.library.custom_op("td3_lab::norm_relu_backward", mutates_args=())
def norm_relu_backward(
    gradient: Tensor, x: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradient of x, and sums `[network, program, 3, width]` for the bias, the gain and the shift."""
    networks, batch, width = x.shape
    rows = ROWS if batch % ROWS == 0 else 1
    gradient, x = gradient.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    sums = torch.empty(networks, batch // rows, 3, width, device=x.device)
    block = triton.next_power_of_2(width)
    grid = (networks * batch // rows,)
    tensors = (gradient, x, bias, gain, shift, mean, rstd, dx, sums)
    _backward[grid](*tensors, batch, width, block, rows, num_warps=_warps(block))
    return dx, sums


@norm_relu_backward.register_fake
def _(
    gradient: Tensor, x: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor]:
    networks, batch, width = x.shape
    rows = ROWS if batch % ROWS == 0 else 1
    sums = torch.empty(networks, batch // rows, 3, width, device=x.device)
    return torch.empty_like(x, memory_format=torch.contiguous_format), sums


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, *output[1:])


def _gradients(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    saved = ctx.saved_tensors  # type: ignore[attr-defined]
    dx, sums = torch.ops.td3_lab.norm_relu_backward(gradient, *saved)
    bias, gain, shift = (gradient.contiguous() for gradient in sums.sum(1, keepdim=True).unbind(2))
    return dx, bias, gain, shift


norm_relu.register_autograd(_gradients, setup_context=_keep)


@torch.library.custom_op("td3_lab::target_distribution", mutates_args=())
def target_distribution(logits: Tensor, atoms: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
    """Return the target distribution `[batch, atom]` and its value before the step, from both critics' logits."""
    logits, (_, batch, stride) = logits.contiguous(), logits.shape
    count = atoms.shape[0]
    target, value = torch.empty(batch, count, device=logits.device), torch.empty(batch, device=logits.device)
    tensors = (logits, atoms, reward.contiguous(), discount.contiguous(), target, value)
    _distribution[(batch,)](*tensors, batch, stride, count, triton.next_power_of_2(count), num_warps=4)
    return target, value


@target_distribution.register_fake
def _(logits: Tensor, atoms: Tensor, reward: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
    batch, count = logits.shape[1], atoms.shape[0]
    return torch.empty(batch, count, device=logits.device), torch.empty(batch, device=logits.device)


def _warps(block: int) -> int:
    return min(max(block // 256, 1), 8)
