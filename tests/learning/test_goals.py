"""A sparse reward for goals: hindsight learns to reach them while plain TD3 hardly does."""

import numpy as np
import pytest

import td3


@pytest.mark.long
def test_hindsight_reaches_goals_when_plain_td3_hardly_does(tmp_path):
    small = {"hidden_sizes": (64, 64), "batch_size": 128, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
    fields = {**small, "steps": 4_000, "eval_every": 0, "eval_episodes": 20, "seeds": 3, "device": "cpu"}
    rates = {}
    for name, variant in (("hindsight", ("hindsight",)), ("plain", ())):
        run = td3.train("RailGoal-v0", variant=variant, out=tmp_path / name, **fields)
        rows = [(run.folder(seed) / "evaluations.csv").read_text().splitlines()[-1] for seed in run.seeds]
        rates[name] = [float(row.rpartition(",")[2]) for row in rows]
    assert min(rates["hindsight"]) >= 0.8
    assert np.mean(rates["plain"]) <= 0.4
