"""Evaluation without exploration noise, in separate environments with their own seeds, in this process or in others."""

import contextlib
import faulthandler
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import IO, Any, NamedTuple

import gymnasium as gym
import numpy as np

from td3.config import MOST_ENVIRONMENTS
from td3.environments import InProcessVectorEnv, ProcessVectorEnv, WorkerBackend, place, single_threaded_children
from td3.environments.child_processes import belong_to, parents_signals_blocked
from td3.environments.processes import sent
from td3.environments.vector import VectorSource
from td3.environments.vector_episodes import VectorEpisodes
from td3.errors import ConfigError, EnvironmentFault
from td3.policy import Array, Policy
from td3.user_code import fault_of

SteppedEnvs = InProcessVectorEnv | ProcessVectorEnv | VectorEpisodes
LONGEST_EPISODE = 100_000
"""Env steps after which an episode without a time limit of its own is cut."""


class Evaluation(NamedTuple):
    """Undiscounted returns and lengths `[member, episode]`, and where the episodes began and ended.

    A visit is `[discounted return | discount left at the end, 0 after a termination | first state | last state]`.
    """

    returns: Array
    lengths: Array
    visits: Array | None = None
    env_steps: int = 0
    """Env step of the policy: evaluations in other processes finish later."""
    agent: Any = None
    """What was evaluated, as it was then; None outside training."""
    successes: Array | None = None
    """`is_success` of each episode's last info, `[member, episode]`; NaN where there was none."""

    @property
    def mean_return(self) -> Array:
        """The mean over episodes, `[seed]`."""
        return np.asarray(self.returns.mean(1))

    @property
    def success_rate(self) -> Array:
        """The share of episodes whose `is_success` was true, of those that had one, `[seed]`; NaN where none had."""
        if self.successes is None:
            return np.full(len(self.returns), np.nan)
        known = ~np.isnan(self.successes)
        return np.asarray(np.where(known, self.successes, 0).sum(1) / np.where(known.any(1), known.sum(1), np.nan))

    @property
    def members(self) -> list[int]:
        """Those that were evaluated: all that were not frozen."""
        return np.flatnonzero(~np.isnan(self.returns).any(1)).tolist()


class Evaluator:
    """Runs the same episodes (the same seeds) at every evaluation, as the author's code does: changes are the policy's.

    The environments are apart from those of training, and are all stepped together.
    """

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]] | VectorSource,
        seeds: Sequence[int],
        episodes: int,
        gamma: float = 0.99,
        worker_backend: WorkerBackend | None = None,
        patience: float = 120.0,
        purpose: str = "evaluation",
    ) -> None:
        """The environments are stepped one after another, or as `worker_backend` says; `patience` is its time limit."""
        self._seeds, self._gamma = evaluation_seeds(seeds, episodes, purpose), gamma
        self.environments: SteppedEnvs
        if isinstance(make, VectorSource):
            self.environments = VectorEpisodes(make.make(len(seeds) * episodes, self._seeds[0][0]))
        else:
            self.environments = place(make, len(seeds) * episodes, worker_backend or WorkerBackend(), patience)
        self._finished: list[tuple[int, Evaluation]] = []

    def __call__(self, policy: Policy, skipped: Collection[int] = ()) -> Evaluation:
        """Play every episode to its end, but for those of members that are skipped."""
        return play_again_after_a_fault(self.environments, policy, self._seeds, self._gamma, skipped)

    def begin(self, env_steps: int, policy: Policy, skipped: Collection[int] = ()) -> None:
        """Evaluate, and keep the result for `finished`."""
        self._finished.append((env_steps, self(policy, skipped)))

    def finished(self, wait: bool = False) -> Iterator[tuple[int, Evaluation]]:
        """The evaluations that are done, in the order in which they were begun."""
        while self._finished:
            yield self._finished.pop(0)

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()


class EvaluationWorkers:
    """The same evaluations in other processes during training: the same results, slightly later."""

    MOST_WAITING = 2
    """Evaluations that may be under way; then training waits, so that snapshots do not pile up."""
    MOST_DEATHS = 3
    PATIENCE_SECONDS = 60.0
    """How long training waits for an evaluation before the processes no longer run at idle priority."""

    def __init__(
        self,
        make: Callable[[], gym.Env[Any, Any]],
        seeds: Sequence[int],
        episodes: int,
        workers: int,
        gamma: float = 0.99,
        patience: float = 120.0,
        worker_backend: WorkerBackend | None = None,
    ) -> None:
        """`worker_backend` says how each process steps its environments."""
        self._make, self._episodes, self._workers, self._patience = make, episodes, workers, patience
        self._worker_backend = worker_backend or WorkerBackend()
        self._seeds, self._gamma = evaluation_seeds(seeds, episodes), gamma
        self._begun: list[tuple[int, Policy, Collection[int], list[Future[Evaluation]]]] = []
        self._deaths = 0
        self._idle_priority = True
        self._start()

    def _start(self) -> None:
        self._processes = ProcessPoolExecutor(
            self._workers,
            _Context(),
            initializer=_prepare_worker,
            initargs=(
                *(self._make, self._episodes, self._worker_backend),
                *(os.getpid(), self._idle_priority, self._patience),
            ),
        )
        with single_threaded_children(), parents_signals_blocked(), sent("evaluation", "train with --device cpu"):
            for _ in range(self._workers):
                self._processes.submit(_nothing)  # each starts a process

    def _jobs(self, policy: Policy, skipped: Collection[int]) -> list[Future[Evaluation]]:
        return [
            self._processes.submit(_play_in_worker, policy.member(index), self._seeds[index : index + 1], self._gamma)
            for index in range(len(self._seeds))
            if index not in skipped
        ]

    def begin(self, env_steps: int, policy: Policy, skipped: Collection[int] = ()) -> None:
        """Start evaluating this policy, whose arrays must not change any more."""
        try:
            self._begun.append((env_steps, policy, skipped, self._jobs(policy, skipped)))
        except BrokenProcessPool:
            self._begin_again()
            self._begun.append((env_steps, policy, skipped, self._jobs(policy, skipped)))

    def finished(self, wait: bool = False) -> Iterator[tuple[int, Evaluation]]:
        """The evaluations that are done, in the order in which they were begun; on request after waiting for all."""
        while self._begun:
            env_steps, _, skipped, jobs = self._begun[0]
            if not (wait or len(self._begun) > self.MOST_WAITING or all(job.done() for job in jobs)):
                return
            try:
                parts = [job.result(self.PATIENCE_SECONDS if self._idle_priority else None) for job in jobs]
            except BrokenProcessPool:
                self._begin_again()
                continue
            except TimeoutError:
                # Other programs keep the cores busy, and processes at idle priority never have a turn.
                self._idle_priority = False
                self._play_again(wait=False)
                continue
            self._begun.pop(0)
            self._deaths = 0
            for index in sorted(skipped):
                parts.insert(index, _not_played(parts[0]))
            each = zip(*((p.returns, p.lengths, p.visits, p.successes) for p in parts), strict=True)
            returns, lengths, visits, successes = (np.concatenate(arrays) for arrays in each)
            yield env_steps, Evaluation(returns, lengths, visits, env_steps, successes=successes)

    def _begin_again(self) -> None:
        """A process died: new ones play the same episodes, which give the same numbers."""
        self._deaths += 1
        if self._deaths >= self.MOST_DEATHS:
            raise EnvironmentFault(f"evaluation processes died {self._deaths} times in a row: fix the environment.")
        self._play_again(wait=True)

    def _play_again(self, wait: bool) -> None:
        """New processes in the place of the old ones, which may end what they are at."""
        self._processes.shutdown(wait, cancel_futures=True)
        self._start()
        self._begun = [
            (steps, policy, skipped, self._jobs(policy, skipped)) for steps, policy, skipped, _ in self._begun
        ]

    def close(self) -> None:
        """End the processes."""
        self._processes.shutdown(cancel_futures=True)


def held_out(episode_seed: int) -> str:
    """The purpose of episodes that no agent was selected on: those of training's evaluations choose `best`."""
    if episode_seed < 0:
        raise ConfigError(f"must be a whole number of at least 0, but {episode_seed} was given.", "episode_seed")
    return f"held-out evaluation {episode_seed}"


def evaluation_seeds(seeds: Sequence[int], episodes: int, purpose: str = "evaluation") -> list[list[int]]:
    """The seed of each episode `[member][episode]`; other purposes have other episodes."""
    from td3.algorithm.streams import derive_seed  # here, so that workers need not load PyTorch

    if episodes < 1:
        raise ConfigError(f"must be a whole number of at least 1, but {episodes!r} was given.", "episodes")
    if len(seeds) * episodes > MOST_ENVIRONMENTS:
        raise ConfigError(
            f"{episodes:,} episodes of {len(seeds):,} seeds need as many environments, and at most "
            f"{MOST_ENVIRONMENTS:,} are made: give fewer --episodes."
        )
    return [[derive_seed(seed, purpose, episode) % 2**31 for episode in range(episodes)] for seed in seeds]


def play_again_after_a_fault(
    environments: SteppedEnvs,
    policy: Policy,
    seeds: list[list[int]],
    gamma: float,
    skipped: Collection[int] = (),
) -> Evaluation:
    """As `play`; after a fault once more, in new environments: the same seeds give the same episodes."""
    try:
        return play(environments, policy, seeds, gamma, skipped)
    except EnvironmentFault:
        for index in range(environments.num_envs):
            if index // len(seeds[0]) in skipped:
                continue
            environments.replace(index)
            if environments.faults:
                raise _in_evaluation(environments.faults) from None
        return play(environments, policy, seeds, gamma, skipped)


def play(
    environments: SteppedEnvs,
    policy: Policy,
    seeds: list[list[int]],
    gamma: float = 0.99,
    skipped: Collection[int] = (),
) -> Evaluation:
    """Play one episode per seed `[member][episode]`, all at once, each to its end; NaN stands for skipped members."""
    shape = (len(seeds), len(seeds[0]))
    count = shape[0] * shape[1]
    played = np.repeat([member not in skipped for member in range(shape[0])], shape[1])
    each: list[int | None] = [seed for member in seeds for seed in member]
    states, _ = environments.reset(seed=each, options={"reset_mask": played})
    states[~played] = 0
    first_states, discounted, discount = states, np.zeros(count), np.ones(count)
    returns, lengths, successes = np.zeros(count), np.zeros(count, np.int64), np.full(count, np.nan)
    playing = np.flatnonzero(played).tolist()
    while playing:
        _watch()
        # Rounding may carry the edge of the range out by an ulp; some environments refuse that.
        actions = np.clip(policy(states.reshape(*shape, -1)), policy.low, policy.high).reshape(count, -1)
        states, rewards, terminated, truncated, infos = environments.step_some(actions, playing)
        if environments.faults:
            raise _in_evaluation(environments.faults)
        with np.errstate(invalid="ignore"):
            total = states.sum(dtype=np.float64) + rewards.sum()
        if not np.isfinite(total):
            raise EnvironmentFault("an environment gave NaN or infinity in an evaluation: fix the environment.")
        returns += rewards
        lengths[playing] += 1
        discounted += discount * rewards
        discount[playing] *= gamma
        discount[terminated] = 0
        for index, info in infos.items():
            successes[index] = bool(info["is_success"]) if "is_success" in info else np.nan
        over = terminated | truncated | (lengths >= LONGEST_EPISODE)
        playing = [index for index in playing if not over[index]]
    visits = np.concatenate((discounted[:, None], discount[:, None], first_states, states), 1)
    returns[~played] = visits[~played] = np.nan
    in_members = returns.reshape(shape), lengths.reshape(shape), visits.reshape(*shape, -1)
    return Evaluation(*in_members, successes=successes.reshape(shape))


def _in_evaluation(faults: Mapping[int, str]) -> EnvironmentFault:
    reason = next(iter(faults.values()))
    return fault_of(reason, f"{reason}, in an evaluation.")


def _not_played(like: Evaluation) -> Evaluation:
    assert like.visits is not None
    nothing = (np.full_like(like.returns, np.nan), np.zeros_like(like.lengths), np.full_like(like.visits, np.nan))
    return Evaluation(*nothing, successes=np.full_like(like.returns, np.nan))


class _Process(SpawnProcess):
    """A process that ignores SIGTERM, which is its parent's."""

    def terminate(self) -> None:
        """What `ProcessPoolExecutor` ends the others with when one has died."""
        self.kill()


class _Context(SpawnContext):
    Process = _Process


class _Worker:
    """What a worker process keeps between its evaluations."""

    environments: InProcessVectorEnv | ProcessVectorEnv | None = None
    worker_backend: WorkerBackend
    make: Callable[[], gym.Env[Any, Any]]
    episodes: int
    patience: float | None = None
    """Seconds that a step may take; None in the trainer's own process."""
    watched = -np.inf
    """When the time limit was set last."""
    nowhere: IO[str]
    """A sink for tracebacks that are not needed."""


def _prepare_worker(
    make: Callable[[], gym.Env[Any, Any]],
    episodes: int,
    worker_backend: WorkerBackend,
    parent: int,
    idle_priority: bool,
    patience: float,
) -> None:
    belong_to(parent)
    if idle_priority:
        # Use a core only while it is otherwise idle: a round of training must not wait for an evaluation's process.
        with contextlib.suppress(AttributeError, OSError):  # Linux knows this; elsewhere they share
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    _Worker.make, _Worker.episodes, _Worker.patience = make, episodes, patience
    _Worker.worker_backend = worker_backend
    _Worker.nowhere = Path(os.devnull).open("w")  # noqa: SIM115  # for the life of the process


def _watch() -> None:
    """In a worker: end this process if it does not come here again in time. Set once a second: it takes a while."""
    if _Worker.patience is not None and (now := time.monotonic()) - _Worker.watched > 1:
        _Worker.watched = now
        faulthandler.dump_traceback_later(_Worker.patience + 1, exit=True, file=_Worker.nowhere)


def _nothing() -> None:
    """Do nothing."""


def _play_in_worker(policy: Policy, seeds: list[list[int]], gamma: float) -> Evaluation:
    _watch()
    try:
        if _Worker.environments is None:
            assert _Worker.patience is not None
            _Worker.environments = place(_Worker.make, _Worker.episodes, _Worker.worker_backend, _Worker.patience)
        return play_again_after_a_fault(_Worker.environments, policy, seeds, gamma)
    finally:
        faulthandler.cancel_dump_traceback_later()
        _Worker.watched = -np.inf
