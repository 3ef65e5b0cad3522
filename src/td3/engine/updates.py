"""Updates of one or several members, executed as they are written, recorded on a CPU, or captured on a GPU.

What is recorded is `update()` itself, once for each kind: the actor waits, or moves. Every number that changes between
two updates (a batch's rows, the noise, the fill of the buffer) is read from memory that stays where it is.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch

from td3.algorithm.agent import Agent
from td3.algorithm.networks import Workspace
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.streams import MemberStreams
from td3.algorithm.update import moves_actor, steps_of
from td3.engine.capture import Captured
from td3.engine.check import ScheduledCheck
from td3.engine.losses import LossSums
from td3.engine.recording import Recording
from td3.settings import TD3Config

Execution = Literal["eager", "recorded", "graph"]


class Kind(NamedTuple):
    """What distinguishes two updates: whether the actor moves, and whether only some of the members are meant."""

    moves_actor: bool
    masked: bool = False


class Updates:
    """The updates of an agent; of each kind, the first is the pattern for those that follow."""

    def __init__(
        self,
        agent: Agent,
        buffer: ReplayBuffer,
        seeds: Sequence[int],
        losses: LossSums,
        settings: TD3Config,
        execution: Execution = "recorded",
        tolerance: float = 0.0,
        tuner: Callable[[float], None] | None = None,
    ) -> None:
        self.execution, self._tuner = execution, tuner
        self._agent, self._buffer, self._settings, self._losses = agent, buffer, settings, losses
        self._steps, self._all = steps_of(agent, settings), list(range(len(seeds)))
        held = execution != "eager" or len(seeds) > 1  # several members may stand at different counts
        self._streams = MemberStreams(seeds, agent.device, buffer.rows.dtype, held=held, backend=agent.backend)
        self._check = ScheduledCheck(agent, self._eager_of, settings.policy_delay, tolerance)
        self._recordings: dict[Kind, Recording | Captured] = {}
        self._due = torch.zeros(len(seeds), dtype=torch.bool, device=agent.device)
        """The members that a masked update is meant for."""
        workspace = Workspace()  # the networks of an update run one after another
        if execution != "graph":
            for network in agent.networks:
                network.share_workspace(workspace)
        else:
            for moves in (False, True) if settings.policy_delay > 1 else (True,):
                self._capture(Kind(moves))

    def __call__(self, members: Sequence[int] | None = None, masked: bool = False) -> float | None:
        """Update these members (all) once, and count it; their updates are of one kind.

        Those that are not among them have stopped for good or, with `masked`, have their own tensors put back.
        Returns the difference to eager execution where a comparison found more than allowed.
        """
        counts = self._agent.updates
        chosen = self._all if members is None else members
        done = int(counts[chosen[0]])
        kind = Kind(moves_actor(done, self._settings), masked)
        if self.execution != "eager":
            self._check.before_update(done, chosen, masked)
        if self._streams.held:
            self._streams.follow(counts.tolist(), chosen)
        self._execute(kind, chosen)
        counts[chosen] += 1
        return self._check.after_update(done + 1)

    def _execute(self, kind: Kind, members: Sequence[int]) -> None:
        if kind.masked:
            self._due.fill_(False)
            self._due[members] = True
        started = time.perf_counter()
        if self.execution == "eager":
            self._update(kind)
        elif (recording := self._recordings.get(kind)) is not None:
            recording.replay()
        elif self.execution == "recorded":
            self._recordings[kind] = Recording(partial(self._update, kind))
        else:
            self._capture(kind)
            self._recordings[kind].replay()
        if self._tuner is not None:
            self._tuner(time.perf_counter() - started)

    def _update(self, kind: Kind) -> None:
        sample_batch, update = self._steps
        with self._agent.only(self._due if kind.masked else None, self._losses.sums):
            batch = sample_batch(self._buffer, self._streams, self._settings.batch_size)
            self._losses.add_(update(self._agent, batch, self._streams, self._settings, kind.moves_actor))
        if self._streams.held:
            self._streams.cursor.add_(self._due if kind.masked else 1)

    def _capture(self, kind: Kind) -> None:
        """Record a kind on made-up rows; afterwards everything stands as if nothing had run."""
        agent, buffer, streams = self._agent, self._buffer, self._streams
        changed = [*agent.tensors().values(), agent.active, self._losses.sums, streams.cursor]
        changed += [buffer.counts, buffer.rows[:, :1]]
        saved = [tensor.clone() for tensor in changed]
        buffer.counts.fill_(1)
        buffer.rows[:, :1] = 0
        cursor = streams.cursor.clone()
        work = partial(self._update, kind)
        self._recordings[kind] = Captured(work, agent.device, lambda: streams.cursor.copy_(cursor))
        for tensor, before in zip(changed, saved, strict=True):
            tensor.copy_(before)  # the members that are active too: a step may divide by 0 in rows that are all alike
        self._memory = [network.memory for network in agent.networks]  # a graph keeps nothing alive

    def execute_eagerly(self) -> None:
        """Replay nothing from now on."""
        if self.execution != "eager":
            self.execution = "eager"
            self._recordings.clear()
            self._streams.held = len(self._all) > 1
            self.seek()

    def seek(self) -> None:
        """The agent stands at another count of updates: so do the random numbers."""
        self._streams.seek(self._agent.updates.tolist())
        self._check.start_after(int(self._agent.updates.max(initial=0)))

    def _eager_of(self, copy: Agent) -> "Updates":
        """The same updates of a copy, as they are written."""
        losses = LossSums(len(self._all), copy.device, copy.backend)
        eager = Updates(copy, self._buffer, self._streams.seeds, losses, self._settings, "eager")
        eager.seek()
        return eager

    def prepare(self) -> None:
        """Draw some of the random numbers that later updates need."""
        self._streams.prepare()
