"""Act, step, and make rows for the memory: the only place that knows a termination from a truncation.

A termination ends the task itself: nothing follows, so its row does not bootstrap. A truncation (a time limit) only
stops watching: its row bootstraps, from the true last observation and never from the one after a reset. Where both come
at once, the task has ended: it is a termination.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from td3.algorithm.streams import derive_seed
from td3.environments.pool import EnvironmentPool
from td3.errors import EnvironmentFault
from td3.policy import Array

BLOCK = 256
"""Rounds whose random numbers are drawn at once; fixed, because it is part of what a seed means."""


class Episode(NamedTuple):
    """A finished episode of training."""

    member: int
    episode_return: float
    length: int
    timed_out: bool = False


class Collector:
    """Steps every environment of every member once a round; environments of a member stand side by side."""

    def __init__(
        self,
        environments: VectorEnv[Any, Any, Any],
        seeds: Sequence[int],
        action_low: Sequence[float],
        action_high: Sequence[float],
        exploration_noise: float,
    ) -> None:
        self.environments, self.seeds = environments, tuple(seeds)
        self.envs_per_member = environments.num_envs // len(self.seeds)
        self.autoreset = environments.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self.autoreset == AutoresetMode.NEXT_STEP and len(self.seeds) > 1:
            raise EnvironmentFault(
                "a vector environment that resets on the next step can serve one seed only: "
                "make it with autoreset_mode=SAME_STEP, or train one seed."
            )
        self.low, self.high = (np.asarray(bound, np.float32) for bound in (action_low, action_high))
        self._noise_scale = exploration_noise * (self.high - self.low) / 2
        self.round = 0
        self._numbers: dict[str, tuple[int, Array]] = {}
        env_seeds = [derive_seed(seed, "environment", i) for seed in self.seeds for i in range(self.envs_per_member)]
        observations, _ = environments.reset(seed=[env_seed % 2**31 for env_seed in env_seeds])  # type: ignore[arg-type]  # lists work
        self.states = self._checked(observations)
        self._awaits_reset = np.zeros(environments.num_envs, bool)
        self._returns = np.zeros(environments.num_envs)
        self._lengths = np.zeros(environments.num_envs, np.int64)
        self._cut = np.zeros(environments.num_envs, bool)

    def act(self, policy: Callable[[Array], Array] | None) -> Array:
        """Actions `[member, environment, action]`: the policy's with exploration noise, or random ones without it."""
        if policy is None:
            return self.low + (self.high - self.low) * self._take("warm-up")
        return self.explore(policy(self.member_states))

    @property
    def member_states(self) -> Array:
        """What every environment shows now, `[member, environment, state]`."""
        return self.states.reshape(len(self.seeds), self.envs_per_member, -1)

    def explore(self, actions: Array) -> Array:
        """The policy's actions with exploration noise, kept inside the range."""
        return np.clip(actions + self._noise_scale * self._take("exploration"), self.low, self.high)

    def step(self, actions: Array) -> tuple[Array, list[Episode]]:
        """Do the actions; returns new rows `[member, count, state | action | next_state | reward | terminated]`."""
        self.begin(actions)
        return self.finish()

    def begin(self, actions: Array) -> None:
        """Hand out the actions; environments in worker processes start at once."""
        self.round += 1
        self._actions = actions.reshape(self.environments.num_envs, -1)
        if isinstance(self.environments, EnvironmentPool):
            self.environments.begin_step(self._actions)

    def finish(self) -> tuple[Array, list[Episode]]:
        """Wait for what was begun; returns as `step` does."""
        flat_actions = self._actions
        if isinstance(self.environments, EnvironmentPool):
            observations, rewards, terminated, truncated, infos = self.environments.finish_step()
        else:
            observations, rewards, terminated, truncated, infos = self.environments.step(self._shaped(flat_actions))
        ended, self._cut = terminated | truncated, truncated & ~terminated
        next_states = current = self._checked(observations, rewards)
        if self.autoreset == AutoresetMode.SAME_STEP and ended.any():
            # What step returned is already the next episode; the true last observation is in the infos.
            next_states = current.copy()
            for index in np.flatnonzero(ended):
                next_states[index] = self._checked(infos["final_obs"][index][None])[0]
        elif self.autoreset == AutoresetMode.DISABLED and ended.any():
            observations, _ = self.environments.reset(options={"reset_mask": ended})
            current = self._checked(observations)
        # On the step after an end, next-step autoreset ignores the action and returns a reset: not a transition.
        real = ~self._awaits_reset
        if self.autoreset == AutoresetMode.NEXT_STEP:
            self._awaits_reset = ended

        columns = (self.states, flat_actions, next_states, rewards[:, None], terminated[:, None])
        rows = np.concatenate(columns, axis=1, dtype=np.float32)[real]
        self.states = current
        return rows.reshape(len(self.seeds), -1, rows.shape[1]), self._finished(rewards, ended, real)

    def _finished(self, rewards: Array, ended: Array, real: Array) -> list[Episode]:
        self._returns[real] += rewards[real]
        self._lengths[real] += 1
        episodes = []
        for index in np.flatnonzero(ended & real):
            member = int(index) // self.envs_per_member
            counted = float(self._returns[index]), int(self._lengths[index]), bool(self._cut[index])
            episodes.append(Episode(member, *counted))
            self._returns[index], self._lengths[index] = 0, 0
        return episodes

    def _take(self, purpose: str) -> Array:
        """The round's random numbers of each member, which depend on its seed and the round alone."""
        block, slot = divmod(self.round, BLOCK)
        number, drawn = self._numbers.get(purpose, (-1, np.empty(0)))
        if number != block:
            shape = (BLOCK, self.envs_per_member, len(self.low))
            generators = [np.random.default_rng(derive_seed(seed, purpose, block)) for seed in self.seeds]
            if purpose == "warm-up":
                drawn = np.stack([generator.random(shape, np.float32) for generator in generators], axis=1)
            else:
                drawn = np.stack([generator.standard_normal(shape, np.float32) for generator in generators], axis=1)
            self._numbers[purpose] = block, drawn
        return np.asarray(drawn[slot])

    def _shaped(self, flat_actions: Array) -> Array:
        shape = self.environments.single_action_space.shape or ()
        return flat_actions.reshape(-1, *shape)

    def _checked(self, observations: Any, rewards: Array | None = None) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found here, and said in words
            states = np.asarray(observations, np.float32).reshape(len(observations), -1)
            stored = np.float32(0) if rewards is None else np.asarray(rewards, np.float32)
            # A sum is finite only if all its terms are (float64: float32 terms cannot overflow it).
            total = states.sum(dtype=np.float64) + stored.sum(dtype=np.float64)
        if not np.isfinite(total):
            raise EnvironmentFault("an environment gave NaN or infinity in an observation or a reward: mend it.")
        return states
