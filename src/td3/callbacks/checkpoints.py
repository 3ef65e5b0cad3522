"""Checkpoints on a schedule of env steps or of time, and status.json."""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td3.callbacks.callback import RunCallback
from td3.environments.vector import RESTARTS
from td3.run.checkpoints import Checkpoint, Checkpoints
from td3.run.directory import resume_command, write_json

if TYPE_CHECKING:
    from td3.training import Trainer

SAVING_SHARE = 0.02
"""Share of the time that checkpoints may take where their interval is left to us."""
SAVE_INTERVAL = 5.0
"""Seconds between such checkpoints at least."""


class CheckpointCallback(RunCallback):
    """Saves everything at the start, on schedule, at an interruption and at the end."""

    def __init__(self, path: Path) -> None:
        self._path, self._checkpoints = path, Checkpoints(path)
        self._saved: int | None = None
        self._last, self._cost = time.monotonic(), 0.0
        self.saving_seconds = 0.0

    def on_loop_start(self, trainer: "Trainer") -> None:
        """The first one of a new run, so that there is one, however early the end comes."""
        if not trainer.resumed:
            self._checkpoints.start_new()
            self._save(trainer)

    def on_env_step(self, trainer: "Trainer") -> None:
        """Another one, where it is due."""
        if self._is_due(trainer):
            trainer.time.lap("other")
            self._save(trainer)
            trainer.time.lap("save")

    def on_interruption(self, trainer: "Trainer") -> None:
        """The round that is complete."""
        self._save_once(trainer)

    def on_loop_end(self, trainer: "Trainer") -> None:
        """The last one."""
        self._save_once(trainer)

    def _is_due(self, trainer: "Trainer") -> bool:
        every = trainer.config.save_every
        if every == 0 or trainer.env_steps >= trainer.config.steps:
            return False  # the end saves by itself
        if every is not None:
            return trainer.is_due(every)
        return time.monotonic() - self._last > max(SAVE_INTERVAL, self._cost / SAVING_SHARE)

    def _save_once(self, trainer: "Trainer") -> None:
        """Save unless this env step is saved: before its resume, or on schedule; a checkpoint is not replaced."""
        if self._saved != trainer.env_steps:
            self._save(trainer)

    def _save(self, trainer: "Trainer") -> None:
        """Save everything; where the disk does not allow it, say so and go on."""
        if trainer.config.save_every == 0:
            return
        begun = time.monotonic()
        try:
            trainer.engine.flush()
            trainer.callbacks.on_checkpoint(trainer)
            if not trainer.agent.active.any():
                trainer.engine.check()  # raises; else seeds are frozen on a schedule of env steps, not of the clock
            trainer.require_in_place()
            self._checkpoints.save(trainer.env_steps, *trainer.state(), trainer.buffer)
            self._saved = trainer.env_steps
        except OSError as error:
            trainer.require_in_place()  # else the run ends
            trainer.warn(
                f"the checkpoint at env step {trainer.env_steps:,} could not be written ({error.strerror}); "
                "the one before it stays, and training goes on."
            )
        else:
            trainer.callbacks.on_checkpoint_saved(trainer)
        self._last = time.monotonic()
        self._cost = self._last - begun
        self.saving_seconds += self._cost

    def resume_hint(self, trainer: "Trainer") -> str:
        """How to go on from the newest checkpoint, for an error."""
        if self._saved is None:
            return "There is no checkpoint yet."
        is_moved = trainer.folder is not None and trainer.folder.missing() == self._path
        path = trainer.folder.moved_to() if trainer.folder is not None and is_moved else self._path
        if path is None:
            return f"If it was moved: {resume_command(Path('FOLDER'), trainer.config)} goes on from its checkpoints."
        if not Checkpoints(path).has(self._saved):
            return f"{path} no longer has its checkpoints."
        command = resume_command(path, trainer.config)
        return f"The checkpoint at env step {self._saved:,} is whole: {command} goes on from there."

    def facts(self) -> dict[str, Any]:
        """What saving has cost."""
        return {"saving_seconds": round(self.saving_seconds, 3)}

    def restore(self, trainer: "Trainer", checkpoint: Checkpoint) -> None:
        """New rows follow those of this checkpoint."""
        self._checkpoints.continue_from(checkpoint)
        self._saved = checkpoint.env_steps
        self.saving_seconds += checkpoint.facts.get("saving_seconds", 0.0)  # which the first version did not count on


class StatusCallback(RunCallback):
    """status.json: running, finished, stopped, interrupted or failed; env steps, times, frozen seeds, the reason."""

    def __init__(self, checkpoints: CheckpointCallback) -> None:
        self._checkpoints = checkpoints

    def on_training_start(self, trainer: "Trainer") -> None:
        """Running."""
        self._write(trainer)

    def on_seed_frozen(self, trainer: "Trainer", member: int, reason: str) -> None:
        """Say which seed is frozen."""
        self._write(trainer)

    def on_checkpoint_saved(self, trainer: "Trainer") -> None:
        """Say how far the run has come; where the disk does not allow it, the checkpoint is there all the same."""
        try:
            self._write(trainer)
        except OSError as error:
            trainer.warn(
                f"status.json could not be written at env step {trainer.env_steps:,} ({error.strerror}); the "
                "checkpoint was written, and training goes on."
            )

    def on_training_end(self, trainer: "Trainer") -> None:
        """How it ended."""
        with contextlib.suppress(OSError):  # a disk that is full must not hide why the run ended
            self._write(trainer)

    def _write(self, trainer: "Trainer") -> None:
        status: dict[str, Any] = {"status": trainer.status, "env_steps": trainer.env_steps}
        status |= {"engine": f"{trainer.engine.kind} on {trainer.buffer.rows.device.type}"}
        status |= {"reason": trainer.reason} if trainer.reason else {}
        status |= {"frozen": trainer.frozen_seeds()} if trainer.frozen else {}
        status |= {} if trainer.agent.trains_critics else {"critics_trained": False}
        times = {"seconds": trainer.seconds, "saving_seconds": round(self._checkpoints.saving_seconds, 3)}
        if not trainer.replays:
            status |= {"resume": RESTARTS}
        write_json(trainer.path / "status.json", {**status, **times, **trainer.collector.figures()})
