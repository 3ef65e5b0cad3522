"""Which backend an agent gets: the fastest that knows its device, its precision and its activation."""

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec

import torch

from td3.backends import cpu
from td3.backends.backend import Backend
from td3.backends.torch_backend import TORCH, TorchBackend

KERNELS_KNOW = ("relu",)
"""The activations of the C and Triton kernels."""


def choose_backend(device: torch.device | str, dtype: torch.dtype = torch.float32, activation: str = "relu") -> Backend:
    """C kernels on a CPU, Triton's on a GPU; PyTorch's own operations where those cannot be had."""
    kind = torch.device(device).type
    if dtype != torch.float32 or kind not in ("cpu", "cuda"):
        return TORCH
    if activation not in KERNELS_KNOW:
        return TorchBackend(f"the fast kernels know {' and '.join(KERNELS_KNOW)}, not {activation}")
    if kind == "cuda":
        if find_spec("triton") is None:
            return TorchBackend("Triton is not installed (pip install triton)")
        from td3.backends.triton_backend import TritonBackend

        return TritonBackend()
    if reason := cpu.why_not():
        return TorchBackend(reason)
    from td3.backends.cpu_backend import CpuBackend

    return CpuBackend()


@contextlib.contextmanager
def keep_threads() -> Iterator[None]:
    """Leave the numbers of threads, the kernels' and PyTorch's, as they were before."""
    backend = choose_backend("cpu")
    of_pytorch, own = torch.get_num_threads(), backend.get_threads()
    try:
        yield
    finally:
        backend.set_threads(own)
        torch.set_num_threads(of_pytorch)
