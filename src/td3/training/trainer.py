"""The loop: act, update, step, store. Everything else that a run does at its events is a callback.

One order of events, whatever the engine: the action comes from the actor as the last update left it; while the
environments do it, the update draws from the buffer as it was before that step.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from td3.algorithm.optimizer import NonFinite
from td3.algorithm.replacing import Replacement
from td3.callbacks.callback import CallbackList
from td3.config import TrainConfig
from td3.diagnostics import TimeBudget
from td3.environments import TaskSpaces
from td3.environments.guarded import Make
from td3.environments.side_effects import ProcessState
from td3.environments.vector import VectorSource
from td3.errors import CallbackError
from td3.policy import Array
from td3.run.checkpoints import Checkpoint
from td3.run.directory import versions
from td3.run.lock import LockedFolder
from td3.signals import StopSignals
from td3.training.failures import diagnosis, reason_of, with_resume_hint
from td3.training.parts import open_parts
from td3.training.schedule import updates_due_for_episodes, updates_due_for_steps
from td3.training.state import arrays_of, facts_of, restore
from td3.user_code import fault_of


class Trainer:
    """The loop and everything that it needs; callbacks get it with every event."""

    def __init__(
        self,
        config: TrainConfig,
        spaces: TaskSpaces,
        make: Make | VectorSource,
        device: torch.device,
        buffer_size: int,
        in_host_ram: bool = False,
        replacements: Sequence[Replacement] = (),
        eval_make: Make | VectorSource | None = None,
    ) -> None:
        self.config, self.spaces, self.process_before = config, spaces, ProcessState()
        self.versions = versions()  # looked up once: it takes milliseconds
        parts = open_parts(config, spaces, make, device, buffer_size, in_host_ram, replacements, eval_make)
        self.agent, self.buffer, self.engine, self.evaluator, self.collector, self.placement, self._opened = parts
        self.folder: LockedFolder | None = None
        """The run directory, while it is locked."""
        self.replays = not isinstance(make, VectorSource)
        """Whether unfinished episodes go on exactly after a resume; not in a vector environment of the user's."""
        self.learning_starts = max(config.td3.learning_starts, self.collector.first_rows_after)
        """Env steps with random actions, before the first update."""
        self.beginning: list[str] = []
        """Where a new run's weights and transitions come from, a sentence each."""
        self.env_steps = self._steps_before = self.first_step = 0
        self.resumed, self.status, self.reason = False, "running", ""
        self.stop_reason: str | None = None
        """Why `stop` was called; it may be empty. None: it was not."""
        self.seconds_before, self._begun = 0.0, time.monotonic()
        self.frozen: dict[int, dict[str, Any]] = {}
        """Members that stopped before the others, each with its `env_steps` and the `reason`."""

    def stop(self, reason: str) -> None:
        """End training after this round: pending evaluations are finished, and the run is saved and resumable."""
        self.stop_reason = reason

    def run(self, callbacks: CallbackList, checkpoint: Checkpoint | None, notices: Sequence[str] = ()) -> None:
        """Train to the last env step, from the first or from a checkpoint; `notices` are warnings to begin with."""
        self.callbacks, self.time, self._begun = callbacks, TimeBudget(), time.monotonic()
        self.resumed, self.first_step = checkpoint is not None, checkpoint.env_steps if checkpoint else 0
        try:
            for notice in (*notices, *self.engine.notices):
                self.warn(notice)
            if checkpoint is not None:
                restore(self, checkpoint)
            callbacks.on_training_start(self)
            self.engine.on_warning = self.warn
            callbacks.on_loop_start(self)
            self._raise_failure()
            with StopSignals() as stopped:
                while self.env_steps < self.config.steps and self.stop_reason is None:
                    self._round()
                    self._raise_failure()
                    if stopped.noted:
                        stopped.deaf = True  # a save that was begun is finished
                        callbacks.on_interruption(self)
                        raise KeyboardInterrupt
            callbacks.on_loop_end(self)
            self._raise_failure()
            self.status, self.reason = ("finished", "") if self.stop_reason is None else ("stopped", self.stop_reason)
        except KeyboardInterrupt:
            self.status = "interrupted"
            raise
        except Exception as error:
            self.reason = reason_of(error, self)
            if isinstance(error, NonFinite):  # the last of the seeds; the others are named already
                stopped_at = {"env_steps": self.env_steps, "reason": self.reason}
                self.frozen |= {member: dict(stopped_at) for member in self.active_members}
            if hinted := with_resume_hint(error, self):
                raise hinted from hinted.__cause__ or error
            raise
        finally:
            self.status = "failed" if self.status == "running" else self.status
            self._end()

    def _end(self) -> None:
        """Tell the callbacks; a failure of one is raised, unless an error is under way, which it must not hide."""
        self.callbacks.on_training_end(self)
        if (failure := self.callbacks.failure) is None:
            return
        if self.status in ("finished", "stopped"):
            said = f"{failure} The run itself is {self.status}, and saved in {self.path}."
            raise fault_of(failure, said, CallbackError) from failure.__cause__
        logging.getLogger("td3").warning("%s", failure)

    def _raise_failure(self) -> None:
        """End the run if a callback has failed, with a checkpoint of the round that is complete now."""
        if self.callbacks.failure:
            self.callbacks.on_interruption(self)
            failure, self.callbacks.failure = self.callbacks.failure, None  # from here on, one that is not raised yet
            raise failure

    def _round(self) -> None:
        """One env step of every environment, and the updates that belong to it."""
        self._steps_before, lap = self.env_steps, self.time.lap
        if self.config.td3.learning_rate_schedule != "constant":
            self.engine.set_learning_rates(*self.config.td3.learning_rates(self.env_steps / self.config.steps))
        found = self.collector.collect(self)
        if found is None:
            return  # no environment of a cluster has sent enough yet
        rows, episodes = found
        lap("env")
        if self.engine.frozen or self.collector.failed:
            self._freeze_failed()
        if rows.shape[1]:  # none where all environments only reset, before hindsight's first episodes end, and offline
            self.engine.store(rows)
        lap("store")
        self.env_steps += self.collector.stepped
        if episodes and len(self.buffer):  # with hindsight, the first episodes are not stored yet
            self.engine.update(updates_due_for_episodes(self.config.td3, episodes, self.agent.members))
            self._freeze_failed()
            lap("update")
        for episode in episodes:
            if episode.member not in self.frozen:
                self.callbacks.on_episode_end(self, episode)
        if self.collector.faults:
            self._tell_faults()
        self.callbacks.on_env_step(self)
        lap("other")

    @property
    def warms_up(self) -> bool:
        """Whether actions are random now; an agent that was trained before knows better."""
        return self.env_steps < self.learning_starts and self.config.init_from is None

    def update(self, env_steps: int) -> None:
        """Run the updates that are due when so many env steps more have been begun; none from an empty buffer."""
        if len(self.buffer):
            begun = self.env_steps + env_steps - self.learning_starts
            self.engine.update(updates_due_for_steps(self.config.td3, begun, self.agent.updates))
        self.time.lap("update")

    def _freeze_failed(self) -> None:
        """Leave seeds where they are whose numbers broke down or whose environments failed for good: others go on."""
        failed = self.collector.failed
        if len(self.engine.frozen) == len(self.frozen) == len(self.frozen.keys() | failed.keys()):
            return
        for member, reason in failed.items():
            self.engine.freeze(member, reason)
        if len(self.engine.frozen) == self.agent.members:
            raise fault_of(list(failed.values())[-1])  # where it was the numbers, the engine has raised
        for member in sorted(self.engine.frozen.keys() - self.frozen.keys()):
            reason = failed.get(member) or diagnosis(self, self.engine.frozen[member], [member])
            self.frozen[member] = {"env_steps": self.env_steps, "reason": reason}
            self.collector.deactivate(member)
            self.callbacks.on_seed_frozen(self, member, reason)
            seed = self.config.member_seeds[member]
            self.warn(f"seed {seed} is frozen, and the other seeds go on: {reason}")

    def _tell_faults(self) -> None:
        for fault in self.collector.faults:
            seed = self.config.member_seeds[fault.member]
            self.warn(f"seed {seed}, env step {self.env_steps:,}: {fault.reason}; a new episode was begun.")
        self.collector.faults.clear()

    def check_finite(self) -> None:
        """Find out whether an update on a GPU has frozen a member, or an environment has changed the whole process."""
        if effect := self.process_before.fault():
            raise effect
        self.engine.check()
        self._freeze_failed()

    def warn(self, text: str) -> None:
        """Tell the callbacks of something that training survives."""
        self.callbacks.on_warning(self, text)

    def info(self, text: str) -> None:
        """Tell the callbacks how this run is executed."""
        self.callbacks.on_info(self, text)

    def is_due(self, every: int) -> bool:
        """Whether this round reached a multiple of so many env steps."""
        return self._steps_before // every < self.env_steps // every

    @property
    def path(self) -> Path:
        """The run directory; raises FileNotFoundError if it was moved or removed, so that nothing is written there."""
        self.require_in_place()
        assert self.config.out is not None
        return self.config.out

    def require_in_place(self) -> None:
        """Raise FileNotFoundError if the run directory was moved or removed."""
        if self.folder is not None:
            self.folder.require_in_place()

    @property
    def active_members(self) -> list[int]:
        """Members that are not frozen."""
        return [member for member in range(self.agent.members) if member not in self.frozen]

    def frozen_seeds(self) -> dict[str, dict[str, Any]]:
        """Frozen members by their seeds, as status.json and checkpoints have them."""
        return {str(self.config.member_seeds[member]): dict(facts) for member, facts in sorted(self.frozen.items())}

    @property
    def seconds(self) -> float:
        """How long the run has trained, before it was resumed too."""
        return round(self.seconds_before + time.monotonic() - self._begun, 3)

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Everything that the run is, except its transitions: facts and arrays of a checkpoint."""
        return facts_of(self), arrays_of(self)

    def close(self) -> None:
        """Let go of environments and threads."""
        self._opened.close()
