"""Atomic writes and checked reads: regular files only, and nothing is written or removed through a link."""

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any, NamedTuple

from td3.errors import RunError

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Opening fails where the last part of the path is a link; not on Windows."""
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Opening a named pipe returns at once, so that it can be refused; without this it waits for a writer."""
USED_IN_A_RUN = (
    *("config.json", "versions.json", "status.json", "steps.json", "sources.json", "times.csv", "report.html"),
    *("wandb.json", "lock", "writable", "seed_", "checkpoints", "export", "tensorboard"),
    *("video.", "grid.", "learning."),
)
"""What td3 reads or writes in a run, by how the name begins after a dot; all else in that folder is a user's own."""


class FileDigest(NamedTuple):
    """What a file must still be when it is read again."""

    bytes: int
    sha256: str


def write_atomically(path: Path, content: bytes) -> FileDigest:
    """Replace a file in one move, its bytes and then its name safely on disk; on any error the old file stays."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        descriptor = create(temporary)
        try:
            rest = memoryview(content)
            while rest:  # the system may take less than it was given
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return FileDigest(len(content), hashlib.sha256(content).hexdigest())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder safely on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path) -> int:
    """A new, empty file, open for writing; what had its name, such as a link, is removed and never opened."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o644)


def open_plain(path: Path, mode: str) -> IO[Any]:
    """Open a text file in place; raises OSError for a link and for anything but a regular file, and leaves it alone."""
    # Cut to length only when it is known to be a regular file.
    file = open(path, mode.replace("w", "a"), newline="", encoding="utf-8", opener=_descriptor_without_link)  # noqa: SIM115  # the caller closes it
    if "w" in mode:
        file.truncate(0)
    return file


def _descriptor_without_link(path: str, flags: int) -> int:
    return _descriptor(path, flags | NO_LINK)


def _descriptor(path: str, flags: int) -> int:
    """Of a regular file; raises OSError for a pipe, a device or a folder, without waiting for it."""
    descriptor = os.open(path, flags | NO_WAIT, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


def require_plain(path: Path) -> None:
    """Raise OSError for what is not a regular file, before another library opens it."""
    os.close(_descriptor(str(path), os.O_RDONLY))


def remove_folder(folder: Path) -> None:
    """Remove a folder of plain files, or the link in its place; what cannot be removed is left, without complaint."""
    with contextlib.suppress(OSError):
        if folder.is_symlink():
            folder.unlink()
            return
        remove_files(folder)
        folder.rmdir()


def remove_files(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove the files in a folder, except those to keep; in a folder that is a link nothing is touched."""
    if not folder.is_symlink():
        for file in sorted(folder.iterdir()):
            if file.name not in keep:
                file.unlink()


def check_run_folder(run: Path) -> None:
    """Raise RunError if what td3 uses in a run has a link that leads out, or is neither a file nor a folder.

    The run itself may be reached through a link, such as runs/Hopper-v5/latest.
    """
    waiting = [run]
    while waiting:
        folder = waiting.pop()
        # A missing folder is reported by its reader; files come and go during training.
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if folder is run and not entry.name.lstrip(".").startswith(USED_IN_A_RUN):
                    continue
                if entry.is_symlink() and outside(Path(entry.path), run):
                    raise RunError(
                        f"{entry.path} is a link that leads out of its run: remove it, or put a copy of what it leads "
                        "to in its place."
                    )
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not entry.is_symlink() and not entry.is_file():
                    raise RunError(f"{entry.path} is neither a file nor a folder: remove it from the run.")


def read_regular_file(path: Path, most: int) -> bytes:
    """A regular file's bytes; raises OSError for what cannot be read or is none, ValueError if it is larger."""
    with open(path, "rb", opener=_descriptor) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{path.name} has {size} bytes, and at most {most} make sense")
        return file.read(size)


def read_verified(path: Path, written: FileDigest) -> bytes:
    """The file's bytes; raises ValueError for anything but what was written, without reading more than that."""
    try:
        content = read_regular_file(path, written.bytes)
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror})") from None
    if len(content) != written.bytes:
        raise ValueError(f"{path.name} has {len(content)} bytes instead of {written.bytes}")
    if hashlib.sha256(content).hexdigest() != written.sha256:
        raise ValueError(f"{path.name} is not as it was written")
    return content


def read_json(path: Path, most: int) -> Any:
    """A small JSON file; raises OSError if it cannot be read, ValueError if it is too large or is not JSON."""
    try:
        return json.loads(read_regular_file(path, most).decode())
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None


def outside(path: Path, folder: Path) -> bool:
    """Whether a path inside a folder is a link that leads out of it, or round in a circle."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return True
