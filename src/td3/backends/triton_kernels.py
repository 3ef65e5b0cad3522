"""What PyTorch would do in several kernels as one GPU kernel each, written in Triton; CPUs never come here.

The arithmetic is that of the plain operations (`tests/engine/test_kernels.py` compares them where there is a GPU). Sums
run in a fixed order, nothing is added atomically: a run repeats. Figures are in docs/performance.md, "On one GPU".
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float64, Int
from torch import Tensor


def _kernel(function: Callable[..., Any]) -> Any:
    """A Triton kernel; tests wrap every function in shape checks, and Triton must read the bare one."""
    return triton.jit(inspect.unwrap(function))


@_kernel
def _product_kernel(
    left,
    right,
    out,
    bias,
    active,
    sums,
    rows,
    columns,
    inner,
    left_period,
    right_period,
    left_stack,
    left_row,
    left_inner,
    right_stack,
    right_inner,
    right_column,
    out_stack,
    out_row,
    out_column,
    bias_stack,
    active_stack,
    active_row,
    active_column,
    sums_stack,
    has_bias: tl.constexpr,
    has_relu: tl.constexpr,
    has_active: tl.constexpr,
    has_sums: tl.constexpr,
    precision: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_inner: tl.constexpr,
):
    tile, network = tl.program_id(0), tl.program_id(1).to(tl.int64)
    across = tl.cdiv(columns, block_columns)
    row = (tile // across) * block_rows + tl.arange(0, block_rows)[:, None]
    column = (tile % across) * block_columns + tl.arange(0, block_columns)[None, :]
    left += network % left_period * left_stack
    right += network % right_period * right_stack
    # A single row or column is multiplied element by element: its factor lies along the other's inner side.
    left_depth = tl.arange(0, block_inner)[:, None] if block_rows == 1 else tl.arange(0, block_inner)[None, :]
    right_depth = tl.arange(0, block_inner)[None, :] if block_columns == 1 else tl.arange(0, block_inner)[:, None]
    total = tl.zeros((block_rows, block_columns), tl.float32)
    row_sum = tl.zeros((block_rows,), tl.float32)
    for start in range(0, inner, block_inner):
        left_inside = (row < rows) & (start + left_depth < inner)
        right_inside = (start + right_depth < inner) & (column < columns)
        from_left = tl.load(left + row * left_row + (start + left_depth) * left_inner, left_inside, 0.0)
        from_right = tl.load(right + (start + right_depth) * right_inner + column * right_column, right_inside, 0.0)
        if block_inner == 1:
            total += from_left * from_right
        elif block_columns == 1:
            total += tl.sum(from_left * from_right, 1, keep_dims=True)
        elif block_rows == 1:
            total += tl.sum(from_left * from_right, 0, keep_dims=True)
        else:
            total = tl.dot(from_left, from_right, total, input_precision=precision)
        if has_sums:
            row_sum += tl.sum(from_left, 0 if block_rows == 1 else 1)
    inside = (row < rows) & (column < columns)
    if has_bias:
        total += tl.load(bias + network * bias_stack + column, column < columns, 0.0)
    if has_relu:
        total = tl.where(total < 0, 0.0, total)  # NaN stays NaN, as in PyTorch
    if has_active:
        place = active + network * active_stack + row * active_row + column * active_column
        total = tl.where(tl.load(place, inside, 0.0) > 0, total, 0.0)
    tl.store(out + network * out_stack + row * out_row + column * out_column, total, inside)
    if has_sums and tile % across == 0:
        single = (tile // across) * block_rows + tl.arange(0, block_rows)
        tl.store(sums + network * sums_stack + single, row_sum, single < rows)


def product(
    left: Float[Tensor, "left_stack rows inner"],
    right: Float[Tensor, "right_stack inner columns"],
    out: Float[Tensor, "stack rows columns"],
    *,
    bias: Float[Tensor, "stack columns"] | None = None,
    relu: bool = False,
    active: Float[Tensor, "stack rows columns"] | None = None,
    row_sums: Float[Tensor, "stack rows"] | None = None,
) -> Tensor:
    """`out = left @ right` for each of the stack, and around it what a layer needs, in the same pass.

    A factor with a shorter stack is used again from its beginning (both twins read the same batch). Then a `bias` is
    added to every row, `relu` cuts below zero, and entries are kept only where `active` is positive (ReLU backwards).
    `row_sums` receives the sum of each row of `left`. It is slow where the columns of `right` do not lie side by side.
    """
    stack, rows, columns = out.shape
    inner = left.shape[2]
    blocks, precision, options = _tiles(rows, columns, inner, stack, active is not None, row_sums is not None)
    grid = (triton.cdiv(rows, blocks[0]) * triton.cdiv(columns, blocks[1]), stack)
    _product_kernel[grid](
        left,
        right,
        out,
        out if bias is None else bias,
        out if active is None else active,
        out if row_sums is None else row_sums,
        rows,
        columns,
        inner,
        left.shape[0],
        right.shape[0],
        *left.stride(),
        *right.stride(),
        *out.stride(),
        0 if bias is None else bias.stride(0),
        *((0, 0, 0) if active is None else active.stride()),
        0 if row_sums is None else row_sums.stride(0),
        bias is not None,
        relu,
        active is not None,
        row_sums is not None,
        precision,
        *blocks,
        **options,
    )
    torch.autograd.graph.increment_version(out)  # PyTorch does not see what Triton writes
    return out


def _tiles(
    rows: int, columns: int, inner: int, stack: int, masked: bool, summed: bool
) -> tuple[tuple[int, int, int], str, dict[str, int]]:
    """The tile of each program, how it multiplies, and its stages, by timing every product of an update on an H200.

    Small tiles where there are too few large ones to fill the chip. TF32 only where PyTorch may use it too: there the
    long side of a tile lies along the rows, but along the columns where the result is masked. Otherwise large products
    are sums of three in TF32 (of the factors' leading bits, and of those with the bits that remain) where that is
    faster: their error is smaller than that of float32 products (docs/performance.md, "Precision").
    """
    tf32, tiles = torch.backends.cuda.matmul.allow_tf32, stack * triton.cdiv(rows, 64) * triton.cdiv(columns, 64)
    precision, stages = "tf32" if tf32 else "ieee", 3
    if inner == 1:
        high, wide, deep = 32, 64, 1
    elif columns == 1:
        high, wide, deep = 16, 1, 256
    elif rows == 1:
        high, wide, deep = 1, 32, 128
    elif columns <= 16:
        high, wide, deep = (32 if tf32 else 16), 16, 64
    elif rows <= 16:
        high, wide, deep = 16, 32, (16 if tf32 else 32)
    elif rows <= 32 or columns <= 32:
        high, wide, deep = (64, 32, 32) if tf32 else (32, 32, 64)
    elif tf32 and tiles >= 100:
        high, wide, deep = ((32, 128, 32) if tiles >= 300 else (32, 64, 32)) if masked else (128, 32, 32)
    elif tiles >= 100 and inner > 32 and not summed:
        precision = "tf32x3"
        high, wide, deep = (32, 256 if tiles >= 1_000 else 128, 32) if tiles >= 300 else (64, 32, 64)
    elif tiles >= 300:
        high, wide, deep = 64, 64, 32
    elif tiles >= 100:
        high, wide, deep, stages = 32, 32, 64, 2
    else:
        high, wide, deep = 32, 32, 32
    if 1 < inner <= 32:
        deep, stages = 16, 3
    sides = (high, rows), (wide, columns), (deep, inner)
    tile = [side if side == 1 else min(side, _power_of_two(size)) for side, size in sides]
    return (tile[0], tile[1], tile[2]), precision, {"num_warps": 4, "num_stages": stages}


def _power_of_two(size: int) -> int:
    """The next power of two, of at least the 16 that a tile's side must have."""
    return max(16, int(triton.next_power_of_2(size)))


@_kernel
def _normalize_kernel(values, normalized, inverse, units, epsilon, keep: tl.constexpr, block: tl.constexpr):
    row, unit = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    place, inside = row * units + unit, unit < units
    value = tl.load(values + place, inside, 0.0)
    value = tl.where(inside, value - tl.sum(value, 0) / units, 0.0)
    deviation = tl.rsqrt(tl.sum(value * value, 0) / units + epsilon)
    value *= deviation
    tl.store(values + place, tl.where(value < 0, 0.0, value), inside)
    if keep:
        tl.store(normalized + place, value, inside)
        tl.store(inverse + row, deviation)


def normalize_(values: Float[Tensor, "stack rows units"], epsilon: float, keep: bool) -> tuple[Tensor, Tensor] | None:
    """Bring each row of contiguous values to mean 0 and variance 1, then cut below zero, in place.

    Returns, with `keep`, the numbers before the cut, and the inverse of each row's standard deviation.
    """
    stack, rows, units = values.shape
    kept = (torch.empty_like(values), values.new_empty(stack, rows, 1)) if keep else (values, values)
    _normalize_kernel[stack * rows,](values, *kept, units, epsilon, keep, triton.next_power_of_2(units), num_warps=2)
    torch.autograd.graph.increment_version(values)
    return kept if keep else None


@_kernel
def _normalize_backward_kernel(
    gradient,
    normalized,
    inverse,
    rows,
    units,
    gradient_stack,
    gradient_row,
    gradient_unit,
    block_rows: tl.constexpr,
    block_units: tl.constexpr,
):
    network = tl.program_id(1).to(tl.int64)
    unit = tl.arange(0, block_units)[:, None]
    row = tl.program_id(0) * block_rows + tl.arange(0, block_rows)[None, :]
    inside = (row < rows) & (unit < units)
    place = gradient + network * gradient_stack + row * gradient_row + unit * gradient_unit
    value = tl.load(place, inside, 0.0)
    number = tl.load(normalized + (network * rows + row) * units + unit, inside, 0.0)
    mean, along = tl.sum(value, 0, keep_dims=True) / units, tl.sum(value * number, 0, keep_dims=True) / units
    deviation = tl.load(inverse + network * rows + row, row < rows, 0.0)
    tl.store(place, (value - mean - number * along) * deviation, inside)


def normalize_backward_(
    gradient: Float[Tensor, "stack rows units"],
    normalized: Float[Tensor, "stack rows units"],
    inverse_deviation: Float[Tensor, "stack rows 1"],
) -> Tensor:
    """From the gradient of the normalized numbers to that of the numbers before, in place, in any order of memory."""
    stack, rows, units = gradient.shape
    _normalize_backward_kernel[triton.cdiv(rows, 16), stack](
        gradient, normalized, inverse_deviation, rows, units, *gradient.stride(), 16, triton.next_power_of_2(units)
    )
    return gradient


@_kernel
def _check_kernel(gradient, active, members, size, block: tl.constexpr):
    network = tl.program_id(1)
    places = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.load(gradient + network.to(tl.int64) * size + places, places < size, 0.0)
    finite = tl.abs(values) < 1e18  # false for NaN, and where the square would overflow
    tl.store(active + network % members, 0, tl.min(finite.to(tl.int32), 0) == 0)


def check_(gradient: Float[Tensor, "*stack parameter"], active: Int[Tensor, " member"]) -> None:
    """Set members to 0 in `active` whose gradient, which is contiguous, is not finite, or whose square is not."""
    size = gradient.shape[-1]
    grid = triton.cdiv(size, 2048), gradient.numel() // size
    _check_kernel[grid](gradient, active, len(active), size, 2048)


@_kernel
def _adam_kernel(
    parameters,
    gradient,
    first,
    second,
    steps,
    active,
    members,
    size,
    rate,
    beta1: tl.constexpr,
    beta2: tl.constexpr,
    epsilon: tl.constexpr,
    block: tl.constexpr,
):
    network = tl.program_id(1)
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = (places < size) & (tl.load(active + network % members) != 0)
    places += network.to(tl.int64) * size
    step = tl.load(steps + network)
    correction1 = 1 - tl.exp2(step * tl.log2(tl.full((), beta1, tl.float32)))
    correction2 = 1 - tl.exp2(step * tl.log2(tl.full((), beta2, tl.float32)))
    gradient = tl.load(gradient + places, inside, 0.0)
    mean = tl.load(first + places, inside)
    mean += (gradient - mean) * (1 - beta1)
    square = tl.load(second + places, inside) * beta2 + gradient * gradient * (1 - beta2)
    tl.store(first + places, mean, inside)
    tl.store(second + places, square, inside)
    spread = tl.sqrt(square) / tl.sqrt(correction2) + epsilon
    value = tl.load(parameters + places, inside)
    tl.store(parameters + places, value - tl.load(rate) / correction1 * mean / spread, inside)


def adam_(
    parameters: Float[Tensor, "*stack parameter"],
    gradient: Float[Tensor, "*stack parameter"],
    first_moment: Float[Tensor, "*stack parameter"],
    second_moment: Float[Tensor, "*stack parameter"],
    steps: Float[Tensor, "*stack"],
    active: Int[Tensor, " member"],
    learning_rate: Float[Tensor, ""],
) -> None:
    """One step of Adam over contiguous stacked parameters; PyTorch's fused one keeps few multiprocessors busy.

    A member whose gradient is not finite, or whose square is not, becomes 0 in `active`. Of a member that is 0 there
    nothing changes.
    """
    check_(gradient, active)
    steps += active
    size = parameters.shape[-1]
    _adam_kernel[triton.cdiv(size, 1024), parameters.numel() // size](
        *(parameters, gradient, first_moment, second_moment, steps, active),
        *(len(active), size, learning_rate, 0.9, 0.999, 1e-8, 1024),
    )


@_kernel
def _rows_kernel(numbers, cursor, filled, out, count, batch, block: tl.constexpr):
    places = tl.program_id(0) * block + tl.arange(0, block)
    inside = places < count
    member, position = (places // batch).to(tl.int64), places % batch
    number = tl.load(numbers + tl.load(cursor + member, inside, 0) * batch + position, inside, 0)
    tl.store(out + places, number % tl.load(filled), inside)


def rows_at(
    numbers: Int[Tensor, "member slot batch"], cursor: Int[Tensor, " member"], filled: Int[Tensor, ""]
) -> Int[Tensor, "member batch"]:
    """`numbers.flatten(0, 1)[cursor] % filled`, for numbers that are not negative."""
    members, _, batch = numbers.shape
    out = numbers.new_empty(members, batch)
    _rows_kernel[triton.cdiv(out.numel(), 256),](numbers, cursor, filled, out, out.numel(), batch, 256)
    return out


@_kernel
def _gather_kernel(buffer, indices, out, capacity, batch, width, block: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    row = place // batch * capacity + tl.load(indices + place)
    column = tl.arange(0, block)
    values = tl.load(buffer + row * width + column, column < width)
    tl.store(out + place * width + column, values, column < width)


def gather(
    buffer: Float[Tensor, "member capacity row"], indices: Int[Tensor, "member batch"]
) -> Float[Tensor, "member batch row"]:
    """The rows at these numbers, each member's from its own memory."""
    (_, capacity, width), batch, indices = buffer.shape, indices.shape[1], indices.contiguous()
    out = buffer.new_empty(*indices.shape, width)
    _gather_kernel[indices.numel(),](
        buffer, indices, out, capacity, batch, width, triton.next_power_of_2(width), num_warps=1
    )
    return out


@_kernel
def _add_losses_kernel(sums, critic, mean_q, actor, members, kind, has_actor: tl.constexpr, block: tl.constexpr):
    member = tl.program_id(0) * block + tl.arange(0, block)
    inside = member < members
    place = sums + member
    tl.store(place, tl.load(place, inside) + tl.load(critic + member, inside), inside)
    place += kind
    tl.store(place, tl.load(place, inside) + tl.load(mean_q + member, inside), inside)
    if has_actor:
        place += kind
        tl.store(place, tl.load(place, inside) + tl.load(actor + member, inside), inside)
        place += kind
        tl.store(place, tl.load(place, inside) + 1, inside)


def add_losses_(
    sums: Float64[Tensor, "4 member"],
    critic: Float[Tensor, " member"],
    mean_q: Float[Tensor, " member"],
    actor: Float[Tensor, " member"] | None,
) -> None:
    """Add critic losses, mean scores, and, where they are given, actor losses and a count of them."""
    members = len(critic)
    present = critic if actor is None else actor
    losses = (loss.contiguous() for loss in (critic, mean_q, present))
    _add_losses_kernel[triton.cdiv(members, 128),](sums, *losses, members, sums.stride(0), actor is not None, 128)
