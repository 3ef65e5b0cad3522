"""How many threads an update should use: measured, not guessed, and measured again when the machine changes.

When another process takes a core, threads do not keep their promise: PyTorch's can fall to a hundredth of their speed,
each waiting for a sibling that is not running; those of our kernels help each other and lose less. The numbers do not
depend on the choice (in PyTorch by `MKL_CBWR`, see `td3/libraries.py`), only the time does.
"""

from collections.abc import Callable

from td3.backends import cpu

TRIAL = 12
"""Updates that a number of threads is tried for."""
WINDOW = 64
"""Updates over which the pace is looked at."""
SLOWER = 1.5
"""A window that takes this much longer than the trial promised calls for a new trial, at once."""
AGAIN = 4096
"""Updates after which the other numbers get another chance, in case a neighbor has left."""


class ThreadTuner:
    """Tell it how long every update took; it sets the number of threads."""

    def __init__(self, most: int, set_threads: Callable[[int], None] = cpu.set_threads) -> None:
        self.candidates = [count for count in (1, 2, 4, 8, 16, 32) if count < most] + [most]
        self._set_threads = set_threads
        self._start_trial()

    def __call__(self, seconds: float) -> None:
        """Note an update that took so many seconds."""
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
        self._set_threads(self.threads)

    def _check_pace(self) -> None:
        allowed = SLOWER * WINDOW * self._paces[self.threads]
        if len(self.candidates) > 1 and (self._elapsed > allowed or self._updates >= AGAIN):
            self._start_trial()
        elif self._updates % WINDOW == 0:
            self._elapsed = 0.0
