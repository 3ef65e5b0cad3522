"""Pendulum-v1 is swung up: the whole package, from an empty directory to a good policy."""

import numpy as np
import pytest

import td3
from td3.algorithm.agent import Agent, Task
from td3.run.agent_file import network_tensors
from td3.settings import TD3Config

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three seeds side by side, with networks and batches that suit so small a task."""
    return td3.train(
        "Pendulum-v1",
        steps=9_000,
        seed=SEEDS[0],
        seeds=len(SEEDS),
        out=tmp_path_factory.mktemp("pendulum"),
        device="cpu",
        threads=1,
        eval_every=3_000,
        eval_episodes=30,  # starts differ a lot: with ten, the best policy itself may come out below -200
        hidden_sizes=(64, 64),
        batch_size=64,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        learning_starts=1_000,
        gamma=0.95,
        tau=0.01,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_pendulum_is_swung_up(run, seed):
    steps, returns = run.evaluations(seed)
    means = returns.mean(1)
    assert steps.tolist() == list(range(0, 9_001, 3_000))
    assert means[0] < -800  # the newly initialized policy cannot do it
    assert means.max() > -200
    assert means[-1] > -400  # and it is not forgotten, though single evaluations sway


@pytest.mark.parametrize("seed", SEEDS)
def test_pendulum_was_learned_by_updates(run, seed):
    metrics = np.genfromtxt(run.folder(seed) / "metrics.csv", delimiter=",", names=True)
    assert metrics["updates"].tolist() == list(range(0, 8_001, 1_000))
    assert np.isfinite(metrics["critic_loss"][1:]).all()
    assert np.isfinite(metrics["actor_loss"][1:]).all()
    new_learner = Agent.create(
        Task(3, (-2.0,), (2.0,)),
        TD3Config(hidden_sizes=run.config.td3.hidden_sizes, actor_learning_rate=1e-3, critic_learning_rate=1e-3),
        [seed],
    )
    grown = run.agent(seed, "last").policy.layers
    for depth, (weight, _) in enumerate(grown):
        assert np.abs(weight.T - network_tensors(new_learner, 0)[f"actor.{depth}.weight"]).mean() > 1e-3
