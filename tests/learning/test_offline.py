"""From the transitions of a good controller, behavior cloning learns to drive; plain TD3 learns it later, if at all."""

import numpy as np
import pytest

import td3
from td3.environments import make_environment

NAMES = ("observations", "actions", "rewards", "next_observations", "terminals")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """2,000 transitions of a controller of Rail-v0 with a little noise: no other actions are in them."""
    environment, generator = make_environment("Rail-v0"), np.random.default_rng(0)
    rows, state = [], environment.reset(seed=0)[0]
    for _ in range(2_000):
        force = -1.2 * state[:1] - state[1:] + 0.05 * generator.standard_normal(1)
        action = np.clip(force, -1, 1).astype(np.float32)
        next_state, reward, terminated, truncated, _ = environment.step(action)
        rows.append((state, action, reward, next_state, terminated))
        state = environment.reset()[0] if terminated or truncated else next_state
    path = tmp_path_factory.mktemp("data") / "controller.npz"
    np.savez(path, **{name: np.array(column) for name, column in zip(NAMES, zip(*rows, strict=True), strict=True)})
    return path


def final_returns(dataset, out, **settings):
    small = {"hidden_sizes": (32, 32), "batch_size": 64, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
    evaluation = {"eval_every": 0, "eval_episodes": 5, "device": "cpu"}
    run = td3.train_offline(dataset, "Rail-v0", steps=2_000, seeds=3, out=out, **small, **evaluation, **settings)
    return [run.evaluations(seed)[1][-1].mean() for seed in run.seeds]


@pytest.mark.long
def test_behavior_cloning_learns_from_few_actions_what_plain_td3_does_not(dataset, tmp_path):
    cloned = final_returns(dataset, tmp_path / "cloned")
    plain = final_returns(dataset, tmp_path / "plain", variant=())
    assert min(cloned) > -30  # newly initialized actors reach -80 to -130, the controller -7
    assert np.mean(cloned) > np.mean(plain) + 15
