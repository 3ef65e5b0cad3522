"""Act, step, and make rows for the buffer: the only place that knows a termination from a truncation.

A termination ends the task itself: nothing follows, so its row does not bootstrap. A truncation (a time limit) only
stops watching: its row bootstraps, from the true last observation and never from the one after a reset. Where both come
at once, the task has ended: it is a termination.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from td3.algorithm.streams import derive_seed
from td3.errors import EnvironmentFault
from td3.policy import Array

BLOCK = 256
"""Rounds whose random numbers are drawn at once; fixed, because it is part of what a seed means."""
MOST_FAULTS = 3
"""Faults of one environment, with no finished episode between them, after which the run ends."""
LONGEST_REPLAY = 10_000
"""Env steps of an unfinished episode whose actions are kept, so that a checkpoint of an endless one does not grow."""


class Episode(NamedTuple):
    """A finished episode of training."""

    member: int
    episode_return: float
    length: int
    timed_out: bool = False


class Fault(NamedTuple):
    """Something that went wrong in an environment, which then began a new episode."""

    member: int
    environment: int
    reason: str


class Collector:
    """Steps every environment of every member once a round; environments of a member stand side by side.

    Where the environments take a seed for every episode, an episode is a function of (seed, environment, episode
    number) and its actions: an interrupted one can be played again, and a faulty one replaced.
    """

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
        self._seeds_episodes = getattr(environments, "seeds_episodes", False)
        self._begins = hasattr(environments, "begin_step")
        count = environments.num_envs
        self._awaits_reset, self._cut = np.zeros(count, bool), np.zeros(count, bool)
        self._returns, self._lengths = np.zeros(count), np.zeros(count, np.int64)
        self._episodes, self._faults_in_a_row = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._history = np.zeros((BLOCK, count, len(self.low)), np.float32)
        self._history_length = 0
        self.faults: list[Fault] = []
        self.failed: dict[int, str] = {}
        """Members with an environment that failed for good, and why; they are inactive from then on."""
        self._inactive: set[int] = set()
        self._retired: set[int] = set()
        self._stepping = False
        self.states = self._reset(np.ones(count, bool), first=True)

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
        noisy = actions + self._noise_scale * self._take("exploration")
        return np.asarray(np.minimum(np.maximum(noisy, self.low, out=noisy), self.high, out=noisy))

    def step(self, actions: Array) -> tuple[Array, list[Episode]]:
        """Do the actions; returns new rows `[member, count, state | action | next_state | reward | terminated]`."""
        self.begin(actions)
        return self.finish()

    def begin(self, actions: Array) -> None:
        """Hand out the actions; environments in worker processes start at once."""
        self.round += 1
        self._actions, self._stepping = actions.reshape(self.environments.num_envs, -1), True
        if self._begins:
            indices = np.flatnonzero(self._active).tolist() if self._inactive else None
            self.environments.begin_step(self._actions, indices)  # type: ignore[attr-defined]  # ours have it

    def finish(self) -> tuple[Array, list[Episode]]:
        """Wait for what was begun; returns as `step` does."""
        flat_actions = self._actions
        if self._begins:
            observations, rewards, terminated, truncated, infos = self.environments.finish_step()  # type: ignore[attr-defined]  # ours have it
        else:
            # A copy: an environment may change the action that it is given.
            step = self.environments.step(self._shaped(flat_actions.copy()))
            observations, rewards, terminated, truncated, infos = step
        self._stepping = False
        next_states = self._vectors(observations)
        faults = self._faults(next_states, rewards)
        if faults:
            next_states, rewards, terminated, truncated = self._begin_again(
                faults, (next_states, rewards, terminated, truncated)
            )
        self._record_actions(flat_actions)
        ended, current = terminated | truncated, next_states
        if self._inactive:
            ended &= self._active
        some_ended = bool(ended.any())
        if some_ended:
            self._cut = truncated & ~terminated
        if self.autoreset == AutoresetMode.SAME_STEP and some_ended:
            # What step returned is already the next episode; the true last observation is in the infos.
            next_states = current.copy()
            for index in np.flatnonzero(ended):
                next_states[index] = self._vectors(infos["final_obs"][index][None])[0]
            if not np.isfinite(next_states).all():
                raise EnvironmentFault("an environment gave NaN or infinity in an observation: fix the environment.")

        columns = (self.states, flat_actions, next_states, rewards[:, None], terminated[:, None])
        rows = np.concatenate(columns, axis=1, dtype=np.float32)
        # On the step after an end, next-step autoreset ignores the action and returns a reset: not a transition.
        real = ~self._awaits_reset
        if self.autoreset == AutoresetMode.NEXT_STEP:
            rows, self._awaits_reset = rows[real], ended
        episodes = self._finished(rewards, ended, real)
        if self.autoreset == AutoresetMode.DISABLED and some_ended:
            self._episodes += ended
            current = self._reset(ended)
        self.states = current
        rows = rows.reshape(len(self.seeds), -1, rows.shape[1])
        if self._inactive:
            self._retire()
            rows[sorted(self._inactive)] = 0
            episodes = [episode for episode in episodes if episode.member not in self._inactive]
        return rows, episodes

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

    def state(self) -> dict[str, Array]:
        """Where every environment stands: enough to play the unfinished episodes again, except very long ones."""
        longest = self._longest_replay()
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

        Those begin a new episode; their unfinished one is lost. So is one of more than `LONGEST_REPLAY` env steps.
        """
        self.round = int(state["round"])
        self._returns, self._lengths = state["returns"].copy(), state["lengths"].copy()
        self._episodes, self._faults_in_a_row = state["episodes"].copy(), state["faults_in_a_row"].copy()
        self._history, self._history_length = state["actions"].copy(), len(state["actions"])
        self._inactive = set(np.flatnonzero(state.get("inactive", ())).tolist())
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

    def _reset(self, mask: Array, first: bool = False) -> Array:
        """Begin the current episode of the environments in the mask; returns the observations of all."""
        if not self._seeds_episodes:
            seeds, options = (self._episode_seeds(), None) if first else (None, {"reset_mask": mask})
            observations, _ = self.environments.reset(seed=seeds, options=options)  # type: ignore[arg-type]  # lists work
            states = self._vectors(observations)
            if not np.isfinite(states).all():
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
                f"{reason}; this was fault {MOST_FAULTS} of environment {environment} of seed {self.seeds[member]} "
                "with no finished episode between them: fix the environment.",
            )
        self._episodes[index] += 1
        self._returns[index], self._lengths[index] = 0, 0
        return {index, *self.environments.replace(index)}  # type: ignore[attr-defined]  # ours have it

    def _fail(self, member: int, reason: str) -> set[int]:
        """Go on without this member; returns the environments that must be replayed. The last one ends the run."""
        if len(self._inactive) == len(self.seeds) - 1:
            raise EnvironmentFault(reason)
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
        return set(self.environments.retire(indices)) if self._seeds_episodes else set()  # type: ignore[attr-defined]  # ours have it

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

    def _begin_again(self, faults: dict[int, str], result: tuple[Array, ...]) -> tuple[Array, ...]:
        """Replace faulty environments, begin a new episode there and do the same action in it.

        So every round brings one whole transition of every environment, and of a faulty step nothing is stored.
        """
        if not self._seeds_episodes:
            raise EnvironmentFault(f"{next(iter(faults.values()))}: fix the environment.")
        result = tuple(array.copy() for array in result)
        states = self.states.copy()
        environments: Any = self.environments
        while faults:
            # What lost its process, also after its step of this round, is brought back to where it was before it.
            shown, again = self._recovered(faults)
            if not again:
                break
            states[again] = shown[again]
            observations, *rest = environments.step_some(self._actions, again)[:4]
            for array, news in zip(result, (self._vectors(observations), *rest), strict=True):
                array[again] = news[again]
            faults = self._faults(result[0], result[1])
        self.states = states
        for array in result:
            array[~self._active] = 0
        return result

    def _record_actions(self, actions: Array) -> None:
        """Keep the actions of the unfinished episodes, as far as they will be replayed."""
        if self._history_length == len(self._history):
            needed = self._longest_replay()
            kept = self._history[self._history_length - needed :]
            self._history = np.zeros((max(BLOCK, 2 * needed), *kept.shape[1:]), np.float32)
            self._history[:needed], self._history_length = kept, needed
        self._history[self._history_length] = actions
        self._history_length += 1

    def _finished(self, rewards: Array, ended: Array, real: Array) -> list[Episode]:
        if self.autoreset == AutoresetMode.NEXT_STEP:
            rewards = np.where(real, rewards, 0)
        if self._inactive:
            rewards, real = np.where(self._active, rewards, 0), real & self._active
        self._returns += rewards
        self._lengths += real
        episodes: list[Episode] = []
        for index in np.flatnonzero(ended & real) if ended.any() else ():
            member = int(index) // self.envs_per_member
            counted = float(self._returns[index]), int(self._lengths[index]), bool(self._cut[index])
            episodes.append(Episode(member, *counted))
            self._returns[index], self._lengths[index], self._faults_in_a_row[index] = 0, 0, 0
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

    def _vectors(self, observations: Any) -> Array:
        """One vector for each environment; a copy, unless they are ours: others may write into their arrays later."""
        if self._begins and isinstance(observations, np.ndarray) and observations.dtype == np.float32:
            return observations
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(observations, np.float32).reshape(len(observations), -1)
