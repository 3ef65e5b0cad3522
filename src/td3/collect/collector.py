"""Act, step, and make rows for the buffer: the only place that knows a termination from a truncation.

A termination ends the task itself: nothing follows, so its row does not bootstrap. A truncation (a time limit) only
stops watching: its row bootstraps, from the true last observation and never from the one after a reset. Where both come
at once, the task has ended: it is a termination.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from td3.algorithm.streams import derive_seed
from td3.collect.base import Episode
from td3.collect.recovery import BLOCK, RecoverableEnvironments, Values
from td3.environments.checked_vector import last_numbers
from td3.errors import EnvironmentFault
from td3.policy import Array
from td3.user_code import reworded

if TYPE_CHECKING:
    from td3.training.trainer import Trainer


class Collector(RecoverableEnvironments):
    """Steps every environment of every member once a round; environments of a member are side by side."""

    def __init__(
        self,
        environments: VectorEnv[Any, Any, Any],
        seeds: Sequence[int],
        action_low: Sequence[float],
        action_high: Sequence[float],
        exploration_noise: float,
        timeouts: str = "bootstrap",
    ) -> None:
        self._timeouts_terminate = timeouts == "terminate"
        self.autoreset = environments.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self.autoreset == AutoresetMode.NEXT_STEP and len(seeds) > 1:
            raise EnvironmentFault(
                "a vector environment that resets on the next step can serve one seed only: "
                "make it with autoreset_mode=SAME_STEP, train one seed or, if its reset() takes a reset_mask, set "
                "metadata['autoreset_mode'] to DISABLED."
            )
        self.low, self.high = (np.asarray(bound, np.float32) for bound in (action_low, action_high))
        self._noise_scale = exploration_noise * (self.high - self.low) / 2
        self._numbers: dict[str, tuple[int, Array]] = {}
        self._awaits_reset: Values = np.zeros(environments.num_envs, bool)
        self._cut = np.zeros(environments.num_envs, bool)
        self.row_episodes = np.zeros(environments.num_envs, np.int64)
        """The number of the episode that each environment's latest row belongs to."""
        super().__init__(environments, seeds, len(self.low))

    def collect(self, trainer: "Trainer") -> tuple[Values, list[Episode]]:
        """Act, update, step: rows of every environment once, and the episodes that ended."""
        engine, lap, warms_up = trainer.engine, trainer.time.lap, trainer.warms_up
        if not warms_up:
            engine.act_async(self.member_states)
        if engine.asynchronous:
            # A GPU's update begins when the actions are on their way, and runs on while the environments step.
            lap("act")
            trainer.update(self.envs_per_member)
        actions = self.act(None) if warms_up else self.explore(engine.act_wait())
        lap("act")
        self.begin(actions)
        lap("env")
        if not engine.asynchronous:
            # Environments in threads or processes step meanwhile.
            trainer.update(self.envs_per_member)
        else:
            engine.prepare()
        return self.finish()

    def act(self, policy: Callable[[Values], Values] | None) -> Values:
        """Actions `[member, environment, action]`: the policy's with exploration noise, or random ones without it."""
        if policy is None:
            return self.low + (self.high - self.low) * self._take("warm-up")
        return self.explore(policy(self.member_states))

    @property
    def member_states(self) -> Values:
        """What every environment shows now, `[member, environment, state]`."""
        return self.states.reshape(len(self.seeds), self.envs_per_member, -1)

    def explore(self, actions: Values) -> Values:
        """The policy's actions with exploration noise, kept inside the range."""
        noisy = actions + self._noise_scale * self._take("exploration")
        return np.asarray(np.minimum(np.maximum(noisy, self.low, out=noisy), self.high, out=noisy))

    def step(self, actions: Values) -> tuple[Values, list[Episode]]:
        """Do the actions; returns new rows `[member, count, state | action | next_state | reward | terminated]`."""
        self.begin(actions)
        return self.finish()

    def begin(self, actions: Values) -> None:
        """Hand out the actions; environments in worker processes start at once."""
        self.round += 1
        self._actions, self._stepping = actions.reshape(self.environments.num_envs, -1), True
        if self._begins:
            indices = np.flatnonzero(self._active).tolist() if self._inactive else None
            self.environments.begin_step(self._actions, indices)  # type: ignore[attr-defined]  # ours have it

    def finish(self) -> tuple[Values, list[Episode]]:
        """Wait for what was begun; returns as `step` does."""
        flat_actions = self._actions
        if self._begins:
            observations, rewards, terminated, truncated, infos = self.environments.finish_step()  # type: ignore[attr-defined]  # ours have it
        else:
            # A copy: an environment may change the action that it is given.
            step = self.environments.step(self._shaped(flat_actions.copy()))
            observations, rewards, terminated, truncated, infos = step
        self._stepping = False
        over = terminated | truncated  # of inactive members too, which a user's vector environment goes on stepping
        next_states = self._vectors(observations)
        faults = self._faults(next_states, rewards)
        if faults:
            (next_states, rewards, terminated, truncated), infos = self._begin_again(
                faults, (next_states, rewards, terminated, truncated), infos
            )
        if self.replays:
            self._record_actions(flat_actions)
        self.row_episodes = self._episodes.copy()
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
            for place in np.flatnonzero(~np.isfinite(next_states).all(1) & self._active).tolist():
                reason = "an environment gave NaN or infinity in an observation: fix the environment."
                self._fail(place // self.envs_per_member, reason)

        stored = terminated | truncated if self._timeouts_terminate else terminated
        columns = (self.states, flat_actions, next_states, rewards[:, None], stored[:, None])
        rows = np.concatenate(columns, axis=1, dtype=np.float32)
        # On the step after an end, next-step autoreset ignores the action and returns a reset: not a transition.
        real = ~self._awaits_reset
        if self.autoreset == AutoresetMode.NEXT_STEP:
            rows, self._awaits_reset = rows[real], ended
        episodes = self._finished(rewards, ended, real)
        if episodes:
            indices = np.flatnonzero(ended & real).tolist()
            episodes = [e._replace(info=self._info(infos, i)) for e, i in zip(episodes, indices, strict=True)]
        if self.autoreset == AutoresetMode.DISABLED and (some_ended or (not self.replays and over.any())):
            self._episodes += ended
            current = self._reset(ended if self.replays else over)
        self.states = current
        rows = rows.reshape(len(self.seeds), -1, rows.shape[1])
        self.stepped = rows.shape[1]
        if self._inactive:
            self._retire()
            rows[sorted(self._inactive)] = 0
            episodes = [episode for episode in episodes if episode.member not in self._inactive]
        return rows, episodes

    def _info(self, infos: Mapping[Any, Any], index: int) -> dict[str, float]:
        """The numbers in the last info of an episode that has ended, wherever its vector environment has them."""
        if self._begins:  # ours
            return dict(infos.get(index, {}))
        return last_numbers(infos, index, self.autoreset)

    def _begin_again(
        self, faults: dict[int, str], result: tuple[Array, ...], infos: Mapping[Any, Any]
    ) -> tuple[tuple[Array, ...], Mapping[Any, Any]]:
        """Replace faulty environments, begin a new episode there and do the same action in it.

        So every round brings one whole transition of every environment, and of a faulty step nothing is stored.
        """
        result = tuple(array.copy() for array in result)
        if not self.replays:  # a single one cannot be replaced: its seed is frozen, and others go on
            for index, reason in faults.items():
                self._fail(index // self.envs_per_member, reworded(reason, f"{reason}: fix the environment."))
            for array in result:
                array[~self._active] = 0
            return result, infos
        states = self.states.copy()
        environments: Any = self.environments
        while faults:
            # What lost its process, also after its step of this round, is brought back to where it was before it.
            shown, again = self._recovered(faults)
            if not again:
                break
            states[again] = shown[again]
            observations, *rest, more = environments.step_some(self._actions, again)
            infos = {**infos, **more}
            for array, news in zip(result, (self._vectors(observations), *rest), strict=True):
                array[again] = news[again]
            faults = self._faults(result[0], result[1])
        self.states = states
        for array in result:
            array[~self._active] = 0
        return result, infos

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

    def _take(self, purpose: str, size: int | None = None) -> Values:
        """The round's random numbers of each member, which depend on its seed and the round alone.

        Normal ones for exploration, else uniform; `size` of every environment, or as many as an action has.
        """
        block, slot = divmod(self.round, BLOCK)
        number, drawn = self._numbers.get(purpose, (-1, np.empty(0)))
        if number != block:
            shape = (BLOCK, self.envs_per_member, size or len(self.low))
            generators = [np.random.default_rng(derive_seed(seed, purpose, block)) for seed in self.seeds]
            if purpose == "exploration":
                drawn = np.stack([generator.standard_normal(shape, np.float32) for generator in generators], axis=1)
            else:
                drawn = np.stack([generator.random(shape, np.float32) for generator in generators], axis=1)
            self._numbers[purpose] = block, drawn
        return np.asarray(drawn[slot])

    def _shaped(self, flat_actions: Values) -> Values:
        shape = self.environments.single_action_space.shape or ()
        return flat_actions.reshape(-1, *shape)
