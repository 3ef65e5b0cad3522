"""SIGTERM as Ctrl-C: a run that is told to stop while it starts ends in order, as it does while it trains."""

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
