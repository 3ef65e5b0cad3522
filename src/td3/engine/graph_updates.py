"""Updates as CUDA graphs: all members in one batch, recorded once, replayed without Python between the kernels.

What is recorded is `update()` itself. Two graphs are enough: one for the updates in which the actor waits, one for
those in which it moves. Every number that changes between replays (a batch's rows, the noise, the fill of the buffer)
is read from device memory, so that nothing is frozen into a graph but shapes.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.algorithm import Agent, MemberStreams, ReplayBuffer
from td3.algorithm.streams import BLOCK
from td3.algorithm.update import Settings, moves_actor, steps_of
from td3.backends.backend import Backend
from td3.backends.torch_backend import TORCH
from td3.engine.check import ScheduledCheck
from td3.engine.losses import LossSums

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


class Recording:
    """A piece of work recorded as a CUDA graph; on a CPU, the work itself."""

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


class CursorStreams:
    """The numbers of `MemberStreams`, in buffers that stay where they are, read at a cursor that a graph can move.

    The buffers hold two blocks. While updates use the one, the other is drawn, a few members at a time. Drawn at once,
    a block kept the GPU waiting: in `td3 bench loop` an update of 32 members took the host 69 microseconds, of one 19.
    """

    def __init__(
        self, seeds: Sequence[int], batch_size: int, action_size: int, device: torch.device, backend: Backend = TORCH
    ) -> None:
        self._source, self._backend = MemberStreams(seeds, device), backend
        shape = (len(seeds), 2 * BLOCK, batch_size)
        self._buffers = {
            "sampling": torch.empty(shape, dtype=torch.int64, device=device),
            "smoothing": torch.empty(*shape, action_size, device=device),
        }
        self._jobs = [(purpose, index) for purpose in self._buffers for index in range(len(seeds))]
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)

    def seek(self, update_number: int) -> None:
        """Have the numbers of this update ready, whatever came before."""
        self._block, self._drawn = update_number // BLOCK, 0
        self._enter_block(update_number)
        self._next = update_number

    def follow(self, update_number: int) -> None:
        """Have the numbers of this update ready; cheap where it is the one after the last call's."""
        if update_number != self._next:
            self.seek(update_number)
        elif update_number == self._block * BLOCK:
            self._enter_block(update_number)
        self._next = update_number + 1

    def _enter_block(self, update_number: int) -> None:
        """Complete the block being drawn, stand in it, and turn to the next."""
        self._draw(len(self._jobs))
        self._block, self._drawn = self._block + 1, 0
        self.cursor.fill_(update_number % (2 * BLOCK))

    def draw_ahead(self) -> None:
        """Draw a share of the next block; in as many calls as a block has updates it is complete, and then rests."""
        self._draw(self._drawn + -(-len(self._jobs) // BLOCK))

    def _draw(self, until: int) -> None:
        start = self._block % 2 * BLOCK
        for purpose, index in self._jobs[self._drawn : until]:
            self._source.draw_member_(purpose, self._block, index, self._buffers[purpose][index, start : start + BLOCK])
        self._drawn = min(until, len(self._jobs))

    def rows(self, filled: Int[Tensor, ""], count: int) -> Int[Tensor, "member {count}"]:
        """Row numbers, uniform in [0, filled), with replacement."""
        return self._backend.indices_at(self._buffers["sampling"], self.cursor, filled)

    def normal(self, count: int, size: int) -> Float[Tensor, "member {count} {size}"]:
        """Standard normal numbers."""
        return self._buffers["smoothing"].index_select(1, self.cursor).squeeze(1)


class GraphUpdates:
    """Updates of members that stand at the same count, one of each with every call."""

    def __init__(
        self,
        agent: Agent,
        buffer: ReplayBuffer,
        seeds: Sequence[int],
        settings: Settings,
        losses: LossSums,
        tolerance: float,
    ) -> None:
        self.eager = False
        self._agent, self._buffer, self._settings, self._losses = agent, buffer, settings, losses
        self._steps, self._device = steps_of(agent, settings), agent.actor.parameters.device
        self._check = ScheduledCheck(agent, buffer, seeds, settings, tolerance)
        action_size = agent.actor.network.sizes[-1]
        self._streams = CursorStreams(seeds, settings.batch_size, action_size, self._device, agent.backend)
        self._record()

    def __call__(self, done: int) -> float | None:
        """The update after so many; the difference to eager execution where a comparison found more than allowed."""
        self._streams.follow(done)
        move_actor = moves_actor(done, self._settings)
        if self.eager:
            self._update(move_actor)
            return None
        self._check.before_update(done)
        self._graphs[move_actor].replay()
        return self._check.after_update(done + 1)

    def seek(self, done: int) -> None:
        """Stand after so many updates, whatever came before."""
        self._streams.seek(done)
        self._check.start_after(done)

    def prepare(self) -> None:
        """Draw some of the random numbers that later updates need."""
        self._streams.draw_ahead()

    def _update(self, move_actor: bool) -> None:
        sample_batch, update = self._steps
        batch = sample_batch(self._buffer, self._streams, self._settings.batch_size)
        self._losses.add_(update(self._agent, batch, self._streams, self._settings, move_actor))
        self._streams.cursor.add_(1)

    def _record(self) -> None:
        """Record both graphs on made-up rows; afterwards everything stands as if nothing had run."""
        buffer, changed = self._buffer, [*self._agent.tensors().values(), self._agent.active, self._losses.sums]
        changed += [buffer.counts, buffer.rows[:, :1]]
        saved = [tensor.clone() for tensor in changed]
        buffer.counts.fill_(1)
        buffer.rows[:, :1] = 0
        self._streams.seek(0)
        self._graphs = {
            move_actor: Recording(partial(self._update, move_actor), self._device, self._streams.cursor.zero_)
            for move_actor in ((False, True) if self._settings.policy_delay > 1 else (True,))
        }
        for tensor, before in zip(changed, saved, strict=True):
            tensor.copy_(before)  # the members that are active too: a step may divide by 0 in rows that are all alike
        self._memory = [network.memory for network in self._agent.networks]  # a graph keeps nothing alive
