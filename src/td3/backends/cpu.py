"""The CPU's kernels (`cpu.c`), from the wheel or compiled by this machine's C compiler when they are first needed.

They serve float32. Where there are none, or `TD3_KERNELS=torch` is set, PyTorch's own operations do the same
work, in more time and with other last digits; `why_not()` says so.
"""

import contextlib
import ctypes
import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from td3.backends.compiler import compiled, find_compiler, open_library, ready_made

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = (
    *("-O3", "-funroll-loops", "-fno-math-errno", "-fno-trapping-math"),
    # One language and one way of rounding, whatever CC says.
    *("-std=gnu11", "-ffp-contract=fast", "-Werror=implicit-function-declaration"),
)
PRODUCT, ADAM, MAP, SUM, GATHER, FINITE, NORMALIZE, NORMALIZE_BACKWARD = range(8)
"""What instructions can do, in the order of cpu.c."""


def serves(tensor: Tensor) -> bool:
    """Whether the kernels can work on this tensor."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu" and _library() is not None


def why_not() -> str | None:
    """Why the kernels are not in use, in words that go on after "because"; None where they are."""
    return _load()[1]


def set_threads(count: int) -> None:
    """Have so many threads do the work that is asked for by this one.

    PyTorch's own threads then have nothing to do, and must not wait for work beside ours.
    """
    library = _library()
    if library is None:
        torch.set_num_threads(count)
        return
    library.set_threads(count)
    torch.set_num_threads(1)


def get_threads() -> int:
    """How many threads do the work that is asked for by this one."""
    library = _library()
    return torch.get_num_threads() if library is None else int(library.get_threads())


class Instruction(NamedTuple):
    """Something for the kernels to do, again and again in the same memory, which it keeps alive."""

    what: int
    """Its place in cpu.c's `struct Instruction`."""
    work: ctypes.Structure | Tensor
    tensors: tuple[Tensor | None, ...] = ()
    refuse: Callable[[], Any] | None = None
    """Called where the kernel refuses the numbers that it finds, and before anything was changed by them."""


class Program:
    """Instructions that are done one after another without coming back to Python."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = list(instructions)
        self._plan = (_Instruction * len(self.instructions))(
            *(_Instruction(one.what, _address(one.work)) for one in self.instructions)
        )
        self._play = _loaded().play

    def __call__(self) -> None:
        """Do them."""
        done = self._play(self._plan, len(self._plan))
        if done < len(self._plan):
            refuse = self.instructions[done].refuse
            assert refuse is not None
            refuse()


@contextlib.contextmanager
def recording_calls(calls: list[Any]) -> Iterator[None]:
    """Note every instruction that this thread gives."""
    _notes.calls = calls
    try:
        yield
    finally:
        _notes.calls = None


def record_call(call: Callable[[], Any] | Instruction) -> None:
    """Have a recording that is being made repeat this too."""
    calls = getattr(_notes, "calls", None)
    if calls is not None:
        calls.append(call)


def _do(instruction: Instruction) -> None:
    Program([instruction])()
    record_call(instruction)


def product(
    left: Tensor,
    right: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None = None,
    relu: bool = False,
    active: Tensor | None = None,
    column_sums: Tensor | None = None,
) -> Tensor:
    """`out = left @ right` for each of the stack, and around it what a layer needs, in the same pass.

    Shapes: `[stack, rows, inner] @ [stack, inner, columns]`; `bias` and `column_sums` are `[stack, columns]`.

    A factor with a shorter stack is used again from its beginning (both twins read the same batch). Then a `bias` is
    added to every row, `relu` cuts below zero, and entries are kept only where `active` is positive (ReLU backwards).
    `column_sums` receives the sum of each column of `right`.
    """
    bare = bias is None and active is None and not relu
    if bare and out.shape[2] <= _FEW_COLUMNS < out.shape[1] and _stride(left, 2) != 1 == _stride(left, 1):
        # Few columns, and rows that lie side by side in memory: vectors go along those.
        if column_sums is not None:
            product(_ones(right.shape[1]), right, column_sums.unsqueeze(1))
        product(right.mT, left.mT, out.mT)
        return out
    if _stride(left, 1) != 1 != _stride(left, 2):
        left = left.contiguous()
    work = _Product(
        *map(_address, (left, right, bias, active, out, column_sums)),
        *(*out.shape, left.shape[2]),
        *(left.shape[0], left.stride(0), _stride(left, 1), _stride(left, 2)),
        *(right.shape[0], *right.stride(), *out.stride()),
        *(0 if bias is None else bias.stride(0), *((0, 0, 0) if active is None else active.stride())),
        *(0 if column_sums is None else column_sums.stride(0), relu),
    )
    _do(Instruction(PRODUCT, work, (left, right, out, bias, active, column_sums)))
    torch.autograd.graph.increment_version(out)  # PyTorch does not see what C writes
    return out


def normalize_(values: Float[Tensor, "stack rows units"], kept: tuple[Tensor, Tensor] | None) -> None:
    """LayerNorm without scale and shift, then ReLU, of each row in place.

    `kept` receives the numbers before ReLU, and the inverse of each row's standard deviation.
    """
    assert values.is_contiguous(), "rows lie one after another"
    tensors = values, *(kept or (None, None))
    stack, rows, units = values.shape
    _do(Instruction(NORMALIZE, _Normalize(*map(_address, tensors), stack * rows, units), tensors))
    torch.autograd.graph.increment_version(values)  # as above


def normalize_backward_(gradient: Tensor, normalized: Tensor, inverse: Tensor) -> Tensor:
    """The gradient of the numbers before `normalize_`, from that of the normalized ones, in its place."""
    gradient = gradient.contiguous()
    stack, rows, units = gradient.shape
    tensors = gradient, normalized, inverse
    _do(Instruction(NORMALIZE_BACKWARD, _Normalize(*map(_address, tensors), stack * rows, units), tensors))
    return gradient


def adam_(
    parameters: Float[Tensor, "stack parameter"],
    gradient: Float[Tensor, "stack parameter"],
    first_moment: Float[Tensor, "stack parameter"],
    second_moment: Float[Tensor, "stack parameter"],
    steps: Float[Tensor, " stack"],
    learning_rate: Float64[Tensor, ""],
    refuse: Callable[[], Any],
) -> None:
    """One step of Adam over stacked parameters, in one pass.

    Where a gradient is not finite, or its square is not, nothing changes and `refuse` is called.
    """
    if gradient.stride(1) != 1:
        gradient = gradient.contiguous()
    tensors = parameters, first_moment, second_moment, steps, gradient, learning_rate
    assert all(tensor.stride(-1) == 1 or tensor.numel() == 1 for tensor in tensors[:3]), "moments lie side by side"
    strides = parameters.stride(0), gradient.stride(0), first_moment.stride(0), second_moment.stride(0), steps.stride(0)
    work = _Adam(*map(_address, tensors), *parameters.shape, *strides)
    _do(Instruction(ADAM, work, tensors, refuse))


@cache
def _ones(count: int) -> Tensor:
    """A row of ones; no operation of PyTorch that a recording would repeat."""
    return torch.from_numpy(np.ones((1, 1, count), np.float32))


def _stride(tensor: Tensor, side: int) -> int:
    """The distance between neighbors; lone numbers lie where one likes."""
    return tensor.stride(side) if tensor.shape[side] > 1 else 1


def _address(thing: Tensor | ctypes.Structure | None) -> int | None:
    if thing is None:
        return None
    return thing.data_ptr() if isinstance(thing, Tensor) else ctypes.addressof(thing)


def _fields(pointers: str, numbers: str) -> list[tuple[str, Any]]:
    return [
        *((name, ctypes.c_void_p) for name in pointers.split()),
        *((name, ctypes.c_long) for name in numbers.split()),
    ]


class _Product(ctypes.Structure):
    """`struct Product` of cpu.c."""

    _fields_ = _fields(
        "left right bias active out sums",
        "stack rows columns inner left_period left_stack left_row left_inner right_period right_stack right_inner"
        " right_column out_stack out_row out_column bias_stack active_stack active_row active_column sums_stack relu"
        " panels groups bands",
    )


class _Normalize(ctypes.Structure):
    """`struct Normalize` of cpu.c."""

    _fields_ = _fields("values normalized inverse", "rows units")


class _Adam(ctypes.Structure):
    """`struct Adam` of cpu.c."""

    _fields_ = [  # as ctypes wants it
        *_fields(
            "parameters first second steps gradient learning_rate",
            "stack size parameters_stack gradient_stack first_stack second_stack steps_stack nonfinite",
        ),
    ]


Sides = ctypes.c_long * 3


class Map(ctypes.Structure):
    """`struct Map` of cpu.c."""

    _fields_ = [  # as above
        *_fields("out a b c", "kind"),
        *((name, Sides) for name in ("sizes", "out_strides", "a_strides", "b_strides", "c_strides")),
    ]


class Sum(ctypes.Structure):
    """`struct Sum` of cpu.c."""

    _fields_ = _fields("out from", "rows inner")


class Gather(ctypes.Structure):
    """`struct Gather` of cpu.c."""

    _fields_ = _fields("out table numbers", "count width table_row out_row")


class _Instruction(ctypes.Structure):
    """`struct Instruction` of cpu.c."""

    _fields_ = [("what", ctypes.c_int), ("with", ctypes.c_void_p)]  # as above


def _library() -> ctypes.CDLL | None:
    return _load()[0]


def _loaded() -> ctypes.CDLL:
    library = _library()
    assert library is not None, "ask `why_not` first"
    return library


@cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    """The library, or why there is none."""
    if os.environ.get("TD3_KERNELS", "") == "torch":
        return None, "TD3_KERNELS=torch is set"
    try:
        if (library := ready_made(SOURCE, _opened)) is not None and _multiplies(library):
            return library, None
        compiler = find_compiler()
        if compiler is None:
            return None, "there is no C compiler (install gcc or clang, or pip install ziglang)"
        library = _compiled(compiler)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or "").strip() or str(error)
        return None, f"the C compiler could not make them: {said.splitlines()[-1]}"
    if not _multiplies(library):
        return None, f"what {shlex.join(compiler)} made of them does not multiply"
    return library, None


def _multiplies(library: ctypes.CDLL) -> bool:
    """Whether a product of small whole numbers, which float32 holds exactly, comes out right."""
    left = np.arange(-20, 20, dtype=np.float32).reshape(8, 5).repeat(2, 0)
    right, out = left[:5].repeat(8, 1), np.zeros((16, 40), np.float32)
    addresses = left.ctypes.data, right.ctypes.data, None, None, out.ctypes.data, None
    work = _Product(*addresses, 1, 16, 40, 5, 1, 0, 5, 1, 1, 0, 40, 1, 0, 40, 1)
    library.play(_Instruction(PRODUCT, ctypes.addressof(work)), 1)
    return bool((out == left @ right).all())


def _compiled(compiler: list[str]) -> ctypes.CDLL:
    return compiled(SOURCE, FLAGS, compiler, _opened)


def _opened(path: Path) -> ctypes.CDLL:
    library = open_library(path, ("play", "set_threads", "get_threads"))
    library.play.argtypes, library.play.restype = [ctypes.POINTER(_Instruction), ctypes.c_long], ctypes.c_long
    library.set_threads.argtypes, library.set_threads.restype = [ctypes.c_int], None
    return library


_notes = threading.local()
_FEW_COLUMNS = 8
"""Columns up to which a product is computed as its transpose where the rows of `left` lie side by side."""
