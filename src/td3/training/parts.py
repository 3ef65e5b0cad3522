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
from td3.config import TrainConfig
from td3.engine import make_engine
from td3.environments import TaskSpaces
from td3.evaluate import EvaluationWorkers, Evaluator
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
    collector: Collector | RayCollector
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
    # One of Ray's collectors sends rows of one environment only.
    buffer.stride = 1 if config.workers == "ray" else config.envs
    if agent.normalizer is not None:
        buffer = NormalizedReplayBuffer(buffer, agent.normalizer)
    placement = f"{buffer.rows.device}" + (", replay buffer in the host's RAM" if in_host_ram else "")
    threads = config.threads or available_threads()
    collector: Collector | RayCollector
    with contextlib.ExitStack() as opened:
        engine = make_engine(agent, buffer, config, threads)
        opened.enter_context(contextlib.closing(engine))
        if config.workers == "ray":
            evaluator = make_evaluator(make, config, threads, device)
            opened.enter_context(contextlib.closing(evaluator))
            collector = opened.enter_context(contextlib.closing(RayCollector(config, spaces, make)))
        else:
            environments, evaluator, worker_backend = make_vector_envs(make, config, threads, device)
            opened.enter_context(contextlib.closing(evaluator))
            opened.enter_context(contextlib.closing(environments))
            if worker_backend.kind != "none":
                placement += f", {worker_backend}"
            bounds = (spaces.action_low, spaces.action_high)
            collector = Collector(environments, seeds, *bounds, config.td3.exploration_noise)
        return Parts(agent, buffer, engine, evaluator, collector, placement, opened.pop_all())
