"""How many updates are due: after every env step, or at the end of every episode."""

from collections.abc import Sequence

from td3.collect.base import Episode
from td3.policy import Array
from td3.settings import TD3Config


def updates_due_for_steps(settings: TD3Config, env_steps: int, updates: Array) -> list[int]:
    """Updates due when so many env steps have been begun since the warm-up, less those done, for each member."""
    if settings.train_freq != "step":
        return [0] * len(updates)
    due = int(max(0, env_steps) * settings.utd_ratio)
    owed: list[int] = (due - updates).tolist()
    return owed


def updates_due_for_episodes(settings: TD3Config, episodes: Sequence[Episode], members: int) -> list[int]:
    """As many updates as the ended episodes had steps, for each member."""
    owed = [0] * members
    if settings.train_freq == "episode":
        for episode in episodes:
            owed[episode.member] += round(episode.length * settings.utd_ratio)
    return owed
