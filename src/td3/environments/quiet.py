"""Filter known messages of C libraries out of the output; everything else is passed on.

PyBullet prints past Python, to the file descriptors: its build time when it is imported, `argv[0]=` when a simulation
is made. A step never does (tests/environments/test_quiet.py), so that nothing stands in the way of training.
"""

import contextlib
import ctypes
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import IO, Any

NOISE = re.compile(
    rb"^(pybullet build time: .*|argv\[0\]=.*|b3Warning\[.*|.*\.xml:\d+: unknown field .*)\n?", re.MULTILINE
)
_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def without_output() -> Iterator[None]:
    """Output of all threads appears at the end, without the known messages."""
    with _one_at_a_time:
        _flush()
        kept = [diversion for descriptor in (1, 2) if (diversion := _diverted(descriptor)) is not None]
        try:
            yield
        finally:
            _flush()
            for descriptor, original, file in kept:
                os.dup2(original, descriptor)
                os.close(original)
                _pass_on(file, descriptor)


def _diverted(descriptor: int) -> tuple[int, int, IO[bytes]] | None:
    """Redirect a file descriptor to a file; None if it is closed."""
    try:
        original = os.dup(descriptor)
    except OSError:
        return None
    file = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `_pass_on`
    os.dup2(file.fileno(), descriptor)
    return descriptor, original, file


def _pass_on(file: IO[bytes], descriptor: int) -> None:
    with file, contextlib.suppress(OSError):  # its reader may have closed it
        file.seek(0)
        rest = NOISE.sub(b"", file.read())
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _flush() -> None:
    """Flush all buffers of Python and C, so that output does not cross a redirection."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there may be none, or it is closed
            stream.flush()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # not every system has C's library so
        library: Any = ctypes.CDLL(None)
        library.fflush(None)
