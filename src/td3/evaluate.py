"""How good is the policy? Noise off, environments and seeds of its own, here or beside training."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from td3.config import MOST_ENVIRONMENTS
from td3.environments import EnvironmentRow, single_threaded_children
from td3.errors import ConfigError, EnvironmentFault
from td3.policy import Array, Policy

LONGEST_EPISODE = 100_000
"""Env steps after which an episode without a time limit of its own is cut."""


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths `[member, episode]`, and where the episodes began and ended.

    A visit is `[discounted return | discount left at the end, 0 after a termination | first state | last state]`.
    """

    returns: Array
    lengths: Array
    visits: Array | None = None


class Evaluator:
    """Runs the same episodes (the same seeds) at every evaluation, as the author's code does: changes are the policy's.

    The environments are apart from those of training, and are all stepped together.
    """

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], seeds: Sequence[int], episodes: int, gamma: float = 0.99
    ) -> None:
        self._seeds, self._gamma = evaluation_seeds(seeds, episodes), gamma
        self.environments = EnvironmentRow([make() for _ in range(len(seeds) * episodes)], make)
        self._finished: list[tuple[int, Evaluation]] = []

    def __call__(self, policy: Policy) -> Evaluation:
        """Play every episode to its end."""
        return play_again_after_a_fault(self.environments, policy, self._seeds, self._gamma)

    def begin(self, env_steps: int, policy: Policy) -> None:
        """Evaluate, and keep the result for `finished`."""
        self._finished.append((env_steps, self(policy)))

    def finished(self, wait: bool = False) -> Iterator[tuple[int, Evaluation]]:
        """The evaluations that are done, in the order in which they were begun."""
        while self._finished:
            yield self._finished.pop(0)

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()


class EvaluationWorkers:
    """The same evaluations in processes of their own, while training goes on: the same numbers, a little later."""

    MOST_WAITING = 2
    """Evaluations that may be under way; then training waits, so that snapshots do not pile up."""
    MOST_DEATHS = 3
    PATIENCE_SECONDS = 60.0
    """How long training waits for an evaluation before the processes no longer stand back."""

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        seeds: Sequence[int],
        episodes: int,
        workers: int,
        gamma: float = 0.99,
    ) -> None:
        self._make, self._episodes, self._workers = make, episodes, workers
        self._seeds, self._gamma = evaluation_seeds(seeds, episodes), gamma
        self._begun: list[tuple[int, Policy, list[Future[Evaluation]]]] = []
        self._deaths = 0
        self._stand_back = True
        self._start()

    def _start(self) -> None:
        self._processes = ProcessPoolExecutor(
            self._workers,
            multiprocessing.get_context("spawn"),
            initializer=_prepare_worker,
            initargs=(self._make, self._episodes, os.getpid(), self._stand_back),
        )
        with single_threaded_children():
            for _ in range(self._workers):
                self._processes.submit(_nothing)  # each starts a process

    def _jobs(self, policy: Policy) -> list[Future[Evaluation]]:
        return [
            self._processes.submit(_play_in_worker, policy.member(index), self._seeds[index : index + 1], self._gamma)
            for index in range(len(self._seeds))
        ]

    def begin(self, env_steps: int, policy: Policy) -> None:
        """Start evaluating this policy, whose arrays must not change any more."""
        try:
            self._begun.append((env_steps, policy, self._jobs(policy)))
        except BrokenProcessPool:
            self._begin_again()
            self._begun.append((env_steps, policy, self._jobs(policy)))

    def finished(self, wait: bool = False) -> Iterator[tuple[int, Evaluation]]:
        """The evaluations that are done, in the order in which they were begun; on request after waiting for all."""
        while self._begun:
            env_steps, _, jobs = self._begun[0]
            if not (wait or len(self._begun) > self.MOST_WAITING or all(job.done() for job in jobs)):
                return
            try:
                parts = [job.result(self.PATIENCE_SECONDS if self._stand_back else None) for job in jobs]
            except BrokenProcessPool:
                self._begin_again()
                continue
            except TimeoutError:
                # Somebody else keeps the cores busy, and who stands back for everybody never has a turn.
                self._stand_back = False
                self._play_again(wait=False)
                continue
            self._begun.pop(0)
            self._deaths = 0
            yield env_steps, Evaluation(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _begin_again(self) -> None:
        """A process died: new ones play the same episodes, which give the same numbers."""
        self._deaths += 1
        if self._deaths >= self.MOST_DEATHS:
            raise EnvironmentFault(f"evaluation processes died {self._deaths} times in a row: mend the environment.")
        self._play_again(wait=True)

    def _play_again(self, wait: bool) -> None:
        """New processes in the place of the old ones, which may end what they are at."""
        self._processes.shutdown(wait, cancel_futures=True)
        self._start()
        self._begun = [(env_steps, policy, self._jobs(policy)) for env_steps, policy, _ in self._begun]

    def close(self) -> None:
        """End the processes."""
        self._processes.shutdown(cancel_futures=True)


def evaluation_seeds(seeds: Sequence[int], episodes: int) -> list[list[int]]:
    """The seed of each episode `[member][episode]`."""
    from td3.algorithm.streams import derive_seed  # here, so that workers need not load PyTorch

    if episodes < 1:
        raise ConfigError(f"episodes must be a whole number of at least 1, but {episodes!r} was given.")
    if len(seeds) * episodes > MOST_ENVIRONMENTS:
        raise ConfigError(
            f"{episodes:,} episodes of {len(seeds):,} seeds need as many environments, and at most "
            f"{MOST_ENVIRONMENTS:,} are made: give fewer --episodes."
        )
    return [[derive_seed(seed, "evaluation", episode) % 2**31 for episode in range(episodes)] for seed in seeds]


def play_again_after_a_fault(
    environments: EnvironmentRow, policy: Policy, seeds: list[list[int]], gamma: float
) -> Evaluation:
    """As `play`; after a fault once more, in new environments: the same seeds give the same episodes."""
    try:
        return play(environments, policy, seeds, gamma)
    except EnvironmentFault:
        for index in range(environments.num_envs):
            environments.replace(index)
        return play(environments, policy, seeds, gamma)


def play(environments: EnvironmentRow, policy: Policy, seeds: list[list[int]], gamma: float = 0.99) -> Evaluation:
    """Play one episode per seed `[member][episode]`, all at once, each to its end."""
    shape = (len(seeds), len(seeds[0]))
    count = shape[0] * shape[1]
    states, _ = environments.reset(seed=[seed for member in seeds for seed in member])
    first_states, discounted, discount = states, np.zeros(count), np.ones(count)
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    playing = list(range(count))
    while playing:
        # Rounding may carry the edge of the range out by an ulp; some environments refuse that.
        actions = np.clip(policy(states.reshape(*shape, -1)), policy.low, policy.high).reshape(count, -1)
        states, rewards, terminated, truncated, _ = environments.step_some(actions, playing)
        if environments.faults:
            raise EnvironmentFault(f"{next(iter(environments.faults.values()))}, in an evaluation.")
        with np.errstate(invalid="ignore"):
            total = states.sum(dtype=np.float64) + rewards.sum()
        if not np.isfinite(total):
            raise EnvironmentFault("an environment gave NaN or infinity in an evaluation: mend it.")
        returns += rewards
        lengths[playing] += 1
        discounted += discount * rewards
        discount[playing] *= gamma
        discount[terminated] = 0
        over = terminated | truncated | (lengths >= LONGEST_EPISODE)
        playing = [index for index in playing if not over[index]]
    visits = np.concatenate((discounted[:, None], discount[:, None], first_states, states), 1)
    return Evaluation(returns.reshape(shape), lengths.reshape(shape), visits.reshape(*shape, -1))


_worker_environments: EnvironmentRow


def _prepare_worker(make: Callable[[], gym.Env[Any, Any]], episodes: int, parent: int, stand_back: bool) -> None:
    global _worker_environments
    if stand_back:
        # Use a core only while nobody else wants it: a round of training must not wait for an evaluation's process.
        with contextlib.suppress(AttributeError, OSError):  # Linux knows this; elsewhere they share
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _worker_environments = EnvironmentRow([make() for _ in range(episodes)], make)


def _leave_with(parent: int) -> None:
    """End this process when its parent is gone: a worker that waits for work would not notice."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def _nothing() -> None:
    """Do nothing."""


def _play_in_worker(policy: Policy, seeds: list[list[int]], gamma: float) -> Evaluation:
    return play_again_after_a_fault(_worker_environments, policy, seeds, gamma)
