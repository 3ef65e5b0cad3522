"""Updates run as they are written, one member after another or, on a CPU with several members, a thread for each.

With `recorded`, on a CPU, each kind of update is recorded while it first runs and replayed from then on
(`recording.py`), and compared with eager execution on a schedule (`check.py`).
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import torch
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.networks import Workspace
from td3.algorithm.normalizer import Normalizer
from td3.algorithm.optimizer import NonFinite
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.step_02_actor import Actor
from td3.algorithm.streams import MemberStreams
from td3.algorithm.update import moves_actor, steps_of
from td3.backends.thread_tuner import ThreadTuner
from td3.engine.base import EngineBase
from td3.engine.check import EVERY, FIRST, ScheduledCheck
from td3.engine.losses import LossSums
from td3.engine.recording import FixedStreams, Recording
from td3.pixels.layout import Layout, NumpyEncoder
from td3.policy import Array, Policy
from td3.settings import TD3Config


class EagerEngine(EngineBase):
    """Runs a member's updates on a slice of the whole agent, so that members may stand at different counts."""

    asynchronous = False

    def __init__(
        self,
        agent: Agent,
        buffer: ReplayBuffer,
        seeds: Sequence[int],
        settings: TD3Config,
        threads: int,
        recorded: bool = True,
    ) -> None:
        super().__init__(agent, buffer)
        backend = agent.backend
        self._threads_before = torch.get_num_threads(), backend.get_threads()
        self.device = agent.actor.parameters.device
        self.losses = LossSums(len(seeds), self.device, backend)
        recorded = recorded and self.device.type == "cpu" and agent.encoder is None
        self._members = [
            MemberUpdate(agent.member(i), buffer.member(i), seed, settings, self.losses.member(i), recorded)
            for i, seed in enumerate(seeds)
        ]
        self._checks = [
            ScheduledCheck(agent.member(i), buffer.member(i), [seed], settings, allowed=0.0)
            for i, seed in enumerate(seeds if recorded else ())
        ]
        self._differing: list[tuple[int, float]] = []
        self._policy = live_policy(agent) if self.device.type == "cpu" else None
        workers = min(threads, len(seeds)) if self.device.type == "cpu" else 1
        self._pool: ThreadPoolExecutor | None = None
        if workers > 1:
            # One thread of arithmetic for each member beats sharing all threads on one member after another.
            self._pool = ThreadPoolExecutor(workers, initializer=backend.set_threads, initargs=(1,))
        if agent.encoder is not None:
            # The gradient of a convolution is another one, in its last digits, on another number of threads.
            backend.set_threads(1)
            threads = 1
        self._encodes = agent.encoder is not None
        on_cpu = self._pool is None and self.device.type == "cpu"
        self._tuner = ThreadTuner(threads, backend.set_threads) if on_cpu else None

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates of each member that is not frozen.

        A member whose numbers break down is frozen; `NonFinite` is raised when no other member is left.
        """
        if self._pool is None:
            for index, count in enumerate(counts):
                self._update_member(index, count)
        else:
            running = [self._pool.submit(self._update_member, index, count) for index, count in enumerate(counts)]
            try:
                wait(running)
            finally:
                wait(running)  # after an interrupt too: the agent that is saved next must consist of whole updates
            for one in running:
                one.result()
        if self._differing:
            self._execute_eagerly()
        self.require_active()

    def _update_member(self, index: int, count: int) -> None:
        if index in self.frozen:
            return
        update_once, check = self._members[index], self._checks[index] if self._checks else None
        try:
            for _ in range(count):
                if check:
                    check.before_update(int(self.agent.updates[index]))
                started = time.perf_counter()
                update_once()
                if self._tuner:
                    self._tuner(time.perf_counter() - started)
                if check and (found := check.after_update(int(self.agent.updates[index]))) is not None:
                    update_once.execute_eagerly()
                    check = None
                    self._differing.append((int(self.agent.updates[index]), found))
        except NonFinite as error:
            self.freeze(index, str(error))

    def _execute_eagerly(self) -> None:
        """Replay nothing from now on: what was recorded has turned out to differ from eager execution."""
        for member in self._members:
            member.execute_eagerly()
        self._checks.clear()
        self.warn_of_difference("recordings", *max(self._differing))
        self._differing.clear()

    @property
    def kind(self) -> str:
        """How updates are executed, in a word or two."""
        return "recorded updates" if self._checks else "eager updates"

    @property
    def description(self) -> str:
        """How updates are executed, in one sentence."""
        if not self._checks:
            return "Updates are executed eagerly."
        return (
            f"Updates are recorded, replayed, and compared with eager execution now, after {FIRST:,} and every "
            f"{EVERY:,} updates; --engine eager turns that off."
        )

    def act(self, states: Array | Tensor) -> Array | Tensor:
        """The actors' actions `[member, count, action]` for states `[member, count, state]`; tensors for tensors."""
        if self._policy is not None:
            if isinstance(states, Tensor):
                return torch.from_numpy(self._policy(states.numpy()))
            return self._policy(states)
        with torch.no_grad():
            here = torch.from_numpy(states).to(self.device) if isinstance(states, np.ndarray) else states
            actions = self.agent.actor(self.agent.features(self.agent.normalized(here)))
            return np.asarray(actions.cpu().numpy()) if isinstance(states, np.ndarray) else actions

    def act_async(self, states: Array | Tensor) -> None:
        """Choose actions at once: a later update must not change them."""
        self._actions = self.act(states)

    def act_wait(self) -> Array | Tensor:
        """The actions asked for."""
        return self._actions

    def prepare(self) -> None:
        """Nothing: what an update needs is made when it runs."""

    def store(self, rows: Array | Tensor) -> None:
        """Put new rows into the buffer."""
        news = torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows
        self.buffer.add_(news if self._policy is not None else news.to(self.device))

    def flush(self) -> None:
        """Nothing: rows are in the buffer as soon as they are stored."""

    def seek(self) -> None:
        """The agent stands at another count of updates: so do the random numbers."""
        for member in self._members:
            member.seek()
        for index, check in enumerate(self._checks):
            check.start_after(int(self.agent.updates[index]))

    def use_threads(self) -> None:
        """Have as many threads as this engine works with: others may have been set since its last update."""
        if self._tuner or self._encodes:
            self.agent.backend.set_threads(self._tuner.threads if self._tuner else 1)

    def close(self) -> None:
        """End the threads, and leave PyTorch's as they were."""
        if self._pool:
            self._pool.shutdown()
        of_pytorch, ours = self._threads_before
        self.agent.backend.set_threads(ours)
        torch.set_num_threads(of_pytorch)


class MemberUpdate:
    """One member's updates, one with every call; of each kind (does the actor move?) the first is the pattern."""

    def __init__(
        self,
        agent: Agent,
        buffer: ReplayBuffer,
        seed: int,
        settings: TD3Config,
        losses: LossSums,
        recorded: bool = True,
    ) -> None:
        self._agent, self._buffer, self._settings, self._losses = agent, buffer, settings, losses
        self._steps = steps_of(agent, settings)
        dtype, action_size = buffer.rows.dtype, agent.actor.network.sizes[-1]
        self._streams = (
            FixedStreams([seed], settings.batch_size, action_size, dtype)
            if recorded
            else MemberStreams([seed], agent.actor.parameters.device, dtype)
        )
        self._recordings: dict[bool, Recording] = {}
        workspace = Workspace()  # the networks of an update run one after another
        for network in agent.networks:
            network.share_workspace(workspace)

    def __call__(self) -> None:
        """Update once, and count it."""
        move_actor = moves_actor(int(self._agent.updates[0]), self._settings)
        if not isinstance(self._streams, FixedStreams):
            self._update(move_actor)
        else:
            self._streams.advance()
            if move_actor in self._recordings:
                self._recordings[move_actor].replay()
            else:
                self._recordings[move_actor] = Recording(partial(self._update, move_actor))
        self._agent.updates += 1

    def _update(self, move_actor: bool) -> None:
        sample_batch, update = self._steps
        batch = sample_batch(self._buffer, self._streams, self._settings.batch_size)
        self._losses.add_(update(self._agent, batch, self._streams, self._settings, move_actor))

    def execute_eagerly(self) -> None:
        """Replay nothing from now on."""
        self._recordings.clear()
        weights = self._agent.actor.parameters
        self._streams = MemberStreams(self._streams.seeds, weights.device, weights.dtype)
        self.seek()

    def seek(self) -> None:
        """The agent stands at another count of updates: so do the random numbers."""
        self._streams.seek(int(self._agent.updates[0]))


def live_policy(agent: Agent) -> Policy:
    """A policy that shares the weights of actors on the CPU: it always acts as they would now."""
    return _policy(agent, agent.actor, agent.normalizer)


def acting_policy(agent: Agent) -> Policy:
    """The policy of the actors as they are now, wherever they live; only the actors are copied from a GPU."""
    normalizer = agent.normalizer and agent.normalizer.copied("cpu")
    return _policy(agent, agent.actor.over(agent.actor.parameters.detach().cpu()), normalizer)


def _policy(agent: Agent, actor: Actor, normalizer: Normalizer | None) -> Policy:
    layers = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in actor.network.layers()]
    low, high = actor.action_range.low.tolist(), actor.action_range.high.tolist()
    statistics = None if normalizer is None else (normalizer.mean.numpy(), normalizer.scale.numpy())
    shapes, activation = ((agent.task.state_size,), (len(low),)), actor.network.activation
    return Policy(layers, low, high, *shapes, statistics, numpy_encoder(agent), activation)


def numpy_encoder(agent: Agent) -> NumpyEncoder | None:
    """The encoders in numpy, sharing their weights, where states are images."""
    if agent.encoder is None:
        return None
    plan, parameters = agent.encoder.plan, agent.encoder.parameters.detach()
    parts = zip(torch.split(parameters, plan.sizes, -1), plan.shapes, strict=True)
    arrays = [part.view(len(part), *shape).numpy() for part, shape in parts]
    return NumpyEncoder(Layout(*plan[:5]), plan.strides, arrays)
