"""SIGTERM and SIGHUP as Ctrl-C: a run that is stopped while it starts ends cleanly, as during training."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)
"""A terminal or an ssh connection was closed; Windows has no such signal."""
STOPPING = (signal.SIGINT, signal.SIGTERM, HANGUP)


@contextlib.contextmanager
def stop_signals_as_interrupt() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise KeyboardInterrupt, unless the program has a handler of its own, or ignores them.

    Without one, they would end the process in the middle of a write, and the first process of a container, for which
    the kernel drops signals without a handler, would not even notice them.
    """
    main = threading.current_thread() is threading.main_thread()
    unhandled = [number for number in STOPPING[1:] if main and signal.getsignal(number) == signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


class StopSignals:
    """Ctrl-C, SIGTERM and SIGHUP are noted, so that a round can be finished; the second one comes through.

    Unless it is `deaf`: then they are not listened to.
    """

    noted = deaf = False

    def __enter__(self) -> "StopSignals":
        """Listen; in another thread than the main one there is nothing to hear."""
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            # `nohup` has SIGHUP ignored, and means it.
            heard = [number for number in STOPPING if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
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
