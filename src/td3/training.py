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
from td3.engine import TOLERANCE, TOLERANCE_TF32, EagerEngine, GraphEngine, disagreement, live_policy
from td3.environments import EnvironmentPool, EnvironmentRow, TaskSpaces, check_environment, make_environment
from td3.errors import ConfigError
from td3.evaluate import Evaluation, EvaluationWorkers, Evaluator
from td3.policy import Array
from td3.resources import available_threads, require_memory
from td3.run import MemberWriter, Run, new_directory, versions, write_json

LOG_EVERY = 1_000
"""Env steps between rows of metrics.csv."""


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
    needed = config.seeds * memory_size * row_bytes
    in_host_memory = require_memory(needed, memory_size, config.seeds, device, config.memory_on)
    path = new_directory(config)
    config = replace(config, out=path)
    write_json(path / "config.json", config.to_json())
    write_json(path / "versions.json", versions())
    training = Training(config, spaces, make, device, memory_size, in_host_memory)
    try:
        training.run(path, observer or Silence())
    finally:
        training.close()
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

    def ask(self, states: Array) -> None:
        """Have the actors, as they are now, choose actions for states `[member, count, state]`."""

    def answer(self) -> Array:
        """The actions asked for, `[member, count, action]`."""

    def prepare(self) -> None:
        """Do what can be done ahead, while the environments step."""

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
        evaluator = Evaluator(make, config.member_seeds, config.eval_episodes)
        return EnvironmentRow([make() for _ in range(count)]), evaluator
    # One or two environments, stepped here, take less time than the GPU's update. A few have a worker each: the GPU
    # waits for the slowest. Many are a matter of throughput: at the paper's protocol evaluation takes two env steps for
    # each of training's. With this process that is one process more than cores; workers nap between rounds
    # (docs/performance.md, "On one GPU").
    stepping = 0 if count <= 2 else count if count <= threads * 5 // 8 else threads * 3 // 8
    evaluating = max(1, min(2 * config.seeds, threads - stepping))
    workers = EvaluationWorkers(make, config.member_seeds, config.eval_episodes, evaluating)
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
        in_host_memory: bool = False,
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
        self.memory = make_replay_memory(
            len(seeds), memory_size, spaces.state_size, spaces.action_size, device, in_host_memory=in_host_memory
        )
        self._place = f"{self.memory.rows.device}" + (", replay memory in the host's RAM" if in_host_memory else "")
        threads = config.threads or available_threads()
        self.engine = make_engine(self.agent, self.memory, config, threads)
        bounds = (spaces.action_low, spaces.action_high)
        environments, self.evaluator = place_environments(make, config, threads, device)
        self.collector = Collector(environments, seeds, *bounds, settings.exploration_noise)
        self.env_steps = 0
        self._snapshots: dict[int, Agent] = {}
        self._best = np.full(len(seeds), -np.inf)
        self._episodes: list[list[Episode]] = [[] for _ in seeds]
        self._logged_updates = np.zeros(len(seeds), np.int64)

    def run(self, path: Path, observer: Observer) -> None:
        """Train from the first env step to the last."""
        config, settings = self.config, self.config.td3
        self.writers = [MemberWriter(path / f"seed_{seed}", config.env) for seed in config.member_seeds]
        observer.started(config, path, self._place)
        status = "failed"
        try:
            self._evaluate(observer)
            while self.env_steps < config.steps:
                before = self.env_steps
                warm_up = before < settings.random_steps
                if not warm_up:
                    self.engine.ask(self.collector.member_states)
                self.engine.update(self._owed_for_steps(before + self.collector.envs_per_member))
                # On a GPU the update begins when the actions are on their way, and runs on while the environments step.
                actions = self.collector.act(None) if warm_up else self.collector.explore(self.engine.answer())
                self.collector.begin(actions)
                self.engine.prepare()
                rows, episodes = self.collector.finish()
                self.engine.store(rows)
                self.env_steps += rows.shape[1]
                self.engine.update(self._owed_for_episodes(episodes))
                for episode in episodes:
                    self._episodes[episode.member].append(episode)
                    self.writers[episode.member].episode(episode)
                self._record_evaluations(observer)
                self._write_on_schedule(before, observer)
                observer.progressed(self.env_steps)
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
                    "episode_return": float(np.mean([e.episode_return for e in finished])) if finished else np.nan,
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
        self.evaluator.begin(self.env_steps, live_policy(snapshot))
        self._record_evaluations(observer)

    def _record_evaluations(self, observer: Observer, wait: bool = False) -> None:
        for env_steps, evaluation in self.evaluator.finished(wait):
            snapshot = self._snapshots.pop(env_steps)
            for member, writer in enumerate(self.writers):
                returns = evaluation.returns[member]
                writer.evaluation(env_steps, returns, evaluation.lengths[member])
                if returns.mean() > self._best[member]:
                    self._best[member] = returns.mean()
                    self._save("best", snapshot, env_steps, [member])
            observer.evaluated(env_steps, evaluation)

    def _save(self, which: str, agent: Agent, env_steps: int, members: Sequence[int]) -> None:
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
            save_agent(config.out / f"seed_{facts['seed']}" / which, agent, member, self.spaces, facts)

    def close(self) -> None:
        """Let go of environments and threads."""
        self.engine.close()
        self.collector.environments.close()
        self.evaluator.close()


def _longest(config: TrainConfig) -> int:
    """No more rows than this can ever be stored."""
    return -(-config.steps // config.envs) * config.envs
