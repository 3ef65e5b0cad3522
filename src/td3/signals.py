"""SIGTERM as Ctrl-C: a run that is stopped while it starts ends cleanly, as during training."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt, unless the program has a handler of its own.

    Without one, SIGTERM would end the process in the middle of a write, and the first process of a container, for which
    the kernel drops signals without a handler, would not even notice it.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


class StopSignals:
    """Ctrl-C and a polite kill (SIGTERM) are noted, so that a round can be finished; the second one comes through.

    Unless it is `deaf`: then they are not listened to.
    """

    noted = deaf = False

    def __enter__(self) -> "StopSignals":
        """Listen; in another thread than the main one there is nothing to hear."""
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: object) -> None:
        """Let others listen again."""
        for number, handler in self._before.items():
            if handler is not None:  # not one of Python's own, and it cannot be put back
                signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.noted and not self.deaf:
            raise KeyboardInterrupt
        self.noted = True
