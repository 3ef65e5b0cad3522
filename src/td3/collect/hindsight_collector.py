"""A collector for variant hindsight: rows come out late, together with their relabelled copies."""

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from td3.collect.base import Episode
from td3.collect.collector import Collector
from td3.environments.goals import GoalTask
from td3.policy import Array
from td3.variants.hindsight import HindsightWindow


class HindsightCollector(Collector):
    """Steps the environments as `Collector` does, and passes their rows through a `HindsightWindow`."""

    def __init__(
        self,
        environments: VectorEnv[Any, Any, Any],
        seeds: Sequence[int],
        action_low: Sequence[float],
        action_high: Sequence[float],
        exploration_noise: float,
        timeouts: str,
        task: GoalTask,
        goals: int,
    ) -> None:
        super().__init__(environments, seeds, action_low, action_high, exploration_noise, timeouts)
        self._goals = goals
        self.first_rows_after = task.max_episode_steps * self.envs_per_member
        self._window = HindsightWindow(task, environments.num_envs, self.states.shape[1], len(self.low), goals)

    def finish(self) -> tuple[Array, list[Episode]]:
        """As `Collector.finish`, with the rows that leave the window: none of any seed, or as many of each."""
        rows, episodes = super().finish()
        uniform = self._take("hindsight", self._goals).reshape(-1, self._goals)
        left = self._window.pass_through(rows.reshape(-1, rows.shape[2]), self.row_episodes, uniform)
        return left.reshape(len(self.seeds), -1, rows.shape[2]), episodes

    def state(self) -> dict[str, Array]:
        """Where every environment stands, and the window."""
        return {**super().state(), **self._window.state()}

    def restore(self, state: Mapping[str, Array]) -> list[int]:
        """As `Collector.restore`."""
        self._window.restore(state)
        return super().restore(state)
