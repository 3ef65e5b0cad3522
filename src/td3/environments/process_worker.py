"""The worker's side of environments in processes: shared memory, commands, and the loop that obeys them."""

import contextlib
import ctypes
import math
import time
import traceback
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from td3.environments import guarded
from td3.environments.child_processes import belong_to
from td3.environments.guarded import Array, Make, Shapes
from td3.environments.infos import INFO_BYTES, encoded
from td3.errors import EnvironmentFault, UserError
from td3.user_code import Reason, WorkerError, describe

LONG_SLEEP_SECONDS, SHORT_SLEEP_SECONDS = 0.0002, 0.00001
"""A worker sleeps for a tenth of the time that it has waited, within these bounds."""
IDLE_SECONDS, IDLE_SLEEP_SECONDS = 1.0, 0.01
"""After so long without a command, as between evaluations, a worker may sleep longer."""
TIMER_SLACK_NANOSECONDS = 1_000
"""Linux adds 50,000 to every sleep unless a process asks for less."""
PR_SET_TIMERSLACK = 29
"""From linux/prctl.h."""
REASON_BYTES, LINES_BYTES, TRACEBACK_BYTES = 1_600, 3_200, 8_000
"""Bytes for one environment's error message, the user's lines below it, and the end of the traceback."""
CONSTRUCT, RESET, STEP, CLOSE = 1, 2, 3, 4


class WorkerSignals(NamedTuple):
    """Semaphores of a worker: one for every command that begins, one for every command that is done."""

    begin: Any
    done: Any


class SharedArrays:
    """Views of the shared memory, the same on both sides."""

    def __init__(self, shared: Any, count: int, workers: int, shapes: Shapes) -> None:
        self.offset = 0

        def take(dtype: Any, *shape: int) -> Array:
            array: Array = np.ndarray(shape, dtype, shared, self.offset)
            self.offset += array.nbytes + (-array.nbytes) % 64
            return array

        self.command = take(np.int64, 1)
        self.calls, self.at = take(np.int64, workers), take(np.int64, workers)
        self.seeds = take(np.int64, count)
        self.actions = take(np.float32, count, math.prod(shapes.action))
        self.observations = take(np.float32, count, math.prod(shapes.observation))
        self.rewards = take(np.float64, count)
        self.ends = take(np.uint8, count, 2)
        self.mask, self.faulty = take(np.bool_, count), take(np.bool_, count)
        self.reasons, self.infos = take(f"S{REASON_BYTES}", count), take(f"S{INFO_BYTES}", count)
        self.lines, self.tracebacks = take(f"S{LINES_BYTES}", count), take(f"S{TRACEBACK_BYTES}", count)

    @staticmethod
    def bytes_needed(count: int, workers: int, shapes: Shapes) -> int:
        """Enough for every array and its padding."""
        numbers = math.prod(shapes.action) + math.prod(shapes.observation)
        texts = (REASON_BYTES + INFO_BYTES + LINES_BYTES + TRACEBACK_BYTES) * count
        return 8 * (1 + 2 * workers + 2 * count) + 4 * count * (numbers + 1) + texts + 64 * 15

    def fail(self, index: int, error: BaseException) -> None:
        """Write why an environment failed."""
        reason = str(error) if isinstance(error, UserError) else describe(error)
        whole = "".join(traceback.format_exception(error.__cause__ or error)).encode(errors="replace")
        self.reasons[index], self.tracebacks[index] = reason.encode(errors="replace"), whole[-TRACEBACK_BYTES:]
        self.lines[index] = "\n".join(getattr(error, "__notes__", ())).encode(errors="replace")
        self.faulty[index] = True

    def reason(self, index: int) -> Reason:
        """Why an environment failed, as its worker wrote it."""
        reason, lines, whole = (
            texts[index].decode(errors="ignore") for texts in (self.reasons, self.lines, self.tracebacks)
        )
        error = Reason(reason)
        error.__cause__, error.__notes__ = WorkerError(whole), [lines] if lines else []
        return error


def work(
    make: Make,
    shared: Any,
    count: int,
    workers: int,
    shapes: Shapes,
    index: int,
    places: list[int],
    signals: WorkerSignals,
    parent: int,
) -> None:
    """The worker's loop: wait for a command, run it, report; exit on request or when the parent has ended."""
    belong_to(parent)
    _reduce_timer_slack()
    arrays = SharedArrays(shared, count, workers, shapes)
    arrays.at[index] = places[0]
    environments: dict[int, gym.Env[Any, Any]] = {}
    while True:
        began = time.perf_counter()
        while not signals.begin.acquire(False):
            waited = time.perf_counter() - began
            longest = LONG_SLEEP_SECONDS if waited < IDLE_SECONDS else IDLE_SLEEP_SECONDS
            time.sleep(min(max(waited / 10, SHORT_SLEEP_SECONDS), longest))
        command = int(arrays.command[0])
        if command == CLOSE:
            break
        for place in places:
            if arrays.mask[place]:
                arrays.at[index] = place
                arrays.calls[index] += 1
                _run_command(command, make, environments, place, arrays, shapes)
            elif command == STEP:
                arrays.rewards[place], arrays.ends[place] = 0, 0
        signals.done.release()
    for place in environments:
        _run_command(CLOSE, make, environments, place, arrays, shapes)


def _run_command(
    command: int,
    make: Make,
    environments: dict[int, gym.Env[Any, Any]],
    index: int,
    arrays: SharedArrays,
    shapes: Shapes,
) -> None:
    """Run one command in one environment; errors are written to the shared memory."""
    try:
        if command == STEP:
            step = guarded.step(environments[index], arrays.actions[index], shapes)
            arrays.observations[index], arrays.rewards[index], *ends, info = step
            arrays.ends[index] = ends
            if any(ends):
                arrays.infos[index] = encoded(info)
        elif command == RESET:
            seed = int(arrays.seeds[index])
            arrays.observations[index] = guarded.reset(environments[index], None if seed < 0 else seed, shapes)
        elif command == CLOSE:
            guarded.close(environments[index])
        else:
            if index in environments:
                with contextlib.suppress(EnvironmentFault):  # what is broken may also fail to close
                    guarded.close(environments.pop(index))
            environments[index] = guarded.construct(make)
    except BaseException as error:  # also KeyboardInterrupt, which the environment itself must have raised here
        arrays.fail(index, error)


def _reduce_timer_slack() -> None:
    """Have this process woken up when it asked to be; where that cannot be said, sleeps are longer."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NANOSECONDS, 0, 0, 0)
