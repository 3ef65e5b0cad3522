"""The tables of every seed: metrics.csv, infos.csv, monitor.csv, evaluations.csv and .npz, diagnostics.csv."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from td3.callbacks.callback import RunCallback
from td3.collect.base import Episode
from td3.config import TrainConfig
from td3.environments.infos import numbers_of
from td3.evaluate import Evaluation
from td3.policy import Array
from td3.run.tables import METRICS, MemberWriter

if TYPE_CHECKING:
    from td3.run.checkpoints import Checkpoint
    from td3.training import Trainer

MOST_WRITING = 8
"""Seeds whose files are written at a time."""


class LogCallback(RunCallback):
    """Writes a row of metrics.csv on a schedule of env steps, and one of each other table when its event comes."""

    name = "td3 logs"

    def __init__(self, config: TrainConfig) -> None:
        self._seeds = config.member_seeds
        self._writers: list[MemberWriter] = []
        self._episodes: list[list[Episode]] = [[] for _ in self._seeds]
        self._logged_updates = np.zeros(len(self._seeds), np.int64)
        self._threads = ThreadPoolExecutor(min(MOST_WRITING, len(self._seeds)), "td3 tables")

    def on_training_start(self, trainer: "Trainer") -> None:
        """Open new tables; those of a resumed run are open already."""
        if not trainer.resumed:
            env = trainer.config.env
            self._writers = [MemberWriter(trainer.path / f"seed_{seed}", env) for seed in self._seeds]

    def on_episode_end(self, trainer: "Trainer", episode: Episode) -> None:
        """A row of monitor.csv."""
        self._episodes[episode.member].append(episode)
        self._writers[episode.member].episode(episode)

    def on_seed_frozen(self, trainer: "Trainer", member: int, reason: str) -> None:
        """Its tables end here."""
        self._episodes[member] = []

    def on_env_step(self, trainer: "Trainer") -> None:
        """A row of metrics.csv, where one is due."""
        if trainer.env_steps >= trainer.config.steps or trainer.is_due(
            trainer.config.log_every or trainer.config.steps
        ):
            self._log(trainer)

    def _log(self, trainer: "Trainer") -> None:
        trainer.require_in_place()
        trainer.check_finite()
        updates = trainer.agent.updates.copy()
        losses = trainer.engine.mean_losses((updates - self._logged_updates).tolist())
        self._logged_updates = updates
        finished, self._episodes = self._episodes, [[] for _ in self._seeds]
        rows = []
        for member, writer in enumerate(self._writers):
            if member in trainer.frozen:
                rows.append({**dict.fromkeys(METRICS, np.nan), "env_steps": trainer.env_steps, "info": {}})
                continue
            counts = {"env_steps": trainer.env_steps, "updates": int(updates[member])}
            rows.append({**counts, **_summary(finished[member]), **losses[member]})
            writer.metrics(rows[-1])
            writer.infos(trainer.env_steps, [episode.info for episode in finished[member]])
        trainer.callbacks.on_log(trainer, rows)

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        """A row of evaluations.csv for every seed that is not frozen."""
        trainer.require_in_place()
        successes = np.full_like(evaluation.returns, np.nan) if evaluation.successes is None else evaluation.successes

        def write(member: int) -> None:
            results = evaluation.returns[member], evaluation.lengths[member], successes[member]
            self._writers[member].evaluation(evaluation.env_steps, *results)

        # Side by side: what takes time is the disk, and it takes many files in the time of one.
        list(self._threads.map(write, evaluation.members))

    def on_diagnostics(self, trainer: "Trainer", env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """A row of diagnostics.csv for every seed that is not frozen."""
        for writer, row in zip(self._writers, rows, strict=True):
            figures = [value for value in row.values() if isinstance(value, float)]
            if not all(map(math.isnan, figures)):
                writer.diagnostics(row)
                writer.flush()

    def on_training_end(self, trainer: "Trainer") -> None:
        """Close the tables."""
        self._threads.shutdown()
        for writer in self._writers:
            with contextlib.suppress(OSError):  # a disk that is full must not hide why the run ended
                writer.close()

    def facts(self) -> dict[str, Any]:
        """How long the tables are."""
        return {"positions": {str(s): w.position() for s, w in zip(self._seeds, self._writers, strict=True)}}

    def arrays(self) -> dict[str, Array]:
        """What the next row of metrics.csv will cover, and all evaluations."""
        arrays = {
            "logged_updates": self._logged_updates,
            "unlogged_episodes": np.array([e[:4] for episodes in self._episodes for e in episodes], np.float64),
        }
        for member, writer in enumerate(self._writers):
            arrays |= {f"history.{member}.{name}": array for name, array in writer.history.items()}
        return arrays

    def state(self) -> dict[str, Any]:
        """Infos of the episodes that the next rows will cover."""
        infos = [[dict(episode.info) for episode in episodes] for episodes in self._episodes]
        return {"infos": infos} if any(info for of_member in infos for info in of_member) else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Give them back to their episodes."""
        for member, infos in enumerate(state["infos"]):
            self._episodes[member] = [
                episode._replace(info=numbers_of(info))
                for episode, info in zip(self._episodes[member], infos, strict=True)
            ]

    def restore(self, trainer: "Trainer", checkpoint: "Checkpoint") -> None:
        """Cut the tables to the length that they had."""
        facts, tensors = checkpoint.facts, checkpoint.tensors
        self._logged_updates = tensors["logged_updates"].copy()
        for member, episode_return, length, timed_out in tensors["unlogged_episodes"].reshape(-1, 4).tolist():
            episode = Episode(int(member), episode_return, int(length), bool(timed_out))
            self._episodes[episode.member].append(episode)
        for member, seed in enumerate(self._seeds):
            folder, position = trainer.path / f"seed_{seed}", facts["positions"][str(seed)]
            writer = MemberWriter(folder, trainer.config.env, position, facts["seconds"])
            self._writers.append(writer)
            writer.restore_history(checkpoint.named(f"history.{member}."))


def _summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    infos: dict[str, list[float]] = {}
    for episode in episodes:
        for name, value in episode.info.items():
            infos.setdefault(name, []).append(value)
    return {
        "info": {name: float(np.mean(values)) for name, values in sorted(infos.items())},
        "episodes": len(episodes),
        "timeouts": sum(e.timed_out for e in episodes),
        "episode_return": float(np.mean([e.episode_return for e in episodes])) if episodes else np.nan,
        "episode_length": float(np.mean([e.length for e in episodes])) if episodes else np.nan,
    }
