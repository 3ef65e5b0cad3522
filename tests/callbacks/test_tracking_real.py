"""TensorBoard and W&B themselves, offline: a tracked run that is killed is resumed, and every command reads it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import td3
from td3.cli import main

TRAIN = """
import os, signal, sys
from td3.cli import main
from td3.run.checkpoints import Checkpoints

save, saves = Checkpoints.save, []

def save_and_die(*arguments):
    save(*arguments)
    saves.append(1)
    if len(saves) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

Checkpoints.save = save_and_die
main(sys.argv[1:])
"""
OPTIONS = (
    *("--track", "--steps", "400", "--save-every", "100", "--eval-every", "200", "--eval-episodes", "1"),
    *("--td3.learning-starts", "50", "--td3.hidden-sizes", "8", "--td3.batch-size", "8", "--threads", "1"),
)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory) -> tuple[Path, str]:
    """A folder in which a tracked run was killed and resumed, and what the resume printed."""
    folder = tmp_path_factory.mktemp("tracked")
    offline = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "XDG_CACHE_HOME": str(folder / "cache")}

    def python(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")} | offline
        return subprocess.run(
            [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    killed = python("-c", TRAIN, "train", "Pendulum-v1", *OPTIONS, "--out", "runs/a")
    assert killed.returncode == -9, killed.stderr
    resumed = python("-m", "td3", "resume", "runs/a", "--track")
    assert resumed.returncode == 0, resumed.stderr
    return folder, resumed.stdout


def test_no_tracker_puts_a_link_into_the_run(tracked):
    assert [path for path in (tracked[0] / "runs" / "a").rglob("*") if path.is_symlink()] == []


def test_both_parts_of_the_run_are_uploaded_by_the_command_that_is_printed(tracked):
    folder, output = tracked
    pattern = re.search(r"W&B is offline: +wandb sync (\S+)", output).group(1)
    files = [file.name for part in sorted(folder.glob(pattern)) for file in part.glob("*.wandb")]
    assert len(files) == 2
    assert len({*files}) == 1  # the same run of W&B, which goes on


def test_tensorboard_shows_one_run_without_gaps(tracked):
    events = EventAccumulator(str(tracked[0] / "runs" / "a" / "tensorboard" / "seed_0"))
    events.Reload()
    assert [event.step for event in events.Scalars("eval/mean_reward")] == [0, 200, 400]


@pytest.mark.parametrize(
    "words", [["report"], ["doctor"], ["evaluate", "--episodes", "1"], ["export"]], ids=lambda words: words[0]
)
def test_a_tracked_run_is_read_by_every_command(tracked, words, capsys):
    command, *options = words
    code = main([command, str(tracked[0] / "runs" / "a"), *options])
    assert code == 0, capsys.readouterr().err


def test_agents_of_a_tracked_run_are_loaded(tracked):
    assert td3.load(tracked[0] / "runs" / "a").act([1.0, 0.0, 0.0]).shape == (1,)
    assert td3.Run(tracked[0] / "runs" / "a").evaluations(0)[0].tolist() == [0, 200, 400]
