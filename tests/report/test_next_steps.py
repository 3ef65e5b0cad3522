"""After a run, the commands that are suggested fit that run."""

import importlib
import importlib.util
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scripted import SMALL

import td3
from td3.cli import main
from td3.config import TrainConfig
from td3.report.next_steps import next_steps, renders

LOW, HIGH = np.full((1, 10), -100.0), np.full((1, 10), 50.0)
RUN = Path("runs/x")


@pytest.mark.parametrize(
    ("settings", "interrupted", "before", "after", "expected"),
    [
        ({}, True, LOW, HIGH, ["td3 report runs/x"]),
        ({}, False, HIGH, LOW, ["td3 doctor runs/x", "td3 watch runs/x"]),
        (
            {"steps": 20_000},
            False,
            LOW,
            HIGH,
            ["td3 evaluate runs/x", "td3 watch runs/x", "td3 resume runs/x --steps 80000"],
        ),
        (
            {},
            False,
            LOW,
            HIGH,
            ["td3 evaluate runs/x", "td3 watch runs/x", "td3 train --config runs/x/config.json --seeds 5"],
        ),
        ({"seeds": 3}, False, LOW, HIGH, ["td3 evaluate runs/x", "td3 watch runs/x", "td3 export runs/x"]),
        (
            {"replace_steps": ("a.py:b",), "steps": 20_000},
            False,
            LOW,
            HIGH,
            ["td3 evaluate runs/x", "td3 watch runs/x", "td3 resume runs/x --trust --steps 80000"],
        ),
        (
            {"replace_steps": ("a.py:b",)},
            False,
            LOW,
            HIGH,
            ["td3 evaluate runs/x", "td3 watch runs/x", "td3 train --config runs/x/config.json --seeds 5 --trust"],
        ),
        (
            {"env": "nowhere:Class"},
            False,
            LOW,
            HIGH,
            ["td3 evaluate runs/x --trust", "td3 train --config runs/x/config.json --seeds 5 --trust"],
        ),
    ],
)
def test_the_suggestion_fits_the_run(settings, interrupted, before, after, expected):
    config = TrainConfig(**{"env": "Pendulum-v1", **settings})
    assert next_steps(RUN, config, interrupted, before, after) == expected


MODULE = """
from td3.environments.rail import Rail

class Task(Rail):
    pass
"""


def suggested(run, monkeypatch) -> list[str]:
    """The words of the command that trains a run again with five seeds, with as few of them as a test needs."""
    monkeypatch.setattr("td3.report.next_steps.SHORT", 1)
    *_, line = next_steps(run.path, run.config, False, LOW, HIGH)
    words = line.split()
    assert words[:2] == ["td3", "train"]
    assert words[4:6] == ["--seeds", "5"]
    return [*words[1:5], "2", *words[6:]]


def of_seed(run, seed: int) -> bytes:
    return (run.folder(seed) / "last" / "agent.safetensors").read_bytes()


def test_the_suggested_command_trains_the_same_run_with_more_seeds(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "task_again.py").write_text(MODULE)
    changed = {**SMALL, "steps": 40, "seed": 3, "gamma": 0.9, "device": "cpu", "variant": "n-step"}
    given = {"max_episode_steps": 7}
    run = td3.train("task_again:Task", out=tmp_path / "run", env_kwargs=given, **changed)
    assert main([*suggested(run, monkeypatch), "--out", str(tmp_path / "again")]) == 0
    again = td3.Run(tmp_path / "again")
    assert again.seeds == (3, 4)
    assert again.config == replace(run.config, seeds=2, out=again.path)
    assert of_seed(again, 3) == of_seed(run, 3)


def test_an_offline_run_is_trained_again_offline(tmp_path, monkeypatch):
    data = td3.train("Rail-v0", out=tmp_path / "data", **{**SMALL, "steps": 40, "device": "cpu"})
    shared = {"batch_size": 8, "hidden_sizes": (8,), "eval_episodes": 1, "device": "cpu", "bc_alpha": 1.0}
    run = td3.train_offline(data.path, steps=20, out=tmp_path / "run", **shared)
    assert main([*suggested(run, monkeypatch), "--out", str(tmp_path / "again")]) == 0
    again = td3.Run(tmp_path / "again")
    assert again.config == replace(run.config, seeds=2, out=again.path)
    assert again.config.dataset == str(data.path)
    assert of_seed(again, 0) == of_seed(run, 0)


DRAWN = """
import gymnasium
from td3.environments.rail import Rail

class Drawn(Rail):
    pass

class Plain(Rail):
    def __init__(self):
        super().__init__()

class Dark(Rail):
    metadata = {}
"""


def test_a_class_of_the_users_is_watched_where_it_draws_and_takes_a_render_mode(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "task_drawn.py").write_text(DRAWN)
    assert not renders(TrainConfig(env="task_drawn:Drawn"))  # nothing is imported to find out
    importlib.import_module("task_drawn")
    drawn = [renders(TrainConfig(env=f"task_drawn:{name}")) for name in ("Drawn", "Plain", "Dark", "None")]
    assert drawn == [True, False, False, False]
    lines = next_steps(RUN, TrainConfig(env="task_drawn:Drawn"), False, LOW, HIGH)
    assert lines[:2] == ["td3 evaluate runs/x --trust", "td3 watch runs/x --trust"]


@pytest.mark.parametrize("package", ["imageio_ffmpeg", "PIL", "pygame"])
def test_without_the_packages_that_a_video_needs_nothing_is_to_be_watched(monkeypatch, package):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == package else find(name, *more))
    assert not any("watch" in line for line in next_steps(RUN, TrainConfig(env="Pendulum-v1"), False, LOW, HIGH))


def test_the_suggested_lines_can_be_typed_as_they_are(tmp_path, capsys):
    run = td3.train("Rail-v0", out=tmp_path / "my run", **{**SMALL, "steps": 40, "device": "cpu"})
    evaluate, watch, extend = next_steps(run.path, run.config, False, LOW, HIGH)
    assert main([*shlex.split(evaluate)[1:], "--episodes", "1"]) == 0
    assert main([*shlex.split(watch)[1:], "--max-steps", "4"]) == 0
    assert main([*shlex.split(extend)[1:-1], "60"]) == 0
    assert (run.path / "video.mp4").exists()


def test_what_cannot_be_drawn_is_not_to_be_watched():
    assert renders(TrainConfig(env="Rail-v0"))
    assert not renders(TrainConfig(env="Nowhere-v0"))
    assert next_steps(RUN, TrainConfig(env="Nowhere-v0"), False, HIGH, LOW) == ["td3 doctor runs/x"]
