"""What a trainer is made of: agent, replay buffer, engine, collector and evaluator."""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import torch

from td3.algorithm.agent import Agent
from td3.algorithm.normalizer import NormalizedReplayBuffer
from td3.algorithm.replacing import Replacement
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.collect import RayCollector
from td3.collect.base import BaseCollector, DatasetCollector
from td3.collect.collector import Collector
from td3.collect.hindsight_collector import HindsightCollector
from td3.collect.tensor_collector import TensorCollector
from td3.config import TrainConfig
from td3.engine import Engine, make_engine
from td3.environments import TaskSpaces, guarded
from td3.environments.checked_vector import CheckedVectorEnv
from td3.environments.goals import GoalTask
from td3.environments.guarded import Make
from td3.environments.vector import VectorSource
from td3.evaluate import EvaluationWorkers, Evaluator
from td3.resources import available_threads
from td3.training.setup import make_agent, make_buffer
from td3.training.workers import make_evaluator, make_vector_envs


class Parts(NamedTuple):
    """Everything that is opened for a run; `opened` closes it."""

    agent: Agent
    buffer: ReplayBuffer
    engine: Engine
    evaluator: Evaluator | EvaluationWorkers | None
    """None: nothing is evaluated."""
    collector: BaseCollector
    placement: str
    """Device and workers, in words."""
    opened: contextlib.ExitStack


def open_parts(
    config: TrainConfig,
    spaces: TaskSpaces,
    make: Make | VectorSource,
    device: torch.device,
    buffer_size: int,
    in_host_ram: bool,
    replacements: Sequence[Replacement] = (),
    eval_make: Make | VectorSource | None = None,
) -> Parts:
    """All parts of a run that has not begun; where one cannot be had, those before it are closed.

    `eval_make` makes the environments of evaluation where `make` makes a vector of training; else `make` does.
    """
    agent, seeds = make_agent(config, spaces, device, replacements), config.member_seeds
    buffer = make_buffer(len(seeds), buffer_size, spaces, device, in_host_ram)
    # One of Ray's collectors sends rows of one environment only.
    buffer.stride = 1 if config.workers == "ray" else config.rows_per_round
    buffer.rows_per_round, buffer.rows_per_env_step = config.rows_per_round, config.rows_per_round // config.envs
    if agent.normalizer is not None:
        buffer = NormalizedReplayBuffer(buffer, agent.normalizer)
    placement = f"{buffer.rows.device}" + (", replay buffer in the host's RAM" if in_host_ram else "")
    threads = config.threads or available_threads()
    collecting = (spaces.action_low, spaces.action_high, config.td3.exploration_noise, config.td3.timeouts)
    collector: BaseCollector
    evaluator: Evaluator | EvaluationWorkers | None
    with contextlib.ExitStack() as opened:
        engine = make_engine(agent, buffer, config, threads)
        opened.enter_context(contextlib.closing(engine))
        if isinstance(make, VectorSource):
            evaluator = make_evaluator(eval_make, config, threads, device) if eval_make else None
            if evaluator is not None:
                opened.enter_context(contextlib.closing(evaluator))
            vector = opened.enter_context(contextlib.closing(make.training(config.seeds * config.envs, config.seed)))
            placement += f", {vector.num_envs} environments in one vector"
            vector.as_tensors = stays_on_device(vector, buffer)
            collector = (TensorCollector if vector.as_tensors else Collector)(vector, seeds, *collecting)
        elif config.dataset:
            evaluator, collector = make_evaluator(make, config, threads, device), DatasetCollector(len(seeds))
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
            if "hindsight" in config.variant:
                task = GoalTask(opened.enter_context(guarded.opened(make)), config.env)
                collector = HindsightCollector(environments, seeds, *collecting, task, config.td3.hindsight_goals)
            else:
                collector = Collector(environments, seeds, *collecting)
        return Parts(agent, buffer, engine, evaluator, collector, placement, opened.pop_all())


def stays_on_device(vector: CheckedVectorEnv, buffer: ReplayBuffer) -> bool:
    """Whether a vector environment's tensors are on the learner's GPU; on a CPU they share their memory with arrays."""
    return buffer.rows.is_cuda and vector.device == buffer.rows.device
