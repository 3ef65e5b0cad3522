"""Functions as CUDA graphs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Captured:
    """A function without arguments that is recorded once as a CUDA graph and then replayed; on a CPU it is called."""

    function: Callable[[], Any]
    stream: torch.cuda.Stream | None
    generators: tuple[torch.Generator, ...]
    graph: torch.cuda.CUDAGraph | None = None

    def record(self) -> None:
        """Run the function three times and record it."""
        if self.stream is None:
            return
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.function()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            for generator in self.generators:
                self.graph.register_generator_state(generator)
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.function()
        torch.cuda.synchronize()

    def __call__(self) -> None:
        """Run the function or replay its graph, on the stream that it was recorded on."""
        if self.graph is None:
            self.function()
            return
        with torch.cuda.stream(self.stream):
            self.graph.replay()
