"""The robot behind a socket, from the class to the deployed policy, against its simulated driver."""

import importlib
import itertools
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from examples.files import EXAMPLES
from td3.cli import main
from td3.run.directory import Run

FOLDER = EXAMPLES / "socket_robot"
NAMES = ("connection", "driver", "robot")
FAST = ("--rate", "0", "--latency", "0")
"""Answer at once: a test has no time for a control rate."""
ONE_ROBOT = ("--device", "cpu", "--threads", "1", "--workers", "none", "--eval-every", "0", "--eval-episodes", "1")
LEARNING = (
    *("--td3.hidden-sizes", "64", "64", "--td3.batch-size", "64", "--lr", "1e-3"),
    *("--td3.gamma", "0.95", "--td3.utd-ratio", "4"),
)


@pytest.fixture
def files(monkeypatch):
    """The example's modules, imported by the names that its readers use."""
    monkeypatch.syspath_prepend(FOLDER)
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def start():
    """Start drivers, each on a free port, which it returns; all are ended after the test."""
    drivers = []

    def start(*options):
        command = [sys.executable, FOLDER / "driver.py", "--port", "0", *options]
        drivers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return int(drivers[-1].stdout.readline().split()[-1])

    yield start
    for driver in drivers:
        driver.kill()
        driver.communicate()


def test_the_whole_way_from_the_class_to_the_deployed_policy(files, start, tmp_path, monkeypatch, capsys):
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    port = start(*FAST, "--failures", "0.003")
    kwargs = ("--env-kwargs", f"port={port}", "max_episode_steps=50")

    assert main(["check", "robot:Robot", "--steps", "200", *kwargs]) in (0, 1)  # a failure is something to look at
    capsys.readouterr()
    words = ["train", "robot:Robot", *kwargs, "--steps", "1200", *ONE_ROBOT, *LEARNING]
    assert main([*words, "--seed", "1", "--out", "runs/first"]) == 0
    printed = "".join(capsys.readouterr())
    assert "ConnectionError: the driver on port" in printed
    assert "an evaluation has moved the robot" in printed
    before, after = mean_returns("runs/first")
    assert before < -30
    assert after > -15

    changed = start(*FAST, "--failures", "0", "--mass", "2")
    words[3] = f"port={changed}"
    words += ["--from", "runs/first", "--steps", "300", "--td3.learning-starts", "100"]
    assert main([*words, "--seed", "1", "--out", "runs/tuned"]) == 0
    begun, tuned = mean_returns("runs/tuned")
    assert begun > -20  # what the first robot taught serves on the second
    assert tuned > -15

    assert main(["export", "runs/tuned", "--which", "last"]) == 0
    files.robot.CONNECTIONS[changed].close()  # as the end of the training process does: the driver has one client
    deployed = deploy(tmp_path / "runs" / "tuned" / "export", changed)
    assert deployed.returncode == 0, deployed.stderr
    assert "200 control periods at" in deployed.stdout
    assert " 0 missed, 0 failures" in deployed.stdout
    assert abs(float(deployed.stdout.split()[-2])) < 0.1  # m from the middle: it is held


def mean_returns(run):
    """Before and after training."""
    _, returns = Run(run).learning_curve()
    assert returns.shape == (1, 2)
    return returns[0]


def deploy(export, port):
    """The control loop in a process of its own, which imports neither td3 nor PyTorch."""
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(FOLDER)!r}); sys.modules.update(td3=None, torch=None); "
        f"runpy.run_path({str(FOLDER / 'deploy.py')!r}, run_name='__main__')"
    )
    words = [sys.executable, "-c", code, export, "--port", str(port), "--periods", "200"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_deployment_without_a_driver_ends_with_one_sentence(files, monkeypatch):
    monkeypatch.setattr(files.connection, "PATIENCE", 0.0)
    with pytest.raises(ConnectionError, match=r"the driver on port 1 failed: .*refused"):
        files.connection.Connection(1).ask(home=0.0)


def test_both_failures_are_connection_errors_and_the_next_call_connects_again(files, start):
    line = files.connection.Connection(start(*FAST, "--failures", "1"), timeout=0.05)
    reasons = []
    for _ in range(12):
        with pytest.raises(ConnectionError, match=r"the driver on port \d+ failed: ") as raised:
            line.ask(force=0.0)
        reasons.append(str(raised.value).rpartition(": ")[2])
    assert set(reasons) == {"it closed the connection", "timed out"}


def test_environments_share_the_line_and_an_episode_that_lost_the_robot_ends(files, start):
    port = start(*FAST, "--failures", "0")
    training, evaluation = (files.robot.Robot(port) for _ in range(2))
    assert training.driver is evaluation.driver
    training.reset(seed=0)
    training.step(np.array([0.5], np.float32))
    evaluation.reset(seed=1)
    with pytest.raises(RuntimeError, match="an evaluation has moved the robot"):
        training.step(np.array([0.5], np.float32))
    evaluation.close()
    state, _ = training.reset(seed=0)
    assert 0.5 <= abs(state[0]) <= 1.0
    assert training.reset(seed=0)[0].tolist() == state.tolist()


def test_a_command_reaches_the_motor_one_period_late(files):
    slider = files.driver.Slider(mass=1.0)
    slider.home(0.2)
    slider.advance(1.0)
    assert (slider.position, slider.velocity) == (0.2, 0.0)
    slider.advance(0.0)
    assert slider.velocity == pytest.approx(files.driver.LARGEST_FORCE * files.driver.PERIOD)
    for _ in range(100):
        slider.advance(1.0)
    assert (slider.position, slider.velocity) == (files.driver.RAIL, 0.0)  # the end stop


@pytest.mark.parametrize(("late", "missed", "stands"), [(0.5, 0, False), (2.5, 2, False), (8.0, 8, True)])
def test_missed_periods_are_driven_by_the_last_command_until_the_watchdog_brakes(
    files, monkeypatch, late, missed, stands
):
    now, slept = itertools.count(100.0, 1 + late), []  # the second command comes so many periods too late
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=slept.append)
    monkeypatch.setattr(files.driver, "time", clock)
    driver = files.driver.Driver(files.driver.Options(rate=1.0, latency=0.0))
    driver.wait()
    driver.slider.home(-1.0)
    driver.slider.advance(1.0)
    assert driver.wait() == missed
    assert (driver.slider.velocity == 0) == (stands or missed == 0)
    assert (driver.slider.position > -1.0) == (missed > 0)
    assert slept == [1.0, 0.5 if missed == 0 else 1.0]  # the rate is kept


def test_the_pages_name_every_file():
    page = (EXAMPLES.parent / "docs" / "deploy.md").read_text()
    for file in FOLDER.glob("*.py"):
        assert f"| `{file.name}` |" in page
