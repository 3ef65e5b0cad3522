"""CUDA graphs: work that is recorded once on a GPU and replayed without Python between the kernels."""

import contextlib
import gc
from collections.abc import Callable, Iterator

import torch

from td3.engine.recording import Recording

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
    """A piece of work as a CUDA graph; on a CPU, as a recording. To record it, it is done, on a GPU a few times."""

    replay: Callable[[], None]
    """Does the work once."""

    def __init__(
        self, work: Callable[[], None], device: torch.device, prepare: Callable[[], object] | None = None
    ) -> None:
        if device.type != "cuda":
            if prepare:
                prepare()
            self.replay = Recording(work).replay
            return
        graph = torch.cuda.CUDAGraph()
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
            with capture(graph, side):
                work()
        torch.cuda.current_stream(device).wait_stream(side)
        self.replay = graph.replay
