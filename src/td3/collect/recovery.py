"""Environments that can be brought back: unfinished episodes are replayed, faulty environments replaced.

Where the environments take a seed for every episode, an episode is a function of (seed, environment, episode number)
and its actions: an interrupted one can be played again.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from td3.algorithm.streams import derive_seed
from td3.collect.base import BaseCollector, Fault
from td3.environments.guarded import MOST_FAULTS
from td3.errors import EnvironmentFault
from td3.policy import Array
from td3.user_code import fault_of, reworded

Values = Any
"""Arrays, or tensors of the same shape on the learner's device (tensor_collector.py)."""
BLOCK = 256
"""Rounds whose random numbers are drawn at once; fixed, because it is part of what a seed means."""
LONGEST_REPLAY = 10_000
"""Env steps of an unfinished episode whose actions are kept, so that a checkpoint of an endless one does not grow."""


class RecoverableEnvironments(BaseCollector):
    """Where every environment of every member stands; environments of a member are side by side."""

    def __init__(self, environments: VectorEnv[Any, Any, Any], seeds: Sequence[int], action_size: int) -> None:
        super().__init__(environments.num_envs // len(seeds))
        self.environments, self.seeds = environments, tuple(seeds)
        self.round = 0
        self.replays: bool = getattr(environments, "seeds_episodes", False)
        """Whether unfinished episodes can be replayed; a user's vector environment does not promise that."""
        if self.replays:
            self.lost_because = "does not repeat itself when an episode is played again"
        else:
            self.lost_because = "is a vector environment, whose state is not in checkpoints"
        self._begins = hasattr(environments, "begin_step")
        count = environments.num_envs
        self._returns: Values = np.zeros(count)
        self._lengths: Values = np.zeros(count, np.int64)
        self._episodes, self._faults_in_a_row = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._history = np.zeros((BLOCK, count, action_size), np.float32)
        self._history_length = 0
        self._inactive: set[int] = set()
        self._retired: set[int] = set()
        self._stepping = False
        self.states: Values = self._reset(np.ones(count, bool), first=True)

    def deactivate(self, member: int) -> None:
        """Step, reset and replay the environments of this member no more: from now on its rows are zeros."""
        self._inactive.add(member)
        if not self._stepping:  # else the workers are busy, and `finish` does it
            self._retire()

    @property
    def _active(self) -> Array:
        """Which environments belong to active members."""
        active = np.isin(np.arange(len(self.seeds)), list(self._inactive), invert=True)
        return np.repeat(active, self.envs_per_member)

    def state(self) -> dict[str, Values]:
        """Where every environment stands: enough to play the unfinished episodes again, except very long ones."""
        longest = self._longest_replay() if self.replays else 0
        return {
            "round": np.array(self.round),
            "states": self.states,
            "returns": self._returns,
            "lengths": self._lengths,
            "episodes": self._episodes,
            "faults_in_a_row": self._faults_in_a_row,
            "inactive": np.isin(np.arange(len(self.seeds)), list(self._inactive)),
            "actions": self._history[self._history_length - longest : self._history_length],
        }

    def restore(self, state: Mapping[str, Array]) -> list[int]:
        """Stand where `state` was taken; returns the environments whose replayed episode came out differently.

        Those begin a new episode; their unfinished one is lost. So is one of more than `LONGEST_REPLAY` env steps, and
        every one where the environments do not take a seed for each episode.
        """
        self.round = int(state["round"])
        self._episodes, self._faults_in_a_row = state["episodes"].copy(), state["faults_in_a_row"].copy()
        self._inactive = set(np.flatnonzero(state.get("inactive", ())).tolist())
        if not self.replays:
            self._episodes += 1
            self.states = self._reset(np.ones(self.environments.num_envs, bool), first=True)
            self._retire()
            return np.flatnonzero(self._active & (state["lengths"] > 0)).tolist()
        self._returns, self._lengths = state["returns"].copy(), state["lengths"].copy()
        self._history, self._history_length = state["actions"].copy(), len(state["actions"])
        episodes = self._episodes.copy()
        self.states, _ = self._recovered({}, np.flatnonzero(self._active).tolist())
        self._retire()
        strayed = [
            index
            for index in np.flatnonzero(self._active & (self._episodes == episodes)).tolist()
            if self.states[index].tobytes() != state["states"][index].tobytes()
        ]
        if strayed:
            mask = np.isin(np.arange(self.environments.num_envs), strayed)
            self._episodes += mask
            self._returns[mask], self._lengths[mask] = 0, 0
            self.states = self._reset(mask)
        return strayed

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()

    def _reset(self, mask: Array, first: bool = False) -> Values:
        """Begin the current episode of the environments in the mask; returns the observations of all."""
        if not self.replays:
            seeds, options = (self._episode_seeds(), None) if first else (None, {"reset_mask": mask})
            observations, _ = self.environments.reset(seed=seeds, options=options)  # type: ignore[arg-type]  # lists work
            states = self._vectors(observations)
            if not self._all_finite(states[self._active]):
                raise EnvironmentFault("an environment gave NaN or infinity at its reset: fix the environment.")
            return states
        states, faults = self._begun(np.flatnonzero(mask & self._active).tolist())
        return self._recovered(faults)[0] if faults else states

    def _begun(self, indices: list[int]) -> tuple[Array, dict[int, str]]:
        """Reset these environments to the start of their current episode: the observations of all, and faults."""
        environments: Any = self.environments
        states = self._vectors(environments.reset_some(self._episode_seeds(), indices))
        faults = self._active_only(environments.faults)
        for index in indices:
            if not np.isfinite(states[index]).all():
                faults.setdefault(index, "an environment gave NaN or infinity at its reset")
        return states, faults

    def _replayed(self, indices: list[int]) -> tuple[Array, dict[int, str]]:
        """Play the unfinished episodes of these environments again: the observations of all, and faults."""
        states, faults = self._begun(indices)
        for ago in range(int(self._lengths[indices].max(initial=0)), 0, -1):
            if faults:
                break
            playing = [index for index in indices if self._lengths[index] >= ago]
            observations, rewards, *_ = self.environments.step_some(self._history[self._history_length - ago], playing)  # type: ignore[attr-defined]  # ours have it
            states = self._vectors(observations)
            faults = self._faults(states, rewards)
        return states, faults

    def _recovered(self, faults: dict[int, str], lost: Iterable[int] = ()) -> tuple[Array, list[int]]:
        """Begin a new episode in faulty environments, and bring those in `lost` to where they were.

        So are the neighbors of a faulty environment that lost their process with it. Returns the observations of all,
        and the environments that were moved; faults on the way are treated the same.
        """
        environments: Any = self.environments
        moved = set(lost)
        while True:
            while faults:
                index = min(faults)
                moved |= self._replaced(index, faults.pop(index))
                faults = self._active_only(faults | environments.faults)
            indices = [index for index in sorted(moved) if self._active[index]]
            self._abandon_long_episodes(indices)
            faults = self._replayed(indices)[1] if indices else {}
            if not faults:
                return self._vectors(environments.observations), indices

    def _abandon_long_episodes(self, indices: Iterable[int]) -> None:
        """Start a new episode, reported as a fault, where more than `LONGEST_REPLAY` env steps must be replayed."""
        for index in indices:
            if self._lengths[index] <= LONGEST_REPLAY:
                continue
            reason = (
                f"the unfinished episode of {self._lengths[index]:,} env steps could not be replayed, because only "
                f"those of up to {LONGEST_REPLAY:,} are"
            )
            self.faults.append(Fault(*divmod(index, self.envs_per_member), reason))
            self._episodes[index] += 1
            self._returns[index], self._lengths[index] = 0, 0

    def _longest_replay(self) -> int:
        """How many of the latest actions are needed to replay the unfinished episodes."""
        return int(self._lengths[self._lengths <= LONGEST_REPLAY].max(initial=0))

    def _replaced(self, index: int, reason: str) -> set[int]:
        """Count a fault and make the environment anew; returns the environments that must begin or be replayed."""
        member, environment = divmod(index, self.envs_per_member)
        self.faults.append(Fault(member, environment, reason))
        self._faults_in_a_row[index] += 1
        if self._faults_in_a_row[index] >= MOST_FAULTS:
            return self._fail(
                member,
                reworded(
                    reason,
                    f"{reason}; this was fault {MOST_FAULTS} of environment {environment} of seed "
                    f"{self.seeds[member]} with no finished episode between them: fix the environment.",
                ),
            )
        self._episodes[index] += 1
        self._returns[index], self._lengths[index] = 0, 0
        return {index, *self.environments.replace(index)}  # type: ignore[attr-defined]  # ours have it

    def _fail(self, member: int, reason: str) -> set[int]:
        """Go on without this member; returns the environments that must be replayed. The last one ends the run."""
        if len(self._inactive) == len(self.seeds) - 1:
            raise fault_of(reason)
        self.failed[member] = reason
        self._inactive.add(member)
        return self._given_up(member)

    def _retire(self) -> None:
        """Give up the environments of inactive members; others that lost their process with them are replayed."""
        lost = {index for member in sorted(self._inactive - self._retired) for index in self._given_up(member)}
        if lost:
            self.states, _ = self._recovered(self._active_only(getattr(self.environments, "faults", {})), lost)
        self.states[~self._active] = 0

    def _given_up(self, member: int) -> set[int]:
        """Give up the environments of a member; returns others that lost their process with them."""
        self._retired.add(member)
        indices = [*range(member * self.envs_per_member, (member + 1) * self.envs_per_member)]
        self._returns[indices], self._lengths[indices] = 0, 0
        return set(self.environments.retire(indices)) if self.replays else set()  # type: ignore[attr-defined]  # ours have it

    def _active_only(self, faults: Mapping[int, str]) -> dict[int, str]:
        active = self._active
        return {index: reason for index, reason in faults.items() if active[index]}

    def _episode_seeds(self) -> list[int]:
        return [
            derive_seed(
                self.seeds[index // self.envs_per_member], f"environment {index % self.envs_per_member}", number
            )
            % 2**31
            for index, number in enumerate(self._episodes.tolist())
        ]

    def _faults(self, states: Array, rewards: Array) -> dict[int, str]:
        """What went wrong in this step, by place."""
        faults = dict(getattr(self.environments, "faults", ()))
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found here, and said in words
            # A sum is finite only if all its terms are.
            total = np.add.reduce(states, axis=None) + np.add.reduce(np.asarray(rewards, np.float32))
            if not math.isfinite(total):
                finite = np.isfinite(states).all(1) & np.isfinite(np.asarray(rewards, np.float32))
                for index in np.flatnonzero(~finite).tolist():
                    faults.setdefault(index, "an environment gave NaN or infinity in an observation or a reward")
        return self._active_only(faults) if faults else faults

    def _record_actions(self, actions: Array) -> None:
        """Keep the actions of the unfinished episodes, as far as they will be replayed."""
        if self._history_length == len(self._history):
            needed = self._longest_replay()
            kept = self._history[self._history_length - needed :]
            self._history = np.zeros((max(BLOCK, 2 * needed), *kept.shape[1:]), np.float32)
            self._history[:needed], self._history_length = kept, needed
        self._history[self._history_length] = actions
        self._history_length += 1

    def _all_finite(self, states: Values) -> bool:
        return bool(np.isfinite(states).all())

    def _vectors(self, observations: Any) -> Values:
        """One vector for each environment; a copy, unless they are ours: others may write into their arrays later."""
        if self._begins and isinstance(observations, np.ndarray) and observations.dtype == np.float32:
            return observations
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(observations, np.float32).reshape(len(observations), -1)
