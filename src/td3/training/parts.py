"""What a trainer is made of: agent, replay buffer, engine, collector and evaluator."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import torch

from td3.algorithm import Agent, NormalizedReplayBuffer, ReplayBuffer
from td3.algorithm.replacing import Replacement
from td3.collect import RayCollector
from td3.collect.collector import Collector
from td3.collect.hindsight_collector import HindsightCollector
from td3.config import TrainConfig
from td3.engine import make_engine
from td3.environments import TaskSpaces, guarded
from td3.environments.goals import GoalTask
from td3.evaluate import EvaluationWorkers, Evaluator
from td3.offline import DatasetCollector
from td3.resources import available_threads
from td3.training.engines import Engine
from td3.training.setup import make_agent, make_buffer
from td3.training.workers import make_evaluator, make_vector_envs


class Parts(NamedTuple):
    """Everything that is opened for a run; `opened` closes it."""

    agent: Agent
    buffer: ReplayBuffer
    engine: Engine
    evaluator: Evaluator | EvaluationWorkers
    collector: Collector | RayCollector | DatasetCollector
    placement: str
    """Device and workers, in words."""
    opened: contextlib.ExitStack


def open_parts(
    config: TrainConfig,
    spaces: TaskSpaces,
    make: Callable[[], gym.Env[Any, Any]],
    device: torch.device,
    buffer_size: int,
    in_host_ram: bool,
    replacements: Sequence[Replacement] = (),
) -> Parts:
    """All parts of a run that has not begun; where one cannot be had, those before it are closed."""
    agent, seeds = make_agent(config, spaces, device, replacements), config.member_seeds
    buffer = make_buffer(len(seeds), buffer_size, spaces, device, in_host_ram)
    # Ray's collectors send one environment's rows at once.
    buffer.stride = 1 if config.workers == "ray" else config.rows_per_round
    if agent.normalizer is not None:
        buffer = NormalizedReplayBuffer(buffer, agent.normalizer)
    placement = f"{buffer.rows.device}" + (", replay buffer in the host's RAM" if in_host_ram else "")
    threads = config.threads or available_threads()
    collector: Collector | RayCollector | DatasetCollector
    with contextlib.ExitStack() as opened:
        engine = make_engine(agent, buffer, config, threads)
        opened.enter_context(contextlib.closing(engine))
        if config.dataset:
            evaluator, collector = make_evaluator(make, config, threads, device), DatasetCollector()
            opened.enter_context(contextlib.closing(evaluator))
        elif config.workers == "ray":
            evaluator = make_evaluator(make, config, threads, device)
            opened.enter_context(contextlib.closing(evaluator))
            collector = opened.enter_context(contextlib.closing(RayCollector(config, spaces, make)))
        else:
            environments, evaluator, worker_backend = make_vector_envs(make, config, threads, device)
            opened.enter_context(contextlib.closing(evaluator))
            opened.enter_context(contextlib.closing(environments))
            if worker_backend.kind != "none":
                placement += f", {worker_backend}"
            acting = (spaces.action_low, spaces.action_high, config.td3.exploration_noise)
            if "hindsight" in config.variant:
                task = GoalTask(opened.enter_context(guarded.opened(make)), config.env)
                collector = HindsightCollector(environments, seeds, *acting, task, config.td3.hindsight_goals)
            else:
                collector = Collector(environments, seeds, *acting)
        return Parts(agent, buffer, engine, evaluator, collector, placement, opened.pop_all())
