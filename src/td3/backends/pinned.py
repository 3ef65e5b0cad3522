"""Host memory that a GPU reads and writes as if it were its own: for what does not fit, and for staging buffers."""

import contextlib
from typing import Any

import torch
from torch import Tensor


def empty_in_host_ram(*shape: int, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """A tensor of this GPU whose numbers lie in pinned host memory: every kernel works on it, over the bus.

    On a CPU it is a plain tensor.
    """
    host = torch.empty(shape, dtype=dtype)
    return torch.as_tensor(_Pinned(host), device=device) if torch.device(device).type == "cuda" else host


def shared_zeros(*shape: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Zeros in host memory, as this process sees them and as the device does; on a CPU that is the same tensor."""
    host = torch.zeros(shape, dtype=dtype, pin_memory=device.type == "cuda")
    return host, torch.as_tensor(_Seen(host), device=device) if device.type == "cuda" else host


class _Seen:
    """Pinned host memory as a GPU sees it; PyTorch reads `__cuda_array_interface__`, and keeps this as long."""

    def __init__(self, host: Tensor) -> None:
        self._host = host
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": tuple(host.shape),
            "typestr": host.numpy().dtype.str,
            "data": (host.data_ptr(), False),
            "version": 2,
        }


class _Pinned(_Seen):
    """Keeps the host memory pinned as long as a tensor looks at it.

    Registered by hand: PyTorch's own pinned memory comes in powers of two, up to twice as much as asked for.
    """

    def __init__(self, host: Tensor) -> None:
        super().__init__(host)
        self._runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        size = host.numel() * host.element_size()
        torch.cuda.check_error(int(self._runtime.cudaHostRegister(host.data_ptr(), size, 0)))

    def __del__(self) -> None:
        """Let the pages go; at the end of a program the GPU may have gone before."""
        with contextlib.suppress(Exception):
            self._runtime.cudaHostUnregister(self._host.data_ptr())
