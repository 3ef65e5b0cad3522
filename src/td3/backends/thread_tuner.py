"""How many threads a repeated piece of work should use: measured, and measured again when the machine changes.

When another process takes a core, threads lose time: PyTorch's can fall to a hundredth of their speed, each waiting for
a sibling that is not running; those of our kernels help each other and lose less. The numbers do not depend on the
choice (in PyTorch by `MKL_CBWR`, set in `td3/__init__.py`), only the time does.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

TRIAL = 12
"""Updates that a number of threads is tried for."""
WINDOW = 64
"""Updates over which the pace and the idle cores are measured."""
SLOWER = 1.5
"""A window that takes this much longer than the trial promised calls for a new trial, at once."""
SOON = 4 * WINDOW
"""Updates after which a new trial may follow because cores have become idle."""
FREED = 0.5
"""Cores that must be idle in addition to those that were when the number of threads was chosen."""
AGAIN = 4096
"""Updates after which the other numbers are tried again in any case."""


class ThreadTuner:
    """Call it with the seconds that every update took; it sets the number of threads.

    `idle_cores` returns how many cores were idle since its previous call, or None where that is not known.
    """

    def __init__(
        self, most: int, set_threads: Callable[[int], None], idle_cores: Callable[[], float | None] | None = None
    ) -> None:
        self.candidates = [count for count in (1, 2, 4, 8, 16, 32) if count < most] + [most]
        self._set_threads, self._idle_cores = set_threads, idle_cores or IdleCores()
        self._start_trial()

    def __call__(self, seconds: float) -> None:
        """Count an update that took so many seconds."""
        self._updates += 1
        self._elapsed += seconds
        if self._trying is None:
            self._check_pace()
            return
        best = min(self._paces.values(), default=float("inf"))
        # A choice that has already taken longer than another's whole trial need not finish its own.
        if self._updates >= TRIAL or self._elapsed > best * TRIAL:
            self._paces[self.candidates[self._trying]] = self._elapsed / self._updates
            self._try(self._trying + 1)

    def _start_trial(self) -> None:
        self._paces: dict[int, float] = {}
        self._try(0)

    def _try(self, index: int) -> None:
        self._updates, self._elapsed = 0, 0.0
        if index < len(self.candidates):
            self._trying: int | None = index
            self.threads = self.candidates[index]
        else:
            self._trying = None
            self.threads = min(self._paces, key=lambda count: self._paces[count])
            self._idle_then: float | None = None
            self._idle_cores()  # the next call tells about the time from here on
        self._set_threads(self.threads)

    def _check_pace(self) -> None:
        if len(self.candidates) == 1:
            return
        window_ended = self._updates % WINDOW == 0
        too_slow = self._elapsed > SLOWER * WINDOW * self._paces[self.threads]
        if too_slow or self._updates >= AGAIN or (window_ended and self._cores_were_freed()):
            self._start_trial()
        elif window_ended:
            self._elapsed = 0.0

    def _cores_were_freed(self) -> bool:
        """Whether more threads may now be faster: clearly more cores are idle than when these were chosen."""
        if self.threads == self.candidates[-1]:
            return False
        idle = self._idle_cores()
        if idle is None:
            return False
        if self._idle_then is None:
            self._idle_then = idle
        return self._updates >= SOON and idle >= self._idle_then + FREED


class IdleCores:
    """How many of this machine's cores were idle since the previous call, by Linux's /proc/stat; None elsewhere."""

    def __init__(self, stat: Path = Path("/proc/stat"), clock: Callable[[], float] = time.monotonic) -> None:
        self._stat, self._clock = stat, clock
        self._before: tuple[float, float] | None = None

    def __call__(self) -> float | None:
        """Idle seconds of all cores, divided by the seconds that passed."""
        try:
            fields = self._stat.read_text().split(None, 6)
            idle = (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")  # idle, and waiting for a disk
        except (AttributeError, OSError, IndexError, ValueError):
            return None
        now, before = self._clock(), self._before
        self._before = idle, now
        return None if before is None or now <= before[1] else (idle - before[0]) / (now - before[1])
