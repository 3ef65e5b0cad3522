"""Every call by which a save touches the disk, counted; the nth can be made to fail, to stop half-way, or to kill."""

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from typing import Any

NAMES = ("open", "write", "fsync", "close", "replace", "mkdir", "unlink", "rmdir", "listdir")
FAILURES = ("ENOSPC", "EIO", "EACCES", "short write")


class Crash(BaseException):
    """The process ends here: no handler of errors may run after it."""


@contextlib.contextmanager
def watched(at: int | None = None, failure: str = "") -> Iterator[list[str]]:
    """The operations done inside, in order; number `at`, counted from 0, fails in this way."""
    done: list[str] = []
    real = {name: getattr(os, name) for name in NAMES}

    def watch(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            number = len(done)
            done.append(name)
            if number == at:
                if failure == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if failure == "crash":
                    raise Crash
                if failure == "short write":
                    if name == "write":
                        descriptor, content = arguments
                        return real["write"](descriptor, content[: len(content) // 2 or 1])
                elif name != "close":  # a close that fails has closed all the same
                    raise OSError(getattr(errno, failure), os.strerror(getattr(errno, failure)), str(arguments[:1]))
            return real[name](*arguments, **options)

        return call

    for name in NAMES:
        setattr(os, name, watch(name))
    try:
        yield done
    finally:
        for name, function in real.items():
            setattr(os, name, function)
