"""Updates run as they are written, one member after another or, on a CPU with several members, a thread for each."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

from td3.algorithm import Agent, MemberStreams, ReplayMemory, update
from td3.algorithm.networks import StackedMLP
from td3.algorithm.step_02_actor import ActionRange, Actor
from td3.algorithm.update import Settings
from td3.engine.losses import LossSums
from td3.engine.threads import ThreadTuner
from td3.policy import Array, Policy


class EagerEngine:
    """Runs a member's updates on a slice of the whole agent, so that members may stand at different counts."""

    def __init__(
        self, agent: Agent, memory: ReplayMemory, seeds: Sequence[int], settings: Settings, threads: int
    ) -> None:
        self.agent, self.memory, self.settings = agent, memory, settings
        self.device = agent.actor.parameters.device
        self.losses = LossSums(len(seeds), self.device)
        self._members = [
            (
                agent.member(i),
                memory.member(i),
                MemberStreams([seed], self.device, memory.rows.dtype),
                self.losses.member(i),
            )
            for i, seed in enumerate(seeds)
        ]
        self._policy = live_policy(agent) if self.device.type == "cpu" else None
        workers = min(threads, len(seeds)) if self.device.type == "cpu" else 1
        self._pool: ThreadPoolExecutor | None = None
        if workers > 1:
            # One thread of arithmetic for each member beats sharing all threads on one member after another.
            self._pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        self._tuner = ThreadTuner(threads) if self._pool is None and self.device.type == "cpu" else None

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates of each member."""
        if self._pool is None:
            for index, count in enumerate(counts):
                self._update_member(index, count)
        else:
            list(self._pool.map(self._update_member, range(len(counts)), counts))

    def _update_member(self, index: int, count: int) -> None:
        agent, memory, streams, losses = self._members[index]
        for _ in range(count):
            started = time.perf_counter()
            losses.add_(update(agent, memory, streams, self.settings))
            if self._tuner:
                self._tuner(time.perf_counter() - started)

    def set_learning_rate(self, rate: float) -> None:
        """Learn at this rate from the next update on."""
        for agent, *_ in self._members:
            agent.actor_optimizer.learning_rate = agent.critics_optimizer.learning_rate = rate

    def act(self, states: Array) -> Array:
        """The actors' actions `[member, count, action]` for states `[member, count, state]`."""
        if self._policy is not None:
            return self._policy(states)
        with torch.no_grad():
            return np.asarray(self.agent.actor(torch.from_numpy(states).to(self.device)).cpu().numpy())

    def ask(self, states: Array) -> None:
        """Choose actions at once: a later update must not change them."""
        self._actions = self.act(states)

    def answer(self) -> Array:
        """The actions asked for."""
        return self._actions

    def prepare(self) -> None:
        """Nothing: what an update needs is made when it runs."""

    def store(self, rows: Array) -> None:
        """Put new rows into the memory."""
        self.memory.add_(torch.from_numpy(rows).to(self.device))

    def mean_losses(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means over all updates since the previous call."""
        self.check()
        return self.losses.take(updates)

    def settle(self) -> None:
        """Nothing: rows are in the memory as soon as they are stored."""

    def check(self) -> None:
        """Raise `NonFinite` if an update met numbers that were not; on a CPU it has raised by itself."""
        self.agent.require_sound()

    def restored(self) -> None:
        """The agent stands at another count of updates: so do the random numbers."""
        for agent, _, streams, _ in self._members:
            streams.seek(int(agent.updates[0]))

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown()


def live_policy(agent: Agent) -> Policy:
    """A policy that shares the weights of actors on the CPU: it always acts as they would now."""
    action_range = agent.actor.action_range
    layers = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in agent.actor.network.layers()]
    low, high = action_range.low.tolist(), action_range.high.tolist()
    return Policy(layers, low, high, (agent.actor.network.sizes[0],), (len(low),))


def acting_policy(agent: Agent) -> Policy:
    """The policy of the actors as they are now, wherever they live; only the actors are copied from a GPU."""
    network, bounds = agent.actor.network, agent.actor.action_range
    on_host = StackedMLP(network.sizes, network.parameters.detach().cpu())
    actor = Actor(on_host, ActionRange(bounds.low.cpu(), bounds.high.cpu()))
    return live_policy(replace(agent, actor=actor))
