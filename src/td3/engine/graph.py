"""Updates as CUDA graphs: all members in one batch, recorded once, replayed without Python between the kernels.

What is recorded is `update()` itself. Two graphs are enough: one for the updates in which the actor waits, one for
those in which it moves. A third stores the newest transitions and asks the actors for the next actions. Every number
that changes between replays (a batch's rows, the noise, the fill of the buffer) is read from device memory, so that
nothing is frozen into a graph but shapes. Without a GPU the same engine calls what it would have recorded: all of it
but the recording is tested there.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.algorithm import Agent, MemberStreams, ReplayBuffer
from td3.algorithm.step_02_actor import Actor
from td3.algorithm.streams import BLOCK
from td3.algorithm.update import Settings, moves_actor, steps_of
from td3.backends.base import Backend
from td3.backends.pinned import shared_zeros
from td3.backends.torch_backend import TORCH
from td3.engine.base import EngineBase
from td3.engine.check import EVERY, TOLERANCE, ScheduledCheck
from td3.engine.losses import LossSums
from td3.policy import Array

WARM_UP = 3
"""Runs outside a graph before it is recorded, as PyTorch asks for: libraries allocate on first use."""


class Recording:
    """A piece of work recorded as a CUDA graph; on a CPU, the work itself."""

    def __init__(
        self, work: Callable[[], None], device: torch.device, prepare: Callable[[], object] | None = None
    ) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._work = work
        if device.type != "cuda":
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
            with torch.cuda.graph(self._graph, stream=side):
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


class StagingBuffer:
    """What the host sends each round, in one piece of its memory that the GPU reads by itself.

    A kernel fetches it: a graph that begins with a copy from the host takes longer to launch than to run.
    """

    def __init__(self, buffer: ReplayBuffer, count: int, stored: int, state_size: int) -> None:
        """For so many states to act on and so many rows to store, of every member."""
        members, _, width = buffer.rows.shape
        device = buffer.rows.device
        floats = members * (stored * width + count * state_size)
        words = members * stored + 2
        host, self._sent = shared_zeros(words + -(-floats // 2), dtype=torch.int64, device=device)
        self._device = torch.zeros_like(self._sent)

        def views(buffer: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            whole, real = buffer[:words], buffer[words:].view(torch.float32)[:floats]
            rows = real[: members * stored * width].view(members * stored, width)
            return whole[:2], whole[2:], rows, real[members * stored * width :].view(members, count, state_size)

        self.host_counts, self.host_places, self.host_rows, self.host_states = (view.numpy() for view in views(host))
        self.counts, self.places, self.rows, self.states = views(self._device)

    def upload(self) -> None:
        """Copy everything to the device."""
        torch.bitwise_or(self._sent, 0, out=self._device)


class GraphEngine(EngineBase):
    """Runs the same number of updates of every member, and their actions, as graphs on one GPU."""

    asynchronous = True

    def __init__(
        self,
        agent: Agent,
        buffer: ReplayBuffer,
        seeds: Sequence[int],
        settings: Settings,
        envs_per_member: int,
        tolerance: float = TOLERANCE,
    ) -> None:
        super().__init__(agent, buffer)
        self.settings, self._eager, self._steps = settings, False, steps_of(agent, settings)
        self.device = agent.actor.parameters.device
        self.losses = LossSums(len(seeds), self.device, agent.backend)
        self._check = ScheduledCheck(agent, buffer, seeds, settings, tolerance)
        actor, members = agent.actor, len(seeds)
        state_size, action_size = actor.network.sizes[0], actor.network.sizes[-1]
        self._streams = CursorStreams(seeds, settings.batch_size, action_size, self.device, agent.backend)
        self._staging = StagingBuffer(buffer, envs_per_member, max(envs_per_member, buffer.rows_per_round), state_size)
        # A network object of its own: its buffers must not be those that an update is using.
        self._acting = Actor(actor.network.with_parameters(actor.parameters.detach()), actor.action_range)
        shape = (members, envs_per_member, action_size)
        self._actions, self._device_actions = shared_zeros(*shape, dtype=torch.float32, device=self.device)
        self._stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        self._actions_ready = torch.cuda.Event() if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._first_rows = np.arange(members)[:, None] * buffer.capacity
        self._rows_wait = False
        self._tensor_actions: Tensor | None = None
        self._first, self._updated = 0, np.arange(members)  # of those that are not frozen
        self._record()

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates; the counts of all members that are not frozen are the same.

        A member whose numbers break down is frozen on the device, where `check` finds it.
        """
        if self._rows_wait and counts[self._first]:
            self._send_rows()
        for _ in range(counts[self._first]):
            done = int(self.agent.updates[self._first])
            self._streams.follow(done)
            if self._eager:
                self._do_update(moves_actor(done, self.settings))
            else:
                self._check.before_update(done)
                self._updates[moves_actor(done, self.settings)].replay()
            self.agent.updates[self._updated] = done + 1
            if not self._eager and (found := self._check.after_update(done + 1)) is not None:
                self._eager = True
                self.warn_of_difference("CUDA graphs", done + 1, found)

    @property
    def kind(self) -> str:
        """How updates are executed, in a word or two."""
        return "eager updates" if self._eager else "CUDA graphs"

    @property
    def description(self) -> str:
        """How updates are executed, in one sentence."""
        if self._eager:
            return "Updates are executed eagerly."
        return (
            f"Updates are recorded as CUDA graphs and compared with eager execution every {EVERY:,} updates; "
            "--engine eager turns that off."
        )

    def freeze(self, member: int, reason: str) -> None:
        """Never update this member again."""
        super().freeze(member, reason)
        self._updated = np.array([index for index in range(self.agent.members) if index not in self.frozen], np.int64)
        self._first = int(self._updated[0]) if len(self._updated) else 0

    def act(self, states: Array | Tensor) -> Array | Tensor:
        """The actors' actions; waits for the GPU to have done all that was asked of it before."""
        self.act_async(states)
        return self.act_wait()

    def act_async(self, states: Array | Tensor) -> None:
        """Send states, with the newest rows, and start choosing actions, without waiting for them.

        States that are tensors are on the device already, and so are their actions.
        """
        self._tensor_actions = None
        if isinstance(states, Tensor):
            self.flush()
            with torch.no_grad():
                self._tensor_actions = self._acting(self.agent.normalized(states))
            return
        self._staging.host_states[:] = states
        (self._store_and_act if self._rows_wait else self._act).replay()
        self._rows_wait = False
        if self._actions_ready:
            self._actions_ready.record(self._stream)

    def act_wait(self) -> Array | Tensor:
        """The actions asked for; waits for them, and not for updates that were begun since."""
        if self._tensor_actions is not None:
            return self._tensor_actions
        if self._actions_ready:
            self._actions_ready.synchronize()
        return np.asarray(self._actions.numpy())

    def prepare(self) -> None:
        """Draw some of the random numbers that later updates need."""
        self._streams.draw_ahead()

    def store(self, rows: Array | Tensor) -> None:
        """Put new rows into the replay buffer; they are uploaded with the next states.

        Rows that are tensors, or not as many as the staging buffer has room for, are stored at once.
        """
        if self._rows_wait:
            self._send_rows()
        staged = len(self._staging.host_places) // self.agent.members
        if isinstance(rows, Tensor) or rows.shape[1] != staged or staged > self.buffer.capacity:
            self.buffer.add_(rows if isinstance(rows, Tensor) else torch.from_numpy(rows).to(self.device))
            return
        places = self.buffer.reserve(rows.shape[1])
        np.add(self._first_rows, places, out=self._staging.host_places.reshape(rows.shape[:2]))
        self._staging.host_rows[:] = rows.reshape(-1, rows.shape[2])
        self._staging.host_counts[:] = len(self.buffer), self.buffer.added
        self._rows_wait = True

    def mean_losses(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means over all updates since the previous call."""
        self.check()
        return self.losses.take(updates)

    def flush(self) -> None:
        """Upload rows that are still staged."""
        if self._rows_wait:
            self._send_rows()

    def seek(self) -> None:
        """The agent stands at another count of updates: so do the random numbers."""
        self._streams.seek(int(self.agent.updates[self._first]))
        self._check.start_after(int(self.agent.updates[self._first]))

    def use_threads(self) -> None:
        """Nothing: the GPU does the work."""

    def close(self) -> None:
        """Upload rows that are still staged."""
        self.flush()

    def _send_rows(self) -> None:
        self._store.replay()
        self._rows_wait = False
        if self.device.type == "cuda":
            # The next rows are written to the same memory of the host.
            torch.cuda.current_stream(self.device).synchronize()

    def _do_store(self) -> None:
        self._staging.upload()
        self.buffer.rows.flatten(0, 1).index_copy_(0, self._staging.places, self._staging.rows)
        torch.bitwise_or(self._staging.counts, 0, out=self.buffer.counts)
        if self.agent.normalizer is not None:  # as `NormalizedReplayBuffer.add_` does, in the same order
            members, _, size = self._staging.states.shape
            self.agent.normalizer.observe_(
                self._staging.rows.view(members, -1, self._staging.rows.shape[1])[..., :size]
            )

    def _do_act(self) -> None:
        with torch.no_grad():
            actions = self._acting(self.agent.normalized(self._staging.states))
            torch.mul(actions, 1, out=self._device_actions)  # a kernel that writes to the host, as above

    def _do_upload_and_act(self) -> None:
        self._staging.upload()
        self._do_act()

    def _do_store_and_act(self) -> None:
        self._do_store()
        self._do_act()

    def _do_update(self, move_actor: bool) -> None:
        sample_batch, update = self._steps
        batch = sample_batch(self.buffer, self._streams, self.settings.batch_size)
        self.losses.add_(update(self.agent, batch, self._streams, self.settings, move_actor))
        self._streams.cursor.add_(1)

    def _record(self) -> None:
        """Record every graph; afterwards everything stands as if nothing had run."""
        agent = self.agent
        saved = {name: tensor.clone() for name, tensor in agent.tensors().items()}
        active = agent.active.clone()
        counts, first_row = self.buffer.counts.clone(), self.buffer.rows[:, :1].clone()
        first_rows = self._first_rows.ravel()
        self._staging.host_places[:] = np.repeat(first_rows, len(self._staging.host_places) // len(first_rows))
        self._staging.host_counts[:] = 1
        self._staging.upload()
        self.buffer.counts.fill_(1)

        self._streams.seek(0)
        self.buffer.rows[:, :1] = 0
        self._updates = {
            move_actor: Recording(partial(self._do_update, move_actor), self.device, self._streams.cursor.zero_)
            for move_actor in ((False, True) if self.settings.policy_delay > 1 else (True,))
        }
        self._act = Recording(self._do_upload_and_act, self.device)
        self._store = Recording(self._do_store, self.device)
        self._store_and_act = Recording(self._do_store_and_act, self.device)
        for name, tensor in agent.tensors().items():
            tensor.copy_(saved[name])
        agent.active.copy_(active)  # a step may divide by 0 in made-up rows that are all alike
        self.buffer.counts.copy_(counts)
        self.buffer.rows[:, :1] = first_row
        self.losses.sums.zero_()
        self.seek()
