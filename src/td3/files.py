"""Files that are whole or not there: written beside their place, synced, renamed; read only if they are as written."""

import contextlib
import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple


class Written(NamedTuple):
    """What a file must still be when it is read again."""

    bytes: int
    sha256: str


def write_atomically(path: Path, content: bytes) -> Written:
    """Replace a file in one move, its bytes and then its name safely on disk; on any error the old file stays."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
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
    return Written(len(content), hashlib.sha256(content).hexdigest())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder safely on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder of plain files; what cannot be removed is left, without complaint."""
    with contextlib.suppress(OSError):
        for file in sorted(folder.iterdir()):
            file.unlink()
        folder.rmdir()


def read_plain(path: Path, most: int) -> bytes:
    """A plain file's bytes; raises OSError for what cannot be read or is no plain file, ValueError if it is larger."""
    # Without blocking: a pipe put in the place of a file would be waited for, for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        if found.st_size > most:
            raise ValueError(f"{path.name} has {found.st_size} bytes, and at most {most} make sense")
        return file.read(found.st_size)


def read_as_written(path: Path, written: Written) -> bytes:
    """The file's bytes; raises ValueError for anything but what was written, without reading more than that."""
    try:
        content = read_plain(path, written.bytes)
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
        return json.loads(read_plain(path, most).decode())
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None


def outside(path: Path, folder: Path) -> bool:
    """Whether a path inside a folder is a link that leads out of it, or round in a circle."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return True
