"""The loop: act, update, step, store; evaluate and write on a schedule of env steps.

One order of events, whatever the engine: the action comes from the actor as the last update left it; while the
environments do it, the update draws from the buffer as it was before that step.
"""

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from td3.algorithm import Agent, AgentSpec, NormalizedReplayBuffer
from td3.algorithm.optimizer import NonFinite
from td3.callbacks.base import CallbackList
from td3.collect import RayCollector
from td3.collect.collector import Collector, Episode
from td3.config import TrainConfig
from td3.diagnostics import TimeBudget, examine, value_against_return
from td3.engine import acting_policy, live_policy, make_engine
from td3.environments import TaskSpaces
from td3.errors import CallbackError, Diverged, EnvironmentFault, RunError
from td3.evaluate import EvaluationWorkers
from td3.policy import Array
from td3.resources import available_threads
from td3.run.agent_file import save_agent
from td3.run.checkpoints import Checkpoint, Checkpoints, fill_buffer
from td3.run.directory import DIAGNOSTICS, METRICS, MemberWriter, versions, write_json
from td3.signals import StopSignals
from td3.training.setup import encoder_plan, make_buffer
from td3.training.workers import make_evaluator, make_vector_envs

LOG_EVERY = 1_000
"""Env steps between rows of metrics.csv."""
SAVING_SHARE = 0.02
"""Share of the time that checkpoints may take where their interval is left to us."""
ALARM_AFTER = 5_000
"""Updates before critics are expected to know anything of the size of returns."""
NETWORKS = (
    *("actor", "actor_target", "critics", "critics_target", "encoder", "encoder_target"),
    *("observations.mean", "observations.scale"),
)
"""What an evaluation that is under way needs of its snapshot."""
COLLECTED = ("collector.round", "collector.episodes", "collector.lengths")
"""What the collector has counted, as a checkpoint names it."""
SAVE_INTERVAL = 5.0
"""Seconds between such checkpoints at least."""
MOST_WRITING = 8
"""Seeds whose files are written at a time."""
SNAPSHOTS = 10
"""Actors kept along the way, besides the newly initialized: enough for a video of the learning."""


class Trainer:
    """The loop and everything that it needs; callbacks get it with every event."""

    def __init__(
        self,
        config: TrainConfig,
        spaces: TaskSpaces,
        make: Callable[[], gym.Env[Any, Any]],
        device: torch.device,
        buffer_size: int,
        in_host_ram: bool = False,
    ) -> None:
        self.config, self.spaces, self._versions = config, spaces, versions()  # looked up once: it takes milliseconds
        settings, seeds = config.td3, config.member_seeds
        bounds = (spaces.action_low, spaces.action_high)
        encoder, normalized = encoder_plan(spaces, settings), config.normalize_observations
        spec = AgentSpec.from_settings(settings, spaces.state_size, *bounds, normalized, encoder)
        self.agent = Agent.create(spec, seeds, device)
        self.buffer = make_buffer(len(seeds), buffer_size, spaces, device, in_host_ram)
        if self.agent.normalizer is not None:
            self.buffer = NormalizedReplayBuffer(self.buffer, self.agent.normalizer)
        self.placement = f"{self.buffer.rows.device}" + (", replay buffer in the host's RAM" if in_host_ram else "")
        threads = config.threads or available_threads()
        self.remote: RayCollector | None = None
        with contextlib.ExitStack() as made:  # where a part cannot be had, those before it are closed
            self.engine = make_engine(self.agent, self.buffer, config, threads)
            made.enter_context(contextlib.closing(self.engine))
            if config.workers == "ray":
                self.evaluator = make_evaluator(make, config, threads, device)
                made.enter_context(contextlib.closing(self.evaluator))
                self.remote = made.enter_context(contextlib.closing(RayCollector(config, spaces, make)))
            else:
                environments, self.evaluator, worker_backend = make_vector_envs(make, config, threads, device)
                made.enter_context(contextlib.closing(self.evaluator))
                made.enter_context(contextlib.closing(environments))
                if worker_backend.kind != "none":
                    self.placement += f", {worker_backend}"
                self.collector = Collector(environments, seeds, *bounds, settings.exploration_noise)
            self._made = made.pop_all()
        self.env_steps = 0
        self.status, self.stop_reason = "running", ""
        self._frozen: dict[int, dict[str, Any]] = {}
        self._warned_seeds: set[int] = set()
        self._snapshots: dict[int, Agent] = {}
        self._saved: int | None = None
        self._examined: dict[int, list[dict[str, Any] | None]] = {}  # None: frozen
        self._best = np.full(len(seeds), -np.inf)
        self._episodes: list[list[Episode]] = [[] for _ in seeds]
        self._logged_updates = np.zeros(len(seeds), np.int64)
        self._writing = ThreadPoolExecutor(min(MOST_WRITING, len(seeds)), "td3 writing")

    def stop(self, reason: str) -> None:
        """End training after this round, as if it had been the last: evaluated, saved, and resumable."""
        self.stop_reason = reason

    def run(self, callbacks: CallbackList, checkpoint: Checkpoint | None, notices: Sequence[str] = ()) -> None:
        """Train to the last env step, from the first or from a checkpoint; `notices` are warnings to begin with."""
        config, self.callbacks = self.config, callbacks
        self.first_step = 0 if checkpoint is None else checkpoint.env_steps
        assert config.out is not None
        self.path, self._begun, self._time = config.out, time.monotonic(), TimeBudget()
        self._checkpoints = Checkpoints(self.path)
        self._saving_seconds, self._last_save, self._save_cost = 0.0, time.monotonic(), 0.0
        self.status, reason = "failed", ""
        self.writers: list[MemberWriter] = []
        try:
            for notice in notices:
                self.warn(notice)
            if checkpoint is None:
                self._checkpoints.start_new()
                self.writers = [MemberWriter(self.path / f"seed_{seed}", config.env) for seed in config.member_seeds]
            else:
                try:
                    self._restore(checkpoint)
                except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
                    raise RunError(f"{self.path} has a checkpoint that does not fit its run ({error}).") from error
            self._write_status("running")
            self.callbacks.on_training_start(self)
            self.engine.on_warning = self.warn
            self.info(self.engine.description)
            if why := self.agent.backend.slower_because:
                self.info(f"Updates are slower than they could be, because {why}.")
            for member, facts in self._frozen.items():
                self.info(f"Seed {config.member_seeds[member]} stays frozen: {facts['reason']}")
            if checkpoint is None and (note := config.warm_up_note()):
                self.info(note)
            if config.env_kwargs:
                self.info(f"Made with {json.dumps(config.env_kwargs)}.")
            if config.normalize_observations:
                self.info("Observations are normalized by their running mean and standard deviation.")
            if self.spaces.flattened:
                self.info(f"Observations: {self.spaces.flattened}, flattened to {self.spaces.state_size} numbers.")
            if checkpoint is None:
                self._evaluate()
                self._save_checkpoint()  # so that there is one, however early the end comes
            self._raise_failure()
            with StopSignals() as stopped:
                while self.env_steps < config.steps and not self.stop_reason:
                    self._round()
                    self._raise_failure()
                    if stopped.noted:
                        stopped.deaf = True  # a save that was begun is finished
                        self._save_checkpoint()
                        raise KeyboardInterrupt
            self._record_evaluations(wait=True)
            if self._saved != self.env_steps:  # else it was killed after its last checkpoint
                self._save_checkpoint()
            self._raise_failure()
            self.status, reason = ("stopped", self.stop_reason) if self.stop_reason else ("finished", "")
        except KeyboardInterrupt:
            self.status = "interrupted"
            raise
        except CallbackError as error:
            reason = str(error)
            raise CallbackError(f"{reason} {self._resume_hint()}") from error.__cause__
        except NonFinite as error:
            reason = self._diagnosis(str(error), range(self.agent.members))
            raise Diverged(f"{reason} {self._resume_hint()}") from None
        except EnvironmentFault as error:
            reason = str(error)
            raise EnvironmentFault(f"{error} {self._resume_hint()}") from error
        except OSError as error:
            reason = f"{error.filename or self.path} cannot be written ({error.strerror})."
            raise RunError(f"{reason} {self._resume_hint()}") from error
        finally:
            # A disk that is full must not hide why the run ended.
            with contextlib.suppress(OSError):
                self._save("last", self.agent, self.env_steps, self._active_members)
            for writer in self.writers:
                with contextlib.suppress(OSError):
                    writer.close()
            with contextlib.suppress(OSError):
                self._write_status(self.status, reason)
            self.callbacks.on_training_end(self)

    def warn(self, text: str) -> None:
        """Tell the callbacks of something that training survives."""
        self.callbacks.on_warning(self, text)

    def info(self, text: str) -> None:
        """Tell the callbacks how this run is executed."""
        self.callbacks.on_info(self, text)

    def _raise_failure(self) -> None:
        """End the run if a callback has failed, with a checkpoint of the round that is complete now."""
        if self.callbacks.failure:
            self._save_checkpoint()
            raise self.callbacks.failure

    def _round(self) -> None:
        """One env step of every environment, and the updates that belong to it."""
        before, lap = self.env_steps, self._time.lap
        if self.config.td3.learning_rate_schedule != "constant":
            self.engine.set_learning_rates(*self.config.td3.learning_rates(before / self.config.steps))
        if self.remote:
            found = self._collect_from_afar(self.remote)
            if found is None:
                return  # nobody has sent enough yet
            rows, episodes = found
        else:
            rows, episodes = self._collect_here()
        lap("env")
        self._freeze_failed()
        self.engine.store(rows)
        lap("store")
        self.env_steps += rows.shape[1]
        self.engine.update(self._updates_due_for_episodes(episodes))
        self._freeze_failed()
        lap("update")
        for episode in episodes:
            if episode.member not in self._frozen:
                self._episodes[episode.member].append(episode)
                self.writers[episode.member].episode(episode)
                self.callbacks.on_episode_end(self, episode)
        if self._collecting.faults:
            self._tell_faults()
        self._record_evaluations()
        self._write_on_schedule(before)
        self.callbacks.on_env_step(self)
        lap("other")
        if self._save_is_due(before):
            self._save_checkpoint()
            lap("save")

    def _collect_here(self) -> tuple[Array, list[Episode]]:
        """Act, update, step: rows of every environment once, and the episodes that ended."""
        before, lap = self.env_steps, self._time.lap
        warm_up = before < self.config.td3.learning_starts
        if not warm_up:
            self.engine.act_async(self.collector.member_states)
        lap("act")
        owed = self._updates_due_for_steps(before + self.collector.envs_per_member)
        if self.engine.asynchronous:
            # A GPU's update begins when the actions are on their way, and runs on while the environments step.
            self.engine.update(owed)
            lap("update")
        actions = self.collector.act(None) if warm_up else self.collector.explore(self.engine.act_wait())
        lap("act")
        self.collector.begin(actions)
        lap("env")
        if not self.engine.asynchronous:
            # Environments in threads or processes step meanwhile.
            self.engine.update(owed)
            lap("update")
        self.engine.prepare()
        return self.collector.finish()

    def _collect_from_afar(self, remote: RayCollector) -> tuple[Array, list[Episode]] | None:
        """The same with collectors on a cluster: they act and step while this process updates."""
        lap = self._time.lap
        remote.send(int(self.agent.updates.max()), lambda: acting_policy(self.agent))
        lap("act")
        self.engine.update(self._updates_due_for_steps(self.env_steps + remote.envs_per_member))
        lap("update")
        found = remote.take(int(self.agent.updates.max()))
        for sentence in remote.said:
            self.warn(f"env step {self.env_steps:,}: {sentence}")
        remote.said.clear()
        return found

    @property
    def _collecting(self) -> Collector | RayCollector:
        return self.remote or self.collector

    @property
    def _active_members(self) -> list[int]:
        return [member for member in range(self.agent.members) if member not in self._frozen]

    def _check(self) -> None:
        """Find out whether an update on a GPU has frozen a member."""
        self.engine.check()
        self._freeze_failed()

    def _freeze_failed(self) -> None:
        """Leave seeds where they are whose numbers broke down or whose environments failed for good: others go on."""
        failed = {} if self.remote else self.collector.failed
        if len(self.engine.frozen) == len(self._frozen) == len(self._frozen.keys() | failed.keys()):
            return
        for member, reason in failed.items():
            self.engine.freeze(member, reason)
        if len(self.engine.frozen) == self.agent.members:
            raise EnvironmentFault(list(failed.values())[-1])  # where it was the numbers, the engine has raised
        for member in sorted(self.engine.frozen.keys() - self._frozen.keys()):
            reason = failed.get(member) or self._diagnosis(self.engine.frozen[member], [member])
            self._frozen[member] = {"env_steps": self.env_steps, "reason": reason}
            self._save("last", self.agent, self.env_steps, [member])
            if not self.remote:
                self.collector.deactivate(member)
            self._episodes[member] = []
            seed = self.config.member_seeds[member]
            self.warn(f"seed {seed} is frozen, and the other seeds go on: {reason}")
        self._write_status("running")

    def _tell_faults(self) -> None:
        for fault in self.collector.faults:
            seed = self.config.member_seeds[fault.member]
            self.warn(f"seed {seed}, env step {self.env_steps:,}: {fault.reason}; a new episode was begun.")
        self.collector.faults.clear()

    def _save_is_due(self, before: int) -> bool:
        every = self.config.save_every
        if self.env_steps >= self.config.steps or every == 0:
            return False  # the end saves by itself
        if every is not None:
            return before // every < self.env_steps // every
        return time.monotonic() - self._last_save > max(SAVE_INTERVAL, self._save_cost / SAVING_SHARE)

    def _save_checkpoint(self) -> None:
        """Save everything; where the disk does not allow it, say so and go on."""
        if self.config.save_every == 0:
            return
        begun = time.monotonic()
        try:
            self.engine.flush()
            self.callbacks.on_checkpoint(self)
            if not self.agent.active.any():
                self.engine.check()  # raises; else seeds are frozen on a schedule of env steps, not of the clock
            self._checkpoints.save(self.env_steps, *self._state(), self.buffer)
            self._saved = self.env_steps
            self._write_status("running")
        except OSError as error:
            self.warn(
                f"the checkpoint at env step {self.env_steps:,} could not be written ({error.strerror}); "
                "the one before it stays, and training goes on."
            )
        self._last_save = time.monotonic()
        self._save_cost = self._last_save - begun
        self._saving_seconds += self._save_cost

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Everything that the run is, except its transitions."""
        facts = {
            "config": self.config.to_json(),
            "versions": self._versions,
            "added": self.buffer.added,
            "pending_evaluations": {str(env_steps): self._examined[env_steps] for env_steps in sorted(self._snapshots)},
            "positions": {str(s): w.position() for s, w in zip(self.config.member_seeds, self.writers, strict=True)},
            "seconds": round(self._seconds(), 3),
            "frozen": self._frozen_seeds(),
            "callbacks": self.callbacks.state(),
            "saving_seconds": round(self._saving_seconds, 3),
        }
        tensors = self._tensors()
        for member, writer in enumerate(self.writers):
            tensors |= {f"history.{member}.{name}": array for name, array in writer.history.items()}
        return facts, tensors

    def _tensors(self) -> dict[str, Array]:
        tensors: dict[str, Tensor | Array] = {
            **{f"agent.{name}": tensor for name, tensor in self.agent.tensors().items()},
            "updates": self.agent.updates,
            "active": self.agent.active,
            "loss_sums": self.engine.losses.sums,
            "logged_updates": self._logged_updates,
            "best_returns": self._best,
            "unlogged_episodes": np.array([e for episodes in self._episodes for e in episodes], np.float64),
            **{f"buffer.{name}": array for name, array in self.buffer.state().items()},
            **{f"collector.{name}": array for name, array in self._collecting.state().items()},
        }
        for number, env_steps in enumerate(sorted(self._snapshots)):
            networks = self._snapshots[env_steps].tensors()
            tensors |= {f"pending.{number}.{name}": networks[name] for name in NETWORKS if name in networks}
            tensors[f"pending.{number}.updates"] = self._snapshots[env_steps].updates
        return {name: _array(value) for name, value in tensors.items()}

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Stand where the checkpoint was taken."""
        facts, tensors = checkpoint.facts, checkpoint.tensors
        for name, array in self._tensors().items():
            fits = array.shape == tensors[name].shape or name in ("unlogged_episodes", "collector.actions")
            if tensors[name].dtype != array.dtype or not (fits or self.remote):
                raise ValueError(f"{name} has the shape {tensors[name].shape} instead of {array.shape}")
        counts = {name: tensors[name] for name in ("updates", *COLLECTED) if not (self.remote and name in COLLECTED)}
        longest = np.max(counts.get("collector.lengths", 0), initial=0)
        if longest > checkpoint.env_steps or any(np.any(count < 0) for count in counts.values()):
            raise ValueError("it has counted less than nothing, or a longer episode than the run")
        self.callbacks.load_state(facts.get("callbacks", {}))
        self._checkpoints.continue_from(checkpoint)
        for member, seed in enumerate(self.config.member_seeds):
            if why := facts.get("frozen", {}).get(str(seed)):
                self._frozen[member] = {"env_steps": int(why["env_steps"]), "reason": str(why["reason"])}
                self.engine.freeze(member, self._frozen[member]["reason"])
                if not self.remote:
                    self.collector.deactivate(member)
        self._saved = self.env_steps = checkpoint.env_steps
        fill_buffer(self.buffer, checkpoint, facts["added"])
        _load_tensors(self.agent, tensors, "agent.")
        self.agent.updates[:] = tensors["updates"]
        if "active" in tensors:
            self.agent.active.copy_(torch.from_numpy(tensors["active"]))
        self.engine.losses.sums.copy_(torch.from_numpy(tensors["loss_sums"]))
        self.engine.seek()
        self._logged_updates = tensors["logged_updates"].copy()
        self._best = tensors["best_returns"].copy()
        for member, episode_return, length, timed_out in tensors["unlogged_episodes"].reshape(-1, 4).tolist():
            episode = Episode(int(member), episode_return, int(length), bool(timed_out))
            self._episodes[episode.member].append(episode)
        if self.remote:
            self.warn(self.remote.restore(_named(tensors, "collector."), self.env_steps))
        elif strayed := self.collector.restore(_named(tensors, "collector.")):
            self.warn(
                f"{self.config.env} does not repeat itself when an episode is played again: {len(strayed)} unfinished "
                "episodes were lost, and the run goes on with new ones, not exactly as it would have."
            )
        self._begun -= facts["seconds"]
        self._saving_seconds += facts.get("saving_seconds", 0.0)  # which the first version did not count on
        for member, seed in enumerate(self.config.member_seeds):
            writer = MemberWriter(
                self.path / f"seed_{seed}", self.config.env, facts["positions"][str(seed)], facts["seconds"]
            )
            self.writers.append(writer)
            writer.restore_history(_named(tensors, f"history.{member}."))
        pending = {int(name): examined for name, examined in facts["pending_evaluations"].items()}
        for number, env_steps in enumerate(sorted(pending)):
            snapshot = self.agent.copied()
            _load_tensors(snapshot, tensors, f"pending.{number}.")
            snapshot.updates[:] = tensors[f"pending.{number}.updates"]
            self._snapshots[env_steps], self._examined[env_steps] = snapshot, pending[env_steps]
            self.evaluator.begin(env_steps, live_policy(snapshot), _missing(pending[env_steps]))

    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    def _write_status(self, status: str, reason: str | None = None) -> None:
        known = {"status": status, "env_steps": self.env_steps, **({"reason": reason} if reason else {})}
        known |= {"frozen": self._frozen_seeds()} if self._frozen else {}
        times = {"seconds": round(self._seconds(), 3), "saving_seconds": round(self._saving_seconds, 3)}
        collectors = self.remote.figures() if self.remote else {}
        write_json(self.path / "status.json", {**known, **times, **collectors})

    def _frozen_seeds(self) -> dict[str, dict[str, Any]]:
        return {str(self.config.member_seeds[member]): dict(facts) for member, facts in sorted(self._frozen.items())}

    def _resume_hint(self) -> str:
        if self._saved is None:
            return "There is no checkpoint yet."
        if not self._checkpoints.has(self._saved):
            return f"{self.path} no longer has its checkpoints: if it was moved, resume it where it is now."
        return f"The checkpoint at env step {self._saved:,} is whole: td3 resume {self.path} goes on from there."

    def _diagnosis(self, reason: str, members: Sequence[int]) -> str:
        largest = self._largest_rewards()
        rewards = ", ".join(f"{largest[member]:.3g}" for member in members)
        return (
            f"Learning broke down at env step {self.env_steps:,}: {reason}. That step was not taken, and all weights "
            f"are finite. The largest reward seen was {rewards}: lower the learning rates, or bring rewards and "
            "observations nearer to 1."
        )

    def _warn_about_divergence(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Say once of a seed that its critics promise far more than its rewards can add up to."""
        active = self._active_members
        settled = [
            m
            for m, row in enumerate(rows)
            if m in active and row["updates"] >= ALARM_AFTER and m not in self._warned_seeds
        ]
        largest = self._largest_rewards() if settled else []
        for member in settled:
            possible, said = largest[member] / max(1e-3, 1 - self.config.td3.gamma), rows[member]["mean_q"]
            if abs(said) > 2 * possible > 0:
                self._warned_seeds.add(member)
                self.warn(
                    f"seed {self.config.member_seeds[member]}: the critics say {said:.3g} on average, where rewards of "
                    f"at most {largest[member]:.3g} can add up to {possible:.3g}: learning diverges. Lower the "
                    "learning rates or raise --td3.policy-delay."
                )

    def _largest_rewards(self) -> list[float]:
        """Each seed's reward in the buffer that is farthest from 0."""
        self.engine.flush()
        rewards = self.buffer.rows[:, : len(self.buffer), -2]
        if not len(self.buffer):
            return [0.0] * self.agent.members
        largest: list[float] = rewards.abs().amax(1).tolist()
        return largest

    def _updates_due_for_steps(self, env_steps: int) -> list[int]:
        """Updates due when so many env steps have been begun, less those done; none from an empty buffer."""
        settings = self.config.td3
        if settings.train_freq != "step" or len(self.buffer) == 0:
            return [0] * self.agent.members
        due = int(max(0, env_steps - settings.learning_starts) * settings.utd_ratio)
        owed: list[int] = (due - self.agent.updates).tolist()
        return owed

    def _updates_due_for_episodes(self, episodes: Sequence[Episode]) -> list[int]:
        """As many updates as the ended episodes had steps."""
        owed = [0] * self.agent.members
        if self.config.td3.train_freq == "episode":
            for episode in episodes:
                owed[episode.member] += round(episode.length * self.config.td3.utd_ratio)
        return owed

    def _write_on_schedule(self, before: int) -> None:
        last = self.env_steps >= self.config.steps
        if last or before // LOG_EVERY < self.env_steps // LOG_EVERY:
            self._log()
        every = self.config.eval_every or self.config.steps
        if last or before // every < self.env_steps // every:
            self._evaluate()

    def _log(self) -> None:
        self._check()
        updates = self.agent.updates.copy()
        losses = self.engine.mean_losses((updates - self._logged_updates).tolist())
        self._logged_updates = updates
        rows = []
        for member, writer in enumerate(self.writers):
            finished = self._episodes[member]
            self._episodes[member] = []
            if member in self._frozen:
                rows.append({**dict.fromkeys(METRICS, np.nan), "env_steps": self.env_steps})
                continue
            rows.append(
                {
                    "env_steps": self.env_steps,
                    "updates": int(updates[member]),
                    "episodes": len(finished),
                    "timeouts": sum(e.timed_out for e in finished),
                    "episode_return": float(np.mean([e.episode_return for e in finished])) if finished else np.nan,
                    "episode_length": float(np.mean([e.length for e in finished])) if finished else np.nan,
                    **losses[member],
                }
            )
            writer.metrics(rows[-1])
        self.callbacks.on_log(self, rows)
        self._warn_about_divergence(rows)

    def _evaluate(self) -> None:
        self._check()
        beside = isinstance(self.evaluator, EvaluationWorkers)
        if self.agent.normalizer is not None:
            self.engine.flush()  # rows that still wait count in what normalizes, whichever the engine
        # What is evaluated while training goes on must be a copy.
        snapshot = self.agent.copied() if beside or self.buffer.rows.is_cuda else self.agent
        self._snapshots[self.env_steps] = snapshot
        examined = examine(
            self.agent, self.buffer, self.config.member_seeds, self.env_steps, waiting=self._collecting.envs_per_member
        )
        known = [None if member in self._frozen else row for member, row in enumerate(examined)]
        self._examined[self.env_steps] = known
        self.evaluator.begin(self.env_steps, live_policy(snapshot), _missing(known))
        self._record_evaluations()

    def _record_evaluations(self, wait: bool = False) -> None:
        for env_steps, evaluation in self.evaluator.finished(wait):
            snapshot, examined = self._snapshots.pop(env_steps), self._examined.pop(env_steps)
            assert evaluation.visits is not None
            values = value_against_return(snapshot, evaluation.visits)
            nothing = dict.fromkeys(DIAGNOSTICS, np.nan)
            diagnosed = [
                {**nothing, **(a or {}), **b, "env_steps": env_steps} for a, b in zip(examined, values, strict=True)
            ]
            self._time.lap("evaluate")
            record = partial(self._record_member, env_steps, snapshot)
            # Side by side: what takes time is the disk, and it takes many files in the time of one.
            found = zip(range(self.agent.members), evaluation.returns, evaluation.lengths, diagnosed, strict=True)
            each = [one for one in found if examined[one[0]] is not None]
            list(self._writing.map(record, *zip(*each, strict=True)))
            self._time.lap("save")
            self.callbacks.on_evaluation(self, evaluation._replace(env_steps=env_steps))
            self.callbacks.on_diagnostics(self, env_steps, diagnosed)
            self.callbacks.on_timing(self, self._time.take())

    def _record_member(
        self, env_steps: int, snapshot: Agent, member: int, returns: Array, lengths: Array, diagnosed: dict[str, Any]
    ) -> None:
        """Write what one member's evaluation found, and the agents that are kept for it."""
        self.writers[member].diagnostics(diagnosed)
        self.writers[member].evaluation(env_steps, returns, lengths)
        if is_milestone(env_steps, self.config):
            self._save(f"snapshots/{env_steps:09}", snapshot, env_steps, [member], actor_only=True)
        if returns.mean() > self._best[member]:
            self._best[member] = returns.mean()
            self._save("best", snapshot, env_steps, [member])

    def _save(self, which: str, agent: Agent, env_steps: int, members: Sequence[int], actor_only: bool = False) -> None:
        config = self.config
        for member in members:
            facts = {
                "env": config.env,
                "seed": config.member_seeds[member],
                "env_steps": env_steps,
                "updates": int(agent.updates[member]),
                "hidden_sizes": list(config.td3.hidden_sizes),
                "versions": self._versions,
            }
            if agent.critics.encoder is not None:
                facts["strides"] = list(agent.critics.encoder.plan.strides)
            save_agent(self.path / f"seed_{facts['seed']}" / which, agent, member, self.spaces, facts, actor_only)

    def close(self) -> None:
        """Let go of environments and threads."""
        self._made.close()
        self._writing.shutdown()


def is_milestone(env_steps: int, config: TrainConfig) -> bool:
    """Whether an evaluation at this env step is one of the about ten, from start to end, whose actors are kept."""
    every = config.eval_every or config.steps
    tenths = [SNAPSHOTS * every * (env_steps // every - back) // config.steps for back in (0, 1)]
    return tenths[0] > tenths[1] or env_steps >= config.steps


def _missing(rows: Sequence[object | None]) -> list[int]:
    return [index for index, row in enumerate(rows) if row is None]


def _array(value: Tensor | Array) -> Array:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _named(tensors: Mapping[str, Array], beginning: str) -> dict[str, Array]:
    return {name[len(beginning) :]: array for name, array in tensors.items() if name.startswith(beginning)}


def _load_tensors(agent: Agent, tensors: Mapping[str, Array], beginning: str) -> None:
    """Put saved tensors of these names into an agent, in place."""
    for name, tensor in agent.tensors().items():
        if beginning + name in tensors:
            tensor.copy_(torch.from_numpy(tensors[beginning + name]))
