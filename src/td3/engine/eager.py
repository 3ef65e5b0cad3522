"""Updates run as they are written, one member after another or, on a CPU with several members, a thread for each."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from td3.algorithm import Agent, MemberStreams, ReplayMemory, update
from td3.algorithm.update import Settings
from td3.policy import Array, Policy


class EagerEngine:
    """Runs a member's updates on a slice of the whole agent, so that members may stand at different counts."""

    def __init__(
        self, agent: Agent, memory: ReplayMemory, seeds: Sequence[int], settings: Settings, threads: int
    ) -> None:
        self.agent, self.settings = agent, settings
        device = agent.actor.parameters.device
        self._members = [
            (agent.member(i), memory.member(i), MemberStreams([seed], device, memory.rows.dtype))
            for i, seed in enumerate(seeds)
        ]
        self._sums = torch.zeros(len(seeds), 4, dtype=torch.float64, device=device)
        workers = min(threads, len(seeds)) if device.type == "cpu" else 1
        self._pool: ThreadPoolExecutor | None = None
        if workers > 1:
            # One thread of arithmetic for each member beats sharing all threads on one member after another.
            self._pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        else:
            torch.set_num_threads(threads)

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates of each member."""
        if self._pool is None:
            for index, count in enumerate(counts):
                self._update_member(index, count)
        else:
            list(self._pool.map(self._update_member, range(len(counts)), counts))

    def _update_member(self, index: int, count: int) -> None:
        agent, memory, streams = self._members[index]
        sums = self._sums[index]
        for _ in range(count):
            losses = update(agent, memory, streams, self.settings)
            sums[0] += losses.critic[0]
            sums[1] += losses.mean_q[0]
            if losses.actor is not None:
                sums[2] += losses.actor[0]
                sums[3] += 1

    def mean_losses(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means over its last so many updates, which were all those since the previous call."""
        rows = self._sums.tolist()
        self._sums.zero_()
        return [
            {
                "critic_loss": critic / count if count else float("nan"),
                "actor_loss": actor / turns if turns else float("nan"),
                "mean_q": mean_q / count if count else float("nan"),
            }
            for (critic, mean_q, actor, turns), count in zip(rows, updates, strict=True)
        ]

    def policy(self, observation_shape: Sequence[int], action_shape: Sequence[int]) -> Policy:
        """The actors as they are at every moment."""
        return live_policy(self.agent, observation_shape, action_shape)

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown()


class DevicePolicy(Policy):
    """Acts with actors that live on a GPU."""

    def __init__(self, agent: Agent, observation_shape: Sequence[int], action_shape: Sequence[int]) -> None:
        action_range = agent.actor.action_range
        low, high = action_range.low.tolist(), action_range.high.tolist()
        super().__init__([], low, high, observation_shape, action_shape)
        self._actor = agent.actor

    def __call__(self, states: Array) -> Array:
        """Actions `[member, count, action]` for states `[member, count, state]`."""
        with torch.no_grad():
            batch: Float[Tensor, "member count state"] = torch.from_numpy(states).to(self._actor.parameters.device)
            return np.asarray(self._actor(batch).cpu().numpy())


def live_policy(agent: Agent, observation_shape: Sequence[int], action_shape: Sequence[int]) -> Policy:
    """A policy that shares the actors' weights: it always acts as the actors would now."""
    if agent.actor.parameters.device.type != "cpu":
        return DevicePolicy(agent, observation_shape, action_shape)
    action_range = agent.actor.action_range
    layers = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in agent.actor.network.layers()]
    low, high = action_range.low.tolist(), action_range.high.tolist()
    return Policy(layers, low, high, observation_shape, action_shape)
