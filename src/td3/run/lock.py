"""The lock of a folder: one process writes in it, and notices when the folder is moved or removed."""

import contextlib
import errno
import functools
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from td3.errors import RunError
from td3.files import open_plain

_descriptors: set[int] = set()
"""Open files that hold a lock of this process."""


class LockedFolder:
    """A folder that this process has locked; its path may come to lead elsewhere, where nothing must be written."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        self.path, self._descriptor = path, descriptor
        self._held = {path: path.stat()}

    def add(self, path: Path) -> None:
        """A file that is part of the lock."""
        self._held[path] = path.stat()

    def missing(self) -> Path | None:
        """The path that no longer leads to what was locked; None if all do."""
        for path, held in self._held.items():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if os.path.samestat(path.stat(), held):
                    continue
            return path
        return None

    def require_in_place(self) -> None:
        """Raise FileNotFoundError unless the path still leads to what was locked."""
        if missing := self.missing():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(missing))

    def moved_to(self) -> Path | None:
        """Where the folder is now, if the system says so (Linux does)."""
        with contextlib.suppress(OSError):
            now = Path(f"/proc/self/fd/{self._descriptor}").readlink()
            if os.path.samestat(now.stat(), self._held[self.path]):
                return now
        return None


@contextlib.contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[LockedFolder]:
    """Lock a run, or another folder, for writing by one process; the lock is released when the process ends.

    Where another process has it, this is an error, or `wait` until it is released. The lock is on the folder itself;
    the file .lock says who has it.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield LockedFolder(path)
        return
    with contextlib.ExitStack() as released:
        try:
            folder = _kept(os.open(path, os.O_RDONLY), released)
            with open_plain(path / ".lock", "a+") as opened:
                file = _kept(os.dup(opened.fileno()), released)
        except OSError as error:
            raise RunError(
                f"{path} cannot be written ({error.strerror}): make it writable, and resume it there."
            ) from None
        how, lock = fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), LockedFolder(path, folder)
        try:
            try:
                fcntl.flock(folder, how)
            except BlockingIOError:
                raise
            except OSError:  # a network file system may lock files alone
                fcntl.flock(file, how)
                lock.add(path / ".lock")
        except BlockingIOError:
            raise RunError(f"{path} is being trained by {_holder(file)}: wait for it, or stop it first.") from None
        with contextlib.suppress(OSError):  # a full disk: then a refusal names nobody
            os.ftruncate(file, 0)
            os.write(file, f"{os.getpid()} {platform.node()}\n".encode())
        yield lock


def _holder(file: int) -> str:
    """Who has the lock, as .lock says."""
    pid, _, host = os.pread(file, 300, 0).decode(errors="replace").strip().partition(" ")
    if not (pid.isdecimal() and host.isprintable()):
        return "another process"
    return f"process {pid} on {host}"


def _kept(descriptor: int, released: contextlib.ExitStack) -> int:
    """A descriptor that is closed at the end, and in processes that an environment forks: they must not keep a lock."""
    _close_after_fork()
    _descriptors.add(descriptor)
    released.callback(_close, descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    if descriptor in _descriptors:
        os.close(descriptor)
        _descriptors.remove(descriptor)


@functools.cache
def _close_after_fork() -> None:
    os.register_at_fork(after_in_child=_close_all)


def _close_all() -> None:
    for descriptor in [*_descriptors]:
        _close(descriptor)
