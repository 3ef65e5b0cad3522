"""A run on an environment without a time limit says so, with an option that gives it one."""

import shlex

import gymnasium as gym
import numpy as np
import pytest
from scripted import SMALL, SMALL_OPTIONS

import td3
from td3 import evaluate
from td3.callbacks import notes
from td3.cli import main

NAME = f"{__name__}:Endless"


class Endless(gym.Env):
    """Never ends by itself."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random(2, np.float32), {}

    def step(self, action):
        return self.np_random.random(2, np.float32), 1.0, False, False, {}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for module in (notes, evaluate):
        monkeypatch.setattr(module, "LONGEST_EPISODE", 40)


def test_the_first_lines_offer_an_option_that_works(tmp_path, capsys):
    words = ["train", NAME, "--steps", "60", *SMALL_OPTIONS]
    assert main([*words, "--out", str(tmp_path / "endless")]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "has no time limit: where" in line)
    option = shlex.split(line.partition("Add  ")[2])
    assert option == ["--env-kwargs", "max_episode_steps=1000"]
    assert main([*words, "--out", str(tmp_path / "limited"), *option[:1], "max_episode_steps=30"]) == 0
    assert "time limit" not in capsys.readouterr().out


def test_an_evaluation_that_was_cut_is_warned_of_once(tmp_path):
    with pytest.warns(UserWarning, match="time limit") as caught:
        td3.train(Endless, out=tmp_path / "run", steps=60, eval_every=20, **SMALL)
    (warning,) = (str(one.message) for one in caught if "time limit" in str(one.message))
    assert warning.startswith("env step 0: an evaluation's episode was cut after 40 env steps")
    assert warning.endswith("train with  --env-kwargs max_episode_steps=1000")


def test_a_registered_limit_is_one(tmp_path):
    td3.train("Pendulum-v1", out=tmp_path / "run", steps=60, **SMALL)
