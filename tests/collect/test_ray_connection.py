import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from scripted import SMALL_OPTIONS

from td3.cli import main
from td3.collect import ray_connection as connection
from td3.collect import require_cluster
from td3.config import TrainConfig, resolve
from td3.errors import ConfigError, MissingExtra

from .conftest import free_port, processes_with, wait_for


def test_an_address_where_nobody_listens_ends_with_one_sentence_and_no_run(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "Pendulum-v1", "--workers", "ray", "--ray-address", f"127.0.0.1:{free_port()}", "--out", str(out)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("td3: no Ray cluster can be reached at 127.0.0.1:")
    assert said.count("\n") == 1
    assert not out.exists()
    assert connection.CONNECT_SECONDS + connection.ANSWER_SECONDS < 10


def test_what_is_no_ray_cluster_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ConfigError, match="does not answer as a Ray cluster does"):
            require_cluster(f"127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize("address", ["nowhere", ":6379", "host:", "host:port", "host:99999", "ray://host:10001"])
def test_an_address_is_a_host_and_a_port(address):
    with pytest.raises(ConfigError, match="--ray-address must be HOST:PORT"):
        require_cluster(address)


def test_another_ray_or_python_is_said_so(monkeypatch):
    theirs = {"ray_version": "2.9.0", "python_version": platform.python_version()}
    monkeypatch.setattr(connection, "ASK_WHO", f"print({json.dumps(json.dumps(theirs))})")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(ConfigError, match=r"runs Ray 2\.9\.0 on Python .*: install the same on all machines"):
            require_cluster(f"127.0.0.1:{listening.getsockname()[1]}")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'td3\[ray\]'"):
        require_cluster(None)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"workers": "spark"}, "workers must be one of auto, none, threads, processes, ray"),
        ({"workers": "ray", "max_staleness": 0}, "max_staleness must be a whole number of at least 1"),
        ({"ray_address": "a:1"}, "workers is not ray: add --workers ray"),
        ({"workers": "ray", "preset": "paper"}, "give --td3.train-freq step"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, sentence):
    with pytest.raises(ConfigError, match=sentence):
        resolve("Pendulum-v1", **fields)


def test_runs_from_before_there_was_a_cluster_are_read():
    values = TrainConfig("Pendulum-v1").to_json()
    for name in ("workers", "ray_address", "max_staleness"):
        del values[name]
    assert TrainConfig.from_json(values) == TrainConfig("Pendulum-v1")


@pytest.mark.parametrize("end", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_a_local_cluster_ends_with_its_run(end, tmp_path, monkeypatch):
    # Ctrl-C leaves a run to be resumed; a learner that is killed takes its collectors along.
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    short = Path(tempfile.mkdtemp(prefix="local-", dir="/tmp"))  # Ray's sockets have long names
    words = ["train", "Pendulum-v1", "--workers", "ray", "--envs", "2", "--steps", "500000", *SMALL_OPTIONS]
    command = [sys.executable, "-m", "td3", *words, "--out", str(tmp_path / "run"), "--eval-every", "0"]
    surroundings = {**os.environ, "TMPDIR": str(short), "HOME": str(home), "OMP_NUM_THREADS": "1"}
    surroundings.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # kernels are compiled there already
    metrics = tmp_path / "run" / "seed_0" / "metrics.csv"
    with subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            wait_for(
                lambda: run.poll() is not None or (metrics.exists() and metrics.read_text().count("\n") > 1), "rows"
            )
            assert run.poll() is None
            assert processes_with(f"{short}/td3-"), "the cluster of this run"
            run.send_signal(end)
            said, complaints = run.communicate(timeout=60)
        finally:
            run.kill()
    wait_for(lambda: not processes_with(f"{short}/td3-"), "the end of all processes of the cluster")
    assert not list(home.iterdir()), "nothing is left in the home folder"
    if end == signal.SIGINT:
        assert run.returncode == 130
        assert "To continue:" in said
        assert complaints == ""
        # PyTorch makes an empty cache folder of its own when a dispatch mode imports its compiler.
        left = [path for path in short.iterdir() if not path.name.startswith("torchinductor_")]
        assert not left, "nothing is left in the temporary folder"
    shutil.rmtree(short)
