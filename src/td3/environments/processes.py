"""Environments in worker processes, through shared memory, without pickling per step.

No process is woken up, which at thousands of rounds a second would cost more than the step itself: both sides poll.
This process spins, because the GPU waits for it; workers poll with short sleeps, so that waiting does not keep a core
busy. What they poll are semaphores, which also order memory: a process that sees a command sees all that was written
before it, on every processor. A worker that dies or hangs is replaced, and the others never wait for it longer than the
time limit.
"""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.util
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from td3.environments import guarded
from td3.environments.child_processes import parents_signals_blocked, single_threaded_children
from td3.environments.guarded import Array, Make
from td3.environments.in_process import CLOSE_SECONDS, LONGEST_LOOK
from td3.environments.infos import decoded
from td3.environments.process_worker import (
    CLOSE,
    CONSTRUCT,
    LONG_SLEEP_SECONDS,
    RESET,
    STEP,
    SharedArrays,
    WorkerSignals,
    work,
)
from td3.environments.side_effects import pytorch_kept
from td3.environments.stepped_vector import SteppedVectorEnv, StepResult
from td3.errors import ConfigError
from td3.user_code import fault_of, short

PATIENCE_SECONDS = 0.005
"""Seconds of waiting after which polling is less frequent."""
START_SECONDS = 300.0
"""Seconds in which a worker must start Python and import its modules."""


@contextlib.contextmanager
def sent(kind: str, instead: str) -> Iterator[None]:
    """Start processes that get the environment; one that cannot be pickled gets a sentence."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            "the script is imported again by a process that it started, and trains again: put the training under "
            '`if __name__ == "__main__":`.'
        )
    try:
        yield
    except OSError:  # no memory or no process left
        raise
    except Exception as error:  # of pickling, which calls the user's code
        raise ConfigError(f"the environment cannot be sent to {kind} processes ({short(error)}): {instead}.") from error


class ProcessVectorEnv(SteppedVectorEnv):
    """Many environments over a few processes, to be used as an `InProcessVectorEnv` is.

    Between `begin_step` and `finish_step` this process is free. An environment that takes longer
    than `patience` seconds for one call is a fault, and its worker is replaced.
    """

    def __init__(self, make: Make, count: int, workers: int, patience: float = 120.0) -> None:
        self.closed = True  # there is nothing to close yet
        with pytorch_kept(), guarded.opened(make) as probe:
            self._describe(probe, count)
        self.workers, self._make, self._patience = min(workers, count), make, patience
        self._context = multiprocessing.get_context("spawn")
        # Anonymous memory: freed when the last process ends.
        self._shared = self._context.RawArray(
            ctypes.c_byte, SharedArrays.bytes_needed(count, self.workers, self._shapes)
        )
        self._arrays = SharedArrays(self._shared, count, self.workers, self._shapes)
        self._places = [places.tolist() for places in np.array_split(np.arange(count), self.workers)]
        self._worker_of = {position: index for index, places in enumerate(self._places) for position in places}
        self._disturbed: set[int] = set()
        self._retired: set[int] = set()
        self._processes: list[Any] = [None] * self.workers
        # At exit, multiprocessing ends its children by SIGTERM, which these ignore, and waits for them.
        multiprocessing.util.Finalize(self, _kill_all, (self._processes,), exitpriority=100)
        self._signals: list[WorkerSignals] = [None] * self.workers  # type: ignore[list-item]  # filled at once
        self.closed = False
        try:
            for index in range(self.workers):
                self._start(index)
            self._arrays.mask[:] = True
            self._command(CONSTRUCT)
            self._wait()
            if self.faults:
                raise fault_of(next(iter(self.faults.values())))
        except BaseException:
            self.close()
            raise

    def _start(self, index: int) -> None:
        """Start a worker, which has no environments yet."""
        signals = self._signals[index] = WorkerSignals(self._context.Semaphore(0), self._context.Semaphore(0))
        arguments = (self._make, self._shared, self.num_envs, self.workers, self._shapes, index, self._places[index])
        process = self._context.Process(target=work, args=(*arguments, signals, os.getpid()), daemon=True)
        self._arrays.calls[index] = 0
        self._arrays.at[index] = self._blamed(index)
        self._processes[index] = process  # before it starts: it is ended whatever interrupts the start
        try:
            with single_threaded_children(), parents_signals_blocked(), sent("worker", "use --workers threads"):
                process.start()
        except BaseException:
            if process.pid is None:  # it cannot be joined
                self._processes[index] = None
            raise

    def _blamed(self, worker: int) -> int:
        """The environment that a worker was at, or another one of it where that is retired."""
        places = [place for place in self._places[worker] if place not in self._retired]
        place = int(self._arrays.at[worker])
        return place if place in places or not places else places[0]

    def reset_some(self, seeds: Sequence[int | None], indices: Sequence[int]) -> Array:
        """Start new episodes in these environments; returns the observations of all."""
        self._arrays.seeds[:] = [-1 if seed is None else seed for seed in seeds]
        self._choose(indices)
        self._command(RESET)
        self._wait()
        return self._arrays.observations.copy()

    def begin_step(self, actions: Array, indices: Sequence[int] | None = None) -> None:
        """Send the actions; the workers begin at once."""
        self._arrays.actions[:] = actions.reshape(self.num_envs, -1)
        if indices is None:
            self._arrays.mask[:] = True
        else:
            self._choose(indices)
        self._command(STEP)

    def finish_step(self) -> StepResult:
        """Wait for the workers."""
        self._wait()
        arrays = self._arrays
        ends = arrays.ends.astype(bool)
        ended = np.flatnonzero(ends.any(1)).tolist() if ends.any() else ()
        infos = {index: info for index in ended if (info := decoded(arrays.infos[index]))}
        return arrays.observations.copy(), arrays.rewards.copy(), ends[:, 0], ends[:, 1], infos

    def replace(self, index: int) -> list[int]:
        """Replace a faulty environment; returns which others lost their episode.

        Where the whole worker is gone, that is all its other environments: they too are new. Where an environment
        cannot be constructed, `faults` says why.
        """
        worker = self._worker_of[index]
        if self._processes[worker].is_alive() and index not in self._disturbed:
            self._choose([index])
            self._command(CONSTRUCT)
            self._wait()
            return []
        return [place for place in self._restart(worker) if place != index]

    def retire(self, indices: Sequence[int]) -> list[int]:
        """Retire these environments; returns which others lost their episode."""
        self._retired |= set(indices)
        lost: list[int] = []
        faults: dict[int, str] = {}
        for worker in sorted({self._worker_of[index] for index in indices}):
            if self._retired.issuperset(self._places[worker]):
                self._stop(worker)
            elif not self._processes[worker].is_alive() or self._disturbed.intersection(self._places[worker]):
                lost += self._restart(worker)
                faults |= self.faults
        self.faults = faults
        return lost

    @property
    def observations(self) -> Array:
        """The latest observation of every environment."""
        return self._arrays.observations.copy()

    def _restart(self, worker: int) -> list[int]:
        """Replace a process that died or hangs; returns its environments."""
        self._stop(worker)
        self._start(worker)
        self._disturbed -= set(self._places[worker])
        places = [place for place in self._places[worker] if place not in self._retired]
        self._choose(places)
        self._command(CONSTRUCT)
        self._wait()
        return places

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers and free the shared memory."""
        started = [index for index in range(self.workers) if self._processes[index] is not None]
        self._command(CLOSE)
        until = time.perf_counter() + CLOSE_SECONDS
        for index in started:
            self._processes[index].join(timeout=max(0.0, until - time.perf_counter()))
            self._stop(index)
        for sentence in dict.fromkeys(self._told().values()):
            warnings.warn(sentence, stacklevel=2)

    def _stop(self, worker: int) -> None:
        if self._processes[worker].is_alive():
            self._processes[worker].kill()
        self._processes[worker].join()

    def _choose(self, indices: Sequence[int]) -> None:
        self._arrays.mask[:] = False
        self._arrays.mask[list(indices)] = True

    def _idle(self, worker: int) -> bool:
        """Whether it does not take commands: not started, stopped, or to be replaced."""
        places = self._places[worker]
        return self._processes[worker] is None or places[0] in self._disturbed or self._retired.issuperset(places)

    def _command(self, command: int) -> None:
        """Tell every worker; a semaphore also makes all that was written before it visible to them."""
        self.faults = {}
        self._arrays.command[0] = command
        for index in range(self.workers):
            if not self._idle(index):
                self._signals[index].begin.release()
            elif command in (RESET, STEP) and self._places[index][0] in self._disturbed:
                self.faults[self._blamed(index)] = "a worker with environments was stopped and not replaced"

    def _wait(self) -> None:
        clock = _Clock()
        for index in range(self.workers):
            if self._idle(index):
                continue
            is_done, watch = self._signals[index].done.acquire, None
            while not is_done(False):
                if clock.seconds() > PATIENCE_SECONDS:
                    watch = watch or _Watch(clock, int(self._arrays.calls[index]))
                    if self._gave_up(index, watch):
                        break
                    time.sleep(LONG_SLEEP_SECONDS)
        if self._arrays.faulty.any():
            self.faults |= self._told()

    def _told(self) -> dict[int, str]:
        """Errors of the workers, by index."""
        arrays = self._arrays
        reasons: dict[int, str] = {index: arrays.reason(index) for index in np.flatnonzero(arrays.faulty).tolist()}
        arrays.faulty[:] = False
        return reasons

    def _gave_up(self, index: int, watch: "_Watch") -> bool:
        """Whether this worker no longer answers; its current environment is then faulty."""
        process, now, calls = self._processes[index], watch.clock.seconds(), int(self._arrays.calls[index])
        if calls != watch.calls:
            watch.calls, watch.since = calls, now  # it is at another environment: the time is for one
        alive = process.is_alive()
        if alive and now - watch.since < (self._patience if calls else START_SECONDS):
            return False
        if self._signals[index].done.acquire(False):  # it answered, and then ended
            return True
        if not alive:
            reason = f"a worker with environments died (exit code {process.exitcode})"
        elif calls:
            reason = f"an environment took longer than {self._patience:g} s and its worker was stopped"
        else:
            reason = f"a worker did not start within {START_SECONDS:g} s and was stopped"
        process.kill()
        process.join()
        self.faults[self._blamed(index)] = reason
        self._disturbed |= set(self._places[index])
        self._arrays.faulty[self._places[index]] = 0
        return True


class _Clock:
    """Seconds of waiting; a pause of this process (SIGSTOP, a frozen container) counts as `LONGEST_LOOK` at most."""

    def __init__(self) -> None:
        self._waited, self._looked = 0.0, time.perf_counter()

    def seconds(self) -> float:
        """How long it has waited, looking often."""
        now = time.perf_counter()
        self._waited += min(now - self._looked, LONGEST_LOOK)
        self._looked = now
        return self._waited


class _Watch:
    """When a worker's current call started."""

    def __init__(self, clock: _Clock, calls: int) -> None:
        self.clock, self.since, self.calls = clock, 0.0, calls


def _kill_all(processes: list[Any]) -> None:
    for process in processes:
        if process is not None and process.is_alive():
            process.kill()
