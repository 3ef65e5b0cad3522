"""Operations of PyTorch that the CPU's kernels can do as well, to the last bit: a recording leaves those to them.

On tensors as small as a batch, most of an operation's time is the way to it. What is not listed here is left to
PyTorch; so are sums, wherever its order of summing is not the one that is known here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td3.backends import cpu
from td3.backends.cpu import FINITE, GATHER, MAP, SUM, Gather, Instruction, Map, Program, Sides, Sum

Steps = list[Callable[[], Any] | Instruction] | None
COPY, ADD, SUBTRACT, MULTIPLY, DIVIDE, MINIMUM, CLAMP, LERP = range(8)
TANH_BACKWARD, ACCUMULATE, ADD_INTEGERS, REMAINDER = range(8, 12)
"""As in cpu.c."""


def instructions_for(
    operation: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], result: Any, refuse: Callable[[], Any]
) -> Steps:
    """What repeats an operation that was just done, in the same memory; None where that is left to PyTorch."""
    given = [value for value in (*arguments, result) if isinstance(value, Tensor)]
    known = all(cpu.serves(tensor) or tensor.dtype in (torch.int64, torch.float64) for tensor in given)
    if cpu.why_not() or not known:
        return None
    if operation is _ATEN._local_scalar_dense.default and arguments[0].dtype == torch.float32:
        return [Instruction(FINITE, arguments[0], refuse=refuse)]
    if operation is _ATEN.index_select.default and arguments[1] == 0:
        return _rows(result, arguments[0], arguments[2])
    if operation is _ATEN.cat.default:
        return _parts(result, *arguments)
    if operation in (_ATEN.mean.dim, _ATEN.sum.dim_IntList) and _types(given) == {torch.float32} and not keywords:
        return _sums(operation is _ATEN.mean.dim, result, *arguments)
    if operation.overloadpacket in CONSTANT and _types(given) == {torch.float32}:
        return _instruction(COPY, result, (result.clone(),))  # others may write into it
    if keywords or not arguments or not isinstance(result, Tensor):
        return None
    return _map(operation, arguments, result)


def _map(operation: Any, arguments: Sequence[Any], result: Tensor) -> Steps:
    """Operations that make each number of the result from one number of each operand."""
    first, *others = arguments
    kind, operands = _BINARY.get(operation), arguments
    if operation is _ATEN.rsub.Scalar and len(arguments) == 2:
        kind, operands = SUBTRACT, (others[0], first)
    elif operation is _ATEN.neg.default:
        kind, operands = MULTIPLY, (first, -1.0)
    elif operation is _ATEN.pow.Tensor_Scalar and others[0] in (1, 2):
        kind, operands = (MULTIPLY, (first, first)) if others[0] == 2 else (COPY, (first,))
    elif operation in (_ATEN.clamp.default, _ATEN.clamp.Tensor) and len(others) == 2:
        kind = None if any(bound is None for bound in others) else CLAMP
    elif operation is _ATEN.lerp_.Scalar and 0 <= np.float32(others[1]) < 0.5 and _agrees(LERP):
        kind = LERP
    elif operation is _ATEN.tanh_backward.default and _agrees(TANH_BACKWARD):
        kind = TANH_BACKWARD
    elif operation is _ATEN.copy_.default:
        kind, operands = COPY, others[:1]
    elif operation is _ATEN.sum.default and first.numel() == 1:
        kind, operands = COPY, (first.view(()),)
    elif operation is _ATEN.add_.Tensor and result.dtype == torch.float64 and _fit_float32(others):
        return _instruction(ACCUMULATE, result, others)
    if kind is None:
        return None
    if _types((*operands, result)) == {torch.int64}:
        kind = {ADD: ADD_INTEGERS, REMAINDER: REMAINDER}.get(kind)
        whole = all(isinstance(operand, Tensor) for operand in operands)
        return _instruction(kind, result, operands) if kind is not None and whole else None
    if kind == REMAINDER or _types((*operands, result)) != {torch.float32}:
        return None
    return _instruction(kind, result, operands)


def _instruction(kind: int, out: Tensor, operands: Sequence[Tensor | float | int]) -> Steps:
    tensors = [one if isinstance(one, Tensor) else torch.tensor(one, dtype=torch.float32) for one in operands]
    if len(tensors) > 3 or out.numel() == 0:
        return None
    sides = _sides(out.shape, [out.stride(), *(tensor.expand(out.shape).stride() for tensor in tensors)])
    if len(sides) > 3:
        return None
    sides = [(1, *[0] * (1 + len(tensors)))] * (3 - len(sides)) + sides
    sizes, *strides = zip(*sides, strict=True)
    addresses = [tensor.data_ptr() for tensor in tensors]
    missing = 3 - len(tensors)
    rows = [Sides(*row) for row in (sizes, *strides, *[(0, 0, 0)] * missing)]
    work = Map(out.data_ptr(), *addresses, *[None] * missing, kind, *rows)
    return [Instruction(MAP, work, (out, *tensors))]


def _sides(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Size and strides of each side, as few as possible: neighbors that lie as one are one."""
    sides: list[tuple[int, ...]] = []
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if sides and all(outer == size * step for outer, step in zip(sides[-1][1:], steps, strict=True)):
            sides[-1] = (sides[-1][0] * size, *steps)
        else:
            sides.append((size, *steps))
    return sides


def _sums(mean: bool, out: Tensor, tensor: Tensor, sides: list[int] | None, keep: bool = False) -> Steps:
    """Sums over the last sides, and means, which PyTorch takes a long way to from there."""
    if tensor.dim() == 0:
        return None
    steps: Steps = [partial(torch.sum, tensor, sides, keep, out=out)]
    reduced = {side % tensor.dim() for side in sides or range(tensor.dim())}
    left_over = [side not in reduced for side in range(tensor.dim()) if tensor.shape[side] > 1]
    inner = tensor.numel() // max(1, out.numel())
    if len(tensor) == 2 and reduced == {0}:
        steps = _instruction(ADD, out, (tensor[0], tensor[1]))  # of the twins
    elif tensor.is_contiguous() and left_over == sorted(left_over, reverse=True) and _sums_as_pytorch_does(inner):
        work = Sum(out.data_ptr(), tensor.data_ptr(), out.numel(), inner)
        steps = [Instruction(SUM, work, (out, tensor))]
    elif not mean:
        return None
    division = _instruction(DIVIDE, out, (out, float(inner))) if mean else []
    return None if steps is None or division is None else [*steps, *division]


@cache
def _sums_as_pytorch_does(count: int) -> bool:
    """Whether so many numbers are summed here in the order of this PyTorch, on this machine: found by trying."""
    if not 0 < count <= 512:
        return False
    numbers = torch.from_numpy(np.random.default_rng(0).standard_normal((32, count), np.float32))
    ours = torch.from_numpy(np.empty(32, np.float32))
    Program([Instruction(SUM, Sum(ours.data_ptr(), numbers.data_ptr(), 32, count))])()
    return torch.equal(ours, numbers.sum(-1))


@cache
def _agrees(kind: int) -> bool:
    """Whether this PyTorch, on this machine, rounds as the kernel does: found by trying."""
    random = np.random.default_rng(0)
    some, others = (torch.from_numpy(random.standard_normal(4096, np.float32)) for _ in range(2))
    out = some.clone()
    theirs = some.lerp(others, 0.005) if kind == LERP else torch.ops.aten.tanh_backward(some, others)
    steps = _instruction(kind, out, (some, others, 0.005) if kind == LERP else (some, others))
    assert steps is not None
    Program([step for step in steps if isinstance(step, Instruction)])()
    return torch.equal(out, theirs)


def _rows(out: Tensor, table: Tensor, numbers: Tensor) -> Steps:
    fits = table.dim() == 2 and table.dtype == torch.float32 and table.stride(1) == 1 and numbers.is_contiguous()
    if not fits or numbers.dtype != torch.int64:
        return None
    tensors = out, table, numbers
    work = Gather(*(tensor.data_ptr() for tensor in tensors), *out.shape, table.stride(0), out.stride(0))
    return [Instruction(GATHER, work, tensors)]


def _parts(out: Tensor, tensors: Sequence[Tensor], side: int = 0) -> Steps:
    if any(tensor.dim() != out.dim() for tensor in tensors):
        return None
    found = []
    for part, tensor in zip(torch.split(out, [tensor.shape[side] for tensor in tensors], side), tensors, strict=True):
        if _types((part, tensor)) != {torch.float32}:
            return None
        found.append(_instruction(COPY, part, (tensor,)))
    return None if None in found else [one for several in found for one in several or ()]


def _fit_float32(values: Sequence[Any]) -> bool:
    """Whether all of them are float32, or numbers that float32 holds exactly."""
    return all(
        value.dtype == torch.float32 if isinstance(value, Tensor) else float(np.float32(value)) == value
        for value in values
    )


def _types(values: Sequence[Any]) -> set[torch.dtype]:
    return {value.dtype for value in values if isinstance(value, Tensor)}


_ATEN = torch.ops.aten
_BINARY = {
    _ATEN.add.Tensor: ADD,
    _ATEN.add_.Tensor: ADD,
    _ATEN.sub.Tensor: SUBTRACT,
    _ATEN.mul.Tensor: MULTIPLY,
    _ATEN.mul.Scalar: MULTIPLY,
    _ATEN.mul_.Tensor: MULTIPLY,
    _ATEN.div.Tensor: DIVIDE,
    _ATEN.div.Scalar: DIVIDE,
    _ATEN.minimum.default: MINIMUM,
    _ATEN.remainder.Tensor: REMAINDER,
}
"""Two operands, none of them scaled."""
CONSTANT = {_ATEN.ones_like, _ATEN.zeros_like, _ATEN.full_like, _ATEN.arange}
