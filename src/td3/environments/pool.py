"""Environments in worker processes: numbers pass through shared memory, nothing is pickled per step.

Nobody is woken up, which at thousands of rounds a second would cost more than the step itself: who waits looks again.
This process spins, for the GPU waits for it; workers take short naps, so that waiting does not keep a core busy. A
worker that dies or hangs is replaced, and the others never wait for it longer than the time limit.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from td3.environments.vectorise import Array, EnvironmentRow, StepResult
from td3.errors import EnvironmentFault

PATIENCE_SECONDS = 0.005
"""How long a wait may take before one looks less often: something slow is going on."""
LONG_NAP_SECONDS, SHORT_NAP_SECONDS = 0.0002, 0.00001
"""A worker naps for a tenth of what it has waited, within these bounds."""
TIMER_SLACK_NANOSECONDS = 1_000
"""Linux adds 50,000 to every sleep unless a process asks for less."""
RESET, STEP, REPLACE, CLOSE = 1, 2, 3, 4


class EnvironmentPool(VectorEnv[Array, Array, Array]):
    """Many environments over a few processes, to be used as an `EnvironmentRow` is.

    `step` is `begin_step` and `finish_step`; between the two, this process is free.
    """

    seeds_episodes = True
    """Whether every reset takes a seed, so that an episode can be played again from its seed and its actions."""

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], count: int, workers: int, patience: float = 120.0
    ) -> None:
        with contextlib.closing(make()) as probe:
            self.single_observation_space, self.single_action_space = probe.observation_space, probe.action_space
        self.num_envs, self.workers, self._make, self._patience = count, min(workers, count), make, patience
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self._sizes = (
            int(np.prod(self.single_observation_space.shape or ())),
            int(np.prod(self.single_action_space.shape or ())),
        )
        self._context = multiprocessing.get_context("spawn")
        # Anonymous memory: it goes when the last process goes, however that ends.
        self._shared = self._context.RawArray(ctypes.c_byte, _Arrays.bytes_needed(count, self.workers, *self._sizes))
        self._arrays = _Arrays(self._shared, count, self.workers, *self._sizes)
        self._places = [places.tolist() for places in np.array_split(np.arange(count), self.workers)]
        self._worker_of = {place: index for index, places in enumerate(self._places) for place in places}
        self._round = 0
        self.faults: dict[int, str] = {}
        self._disturbed: set[int] = set()
        self._processes: list[Any] = [None] * self.workers
        self._pipes: list[Connection] = [None] * self.workers  # type: ignore[list-item]  # filled at once
        for index in range(self.workers):
            self._start(index)
        for index in range(self.workers):
            self._await_ready(index)

    def _start(self, index: int) -> None:
        ours, theirs = self._context.Pipe()
        self._arrays.done[index] = -1
        arguments = (self._make, self._shared, self.num_envs, self.workers, self._sizes, index, self._places[index])
        process = self._context.Process(target=_work, args=(*arguments, theirs, os.getpid(), self._round), daemon=True)
        with single_threaded_children():
            process.start()
        theirs.close()
        self._processes[index], self._pipes[index] = process, ours

    def _await_ready(self, index: int) -> None:
        while self._arrays.done[index] != self._round:
            if not self._processes[index].is_alive() and self._arrays.done[index] != self._round:
                code = self._processes[index].exitcode
                raise EnvironmentFault(f"a worker could not make its environments (exit code {code}).")
            time.sleep(LONG_NAP_SECONDS)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start new episodes, in all environments or in those of the mask; the rest keep their observation."""
        seeds = list(seed) if isinstance(seed, Sequence) else [seed] * self.num_envs
        self._arrays.seeds[:] = [-1 if given is None else given for given in seeds]
        self._arrays.mask[:] = (options or {}).get("reset_mask", True)
        self._command(RESET)
        self._wait()
        if self.faults:
            raise EnvironmentFault(next(iter(self.faults.values())))
        return self._arrays.observations.copy(), {}

    def begin_step(self, actions: Array, indices: Sequence[int] | None = None) -> None:
        """Send the actions; the workers begin at once."""
        self._arrays.actions[:] = actions.reshape(self.num_envs, -1)
        self._arrays.mask[:] = indices is None
        if indices is not None:
            self._arrays.mask[list(indices)] = True
        self._command(STEP)

    def finish_step(self) -> StepResult:
        """Wait for the workers."""
        self._wait()
        arrays = self._arrays
        ends = arrays.ends.astype(bool)
        return arrays.observations.copy(), arrays.rewards.copy(), ends[:, 0], ends[:, 1], {}

    def step(self, actions: Array) -> StepResult:
        """One step of every environment; an episode that ended waits for its reset."""
        self.begin_step(actions)
        return self.finish_step()

    def step_some(self, actions: Array, indices: Sequence[int]) -> StepResult:
        """One step of the environments at these places; the others stand still (reward 0, not ended)."""
        self.begin_step(actions, indices)
        return self.finish_step()

    def replace(self, index: int) -> list[int]:
        """A new environment in the place of a faulty one; returns which others lost their episode by it.

        Where the whole worker is gone, that is all its other environments: they too are new.
        """
        worker = self._worker_of[index]
        if self._processes[worker].is_alive() and index not in self._disturbed:
            self._arrays.mask[:] = False
            self._arrays.mask[index] = True
            self._command(REPLACE)
            self._wait()
            return []
        self._stop(worker)
        self._start(worker)
        self._await_ready(worker)
        self._disturbed -= set(self._places[worker])
        return [place for place in self._places[worker] if place != index]

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers and give the shared memory back."""
        self._command(CLOSE)
        for index, process in enumerate(self._processes):
            process.join(timeout=5)
            self._stop(index)

    def _stop(self, worker: int) -> None:
        if self._processes[worker].is_alive():
            self._processes[worker].kill()
        self._processes[worker].join()
        self._pipes[worker].close()

    def _command(self, command: int) -> None:
        self.faults = {}
        self._round += 1
        self._arrays.command[0] = command
        self._arrays.round[0] = self._round

    def _wait(self) -> None:
        done, wanted = self._arrays.done, self._round
        begun = time.perf_counter()
        for index in range(self.workers):
            while done[index] != wanted:
                waited = time.perf_counter() - begun
                if waited > PATIENCE_SECONDS:
                    if self._gave_up(index, waited):
                        break
                    time.sleep(LONG_NAP_SECONDS)
        if self._arrays.faulty.any():
            for place in np.flatnonzero(self._arrays.faulty).tolist():
                self.faults[place] = self._pipes[self._worker_of[place]].recv()
            self._arrays.faulty[:] = 0

    def _gave_up(self, index: int, waited: float) -> bool:
        """Whether this worker will not answer any more; the environment it was at is then a faulty one."""
        process = self._processes[index]
        if process.is_alive() and waited < self._patience:
            return False
        if self._arrays.done[index] == self._round:  # it answered, and then ended
            return True
        reason = (
            f"an environment took longer than {self._patience:g} s for a step and its worker was stopped"
            if process.is_alive()
            else f"a worker with environments died (exit code {process.exitcode})"
        )
        process.kill()
        process.join()
        self.faults[int(self._arrays.at[index])] = reason
        self._disturbed |= set(self._places[index])
        self._arrays.faulty[self._places[index]] = 0
        return True


@contextlib.contextmanager
def single_threaded_children() -> Iterator[None]:
    """Processes started inside use one thread for arithmetic: many workers with many threads each stand in a jam."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Arrays:
    """Views of the shared memory, the same on both sides."""

    def __init__(self, shared: Any, count: int, workers: int, observation: int, action: int) -> None:
        self.offset = 0

        def take(dtype: Any, *shape: int) -> Array:
            array: Array = np.ndarray(shape, dtype, shared, self.offset)
            self.offset += array.nbytes + (-array.nbytes) % 64
            return array

        self.round, self.command = take(np.int64, 1), take(np.int64, 1)
        self.done, self.at = take(np.int64, workers), take(np.int64, workers)
        self.seeds = take(np.int64, count)
        self.actions = take(np.float32, count, action)
        self.observations = take(np.float32, count, observation)
        self.rewards = take(np.float64, count)
        self.ends = take(np.uint8, count, 2)
        self.mask, self.faulty = take(np.bool_, count), take(np.bool_, count)

    @staticmethod
    def bytes_needed(count: int, workers: int, observation: int, action: int) -> int:
        """Enough for every array and its padding."""
        return 8 * (2 + 2 * workers + 2 * count) + 4 * count * (action + observation) + 4 * count + 64 * 11


def _work(
    make: Callable[[], gym.Env[Any, Any]],
    shared: Any,
    count: int,
    workers: int,
    sizes: tuple[int, int],
    index: int,
    places: list[int],
    pipe: Connection,
    parent: int,
    seen: int,
) -> None:
    """A worker's life: wait for a round, do it, say so; leave when told to or when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _ask_for_short_naps()
    arrays = _Arrays(shared, count, workers, *sizes)
    arrays.at[index] = places[0]
    row = EnvironmentRow([make() for _ in places], make)
    arrays.done[index] = seen
    try:
        while True:
            began = time.perf_counter()
            while arrays.round[0] == seen:
                waited = time.perf_counter() - began
                if waited > PATIENCE_SECONDS and os.getppid() != parent:
                    return
                time.sleep(min(max(waited / 10, SHORT_NAP_SECONDS), LONG_NAP_SECONDS))
            seen = int(arrays.round[0])
            command = int(arrays.command[0])
            if command == CLOSE:
                return
            for number, place in enumerate(places):
                if arrays.mask[place]:
                    arrays.at[index] = place
                    _obey(command, row, number, place, arrays, pipe)
                elif command == STEP:
                    arrays.rewards[place], arrays.ends[place] = 0, 0
            arrays.done[index] = seen
    finally:
        row.close()


def _obey(command: int, row: EnvironmentRow, number: int, place: int, arrays: _Arrays, pipe: Connection) -> None:
    """Do one command in one environment; what goes wrong is told through the pipe."""
    try:
        if command == STEP:
            # A copy of the action: an environment may keep the one it was given.
            observation, arrays.rewards[place], *ends = row.step_one(arrays.actions[place].copy(), number)
            arrays.observations[place], arrays.ends[place] = observation, ends
        elif command == RESET:
            seed = int(arrays.seeds[place])
            seeds = [None if seed < 0 else seed] * row.num_envs
            mask = np.arange(row.num_envs) == number
            arrays.observations[place] = row.reset(seed=seeds, options={"reset_mask": mask})[0][number]
        else:
            row.replace(number)
    except Exception as error:  # a stranger's code may raise anything
        arrays.faulty[place] = True
        pipe.send(str(error) if isinstance(error, EnvironmentFault) else f"{type(error).__name__}: {error}")


def _ask_for_short_naps() -> None:
    """Have this process woken up when it asked to be; where that cannot be said, naps are longer."""
    with contextlib.suppress(AttributeError, OSError):
        set_timer_slack = 29  # PR_SET_TIMERSLACK, in linux/prctl.h
        ctypes.CDLL(None).prctl(set_timer_slack, TIMER_SLACK_NANOSECONDS, 0, 0, 0)
