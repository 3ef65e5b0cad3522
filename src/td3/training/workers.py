"""Where the environments of training and of evaluation are stepped."""

import contextlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch

from td3.config import TrainConfig
from td3.environments import (
    InProcessVectorEnv,
    ProcessVectorEnv,
    WorkerBackend,
    fastest_workers,
    in_batch,
    place,
    requested_workers,
)
from td3.environments.vector import VectorSource
from td3.evaluate import EvaluationWorkers, Evaluator


def make_vector_envs(
    make: Callable[[], gym.Env[Any, Any]], config: TrainConfig, threads: int, device: torch.device
) -> tuple[InProcessVectorEnv | ProcessVectorEnv, Evaluator | EvaluationWorkers, WorkerBackend]:
    """Environments of training and of evaluation: in this process, in a batch, in threads, or in other processes."""
    count = config.seeds * config.envs
    batch = in_batch(make, threads) if config.workers == "auto" else None
    chosen = requested_workers(config.workers, count) if config.workers != "auto" else batch
    if count == 1 and batch:
        chosen = WorkerBackend()  # Gymnasium steps a single environment as fast
    evaluation = (make, config.member_seeds, config.eval_episodes)
    evaluator: Evaluator | EvaluationWorkers
    if device.type == "cpu" or threads < 4:
        worker_backend = chosen or fastest_workers(make, count)
        # What is kept out of this process in training is kept out of it in evaluation.
        evaluating = worker_backend if worker_backend.kind == "processes" else batch
        evaluator = Evaluator(*evaluation, config.td3.gamma, evaluating, config.env_timeout)
    else:
        # Beside a GPU with cores to spare. One or two environments, stepped here, take less time than the GPU's update.
        # More are spread over as few workers as finish a round as early as a worker on every core but this process's
        # would. Evaluation, at the paper's protocol two env steps for each of training's, takes what they leave of
        # every core: its processes run at idle priority (docs/performance.md, "On one GPU").
        deep = -(-count // (threads - 1))
        stepping = 0 if count <= 2 else -(-count // deep)
        worker_backend = chosen or (WorkerBackend("processes", stepping) if stepping else WorkerBackend())
        workers = min(2 * config.seeds, threads - 1)
        single = batch and batch._replace(workers=1)  # there is a process for every core
        evaluator = EvaluationWorkers(*evaluation, workers, config.td3.gamma, config.env_timeout, single)
    with contextlib.ExitStack() as made:  # where the environments cannot be had, the evaluator is closed
        made.enter_context(contextlib.closing(evaluator))
        environments = place(make, count, worker_backend, config.env_timeout)
        made.pop_all()
    return environments, evaluator, worker_backend


def make_evaluator(
    make: Callable[[], gym.Env[Any, Any]] | VectorSource, config: TrainConfig, threads: int, device: torch.device
) -> Evaluator | EvaluationWorkers:
    """Where training steps elsewhere: evaluation in this process, or, beside a GPU with cores to spare, in others."""
    if isinstance(make, VectorSource):
        return Evaluator(make, config.member_seeds, config.eval_episodes, config.td3.gamma)
    batch = in_batch(make, threads)
    evaluation = (make, config.member_seeds, config.eval_episodes)
    if device.type == "cpu" or threads < 4:
        return Evaluator(*evaluation, config.td3.gamma, batch)
    workers, single = max(1, min(2 * config.seeds, threads)), batch and batch._replace(workers=1)
    return EvaluationWorkers(*evaluation, workers, config.td3.gamma, config.env_timeout, single)
