"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495), strategy "future".

Every transition (s || g, a, r, s' || g) of an episode is stored, and beside it, k times,

    (s || g', a, r(s', g'), s' || g')    with g' achieved in s', or later in the same episode, uniformly,

as in the paper's algorithm 1. To episodes that never reached their goal it gives transitions that did reach one.

A transition is stored when its episode is over for certain, `max_episode_steps` rounds after it. So every round stores
as many rows of every seed, whatever its episodes do: sampling, engines and CUDA graphs are those of plain TD3, and a
seed learns the same alone and among others.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from td3.environments.goals import GoalTask
from td3.policy import Array


class RowParts(NamedTuple):
    """Where the goals lie in a row `state | action | next_state | reward | terminated`."""

    desired: slice
    next_desired: slice
    next_achieved: slice

    @classmethod
    def of(cls, task: GoalTask, state_size: int, action_size: int) -> "RowParts":
        """The parts of a row of this task."""

        def later(part: slice) -> slice:
            return slice(part.start + state_size + action_size, part.stop + state_size + action_size)

        return cls(task.desired, later(task.desired), later(task.achieved))


class HindsightWindow:
    """The rows of the latest rounds, and those that leave it, together with their relabelled copies."""

    def __init__(self, task: GoalTask, environments: int, state_size: int, action_size: int, goals: int) -> None:
        self._task, self._goals = task, goals
        self._parts = RowParts.of(task, state_size, action_size)
        self._rows = np.zeros((task.max_episode_steps, environments, 2 * state_size + action_size + 2), np.float32)
        self._episodes = np.zeros((task.max_episode_steps, environments), np.int64)
        self._rounds = 0

    def pass_through(
        self,
        rows: Float[np.ndarray, "environment row"],
        episodes: Int64[np.ndarray, " environment"],
        uniform: Float[np.ndarray, "environment goal"],
    ) -> Float[np.ndarray, "environment count row"]:
        """Take the new rows in, each with the number of its episode; returns the rows of the oldest round.

        Nothing is returned (a count of 0) until the window is full; then of every environment its row and the
        relabelled copies, whose goals are chosen by the `uniform` numbers.
        """
        length = len(self._rows)
        slot = self._rounds % length
        self._rows[slot], self._episodes[slot] = rows, episodes
        self._rounds += 1
        if self._rounds < length:
            return np.empty((len(rows), 0, rows.shape[1]), np.float32)
        oldest = self._rounds % length
        # An episode is no longer than the window: of the oldest row's, all later rows are in it.
        rows_left = (self._episodes == self._episodes[oldest]).sum(0)
        later = (oldest + (uniform * rows_left[:, None]).astype(np.int64)) % length
        goals = self._rows[later, np.arange(len(rows))[:, None], self._parts.next_achieved]
        real = self._rows[oldest][:, None]
        return np.concatenate((real, self._relabelled(real, goals)), 1)

    def _relabelled(self, real: Array, goals: Array) -> Array:
        rows = np.repeat(real, self._goals, axis=1)
        rows[..., self._parts.desired] = rows[..., self._parts.next_desired] = goals
        achieved, desired = (part.reshape(-1, goals.shape[2]) for part in (rows[..., self._parts.next_achieved], goals))
        rows[..., -2] = self._task.rewards(achieved, desired).reshape(rows.shape[:2])
        if (terminated := self._task.terminated(achieved, desired)) is not None:
            own = self._task.terminated(real[:, 0, self._parts.next_achieved], real[:, 0, self._parts.next_desired])
            assert own is not None
            other = real[..., -1] * (own.reshape(-1, 1) == 0)  # an end that the goal does not explain, as a time-out
            rows[..., -1] = np.maximum(terminated.reshape(rows.shape[:2]), other)
        return rows

    def state(self) -> dict[str, Array]:
        """Everything in the window."""
        return {
            "hindsight.rows": self._rows,
            "hindsight.episodes": self._episodes,
            "hindsight.rounds": np.array(self._rounds),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Hold what `state` had."""
        self._rows, self._episodes = state["hindsight.rows"].copy(), state["hindsight.episodes"].copy()
        self._rounds = int(state["hindsight.rounds"])
