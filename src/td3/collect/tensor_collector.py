"""The collector for vector environments that give PyTorch tensors on the learner's device: nothing passes the host.

It stores the same rows as `Collector` (collector.py), with the same guards. A round reads two flags from the device:
whether all numbers are finite, and whether an episode has ended.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from td3.collect.base import Episode
from td3.collect.collector import Collector
from td3.collect.recovery import Values
from td3.environments.checked_vector import CheckedVectorEnv, last_numbers


class TensorCollector(Collector):
    """Steps a vector environment whose observations, rewards and ends are tensors; `as_tensors` must be set."""

    environments: CheckedVectorEnv

    def __init__(self, environments: CheckedVectorEnv, *arguments: Any) -> None:
        self.device: torch.device = environments.device
        self._blocks: dict[str, tuple[int, Tensor]] = {}
        super().__init__(environments, *arguments)
        self._bounds = torch.from_numpy(self.low).to(self.device), torch.from_numpy(self.high).to(self.device)
        self._scale = torch.from_numpy(self._noise_scale).to(self.device)
        count = environments.num_envs
        self._returns = torch.zeros(count, dtype=torch.float64, device=self.device)
        self._lengths = torch.zeros(count, dtype=torch.int64, device=self.device)
        self._awaits_reset = torch.zeros(count, dtype=torch.bool, device=self.device)

    def act(self, policy: Callable[[Values], Values] | None) -> Tensor:
        """Actions `[member, environment, action]`: the policy's with exploration noise, or random ones without it."""
        if policy is None:
            low, high = self._bounds
            return low + (high - low) * self._take("warm-up")
        return self.explore(policy(self.member_states))

    def explore(self, actions: Tensor) -> Tensor:
        """The policy's actions with exploration noise, kept inside the range."""
        low, high = self._bounds
        return torch.minimum(torch.maximum(actions + self._scale * self._take("exploration"), low), high)

    def finish(self) -> tuple[Tensor, list[Episode]]:
        """Step; returns as `step` does, in tensors."""
        # A copy: an environment may change the actions that it is given.
        step = self.environments.step(self._shaped(self._actions.clone()))
        current, rewards, terminated, truncated, infos = step
        self._stepping = False
        over, next_states = terminated | truncated, current
        if "final_obs" in infos and self.autoreset == AutoresetMode.SAME_STEP:
            # What step returned is already the next episode; the true last observation is in the infos.
            next_states = torch.where(over[:, None], infos["final_obs"], current)
        stored = over if self._timeouts_terminate else terminated
        columns = (self.states, self._actions, next_states, rewards[:, None], stored[:, None])
        rows = torch.cat([column.to(torch.float32) for column in columns], 1)
        sound = rows.isfinite().all(1) & current.isfinite().all(1)
        finite, some_over = torch.stack((sound.all(), over.any())).tolist()
        if not finite:
            self._fail_members(sound)
        # On the step after an end, next-step autoreset ignores the action and returns a reset: not a transition.
        real = ~self._awaits_reset
        active = torch.from_numpy(self._active).to(self.device) if self._inactive else None
        counted = real if active is None else real & active
        self._returns += torch.where(counted, rewards, 0)
        self._lengths += counted
        episodes = self._ended(over & counted, truncated & ~terminated, infos) if some_over else []
        if self.autoreset == AutoresetMode.NEXT_STEP:
            rows, self._awaits_reset = rows[real], over
        if self.autoreset == AutoresetMode.DISABLED and some_over:
            current = self._reset(over.cpu().numpy())
        self.states = current
        rows = rows.reshape(len(self.seeds), -1, rows.shape[1])
        self.stepped = rows.shape[1]
        if self._inactive:
            self._retire()
            rows[sorted(self._inactive)] = 0
        return rows, episodes

    def _fail_members(self, sound: Tensor) -> None:
        """Go on without the members of rows that are not finite."""
        for index in np.flatnonzero(~sound.cpu().numpy() & self._active).tolist():
            reason = "an environment gave NaN or infinity in an observation or a reward: fix the environment."
            self._fail(index // self.envs_per_member, reason)

    def _ended(self, ended: Tensor, cut: Tensor, infos: dict[str, Any]) -> list[Episode]:
        """The episodes that ended, which are counted anew from now on."""
        indices = ended.nonzero().flatten()
        figures = (self._returns[indices], self._lengths[indices], cut[indices], indices)
        episodes = [
            Episode(index // self.envs_per_member, total, length, timed_out, last_numbers(infos, index, self.autoreset))
            for total, length, timed_out, index in zip(*(each.tolist() for each in figures), strict=True)
        ]
        self._returns[indices], self._lengths[indices] = 0, 0
        return episodes

    def _take(self, purpose: str, size: int | None = None) -> Tensor:
        """The round's random numbers of each member: the same as `Collector` has, sent to the device in blocks."""
        super()._take(purpose, size)
        block, drawn = self._numbers[purpose]
        if self._blocks.get(purpose, (-1,))[0] != block:
            self._blocks[purpose] = block, torch.from_numpy(drawn).to(self.device)
        return self._blocks[purpose][1][self.round % len(drawn)]

    def _all_finite(self, states: Tensor) -> bool:
        return bool(states.isfinite().all())

    def _vectors(self, observations: Tensor) -> Tensor:
        return observations

    def state(self) -> dict[str, Values]:
        """What `Collector` has, in arrays."""
        return {name: torch.as_tensor(value).cpu().numpy() for name, value in super().state().items()}
