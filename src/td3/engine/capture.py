"""CUDA graphs: work that is recorded once on a GPU and replayed without Python between the kernels."""

import contextlib
import gc
from collections.abc import Callable, Iterator

import torch

WARM_UP = 3
"""Runs outside a graph before it is recorded, as PyTorch asks for: libraries allocate on first use."""


@contextlib.contextmanager
def capture(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream | None = None) -> Iterator[None]:
    """`torch.cuda.graph`, with Python's garbage collector off: what frees another graph meanwhile breaks this one."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, stream=stream):
            yield
    finally:
        if collecting:
            gc.enable()


class Captured:
    """A piece of work as a CUDA graph; on a CPU, the work itself. To record it, a GPU does it a few times."""

    def __init__(
        self, work: Callable[[], None], device: torch.device, prepare: Callable[[], object] | None = None
    ) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type != "cuda":
            self._work = work
            return
        self._graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        # Without this wait the first kernels of the side stream would read what is not written yet.
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                if prepare:
                    prepare()
                work()
            if prepare:
                prepare()
            with capture(self._graph, side):
                work()
        torch.cuda.current_stream(device).wait_stream(side)

    def replay(self) -> None:
        """Do the work once."""
        if self._graph is None:
            self._work()
        else:
            self._graph.replay()
