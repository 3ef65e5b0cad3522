"""n-step returns against a slow reference on random episodes, and at every kind of end."""

import pytest
import torch
from guards.variants import n_step_with
from hypothesis import given, settings, strategies
from scripted import SMALL

import td3
from td3.algorithm.normalizer import NormalizedReplayBuffer, Normalizer
from td3.algorithm.step_04_to_09_bellman_target import bellman_target
from td3.config import resolve
from td3.errors import ConfigError
from td3.settings import TD3Config
from td3.variants.n_step import n_step_batch
from variants.episodes import Episodes, every_row


@settings(deadline=None, max_examples=60)
@given(
    strategies.integers(0, 2**32),
    strategies.integers(1, 3),
    strategies.integers(3, 40),
    strategies.integers(1, 30),
    strategies.integers(1, 6),
    strategies.sampled_from([0.0, 0.9, 1.0]),
)
def test_returns_are_those_of_a_slow_reference(seed, envs, capacity, rounds, n, gamma):
    episodes = Episodes(seed, envs, max(capacity, envs), rounds)
    batch = every_row(episodes, n_step_batch, TD3Config(n_step=n, gamma=gamma))
    next_q = torch.linspace(-3, 5, batch.reward.shape[1], dtype=torch.float64).unsqueeze(0)
    target = bellman_target(batch.reward, batch.terminated, next_q, gamma)
    for index in range(batch.reward.shape[1]):
        reward, state, factor = episodes.n_step(index, n, gamma)
        assert batch.reward[0, index].item() == pytest.approx(reward, abs=1e-12)
        assert batch.next_state[0, index, 0].item() == state
        assert target[0, index].item() == pytest.approx(reward + factor * next_q[0, index].item(), abs=1e-12)
        assert batch.state[0, index, 0] == episodes.buffer.rows[0, index, 0]


def test_a_faulty_version_without_a_fault_is_right():
    """Of the planted bugs: each of them differs from this one in a single condition."""
    episodes, given = Episodes(2, 3, 40, 40), TD3Config(n_step=3, gamma=0.5)
    right, other = (every_row(episodes, sample, given) for sample in (n_step_batch, n_step_with()))
    for name in ("reward", "next_state", "terminated"):
        torch.testing.assert_close(getattr(right, name), getattr(other, name))


def test_normalized_states_continue_an_episode_where_the_stored_ones_do():
    """All normalized states are equal here: clipped."""
    episodes = Episodes(1, 2, 24, 30)
    normalizer = Normalizer(1, 2, dtype=torch.float64)
    normalizer.scale[:] = 1e9
    buffer = NormalizedReplayBuffer(episodes.buffer, normalizer)
    batch = every_row(episodes, n_step_batch, TD3Config(n_step=4), buffer)
    assert (batch.next_state.abs() == 10).all()
    for index in range(24):
        assert batch.reward[0, index].item() == pytest.approx(episodes.n_step(index, 4, 0.99)[0], abs=1e-12)


def test_one_step_is_plain_td3(tmp_path):
    fields = {**SMALL, "steps": 60, "device": "cpu"}
    plain = td3.train("Rail-v0", out=tmp_path / "plain", **fields)
    one = td3.train("Rail-v0", out=tmp_path / "one", variant="n-step", n_step=1, **fields)
    three = td3.train("Rail-v0", out=tmp_path / "three", variant="n-step", **fields)
    assert (one.config.td3.n_step, three.config.td3.n_step) == (1, 3)
    weights = [(run.folder(0) / "last" / "agent.safetensors").read_bytes() for run in (plain, one, three)]
    assert weights[0] == weights[1] != weights[2]


def test_the_setting_alone_is_refused():
    with pytest.raises(ConfigError, match="only the variant n-step reads it"):
        resolve("Rail-v0", n_step=3)
    for wrong in (0, 1_001, 2.0):
        with pytest.raises(ConfigError, match="n_step"):
            resolve("Rail-v0", variant="n-step", n_step=wrong)


def test_rows_of_one_environment_are_as_far_apart_as_there_are_environments(tmp_path):
    seen = []

    class Strides(td3.Callback):
        def on_training_start(self, trainer):
            seen.append((trainer.buffer.stride, trainer.buffer.member(0).stride))

    for envs in (1, 3):
        fields = {**SMALL, "steps": 60, "device": "cpu", "envs": envs, "normalize_observations": True}
        td3.train("Rail-v0", out=tmp_path / str(envs), variant="n-step", callbacks=[Strides()], **fields)
    assert seen == [(1, 1), (3, 3)]
