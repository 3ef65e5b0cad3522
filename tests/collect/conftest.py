"""A real Ray cluster of two nodes on loopback, started with `ray start` as a person would, for test_cluster.py.

It ends with them: its processes are never idle.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from ray._private.authentication_test_utils import reset_auth_token_state

SMALL_SETTINGS = [
    *("--set", "td3.hidden-sizes=8 8", "--set", "td3.batch-size=8", "--set", "td3.buffer-size=1000"),
    *("--set", "td3.learning-starts=20", "--set", "eval-episodes=2", "--set", "eval-every=0"),
]
PATIENCE = 240.0
"""Seconds after which something that must happen counts as not happening."""


class Cluster(NamedTuple):
    address: str
    processes: Path
    """Where environments leave the numbers of their processes."""
    second: subprocess.Popen
    """The second node; its processes are a group of their own."""
    wound: Path

    def pids(self) -> set[int]:
        """Processes of collectors that are alive now."""
        found = {int(file.name) for file in self.processes.iterdir()}
        return {pid for pid in found if pid != os.getpid() and alive(pid)}


def stat_of(pid: int) -> tuple[str, int]:
    """The state of a process, Z if it is no more, and its parent."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "Z", 0
    return state, int(parent)


def alive(pid: int) -> bool:
    return stat_of(pid)[0] != "Z"


def processes_with(text: str) -> list[int]:
    """Living processes whose command line holds this text."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if text in (folder / "cmdline").read_bytes().decode(errors="replace") and alive(int(folder.name)):
                    found.append(int(folder.name))
    return found


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def opens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def cluster():
    # Ray's sockets have long names, and what pytest gives as a temporary folder is long already.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    for name in ("processes", "head"):
        (folder / name).mkdir()
    port = free_port()
    surroundings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "a token for the tests of td3, which is no secret",
        "TD3_TEST_PROCESSES": str(folder / "processes"),
        "TD3_TEST_WOUND": str(folder / "wound"),
        "RAY_USAGE_STATS_ENABLED": "0",
        # A machine that is gone, which refuses calls, is noticed within a second; one that is only slow has ten.
        "RAY_health_check_initial_delay_ms": "0",
        "RAY_health_check_period_ms": "200",
        "RAY_health_check_timeout_ms": "2000",
        "RAY_health_check_failure_threshold": "5",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in surroundings.items():
            patch.setenv(name, value)
        reset_auth_token_state()  # Ray may have been imported before, and has read all that
        common = ["--num-cpus=2", "--node-ip-address=127.0.0.1", "--object-store-memory=80000000", "--block"]
        head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder / 'head'}"]
        nodes = [start([*head, *common], folder / "head.log")]
        try:
            wait_for(lambda: opens(port), "the head")
            nodes.append(start([f"--address=127.0.0.1:{port}", *common], folder / "second.log"))
            marks = (folder / "second.log").read_text
            wait_for(lambda: "Ray runtime started" in marks() or nodes[1].poll() is not None, "the second node")
            assert nodes[1].poll() is None, marks()
            yield Cluster(f"127.0.0.1:{port}", folder / "processes", nodes[1], folder / "wound")
        finally:
            for node in nodes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(node.pid, signal.SIGKILL)
                node.wait()
            for pid in processes_with(str(folder)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)


def start(options, log):
    command = [str(Path(sys.executable).with_name("ray")), "start", *options]
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
