"""Joining a Ray cluster, or starting one on this machine for as long as it is needed; Ray itself says nothing."""

import contextlib
import json
import os
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from td3.errors import ConfigError, missing_extra

CONNECT_SECONDS, ANSWER_SECONDS = 2.0, 7.0
"""How long a port may take to open, and what stands there to say that it is Ray: less than ten seconds together."""
OBJECT_STORE_BYTES = 256 << 20
"""Shared memory of a local cluster: weights and chunks of transitions are small. Ray would take 30 % of the RAM."""
SOCKET_NAMES = 60
"""Characters that Ray appends to its temporary folder for sockets, whose paths an operating system cuts at 107."""
SILENCE = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
ASK_WHO = (
    "import sys; from ray._raylet import GcsClient; "
    "print(GcsClient(address=sys.argv[1]).internal_kv_get(b'CLUSTER_METADATA', b'cluster').decode())"
)


def import_ray() -> Any:
    """Ray, or a sentence that says how to install it."""
    for name, value in SILENCE.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError:
        raise missing_extra("working with Ray", "ray") from None
    return ray


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, joined to the cluster at HOST:PORT, or with one of its own on this machine that ends with the block.

    To be called after `require_cluster`: without a cluster, Ray waits for minutes.
    Where this process belongs to a cluster already (a task of a sweep, a notebook), that one is used.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    folder = None
    if address is None:
        # Who else is on this machine has no business in it. Ray would write a token into the home folder; this one goes
        # with the process.
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"} & set(os.environ):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        folder = _short_folder()
        options: dict[str, Any] = {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_temp_dir": str(folder),
            "_node_ip_address": "127.0.0.1",  # nothing is offered to the network
        }
    else:
        options = {"address": address}
    try:
        _join(ray, options, address)
        yield ray
    finally:
        with _without_interruption():
            ray.shutdown()
            if folder:
                shutil.rmtree(folder, ignore_errors=True)


def _join(ray: Any, options: dict[str, Any], address: str | None) -> None:
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(**options, log_to_driver=False, logging_level="CRITICAL")
    except (ConnectionError, OSError, RuntimeError, ValueError, AssertionError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise ConfigError(
            f"the Ray cluster {where} cannot be joined ({_one_line(error)}): this machine must be part of it "
            "(ray start), with the same Ray and the same Python as the others."
        ) from None
    finally:
        for number, handler in handlers.items():  # Ray installs its own
            signal.signal(number, handler)


def require_cluster(address: str | None) -> None:
    """Raise a sentence unless Ray is installed and, at an address, one of the same version answers within seconds."""
    version = import_ray().__version__
    if address is None:
        return
    host, colon, port = address.rpartition(":")
    if not colon or not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"--ray-address must be HOST:PORT, such as 10.0.0.1:6379, but {address!r} was given.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise ConfigError(
            f"no Ray cluster can be reached at {address} ({reason}): start one there with  ray start --head, "
            "or leave --ray-address out to use this machine."
        ) from None
    command = [sys.executable, "-c", ASK_WHO, address]
    try:
        said = subprocess.run(command, capture_output=True, timeout=ANSWER_SECONDS, check=True).stdout
        found = json.loads(said)
        theirs = found["ray_version"], found["python_version"]
    except (subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        if b"InvalidAuthToken" in (getattr(error, "stderr", None) or b""):
            raise ConfigError(
                f"the Ray cluster at {address} asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to "
                "the file that holds the cluster's token (or put it where  ray get-auth-token  looks)."
            ) from None
        raise ConfigError(
            f"what listens at {address} does not answer as a Ray cluster does within {ANSWER_SECONDS:.0f} s: give the "
            "port that  ray start --head  printed."
        ) from None
    ours = version, platform.python_version()
    if theirs != ours:
        raise ConfigError(
            f"the cluster at {address} runs Ray {theirs[0]} on Python {theirs[1]}, and this machine Ray {ours[0]} on "
            f"Python {ours[1]}: install the same on all machines."
        )


def module_folders(env: str) -> list[str]:
    """Where this process finds its modules: in the current folder only where the environment's name has one."""
    return [*(folder for folder in sys.path if folder), *([str(Path.cwd())] if ":" in env else [])]


def look_also_in(folders: Sequence[str]) -> None:
    """In a process on some machine of the cluster: find modules where the process that started it does, last of all."""
    sys.path += [folder for folder in folders if folder not in sys.path and Path(folder).exists()]


def _short_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="td3-"))
    if len(str(folder)) + SOCKET_NAMES > 107 and Path("/tmp").is_dir():
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="td3-", dir="/tmp"))
    return folder


@contextlib.contextmanager
def _without_interruption() -> Iterator[None]:
    """Ending is short, and a second Ctrl-C in the middle of it would leave processes behind."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
