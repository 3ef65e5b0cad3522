"""The loop: act, update, step, store; evaluate and write on a schedule of env steps.

One order of events, whatever the engine: the action comes from the actor as the last update left it; while the
environments do it, the update draws from the memory as it was before that step.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch

from td3.algorithm import Agent, make_replay_memory
from td3.checkpoint import save_agent
from td3.collect import Collector, Episode
from td3.config import TrainConfig, resolve
from td3.engine import EagerEngine
from td3.environments import EnvironmentRow, TaskSpaces, check_environment, make_environment
from td3.errors import ConfigError
from td3.evaluate import Evaluation, Evaluator
from td3.resources import available_threads, require_memory
from td3.run import MemberWriter, Run, new_directory, versions, write_json

LOG_EVERY = 1_000
"""Env steps between rows of metrics.csv."""


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
    return train_run(resolve(env, preset, **fields))


def train_run(config: TrainConfig, observer: Observer | None = None) -> Run:
    """Train as configured; Ctrl-C saves what was learnt, and then goes on up as KeyboardInterrupt."""

    def make() -> gym.Env[Any, Any]:
        return make_environment(config.env)

    device = choose_device(config.device)
    environments = [make() for _ in range(config.seeds * config.envs)]
    spaces = check_environment(environments[0], config.env)
    row_bytes = 4 * (2 * spaces.state_size + spaces.action_size + 2)
    memory_size = min(config.td3.memory_size, _longest(config))
    require_memory(config.seeds * memory_size * row_bytes, memory_size, config.seeds, device)
    path = new_directory(config)
    config = replace(config, out=path)
    write_json(path / "config.json", config.to_json())
    write_json(path / "versions.json", versions())
    training = Training(config, spaces, EnvironmentRow(environments), make, device, memory_size)
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


class Training:
    """Everything that a run keeps in its hands, and the loop itself."""

    def __init__(
        self,
        config: TrainConfig,
        spaces: TaskSpaces,
        environments: EnvironmentRow,
        make_evaluation_environment: Callable[[], gym.Env[Any, Any]],
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
        self.engine = EagerEngine(self.agent, self.memory, seeds, settings, threads)
        self.policy = self.engine.policy(spaces.observation_shape, spaces.action_shape)
        bounds = (spaces.action_low, spaces.action_high)
        self.collector = Collector(environments, seeds, *bounds, settings.exploration_noise)
        self.evaluator = Evaluator(make_evaluation_environment, seeds, config.eval_episodes)
        self.env_steps = 0
        self._best = np.full(len(seeds), -np.inf)
        self._episodes: list[list[Episode]] = [[] for _ in seeds]
        self._logged_updates = np.zeros(len(seeds), np.int64)

    def run(self, path: Path, observer: Observer) -> None:
        """Train from the first env step to the last."""
        config, settings = self.config, self.config.td3
        self.writers = [MemberWriter(path / f"seed_{seed}", config.env) for seed in config.member_seeds]
        observer.started(config, path, str(self.memory.rows.device))
        status = "failed"
        try:
            self._evaluate(observer)
            while self.env_steps < config.steps:
                before = self.env_steps
                actions = self.collector.act(self.policy if before >= settings.random_steps else None)
                self.engine.update(self._owed_for_steps(before + self.collector.environments.num_envs // config.seeds))
                rows, episodes = self.collector.step(actions)
                self.memory.add_(torch.from_numpy(rows).to(self.memory.rows.device))
                self.env_steps += rows.shape[1]
                self.engine.update(self._owed_for_episodes(episodes))
                for episode in episodes:
                    self._episodes[episode.member].append(episode)
                    self.writers[episode.member].episode(episode)
                self._write_on_schedule(before, observer)
                observer.progressed(self.env_steps)
            status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            if status != "failed":
                self._save("last")
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
        evaluation = self.evaluator(self.policy)
        for member, writer in enumerate(self.writers):
            returns = evaluation.returns[member]
            writer.evaluation(self.env_steps, returns, evaluation.lengths[member])
            if returns.mean() > self._best[member]:
                self._best[member] = returns.mean()
                self._save("best", [member])
        observer.evaluated(self.env_steps, evaluation)

    def _save(self, which: str, members: Sequence[int] | None = None) -> None:
        config = self.config
        assert config.out is not None
        for member in range(self.agent.members) if members is None else members:
            facts = {
                "env": config.env,
                "seed": config.member_seeds[member],
                "env_steps": self.env_steps,
                "updates": int(self.agent.updates[member]),
                "hidden_sizes": list(config.td3.hidden_sizes),
                "versions": versions(),
            }
            save_agent(config.out / f"seed_{facts['seed']}" / which, self.agent, member, self.spaces, facts)

    def close(self) -> None:
        """Let go of environments and threads."""
        self.engine.close()
        self.collector.environments.close()
        self.evaluator.close()


def _longest(config: TrainConfig) -> int:
    """No more rows than this can ever be stored."""
    return -(-config.steps // config.envs) * config.envs
