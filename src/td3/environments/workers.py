"""How several environments are stepped: sequentially, in a batch, in threads, or in processes.

The transitions are the same everywhere; only the time is not. Gymnasium's MuJoCo tasks are stepped in a batch
(mujoco_batch.py). For others the fastest way depends on the task: one that is quick is best stepped here, one that
waits (for a simulator, for hardware) or that leaves Python in threads, one that computes in Python in processes. So it
is tried, with environments that are thrown away afterwards.
"""

import contextlib
import time
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from td3.environments import guarded
from td3.environments.guarded import Make
from td3.environments.in_process import InProcessVectorEnv
from td3.environments.mujoco_batch import MujocoBatch, why_not
from td3.environments.processes import ProcessVectorEnv
from td3.errors import EnvironmentFault

PROBE_SECONDS, TRIAL_SECONDS = 0.2, 0.5
"""Seconds for timing one environment, and for each kind of worker."""
WORTH_SECONDS = 0.002
"""Seconds of a round of all environments below which nothing is measured: workers cost as much."""
BETTER = 1.25
"""Speedup that a more complex kind of worker must reach."""
MOST_PROCESSES = 16
"""Maximum number of processes; more environments share them."""


class WorkerBackend(NamedTuple):
    """How environments are stepped, and by how many workers."""

    kind: Literal["none", "threads", "processes", "batch"] = "none"
    workers: int = 0

    def __str__(self) -> str:
        """As text, for the first line of a run."""
        if self.kind == "batch":
            return f"environments in one native MuJoCo batch (up to {self.workers} threads)"
        return f"environments in {self.workers} {self.kind}" if self.workers else "environments one after another"


def place(
    make: Make, count: int, worker_backend: WorkerBackend, patience: float
) -> InProcessVectorEnv | ProcessVectorEnv:
    """New environments, stepped this way."""
    if worker_backend.kind == "processes":
        return ProcessVectorEnv(make, count, worker_backend.workers, patience)
    if worker_backend.kind == "batch":
        return MujocoBatch(construct_all(make, count), make, worker_backend.workers)
    threads = worker_backend.workers if worker_backend.kind == "threads" else 0
    return InProcessVectorEnv(construct_all(make, count), make, threads, patience)


def in_batch(make: Make, threads: int) -> WorkerBackend | None:
    """All environments in one batch on up to so many threads; None if they cannot be stepped in one."""
    return WorkerBackend("batch", max(1, threads)) if why_not(make) is None else None


def construct_all(make: Make, count: int) -> list[gym.Env[Any, Any]]:
    """New environments; if one cannot be constructed, those before it are closed."""
    environments: list[gym.Env[Any, Any]] = []
    try:
        for _ in range(count):
            environments.append(guarded.construct(make))  # noqa: PERF401  # those before a failure are closed
    except BaseException:
        for environment in environments:
            with contextlib.suppress(EnvironmentFault):
                guarded.close(environment)
        raise
    return environments


def requested_workers(backend: str, count: int) -> WorkerBackend:
    """The chosen kind: a worker for each environment, up to a limit."""
    ways = {"none": WorkerBackend(), "threads": WorkerBackend("threads", count)}
    return ways.get(backend) or WorkerBackend("processes", min(count, MOST_PROCESSES))


def fastest_workers(make: Make, count: int) -> WorkerBackend:
    """The fastest way to step these environments on this machine, by a short measurement."""
    best = requested_workers("none", count)
    if count == 1:
        return best  # an environment on real hardware should not be created a second time for a measurement
    try:
        step_seconds = _probe_environment(make)
        best_seconds = count * step_seconds
        for backend in ("threads", "processes") if best_seconds > WORTH_SECONDS else ():
            if best_seconds < 2 * step_seconds:
                break  # almost fully parallel: nothing can be much faster
            candidate = requested_workers(backend, count)
            seconds = _try(make, count, candidate)
            if seconds * BETTER < best_seconds:
                best, best_seconds = candidate, seconds
    except KeyboardInterrupt:
        raise
    except BaseException:  # user code may raise anything; the run itself reports it
        return best
    return best


def _probe_environment(make: Make) -> float:
    """Seconds that a step of one environment takes."""
    with guarded.opened(make) as environment:
        environment.action_space.seed(0)
        environment.reset(seed=0)
        spent, steps, start = 0.0, 0, time.perf_counter()
        while time.perf_counter() - start < PROBE_SECONDS:
            action, began = environment.action_space.sample(), time.perf_counter()
            _, _, terminated, truncated, _ = environment.step(action)
            spent += time.perf_counter() - began
            steps += 1
            if terminated or truncated:
                environment.reset()
    return spent / steps


def _try(make: Make, count: int, worker_backend: WorkerBackend) -> float:
    """Seconds that a round of all environments takes."""
    with contextlib.closing(place(make, count, worker_backend, patience=60.0)) as environments:
        environments.reset(seed=[0] * count)
        environments.action_space.seed(0)
        rounds: list[float] = []
        start = time.perf_counter()
        while not rounds or time.perf_counter() - start < TRIAL_SECONDS:
            actions = np.asarray(environments.action_space.sample()).reshape(count, -1)
            began = time.perf_counter()
            _, _, terminated, truncated, _ = environments.step(actions)
            rounds.append(time.perf_counter() - began)
            if environments.faults:
                return float("inf")
            if (ended := terminated | truncated).any():
                environments.reset(seed=[0] * count, options={"reset_mask": ended})
    return float(np.median(rounds))
