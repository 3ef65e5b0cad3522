"""Updates and actions on one GPU by CUDA graphs (`graph_updates.py`); another one stores the newest transitions.

Without a GPU the same engine calls what it would have recorded: all of it but the recording is tested there.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from td3.algorithm import Agent, ReplayBuffer
from td3.algorithm.step_02_actor import Actor
from td3.algorithm.update import Settings
from td3.backends.pinned import shared_zeros
from td3.engine.base import EngineBase
from td3.engine.check import EVERY, FIRST, TOLERANCE
from td3.engine.graph_updates import GraphUpdates, Recording
from td3.engine.losses import LossSums
from td3.policy import Array


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
    """Updates and actions on one GPU, of all members in one batch.

    Members that stand at different counts of updates, as where episodes end at different times, are updated one after
    another.
    """

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
        self.settings, self._seeds, self._tolerance = settings, seeds, tolerance
        self.device = agent.actor.parameters.device
        self.losses = LossSums(len(seeds), self.device, agent.backend)
        self._together = GraphUpdates(agent, buffer, seeds, settings, self.losses, tolerance)
        self._alone: dict[int, GraphUpdates] = {}
        actor, members = agent.actor, len(seeds)
        state_size, action_size = actor.network.sizes[0], actor.network.sizes[-1]
        self._staging = StagingBuffer(buffer, envs_per_member, max(envs_per_member, buffer.rows_per_round), state_size)
        # A network object of its own: its buffers must not be those that an update is using.
        self._acting = Actor(actor.network.with_parameters(actor.parameters.detach()), actor.action_range)
        shape = (members, envs_per_member, action_size)
        self._actions, self._device_actions = shared_zeros(*shape, dtype=torch.float32, device=self.device)
        self._actions_ready = torch.cuda.Event() if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._first_rows = np.arange(members)[:, None] * buffer.capacity
        self._rows_wait = False
        self._tensor_actions: Tensor | None = None
        self._updated: Array = np.arange(members)
        """Members that are not frozen."""
        self._level = True
        """Whether they all stand at the same count of updates."""
        self._record()
        self.seek()

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates of each member that is not frozen.

        A member whose numbers break down is frozen on the device, where `check` finds it.
        """
        if self._rows_wait and any(counts):
            self._send_rows()
        due = {counts[member] for member in self._updated.tolist()} if self.frozen else {*counts}
        if self._level and len(due) == 1:
            self._run(self._together, self._updated, due.pop())
            return
        for member in self._updated.tolist():
            if counts[member]:
                self._run(self._updates_of(member), np.array([member]), counts[member])
        self._level = self._is_level()

    def _run(self, updates: GraphUpdates, members: Array, count: int) -> None:
        first = int(self.agent.updates[members[0]]) if count else 0
        for done in range(first, first + count):
            found = updates(done)
            self.agent.updates[members] = done + 1
            if found is not None:
                for one in (self._together, *self._alone.values()):
                    one.eager = True
                self.warn_of_difference("CUDA graphs", done + 1, found)

    def _is_level(self) -> bool:
        return len({*self.agent.updates[self._updated].tolist()}) <= 1

    def _updates_of(self, member: int) -> GraphUpdates:
        """The updates of one member, recorded when it is first alone."""
        if member not in self._alone:
            agent, buffer, seeds = self.agent.member(member), self.buffer.member(member), [self._seeds[member]]
            losses = self.losses.member(member)
            self._alone[member] = GraphUpdates(agent, buffer, seeds, self.settings, losses, self._tolerance)
            self._alone[member].eager = self._together.eager
            self._alone[member].seek(int(self.agent.updates[member]))
        return self._alone[member]

    @property
    def kind(self) -> str:
        """How updates are executed, in a word or two."""
        return "eager updates" if self._together.eager else "CUDA graphs"

    @property
    def description(self) -> str:
        """How updates are executed, in one sentence."""
        if self._together.eager:
            return "Updates are executed eagerly."
        return (
            f"Updates are recorded as CUDA graphs and compared with eager execution now, after {FIRST:,} and every "
            f"{EVERY:,} updates; --engine eager turns that off."
        )

    def freeze(self, member: int, reason: str) -> None:
        """Never update this member again."""
        super().freeze(member, reason)
        self._updated = np.array([index for index in range(self.agent.members) if index not in self.frozen], np.int64)
        self.seek()  # a comparison with eager execution that has begun knows nothing of it

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
            self._actions_ready.record(torch.cuda.current_stream(self.device))

    def act_wait(self) -> Array | Tensor:
        """The actions asked for; waits for them, and not for updates that were begun since."""
        if self._tensor_actions is not None:
            return self._tensor_actions
        if self._actions_ready:
            self._actions_ready.synchronize()
        return np.asarray(self._actions.numpy())

    def prepare(self) -> None:
        """Draw some of the random numbers that later updates need."""
        self._together.prepare()

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

    def flush(self) -> None:
        """Upload rows that are still staged."""
        if self._rows_wait:
            self._send_rows()

    def seek(self) -> None:
        """The agent stands at another count of updates: so do the random numbers."""
        self._level = self._is_level()
        if len(self._updated):
            self._together.seek(int(self.agent.updates[self._updated[0]]))
        for member, updates in self._alone.items():
            updates.seek(int(self.agent.updates[member]))

    def use_threads(self) -> None:
        """Nothing: the GPU does the work."""

    def close(self) -> None:
        """Upload rows that are still staged, and wait for the GPU: it reads memory of the host."""
        self.flush()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _send_rows(self) -> None:
        self._store.replay()
        self._rows_wait = False
        if self.device.type == "cuda":
            # The next rows are written to the same memory of the host.
            torch.cuda.current_stream(self.device).synchronize()

    def _do_store(self) -> None:
        self._staging.upload()
        places, rows, stored = self._staging.places, self._staging.rows, self.buffer.rows.flatten(0, 1)
        members, _, size = self._staging.states.shape
        active = self.agent.active
        # What a frozen member has stored stays; in places that hold nothing yet there must be something to save.
        stays = (places.view(members, -1) % self.buffer.capacity < self.buffer.filled) & (active == 0).unsqueeze(-1)
        stored.index_copy_(0, places, torch.where(stays.view(-1, 1), stored.index_select(0, places), rows))
        torch.bitwise_or(self._staging.counts, 0, out=self.buffer.counts)
        if self.agent.normalizer is not None:  # as `NormalizedReplayBuffer.add_` does, in the same order
            self.agent.normalizer.observe_(rows.view(members, -1, rows.shape[1])[..., :size], active)

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

    def _record(self) -> None:
        """Record what stores and acts; afterwards everything stands as if nothing had run."""
        changed = [*self.agent.tensors().values(), self.buffer.counts, self.buffer.rows[:, :1]]
        saved = [tensor.clone() for tensor in changed]
        first_rows = self._first_rows.ravel()
        self._staging.host_places[:] = np.repeat(first_rows, len(self._staging.host_places) // len(first_rows))
        self._staging.host_counts[:] = 1
        self._act = Recording(self._do_upload_and_act, self.device)
        self._store = Recording(self._do_store, self.device)
        self._store_and_act = Recording(self._do_store_and_act, self.device)
        self._memory = self._acting.network.memory  # a graph keeps nothing alive
        for tensor, before in zip(changed, saved, strict=True):
            tensor.copy_(before)
