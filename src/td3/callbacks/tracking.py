"""Where people look while a run trains: TensorBoard and Weights & Biases, under the names that they know."""

import contextlib
import importlib.util
import math
import netrc
import os
import secrets
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from td3.callbacks.callback import Callback
from td3.errors import missing_extra
from td3.evaluate import Evaluation
from td3.run.directory import read_facts, write_json

if TYPE_CHECKING:
    from td3.training import Trainer

METRIC_NAMES = {
    "episode_return": "rollout/ep_rew_mean",
    "episode_length": "rollout/ep_len_mean",
    "critic_loss": "train/critic_loss",
    "actor_loss": "train/actor_loss",
    "mean_q": "train/mean_q",
    "updates": "train/n_updates",
}
"""Columns of metrics.csv as Stable-Baselines3 names them where it has them."""


class Tracker(Callback):
    """Turns the events of a run into scalars by name, for each seed; `_scalars` writes them."""

    optional = True

    def on_training_start(self, trainer: "Trainer") -> None:
        """Remember where the times begin."""
        self._timed = trainer.first_step

    def on_log(self, trainer: "Trainer", rows: Sequence[dict[str, Any]]) -> None:
        """Losses and returns of training."""
        for seed, row in enumerate(rows):
            values = {name: row[column] for column, name in METRIC_NAMES.items()}
            for name, value in row.get("info", {}).items():
                values["rollout/success_rate" if name == "is_success" else f"rollout/info/{name}"] = value
            self._scalars(seed, trainer.env_steps, values)

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        """Returns without noise."""
        for seed, (returns, lengths) in enumerate(zip(evaluation.returns, evaluation.lengths, strict=True)):
            if np.isnan(returns).any():  # frozen
                continue
            means = {"eval/mean_reward": float(returns.mean()), "eval/mean_ep_length": float(lengths.mean())}
            means["eval/success_rate"] = float(evaluation.success_rate[seed])
            self._scalars(seed, evaluation.env_steps, means)

    def on_diagnostics(self, trainer: "Trainer", env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """How the learner looks from inside."""
        for seed, row in enumerate(rows):
            figures = {name: value for name, value in row.items() if isinstance(value, float)}
            self._scalars(seed, env_steps, {f"diagnostics/{name}": value for name, value in figures.items()})

    def on_timing(self, trainer: "Trainer", seconds: dict[str, float]) -> None:
        """Env steps a second of each seed since the previous evaluation."""
        total, env_steps = sum(seconds.values()), trainer.env_steps
        if env_steps > self._timed and total > 0:
            for seed in range(trainer.config.seeds):
                self._scalars(seed, env_steps, {"time/fps": (env_steps - self._timed) / total})
        self._timed = env_steps

    def _scalars(self, seed: int, env_steps: int, values: Mapping[str, float]) -> None:
        raise NotImplementedError


class TensorBoard(Tracker):
    """Event files under `tensorboard/seed_K`: `tensorboard --logdir runs` shows every run and seed.

    What an interrupted run wrote beyond the env step that it is resumed from is no longer shown.
    """

    def on_training_start(self, trainer: "Trainer") -> None:
        """Open the files."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        super().on_training_start(trainer)
        self._event, self._hook, self._writers = Event, threading.excepthook, list[Any]()
        threading.excepthook = self._without_traceback
        folder = trainer.path / "tensorboard"
        for seed in trainer.config.member_seeds:
            self._writers.append(EventFileWriter(str(folder / f"seed_{seed}")))
        if trainer.first_step:
            # TensorBoard drops what has this step or a later one and was written before.
            start = SessionLog(status=SessionLog.START)
            for writer in self._writers:
                writer.add_event(Event(wall_time=time.time(), step=trainer.first_step + 1, session_log=start))

    def _scalars(self, seed: int, env_steps: int, values: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        finite = [
            Summary.Value(tag=name, simple_value=value) for name, value in values.items() if not math.isnan(value)
        ]
        event = self._event(wall_time=time.time(), step=env_steps, summary=Summary(value=finite))
        self._writers[seed].add_event(event)

    def on_evaluation(self, trainer: "Trainer", evaluation: Evaluation) -> None:
        """Write, and let what was written be seen."""
        super().on_evaluation(trainer, evaluation)
        for writer in self._writers:
            writer.flush()

    def on_training_end(self, trainer: "Trainer") -> None:
        """Close the files, each of them also where another cannot be closed."""
        with contextlib.ExitStack() as closing:
            closing.callback(setattr, threading, "excepthook", self._hook)
            for writer in self._writers:
                closing.callback(writer.close)

    def _without_traceback(self, failed: threading.ExceptHookArgs) -> None:
        """A writer's thread that fails, on a full disk for example, tells its writer, and that raises again here."""
        if not type(failed.thread).__module__.startswith("tensorboard."):
            self._hook(failed)


def tensorboard_installed() -> bool:
    """Whether event files can be written here."""
    return importlib.util.find_spec("tensorboard") is not None


class WeightsAndBiases(Tracker):
    """One W&B run for each seed, grouped; without a key, or with WANDB_MODE=offline, they stay on this disk.

    Its files lie where W&B puts them, in `wandb/` of the current folder or of WANDB_DIR, and not in the run directory:
    it makes links that lead out of its folder, and a run with such links is refused.
    """

    def __init__(self, project: str) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise missing_extra("--track", "wandb")
        self.project = project
        self._runs: list[Any] = []

    def on_training_start(self, trainer: "Trainer") -> None:
        """Open the runs."""
        import wandb

        super().on_training_start(trainer)
        config, path = trainer.config, trainer.path
        name = f"{config.env.replace('/', '_')}-{path.name}"
        run_id = _run_id(path / "wandb.json")
        for seed in config.member_seeds:
            run = wandb.init(
                project=self.project,
                group=name,
                name=f"{name}-seed_{seed}",
                id=f"{name}-seed_{seed}-{run_id}".replace(":", "_"),
                resume="allow" if trainer.first_step else None,
                config={**config.to_json(), "member_seed": seed, "device": trainer.placement},
                mode=wandb_mode(),
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off"),
            )
            run.define_metric("env_steps")
            run.define_metric("*", step_metric="env_steps")
            self._runs.append(run)

    def _scalars(self, seed: int, env_steps: int, values: Mapping[str, float]) -> None:
        finite = {name: value for name, value in values.items() if not math.isnan(value)}
        self._runs[seed].log({"env_steps": env_steps, **finite})

    def on_training_end(self, trainer: "Trainer") -> None:
        """Finish the runs, each of them also where another cannot be finished."""
        with contextlib.ExitStack() as finishing:
            for run in self._runs:
                finishing.callback(run.finish)


def _run_id(path: Path) -> str:
    """What tells the W&B runs of this run from those of a folder of the same name elsewhere.

    It is kept in the run: a resumed run has it again, also after its folder was moved or it was resumed untracked.
    """
    saved = read_facts(path).get("id")
    if isinstance(saved, str) and saved.isalnum():
        return saved
    new = secrets.token_hex(4)
    write_json(path, {"id": new})
    return new


def sync_command(path: Path) -> str:
    """The command that uploads what W&B wrote of this run while it was offline."""
    folder = Path(os.environ.get("WANDB_DIR", "."), "wandb")
    return f"wandb sync {shlex.quote(str(folder))}/offline-run-*-{_run_id(path / 'wandb.json')}"


def wandb_mode() -> Literal["online", "offline", "disabled", "shared"]:
    """What WANDB_MODE says; without it online where a key is known, else offline: nothing is asked in mid-run."""
    if "WANDB_MODE" in os.environ:
        return os.environ["WANDB_MODE"]  # type: ignore[return-value]  # W&B itself refuses a wrong one
    if os.environ.get("WANDB_API_KEY"):
        return "online"
    try:
        hosts = netrc.netrc().hosts
    except (OSError, netrc.NetrcParseError):
        hosts = {}
    return "online" if "api.wandb.ai" in hosts else "offline"
