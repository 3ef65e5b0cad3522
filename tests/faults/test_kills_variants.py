"""kill -9 at any moment, resume: with behavior cloning, offline, and with hindsight, bit for bit the whole run."""

import random

import pytest

from faults.fingerprint import fingerprint
from faults.killing import killed_often, preload, train_until_killed

FIELDS = {
    "hidden_sizes": (8, 8),
    "batch_size": 8,
    "eval_every": 200,
    "eval_episodes": 1,
    "save_every": 100,
    "threads": 1,
    "device": "cpu",
    "steps": 500,
}
SHORT_EPISODES = {"env": "RailGoal-v0", "env_kwargs": {"max_episode_steps": 13}}
RUNS = {
    "behavior cloning": {"env": "Rail-v0", "variant": ("behavior-cloning",), "learning_starts": 100},
    "hindsight": {**SHORT_EPISODES, "variant": ("hindsight",), "learning_starts": 100, "buffer_size": 700, "seeds": 2},
    "hindsight in two environments": {
        **SHORT_EPISODES,
        **{"variant": ("hindsight",), "learning_starts": 100, "envs": 2, "normalize_observations": True},
    },
    "offline": {
        "env": "Rail-v0",
        **{"variant": ("behavior-cloning",), "normalize_observations": True, "learning_starts": 0, "seeds": 2},
    },
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    out = tmp_path_factory.mktemp("data") / "run"
    train_until_killed({**FIELDS, "env": "Rail-v0", "steps": 300, "learning_starts": 100, "out": out}, None)
    return str(out)


LONG = ("behavior cloning", "hindsight")
"""Whose like is in the two others."""


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind in LONG)) for kind in RUNS])
def test_a_run_killed_again_and_again_ends_as_if_nothing_had_happened(tmp_path, kind, dataset):
    preload()
    fields = {**FIELDS, **RUNS[kind], **({"dataset": dataset} if kind == "offline" else {})}
    train_until_killed({**fields, "out": tmp_path / "whole"}, None)
    kills = killed_often({**fields, "out": tmp_path / "killed"}, random.Random(4), most=4)
    expected, found = fingerprint(tmp_path / "whole"), fingerprint(tmp_path / "killed")
    assert [name for name in expected if found.get(name) != expected[name]] == [], kills
    assert {*found} == {*expected}
    assert sum(kills.values()) >= 2
