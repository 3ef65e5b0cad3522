"""The loop: act, update, step, store; evaluate and write on a schedule of env steps.

One order of events, whatever the engine: the action comes from the actor as the last update left it; while the
environments do it, the update draws from the memory as it was before that step.
"""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
import torch

from td3.algorithm import Agent, ReplayMemory, make_replay_memory
from td3.checkpoint import save_agent
from td3.collect import Collector, Episode
from td3.config import TrainConfig, resolve
from td3.diagnostics import TimeBudget, examine, value_against_return
from td3.engine import TOLERANCE, TOLERANCE_TF32, EagerEngine, GraphEngine, disagreement, live_policy
from td3.environments import EnvironmentPool, EnvironmentRow, TaskSpaces, check_environment, make_environment
from td3.errors import ConfigError
from td3.evaluate import Evaluation, EvaluationWorkers, Evaluator
from td3.policy import Array
from td3.report.live import Companions
from td3.resources import available_threads, require_memory
from td3.run import MemberWriter, Run, new_directory, versions, write_json

LOG_EVERY = 1_000
"""Env steps between rows of metrics.csv."""
SNAPSHOTS = 10
"""Actors kept along the way, besides the newborn: enough for a film of the learning."""


@runtime_checkable
class Observer(Protocol):
    """Someone who watches a run: a progress display, a test. It sees everything and changes nothing."""

    def started(self, config: TrainConfig, path: Path, device: str) -> None:
        """The run directory exists and training is about to begin."""

    def progressed(self, env_steps: int) -> None:
        """Another round of env steps is done."""

    def logged(self, env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """A row of metrics per seed was written."""

    def evaluated(self, env_steps: int, evaluation: Evaluation) -> None:
        """All seeds were evaluated."""

    def diagnosed(self, env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """A row of diagnostics per seed was written."""

    def spent(self, env_steps: int, seconds: dict[str, float]) -> None:
        """Where the time went since it was told before."""

    def hinted(self, text: str) -> None:
        """Something looks wrong: a sentence that was not said before."""


class Silence:
    """The observer who looks away."""

    def started(self, config: TrainConfig, path: Path, device: str) -> None:
        """Nothing."""

    def progressed(self, env_steps: int) -> None:
        """Nothing."""

    def logged(self, env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """Nothing."""

    def evaluated(self, env_steps: int, evaluation: Evaluation) -> None:
        """Nothing."""

    def diagnosed(self, env_steps: int, rows: Sequence[dict[str, Any]]) -> None:
        """Nothing."""

    def spent(self, env_steps: int, seconds: dict[str, float]) -> None:
        """Nothing."""

    def hinted(self, text: str) -> None:
        """Nothing."""


def train(env: str, *, preset: str = "author", **fields: Any) -> Run:
    """Train and return the run: `td3.train("HalfCheetah-v5", steps=100_000, seeds=3, batch_size=128)`."""
    config = resolve(env, preset, **fields)
    for warning in config.warnings():
        warnings.warn(warning, stacklevel=2)
    return train_run(config)


def train_run(config: TrainConfig, observer: Observer | None = None) -> Run:
    """Train as configured; Ctrl-C saves what was learnt, and then goes on up as KeyboardInterrupt."""
    make = partial(make_environment, config.env)
    device = choose_device(config.device)
    with contextlib.closing(make()) as probe:
        spaces = check_environment(probe, config.env)
    row_bytes = 4 * (2 * spaces.state_size + spaces.action_size + 2)
    memory_size = min(config.td3.memory_size, _longest(config))
    require_memory(config.seeds * memory_size * row_bytes, memory_size, config.seeds, device)
    path = new_directory(config)
    config = replace(config, out=path)
    write_json(path / "config.json", config.to_json())
    write_json(path / "versions.json", versions())
    training = Training(config, spaces, make, device, memory_size)
    companions = Companions(observer or Silence())
    try:
        training.run(path, companions)
    finally:
        training.close()
        companions.close()
    return Run(path)


def choose_device(name: str) -> torch.device:
    """The device of this name; auto takes a GPU if there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda was asked for, but PyTorch finds no GPU here: use --device cpu or auto.")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and torch.cuda.is_available()) else "cpu")


@runtime_checkable
class Engine(Protocol):
    """How updates and actions are executed."""

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates of each member."""

    def act(self, states: Array) -> Array:
        """The actors' actions `[member, count, action]` for states `[member, count, state]`."""

    def store(self, rows: Array) -> None:
        """Put new rows into the memory; updates begun before do not see them."""

    def mean_losses(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means over all updates since the previous call."""

    def close(self) -> None:
        """Let go of threads and devices."""


def make_engine(agent: Agent, memory: ReplayMemory, config: TrainConfig, threads: int) -> Engine:
    """Graphs on a GPU, plain execution elsewhere, or where members do not update in step."""
    seeds, settings = config.member_seeds, config.td3
    if memory.rows.is_cuda and settings.update_when == "step":
        torch.backends.cuda.matmul.allow_tf32 = config.tf32
        drift = disagreement(agent, seeds, settings)
        allowed = TOLERANCE_TF32 if config.tf32 else TOLERANCE
        if drift <= allowed:
            return GraphEngine(agent, memory, seeds, settings, config.envs)
        warnings.warn(
            f"updates by CUDA graphs differ from plain ones by {drift:.1e} (allowed: {allowed:.0e}); "
            "this run executes them plainly, which is slower.",
            stacklevel=2,
        )
    return EagerEngine(agent, memory, seeds, settings, threads)


def place_environments(
    make: Callable[[], gym.Env[Any, Any]], config: TrainConfig, threads: int, device: torch.device
) -> tuple[EnvironmentRow | EnvironmentPool, Evaluator | EvaluationWorkers]:
    """Environments of training and of evaluation: in this process, or, beside a GPU with cores to spare, in others."""
    count = config.seeds * config.envs
    if device.type == "cpu" or threads < 4:
        evaluator = Evaluator(make, config.member_seeds, config.eval_episodes, config.td3.gamma)
        return EnvironmentRow([make() for _ in range(count)]), evaluator
    # Two environments one after another take less time than the GPU's update; every further worker would
    # spin on a core that evaluation can use, which at the paper's protocol takes twice the env steps of training.
    stepping = 0 if count <= 2 else min(-(-count // 2), threads // 2)
    evaluating = max(1, min(config.seeds, threads - stepping - 1))
    workers = EvaluationWorkers(make, config.member_seeds, config.eval_episodes, evaluating, config.td3.gamma)
    if stepping == 0:
        return EnvironmentRow([make() for _ in range(count)]), workers
    return EnvironmentPool(make, count, stepping), workers


class Training:
    """Everything that a run keeps in its hands, and the loop itself."""

    def __init__(
        self,
        config: TrainConfig,
        spaces: TaskSpaces,
        make: Callable[[], gym.Env[Any, Any]],
        device: torch.device,
        memory_size: int,
    ) -> None:
        self.config, self.spaces = config, spaces
        settings, seeds = config.td3, config.member_seeds
        self.agent = Agent.create(
            seeds,
            spaces.state_size,
            spaces.action_low,
            spaces.action_high,
            settings.hidden_sizes,
            settings.actor_learning_rate,
            settings.critic_learning_rate,
            settings.optimizer,
            device,
        )
        self.memory = make_replay_memory(len(seeds), memory_size, spaces.state_size, spaces.action_size, device)
        threads = config.threads or available_threads()
        self.engine = make_engine(self.agent, self.memory, config, threads)
        bounds = (spaces.action_low, spaces.action_high)
        environments, self.evaluator = place_environments(make, config, threads, device)
        self.collector = Collector(environments, seeds, *bounds, settings.exploration_noise)
        self.env_steps = 0
        self._snapshots: dict[int, Agent] = {}
        self._examined: dict[int, list[dict[str, Any]]] = {}
        self._best = np.full(len(seeds), -np.inf)
        self._episodes: list[list[Episode]] = [[] for _ in seeds]
        self._logged_updates = np.zeros(len(seeds), np.int64)

    def run(self, path: Path, observer: Observer) -> None:
        """Train from the first env step to the last."""
        config, settings = self.config, self.config.td3
        self._time = TimeBudget()
        lap = self._time.lap
        self.writers = [MemberWriter(path / f"seed_{seed}", config.env) for seed in config.member_seeds]
        observer.started(config, path, str(self.memory.rows.device))
        status = "failed"
        try:
            self._evaluate(observer)
            while self.env_steps < config.steps:
                before = self.env_steps
                warm_up = before < settings.random_steps
                proposed = None if warm_up else self.engine.act(self.collector.member_states)
                lap("act")
                self.engine.update(self._owed_for_steps(before + self.collector.envs_per_member))
                lap("update")
                # On a GPU the update runs on while the environments step.
                actions = self.collector.act(None) if proposed is None else self.collector.explore(proposed)
                lap("act")
                self.collector.begin(actions)
                rows, episodes = self.collector.finish()
                lap("env")
                self.engine.store(rows)
                lap("store")
                self.env_steps += rows.shape[1]
                self.engine.update(self._owed_for_episodes(episodes))
                lap("update")
                for episode in episodes:
                    self._episodes[episode.member].append(episode)
                    self.writers[episode.member].episode(episode)
                self._record_evaluations(observer)
                self._write_on_schedule(before, observer)
                observer.progressed(self.env_steps)
                lap("other")
            self._record_evaluations(observer, wait=True)
            status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            if status != "failed":
                self._save("last", self.agent, self.env_steps, range(self.agent.members))
            for writer in self.writers:
                writer.close()
            write_json(path / "status.json", {"status": status, "env_steps": self.env_steps})

    def _owed_for_steps(self, env_steps: int) -> list[int]:
        """Updates due when so many env steps have been begun, less those done; none from an empty memory."""
        settings = self.config.td3
        if settings.update_when != "step" or len(self.memory) == 0:
            return [0] * self.agent.members
        due = int(max(0, env_steps - settings.random_steps) * settings.updates_per_step)
        return [due - int(done) for done in self.agent.updates]

    def _owed_for_episodes(self, episodes: Sequence[Episode]) -> list[int]:
        """As many updates as the ended episodes had steps."""
        owed = [0] * self.agent.members
        if self.config.td3.update_when == "episode":
            for episode in episodes:
                owed[episode.member] += round(episode.length * self.config.td3.updates_per_step)
        return owed

    def _write_on_schedule(self, before: int, observer: Observer) -> None:
        last = self.env_steps >= self.config.steps
        if last or before // LOG_EVERY < self.env_steps // LOG_EVERY:
            self._log(observer)
        every = self.config.eval_every or self.config.steps
        if last or before // every < self.env_steps // every:
            self._evaluate(observer)

    def _log(self, observer: Observer) -> None:
        updates = self.agent.updates.copy()
        losses = self.engine.mean_losses((updates - self._logged_updates).tolist())
        self._logged_updates = updates
        rows = []
        for member, writer in enumerate(self.writers):
            finished = self._episodes[member]
            self._episodes[member] = []
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
        observer.logged(self.env_steps, rows)

    def _evaluate(self, observer: Observer) -> None:
        beside = isinstance(self.evaluator, EvaluationWorkers)
        # What is evaluated while training goes on must be a copy.
        snapshot = self.agent.copied() if beside or self.memory.rows.is_cuda else self.agent
        self._snapshots[self.env_steps] = snapshot
        self._examined[self.env_steps] = examine(
            self.agent, self.memory, self.config.member_seeds, self.env_steps, waiting=self.collector.envs_per_member
        )
        self.evaluator.begin(self.env_steps, live_policy(snapshot))
        self._record_evaluations(observer)

    def _record_evaluations(self, observer: Observer, wait: bool = False) -> None:
        for env_steps, evaluation in self.evaluator.finished(wait):
            snapshot, examined = self._snapshots.pop(env_steps), self._examined.pop(env_steps)
            assert evaluation.visits is not None
            values = value_against_return(snapshot, evaluation.visits)
            diagnosed = [{"env_steps": env_steps, **a, **b} for a, b in zip(examined, values, strict=True)]
            self._time.lap("evaluate")
            for member, writer in enumerate(self.writers):
                returns = evaluation.returns[member]
                writer.diagnostics(diagnosed[member])
                writer.evaluation(env_steps, returns, evaluation.lengths[member])
                if is_milestone(env_steps, self.config):
                    self._save(f"snapshots/{env_steps:09}", snapshot, env_steps, [member], actor_only=True)
                if returns.mean() > self._best[member]:
                    self._best[member] = returns.mean()
                    self._save("best", snapshot, env_steps, [member])
            self._time.lap("save")
            observer.evaluated(env_steps, evaluation)
            observer.diagnosed(env_steps, diagnosed)
            observer.spent(self.env_steps, self._time.take())

    def _save(self, which: str, agent: Agent, env_steps: int, members: Sequence[int], actor_only: bool = False) -> None:
        config = self.config
        assert config.out is not None
        for member in members:
            facts = {
                "env": config.env,
                "seed": config.member_seeds[member],
                "env_steps": env_steps,
                "updates": int(agent.updates[member]),
                "hidden_sizes": list(config.td3.hidden_sizes),
                "versions": versions(),
            }
            save_agent(config.out / f"seed_{facts['seed']}" / which, agent, member, self.spaces, facts, actor_only)

    def close(self) -> None:
        """Let go of environments and threads."""
        self.engine.close()
        self.collector.environments.close()
        self.evaluator.close()


def is_milestone(env_steps: int, config: TrainConfig) -> bool:
    """Whether an evaluation at this env step is one of the about ten, from start to end, whose actors are kept."""
    every = config.eval_every or config.steps
    tenths = [SNAPSHOTS * every * (env_steps // every - back) // config.steps for back in (0, 1)]
    return tenths[0] > tenths[1] or env_steps >= config.steps


def _longest(config: TrainConfig) -> int:
    """No more rows than this can ever be stored."""
    return -(-config.steps // config.envs) * config.envs
