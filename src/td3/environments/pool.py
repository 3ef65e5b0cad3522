"""Environments in worker processes: numbers pass through shared memory, nothing is pickled per step.

Nobody is woken up, which at thousands of rounds a second would cost more than the step itself: who waits looks again.
This process spins, for the GPU waits for it; workers take short naps, so that waiting does not keep a core busy.
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

from td3.environments.vectorise import Array, EnvironmentRow
from td3.errors import EnvironmentFault

PATIENCE_SECONDS = 0.005
"""How long a wait may take before one looks less often: something slow is going on."""
LONG_NAP_SECONDS, SHORT_NAP_SECONDS = 0.0002, 0.00001
"""A worker naps for a tenth of what it has waited, within these bounds."""
TIMER_SLACK_NANOSECONDS = 1_000
"""Linux adds 50,000 to every sleep unless a process asks for less."""
RESET, STEP, CLOSE = 1, 2, 3


class EnvironmentPool(VectorEnv[Array, Array, Array]):
    """Many environments over a few processes, each episode's end followed at once by a reset (same-step autoreset).

    `step` is `begin_step` and `finish_step`; between the two, this process is free.
    """

    def __init__(self, make: Callable[[], gym.Env[Any, Any]], count: int, workers: int) -> None:
        with contextlib.closing(make()) as probe:
            self.single_observation_space, self.single_action_space = probe.observation_space, probe.action_space
        self.num_envs, self.workers = count, min(workers, count)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        sizes = (
            int(np.prod(self.single_observation_space.shape or ())),
            int(np.prod(self.single_action_space.shape or ())),
        )
        context = multiprocessing.get_context("spawn")
        # Anonymous memory: it goes when the last process goes, however that ends.
        shared = context.RawArray(ctypes.c_byte, _Arrays.bytes_needed(count, self.workers, *sizes))
        self._arrays = _Arrays(shared, count, self.workers, *sizes)
        self._round = 0
        self._processes, self._pipes = [], []
        for index, places in enumerate(np.array_split(np.arange(count), self.workers)):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(make, shared, count, self.workers, sizes, index, places.tolist(), theirs, os.getpid()),
                daemon=True,
            )
            with single_threaded_children():
                process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start a new episode everywhere."""
        self._arrays.seeds[:] = -1 if seed is None else seed
        self._command(RESET)
        self._wait()
        return self._arrays.current.copy(), {}

    def begin_step(self, actions: Array) -> None:
        """Send the actions; the workers begin at once."""
        self._arrays.actions[:] = actions.reshape(self.num_envs, -1)
        self._command(STEP)

    def finish_step(self) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Wait for the workers; in `infos["final_obs"]` stands what each step really led to."""
        self._wait()
        arrays = self._arrays
        ends = arrays.ends.astype(bool)
        infos = {"final_obs": arrays.reached.copy()}
        return arrays.current.copy(), arrays.rewards.copy(), ends[:, 0], ends[:, 1], infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step of every environment."""
        self.begin_step(actions)
        return self.finish_step()

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers and give the shared memory back."""
        self._command(CLOSE)
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()

    def _command(self, command: int) -> None:
        self._round += 1
        self._arrays.command[0] = command
        self._arrays.round[0] = self._round

    def _wait(self) -> None:
        done, wanted = self._arrays.done, self._round
        patience = time.perf_counter() + PATIENCE_SECONDS
        for index in range(self.workers):
            while done[index] != wanted:
                if time.perf_counter() > patience:
                    self._look_after(index)
                    time.sleep(LONG_NAP_SECONDS)

    def _look_after(self, index: int) -> None:
        if self._pipes[index].poll():
            with contextlib.suppress(EOFError):
                raise EnvironmentFault(self._pipes[index].recv())
        if not self._processes[index].is_alive():
            code = self._processes[index].exitcode
            raise EnvironmentFault(
                f"a worker with environments died (exit code {code}): run again with --envs 1 to see why."
            )


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
        self.done = take(np.int64, workers)
        self.seeds = take(np.int64, count)
        self.actions = take(np.float32, count, action)
        self.current = take(np.float32, count, observation)
        self.reached = take(np.float32, count, observation)
        self.rewards = take(np.float64, count)
        self.ends = take(np.uint8, count, 2)

    @staticmethod
    def bytes_needed(count: int, workers: int, observation: int, action: int) -> int:
        """Enough for every array and its padding."""
        return 8 * (2 + workers + 2 * count) + 4 * count * (action + 2 * observation) + 2 * count + 64 * 9


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
) -> None:
    """A worker's life: wait for a round, do it, say so; leave when told to or when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _ask_for_short_naps()
    arrays = _Arrays(shared, count, workers, *sizes)
    row = EnvironmentRow([make() for _ in places])
    ours = slice(places[0], places[-1] + 1)  # neighbours: views of the shared memory, made once
    actions, current, reached = arrays.actions[ours], arrays.current[ours], arrays.reached[ours]
    rewards, ends = arrays.rewards[ours], arrays.ends[ours]
    seen = 0
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
            if command == RESET:
                seeds = [seed if seed >= 0 else None for seed in arrays.seeds[ours].tolist()]
                current[:], _ = row.reset(seed=seeds)
            else:
                # A copy of the actions: an environment may keep the one it was given.
                reached[:], rewards[:], ends[:, 0], ends[:, 1], _ = row.step(actions.copy())
                ended = ends.any(1)
                current[:] = row.reset(options={"reset_mask": ended})[0] if ended.any() else reached
            arrays.done[index] = seen
    except Exception as error:
        pipe.send(f"an environment failed in its worker: {type(error).__name__}: {error}")
    finally:
        row.close()


def _ask_for_short_naps() -> None:
    """Have this process woken up when it asked to be; where that cannot be said, naps are longer."""
    with contextlib.suppress(AttributeError, OSError):
        set_timer_slack = 29  # PR_SET_TIMERSLACK, in linux/prctl.h
        ctypes.CDLL(None).prctl(set_timer_slack, TIMER_SLACK_NANOSECONDS, 0, 0, 0)
