"""A C file as a library: from the wheel, or compiled by this machine's compiler when it is first needed.

What was compiled here is kept in the user's cache.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

Library = TypeVar("Library")


LEVELS = {
    "x86-64-v4": "avx2 bmi1 bmi2 f16c fma avx512f avx512bw avx512cd avx512dq avx512vl",
    "x86-64-v3": "avx2 bmi1 bmi2 f16c fma",
}
"""The processors that a wheel may have libraries for (setup.py), the widest first, and how one is known."""


class MissingFunction(OSError):
    """A library that is not what our source makes."""


def find_compiler() -> list[str] | None:
    """The command of a C compiler, if there is one: the user's choice, the system's, or the one from PyPI."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    found = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if found:
        return [found]
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


def ready_made(source: Path, load: Callable[[Path], Library]) -> Library | None:
    """The library of a C file that came with the wheel for this processor, if there is one."""
    words = set(processor().split())
    for level, needed in LEVELS.items():
        path = source.with_name(f"{source.stem}-{level}.so")
        if words.issuperset(needed.split()) and path.exists():
            with contextlib.suppress(OSError):  # made for another system
                return load(path)
    return None


def compiled(source: Path, flags: Sequence[str], compiler: list[str], load: Callable[[Path], Library]) -> Library:
    """The library made of a C file, from the user's cache if this compiler made it before for this processor."""
    version = _run([*compiler, "--version"])
    known = "\n".join([source.read_text(), shlex.join(compiler), version, *flags, processor()])
    name = f"{source.stem}-{hashlib.sha256(known.encode()).hexdigest()[:16]}.so"
    failure: Exception = OSError("there is no folder of one's own to write to")
    for folder in _cache_folders():
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
            if not _is_ours(folder):
                continue
            if _is_whole(folder / name):
                with contextlib.suppress(MissingFunction):  # then it is not what our source makes
                    return load(folder / name)
            _compile(source, flags, compiler, folder, name)
            return load(folder / name)
        except (OSError, subprocess.SubprocessError) as error:  # full, not writable, or nothing there may be executed
            failure = error
    raise failure


def _compile(source: Path, flags: Sequence[str], compiler: list[str], folder: Path, name: str) -> None:
    """Make the library. Another process may do the same now: each has files of its own, the last ones' names stay."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        made, checksum = Path(own) / name, Path(own) / f"{name}.sha256"
        rest = ["-fPIC", "-shared", "-pthread", str(source), "-lm", "-o", str(made)]
        try:
            _run([*compiler, *flags, "-march=native", *rest])
        except subprocess.CalledProcessError:  # some compilers do not know this machine by that word
            _run([*compiler, *flags, *rest])
        checksum.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        made.chmod(0o700)  # whatever the umask: what a group may write is made anew at every start
        checksum.chmod(0o600)
        made.replace(folder / name)
        checksum.replace(folder / checksum.name)


def _run(command: list[str]) -> str:
    """What a command prints; it is not waited for without end."""
    limits: dict[str, Any] = {"timeout": 120, "check": True}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", **limits)
    return str(done.stdout)


def open_library(path: Path, functions: Sequence[str]) -> ctypes.CDLL:
    """The library at this path, which must have these functions."""
    library = ctypes.CDLL(str(path))
    for name in functions:
        if not hasattr(library, name):
            _close(library)  # while it is open, another file of that name would not be looked at
            raise MissingFunction(f"{path} has no function {name}")
    return library


def _close(library: ctypes.CDLL) -> None:
    with contextlib.suppress(ImportError, AttributeError):  # not on Windows
        from _ctypes import dlclose

        dlclose(library._handle)


def _is_ours(path: Path, is_kind: Callable[[int], bool] = stat.S_ISDIR) -> bool:
    """Whether it is a folder (or a file), no link, that only we may write: what others may write is not what we run."""
    found = path.lstat()
    if not hasattr(os, "getuid"):
        return is_kind(found.st_mode)
    return is_kind(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _is_whole(path: Path) -> bool:
    """Whether our own library is there as it was made: half a file would end the process that opens it."""
    checksum = path.with_name(f"{path.name}.sha256")
    try:
        if not (_is_ours(path, stat.S_ISREG) and _is_ours(checksum, stat.S_ISREG)):
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest().encode() == checksum.read_bytes()
    except OSError:  # one of them is not there, or cannot be read
        return False


def _cache_folders() -> list[Path]:
    folders = [Path(tempfile.gettempdir()) / f"td3-{os.getuid() if hasattr(os, 'getuid') else 'kernels'}"]
    with contextlib.suppress(RuntimeError):  # not everybody has a home
        folders.insert(0, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "td3")
    return folders


def processor() -> str:
    """What `-march=native` looks at, as far as the system tells: a home folder may be shared by several machines."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    told = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return "\n".join([platform.machine(), platform.processor(), *sorted(told)])
