"""How good is the policy? Noise off, environments and seeds of its own, here or beside training."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

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
        self.environments = EnvironmentRow([make() for _ in range(len(seeds) * episodes)])
        self._finished: list[tuple[int, Evaluation]] = []

    def __call__(self, policy: Policy) -> Evaluation:
        """Play every episode to its end."""
        return play(self.environments, policy, self._seeds, self._gamma)

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

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        seeds: Sequence[int],
        episodes: int,
        workers: int,
        gamma: float = 0.99,
    ) -> None:
        self._seeds, self._gamma = evaluation_seeds(seeds, episodes), gamma
        self._begun: list[tuple[int, list[Future[Evaluation]]]] = []
        self._processes = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_prepare_worker, initargs=(make, episodes)
        )
        with single_threaded_children():
            for _ in range(workers):
                self._processes.submit(_nothing)  # each starts a process

    def begin(self, env_steps: int, policy: Policy) -> None:
        """Start evaluating this policy, whose arrays must not change any more."""
        jobs = [
            self._processes.submit(_play_in_worker, policy.member(index), self._seeds[index : index + 1], self._gamma)
            for index in range(len(self._seeds))
        ]
        self._begun.append((env_steps, jobs))

    def finished(self, wait: bool = False) -> Iterator[tuple[int, Evaluation]]:
        """The evaluations that are done, in the order in which they were begun; on request after waiting for all."""
        while self._begun:
            env_steps, jobs = self._begun[0]
            if not (wait or len(self._begun) > self.MOST_WAITING or all(job.done() for job in jobs)):
                return
            parts = [job.result() for job in jobs]
            self._begun.pop(0)
            yield env_steps, Evaluation(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def close(self) -> None:
        """End the processes."""
        self._processes.shutdown(cancel_futures=True)


def evaluation_seeds(seeds: Sequence[int], episodes: int) -> list[list[int]]:
    """The seed of each episode `[member][episode]`."""
    from td3.algorithm.streams import derive_seed  # here, so that workers need not load PyTorch

    if episodes < 1:
        raise ConfigError(f"episodes must be a whole number of at least 1, but {episodes!r} was given.")
    return [[derive_seed(seed, "evaluation", episode) % 2**31 for episode in range(episodes)] for seed in seeds]


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


def _prepare_worker(make: Callable[[], gym.Env[Any, Any]], episodes: int) -> None:
    global _worker_environments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _worker_environments = EnvironmentRow([make() for _ in range(episodes)])


def _nothing() -> None:
    """Do nothing."""


def _play_in_worker(policy: Policy, seeds: list[list[int]], gamma: float) -> Evaluation:
    return play(_worker_environments, policy, seeds, gamma)
