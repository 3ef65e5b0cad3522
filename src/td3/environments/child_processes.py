"""Processes that this one starts: one thread each for arithmetic, deaf to its signals, and gone when it is."""

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

PARENTS_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""A terminal or a scheduler sends them to all processes of a run; only the trainer reacts."""
PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


@contextlib.contextmanager
def single_threaded_children() -> Iterator[None]:
    """Processes started inside use one thread for arithmetic: many workers with many threads slow each other down."""
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


@contextlib.contextmanager
def parents_signals_blocked() -> Iterator[None]:
    """A process started inside does not see them before it has called `belong_to`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def belong_to(parent: int) -> None:
    """Leave signals to the parent process, and end when it has ended, also from within a call that hangs."""
    for signal_number in PARENTS_SIGNALS:
        signal.signal(signal_number, _leave_to_parent)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
    with contextlib.suppress(AttributeError, OSError):  # Linux has it; elsewhere the thread below must do
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_to_parent(signal_number: int, frame: Any) -> None:
    """Do nothing; unlike SIG_IGN, this is not inherited by programs that an environment starts."""


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)
