"""Recorded updates, the CPU's counterpart of a CUDA graph: replayed with no Python between the operations.

What is recorded is `update()` itself, as PyTorch executes it: every operation, backward pass included, with the memory
that it reads and writes. A replay repeats these operations in that memory, and so computes the same bits;
it saves the overhead around them: Python, autograd, new memory for every result (figures: docs/performance.md). As in
a graph, every number that changes from update to update is read from memory that stays where it is.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from td3.algorithm.optimizer import NonFinite
from td3.backends import cpu
from td3.backends.cpu import Instruction
from td3.backends.cpu_operations import CONSTANT, instructions_for


class Recording:
    """Does a piece of work, and can do it again by `replay`."""

    def __init__(self, work: Callable[[], None]) -> None:
        calls_made: list[Callable[[], Any] | Instruction] = []
        with cpu.recording_calls(calls_made), _Recorder(calls_made):
            work()
        self._calls: list[Callable[[], Any]] = []
        for instructed, calls in groupby(calls_made, lambda call: isinstance(call, Instruction)):
            together: list[Any] = list(calls)
            self._calls += [cpu.Program(together)] if instructed else together

    def replay(self) -> None:
        """Repeat every operation."""
        with torch.no_grad():
            for call in self._calls:
                call()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Notes, of every operation that PyTorch executes, how to do it again with the same result in the same place."""

    def __init__(self, calls: list[Callable[[], Any] | Instruction]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._calls = calls

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None
    ) -> Any:
        """Do the operation, and note it."""
        keywords = dict(keywords or {})
        result = operation(*arguments, **keywords)
        self._calls += _repeat(operation, arguments, keywords, result)
        return result


def _repeat(
    operation: Any, arguments: Sequence[Any], keywords: dict[str, Any], result: Any
) -> list[Callable[[], Any] | Instruction]:
    """What repeats the operation: nothing where nothing need be repeated."""
    instructions = instructions_for(operation, arguments, keywords, result, _refuse)
    if instructions is not None:
        return list(instructions)
    call = _call_again(operation, arguments, keywords, result)
    return [] if call is None else [call]


def _call_again(
    operation: Any, arguments: Sequence[Any], keywords: dict[str, Any], result: Any
) -> Callable[[], Any] | None:
    """The same by PyTorch."""
    if operation is torch.ops.aten._local_scalar_dense.default:  # `.item()`: a step asks whether a sum is finite
        return partial(_require_finite, arguments[0])
    writes = [name for name, writes_it in _arguments(operation) if writes_it]
    given, results = _tensors((arguments, keywords)), _tensors(result)
    if writes:
        into = _tensors([keywords.get(name) for name in writes])
        others = _tensors((arguments, {name: value for name, value in keywords.items() if name not in writes}))
        if into and not _share(into, others):
            return _quicker(operation, arguments, keywords)
        return partial(operation, *arguments, **keywords)
    if _share(results, given) or operation.overloadpacket in _UNFILLED:
        return None  # a view of memory that others write, or memory that is not written yet
    if operation.overloadpacket in CONSTANT:
        return partial(result.copy_, result.clone())  # others may write into it
    if not isinstance(result, Tensor):
        return partial(_copy_all_again, operation, arguments, keywords, results)
    writing = _with_out(operation)
    if writing is not None:
        return _quicker(writing[0], arguments, {**keywords, writing[1]: result})
    return partial(_copy_again, operation, arguments, keywords, result)


def _with_out(operation: Any) -> tuple[Any, str] | None:
    """The form of an operation that writes its result where it is told, and the name of that argument.

    Forms without a kernel of their own are left aside: they compute elsewhere and copy, as `_copy_again` does sooner.
    """
    wanted = [name for name, _ in _arguments(operation)]
    for overload in operation.overloadpacket.overloads():
        candidate = getattr(operation.overloadpacket, overload)
        kinds = {argument.name: str(argument.type) for argument in candidate._schema.arguments}
        plain = [name for name, writes_it in _arguments(candidate) if not writes_it]
        outs = [name for name, writes_it in _arguments(candidate) if writes_it]
        same = all(kinds.get(argument.name) == str(argument.type) for argument in operation._schema.arguments)
        fits = plain == wanted and same and len(outs) == 1 and candidate._schema.arguments[-1].kwarg_only
        known = "out=" in (getattr(_function(operation), "__doc__", None) or "")
        if fits and (known or candidate.has_kernel_for_dispatch_key(torch._C.DispatchKey.CPU)):
            return candidate, outs[0]
    return None


def _function(operation: Any) -> Any:
    """PyTorch's function of the operation's name."""
    return getattr(torch, operation._schema.name.partition("::")[2], None)


def _quicker(operation: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Callable[[], Any]:
    """The same by PyTorch's function of that name, which is reached sooner, where it takes the same arguments.

    Whether it does is tried. That does no harm: the operation reads what it read before and writes what it wrote.
    """
    function = _function(operation)
    if function is not None:
        with contextlib.suppress(TypeError, RuntimeError), torch.no_grad():
            function(*arguments, **keywords)
            return partial(function, *arguments, **keywords)
    return partial(operation, *arguments, **keywords)


def _copy_again(operation: Any, arguments: Sequence[Any], keywords: dict[str, Any], result: Tensor) -> None:
    result.copy_(operation(*arguments, **keywords))


def _copy_all_again(
    operation: Any, arguments: Sequence[Any], keywords: dict[str, Any], results: Sequence[Tensor]
) -> None:
    for held, fresh in zip(results, _tensors(operation(*arguments, **keywords)), strict=True):
        held.copy_(fresh)


def _require_finite(total: Tensor) -> None:
    if not math.isfinite(total.item()):
        _refuse()


def _refuse() -> None:
    raise NonFinite("the critics' loss or a gradient is too large or not a number")


def _arguments(operation: Any) -> list[tuple[str, bool]]:
    """Each argument's name, and whether the operation writes into it."""
    described = operation._schema.arguments
    return [(given.name, given.alias_info is not None and given.alias_info.is_write) for given in described]


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _share(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether any two of them lie in the same memory."""
    places = {tensor.untyped_storage().data_ptr() for tensor in others}
    return any(tensor.untyped_storage().data_ptr() in places for tensor in some)


_UNFILLED = {torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_strided, torch.ops.aten.new_empty}
