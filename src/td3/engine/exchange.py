"""How states and transitions reach an engine, and actions come back: on the host, or through a GPU's memory."""

import numpy as np
import torch
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.backends.pinned import shared_zeros
from td3.engine.acting import live_policy
from td3.engine.capture import Captured
from td3.policy import Array


class HostExchange:
    """Everything at once: actions by numpy where the actors are on the CPU, else by PyTorch."""

    waiting = False
    """Whether stored rows are not in the replay buffer yet."""

    def __init__(self, agent: Agent, buffer: ReplayBuffer) -> None:
        self._agent, self._buffer, self._device = agent, buffer, agent.device
        self._policy = live_policy(agent) if agent.device.type == "cpu" else None

    def act_async(self, states: Array | Tensor) -> None:
        """Choose actions at once: a later update must not change them."""
        if self._policy is None:
            with torch.no_grad():
                here = torch.from_numpy(states).to(self._device) if isinstance(states, np.ndarray) else states
                actions = self._agent.actor(self._agent.features(self._agent.normalized(here)))
                self._actions = np.asarray(actions.cpu().numpy()) if isinstance(states, np.ndarray) else actions
        elif isinstance(states, Tensor):
            self._actions = torch.from_numpy(self._policy(states.numpy()))
        else:
            self._actions = self._policy(states)

    def act_wait(self) -> Array | Tensor:
        """The actions asked for."""
        return self._actions

    def store(self, rows: Array | Tensor) -> None:
        """Put new rows into the buffer."""
        news = torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows
        self._buffer.add_(news if self._policy is not None else news.to(self._device))

    def flush(self) -> None:
        """Nothing: rows are in the buffer as soon as they are stored."""


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


class StagedExchange:
    """The newest rows travel with the next states, and actions come back while a GPU begins its update."""

    def __init__(self, agent: Agent, buffer: ReplayBuffer, envs: int) -> None:
        self._agent, self._buffer, self._device = agent, buffer, agent.device
        self._staging = StagingBuffer(buffer, envs, max(envs, buffer.rows_per_round), agent.task.input_size)
        # A network object of its own: its buffers must not be those that an update is using.
        self._acting = agent.actor.over(agent.actor.parameters.detach())
        shape = (agent.members, envs, agent.task.action_size)
        self._actions, self._device_actions = shared_zeros(*shape, dtype=torch.float32, device=self._device)
        self._actions_ready = torch.cuda.Event() if self._device.type == "cuda" else None  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._first_rows = np.arange(agent.members)[:, None] * buffer.capacity
        self._tensor_actions: Tensor | None = None
        self.waiting = False
        """Whether stored rows are not in the replay buffer yet."""
        self._record()

    def act_async(self, states: Array | Tensor) -> None:
        """Send states, with the newest rows, and start choosing actions, without waiting for them.

        States that are tensors are on the device already, and so are their actions.
        """
        self._tensor_actions = None
        if isinstance(states, Tensor):
            self.flush()
            with torch.no_grad():
                self._tensor_actions = self._acting(self._agent.normalized(states))
            return
        self._staging.host_states[:] = states
        (self._store_and_act if self.waiting else self._act).replay()
        self.waiting = False
        if self._actions_ready:
            self._actions_ready.record(torch.cuda.current_stream(self._device))

    def act_wait(self) -> Array | Tensor:
        """The actions asked for; waits for them, and not for updates that were begun since."""
        if self._tensor_actions is not None:
            return self._tensor_actions
        if self._actions_ready:
            self._actions_ready.synchronize()
        return np.asarray(self._actions.numpy())

    def store(self, rows: Array | Tensor) -> None:
        """Put new rows into the replay buffer; they are uploaded with the next states.

        Rows that are tensors, or not as many as the staging buffer has room for, are stored at once.
        """
        self.flush()
        staged = len(self._staging.host_places) // self._agent.members
        if isinstance(rows, Tensor) or rows.shape[1] != staged or staged > self._buffer.capacity:
            self._buffer.add_(rows if isinstance(rows, Tensor) else torch.from_numpy(rows).to(self._device))
            return
        places = self._buffer.reserve(rows.shape[1])
        np.add(self._first_rows, places, out=self._staging.host_places.reshape(rows.shape[:2]))
        self._staging.host_rows[:] = rows.reshape(-1, rows.shape[2])
        self._staging.host_counts[:] = len(self._buffer), self._buffer.added
        self.waiting = True

    def flush(self) -> None:
        """Upload rows that are still staged."""
        if self.waiting:
            self._store.replay()
            self.waiting = False
            if self._device.type == "cuda":
                # The next rows are written to the same memory of the host.
                torch.cuda.current_stream(self._device).synchronize()

    def _do_store(self) -> None:
        self._staging.upload()
        places, rows, stored = self._staging.places, self._staging.rows, self._buffer.rows.flatten(0, 1)
        members, _, size = self._staging.states.shape
        active = self._agent.active
        # What a frozen member has stored stays; in places that hold nothing yet there must be something to save.
        stays = (places.view(members, -1) % self._buffer.capacity < self._buffer.filled) & (active == 0).unsqueeze(-1)
        stored.index_copy_(0, places, torch.where(stays.view(-1, 1), stored.index_select(0, places), rows))
        torch.bitwise_or(self._staging.counts, 0, out=self._buffer.counts)
        if self._agent.normalizer is not None:  # as `NormalizedReplayBuffer.add_` does, in the same order
            self._agent.normalizer.observe_(rows.view(members, -1, rows.shape[1])[..., :size], active)

    def _do_act(self) -> None:
        with torch.no_grad():
            actions = self._acting(self._agent.normalized(self._staging.states))
            torch.mul(actions, 1, out=self._device_actions)  # a kernel that writes to the host, as above

    def _do_upload_and_act(self) -> None:
        self._staging.upload()
        self._do_act()

    def _do_store_and_act(self) -> None:
        self._do_store()
        self._do_act()

    def _record(self) -> None:
        """Record what stores and acts; afterwards everything stands as if nothing had run."""
        changed = [*self._agent.tensors().values(), self._buffer.counts, self._buffer.rows[:, :1]]
        saved = [tensor.clone() for tensor in changed]
        first_rows = self._first_rows.ravel()
        self._staging.host_places[:] = np.repeat(first_rows, len(self._staging.host_places) // len(first_rows))
        self._staging.host_counts[:] = 1
        self._act = Captured(self._do_upload_and_act, self._device)
        self._store = Captured(self._do_store, self._device)
        self._store_and_act = Captured(self._do_store_and_act, self._device)
        self._memory = self._acting.network.memory  # a graph keeps nothing alive
        for tensor, before in zip(changed, saved, strict=True):
            tensor.copy_(before)
