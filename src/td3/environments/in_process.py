"""Vector environment in this process, without autoreset: the collector resets.

They are stepped one after another, or each in a thread of its own.
"""

import contextlib
import queue
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from td3.environments import guarded
from td3.environments.guarded import Array, Make
from td3.environments.stepped_vector import SteppedVectorEnv, StepResult
from td3.errors import EnvironmentFault, UserError
from td3.user_code import reason_of

LONGEST_LOOK = 1.0
"""Seconds between two looks at a call that are counted against its time limit: a stopped process looks at nothing."""
CLOSE_SECONDS = 5.0
"""Seconds in which workers may close their environments before they are abandoned or killed."""


class InProcessVectorEnv(SteppedVectorEnv):
    """A row of environments in this process.

    With threads, the environments step between `begin_step` and `finish_step`, and one that takes longer than
    `patience` seconds is a fault: its thread is abandoned.
    """

    def __init__(
        self,
        environments: Sequence[gym.Env[Any, Any]],
        make: Make | None = None,
        threads: int = 0,
        patience: float | None = None,
    ) -> None:
        self.environments, self._make, self._patience = list(environments), make, patience
        self._describe(self.environments[0], len(self.environments))
        self._threads = [_Thread() for _ in range(min(threads, self.num_envs))]
        self._observations = np.zeros((self.num_envs, int(np.prod(self._shapes.observation))), np.float32)
        self._abandoned: set[int] = set()
        guarded.listen_to_mujoco()

    def reset_some(self, seeds: Sequence[int | None], indices: Sequence[int]) -> Array:
        """Start new episodes in these environments; returns the observations of all."""
        observations, self.faults = self._observations.copy(), {}
        begun = [
            (i, self._call(i, partial(guarded.reset, self.environments[i], seeds[i], self._shapes))) for i in indices
        ]
        for index, result in begun:
            try:
                observations[index] = result()
            except EnvironmentFault as fault:
                self.faults[index] = reason_of(fault)
        self._observations = observations
        return observations

    def begin_step(self, actions: Array, indices: Sequence[int] | None = None) -> None:
        """Send the actions; threads start immediately."""
        self._begun = []
        for index in range(self.num_envs) if indices is None else indices:
            step = partial(guarded.step, self.environments[index], actions[index], self._shapes)
            self._begun.append((index, self._call(index, step)))

    def finish_step(self) -> StepResult:
        """Step, or wait for the threads that do."""
        observations = self._observations.copy()
        rewards = np.zeros(self.num_envs, np.float64)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        self.faults, infos = {}, {}
        for index, result in self._begun:
            try:
                observations[index], rewards[index], terminated[index], truncated[index], info = result()
                if info:
                    infos[index] = info
            except EnvironmentFault as fault:
                self.faults[index] = reason_of(fault)
        self._observations = observations
        return observations, rewards, terminated, truncated, infos

    def replace(self, index: int) -> list[int]:
        """Replace a faulty environment; returns which others lost their episode: none.

        Where it cannot be constructed, `faults` says why, and the old one stays.
        """
        self.faults = {}
        if self._make is not None:
            self._close(index)
            try:
                self.environments[index] = self._call(index, partial(guarded.construct, self._make))()
            except UserError as fault:
                self.faults[index] = reason_of(fault)
        return []

    def retire(self, indices: Sequence[int]) -> list[int]:
        """Retire these environments; returns which others lost their episode: none."""
        self.faults = {}
        return []

    @property
    def observations(self) -> Array:
        """The latest observation of every environment."""
        return self._observations.copy()

    def _call(self, index: int, call: Callable[[], Any]) -> Callable[[], Any]:
        """Start the call in the environment's thread, if it has one; returns a function for its result."""
        if not self._threads:
            return call
        slot = index % len(self._threads)
        if index in self._abandoned:
            self._threads[slot].stop()  # it ends when its call returns
            self._threads[slot] = _Thread()
            self._abandoned.remove(index)
        return partial(self._await, index, self._threads[slot].submit(call), self._patience)

    def _await(self, index: int, future: Future[Any], patience: float | None) -> Any:
        if patience is None:
            return future.result()
        left = patience
        while left > 0:
            with contextlib.suppress(TimeoutError):
                return future.result(min(left, LONGEST_LOOK))
            left -= LONGEST_LOOK
        self._abandoned.add(index)
        raise EnvironmentFault(f"an environment took longer than {patience:g} s and its thread was abandoned")

    def _close(self, index: int) -> str:
        """Close an environment, unless a thread hangs in it; returns the error, if any."""
        try:
            if not self._threads:
                guarded.close(self.environments[index])
            elif index not in self._abandoned and not (thread := self._threads[index % len(self._threads)]).busy:
                future = thread.submit(partial(guarded.close, self.environments[index]))
                self._await(index, future, min(CLOSE_SECONDS, self._patience or CLOSE_SECONDS))
        except EnvironmentFault as fault:
            return str(fault)
        return ""

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; errors are warnings."""
        sentences = dict.fromkeys(filter(None, map(self._close, range(self.num_envs))))
        for thread in self._threads:
            thread.stop()
        for sentence in sentences:
            warnings.warn(sentence, stacklevel=2)


class _Thread:
    """Runs calls one after another; unlike one of `ThreadPoolExecutor`, it does not keep the process from exiting."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._work, name="td3 environment", daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call is running."""
        return self._last is not None and not self._last.done()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """A future for the call's result."""
        self._last = Future()
        self._calls.put((self._last, call))
        return self._last

    def stop(self) -> None:
        """End the thread after its last call."""
        self._calls.put(None)

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            _run(*job)
            del job  # an idle thread keeps no environment alive


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
