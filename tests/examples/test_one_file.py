"""TD3 in one file computes what the package computes, and trains by itself."""

import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from parity.script import (
    ACTION_RANGES,
    PRESETS,
    STATE_SIZE,
    Script,
    ScriptedStreams,
    copy_weights_,
    make_agent,
    named_layers,
    named_linears,
)

from examples.files import EXAMPLES, imported
from td3.algorithm.registry import STEPS
from td3.engine import update_once

one_file = imported("one_file")
UPDATES, TOLERANCE = 100, 1e-9


def settings_of(config):
    """The file's settings with the package's values."""
    assert config.actor_learning_rate == config.critic_learning_rate
    shared = one_file.Settings.__dataclass_fields__.keys() & config.__dataclass_fields__.keys()
    values = {name: getattr(config, name) for name in shared}
    return one_file.Settings(**values, learning_rate=config.actor_learning_rate)


def networks_of(agent):
    """By the names that the package's layers get in parity/script.py."""
    critics = {f"critic_{twin}": getattr(agent, f"critic_{twin}") for twin in (1, 2)}
    targets = {f"critic_target_{twin}": getattr(agent, f"critic_{twin}_target") for twin in (1, 2)}
    return {"actor": agent.actor, "actor_target": agent.actor_target, **critics, **targets}


@pytest.mark.parametrize(
    ("preset", "action_range"),
    [("author", "asymmetric"), pytest.param("bullet", "symmetric", marks=pytest.mark.long)],
)
def test_100_updates_equal_the_package_s(preset, action_range):
    config, (low, high) = PRESETS[preset], ACTION_RANGES[action_range]
    script, package = Script(UPDATES, config, low, high), make_agent(config, low, high, torch.float64)
    buffer, streams = script.buffer(torch.float64), ScriptedStreams(script, torch.float64)
    bounds = (torch.tensor(bound, dtype=torch.float64) for bound in (low, high))
    agent = one_file.TD3(STATE_SIZE, *bounds, settings_of(config)).double()
    copy_weights_(networks_of(agent), package)

    columns = (script.state, script.action, script.reward, script.next_state, script.terminated)
    for rows, noise in zip(script.rows, script.noise, strict=True):
        agent.update(one_file.Batch(*(column[rows] for column in columns)), noise)
        update_once(package, buffer, streams, config)

    ours = named_layers(package)
    theirs = named_linears(networks_of(agent), (agent.actor_optimizer, agent.critics_optimizer))
    assert ours.keys() == theirs.keys()
    for name, expected in ours.items():
        assert (theirs[name] - expected).abs().max() <= TOLERANCE * expected.abs().max(), name


def test_the_defaults_are_the_package_s():
    assert settings_of(PRESETS["author"]) == one_file.Settings(env=one_file.Settings.env)


def test_the_fifteen_steps_are_there_with_their_numbers_and_names():
    comments = re.findall(r"^ *# (\d+) (.+)$", (EXAMPLES / "one_file.py").read_text(), re.MULTILINE)
    assert sorted(int(number) for number, _ in comments) == sorted(STEPS)
    for number, text in comments:
        assert text.startswith(STEPS[int(number)].title)


def test_it_reads_from_top_to_bottom():
    lines = (EXAMPLES / "one_file.py").read_text().splitlines()
    assert len(lines) <= 250
    assert not any(line.startswith(("from td3", "import td3")) for line in lines)


def test_the_buffer_keeps_the_newest_transitions():
    buffer = one_file.ReplayBuffer(3, 2, 1)
    for number in range(5):
        buffer.add(np.full(2, number), np.full(1, -number), number / 2, np.full(2, number + 1), float(number == 4))
    batch = buffer.sample(200)
    assert set(batch.state[:, 0].tolist()) == {2, 3, 4}
    assert torch.equal(batch.next_state[:, 1], batch.state[:, 0] + 1)
    assert torch.equal(batch.action[:, 0], -batch.state[:, 0])
    assert torch.equal(batch.reward, batch.state[:, 0] / 2)
    assert torch.equal(batch.terminated, (batch.state[:, 0] == 4).float())


class Reach(gym.Env):
    """Move a point to 0; twenty steps are the time limit."""

    observation_space, action_space = gym.spaces.Box(-2, 2, (1,)), gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.x, {}

    def step(self, action):
        self.x = np.clip(self.x + 0.2 * action, -2, 2).astype(np.float32)
        return self.x, -float(self.x[0] ** 2), False, False, {}


def test_it_learns_a_small_task(monkeypatch, capsys):
    monkeypatch.setitem(
        gym.registry, "Reach-v0", gym.envs.registration.EnvSpec("Reach-v0", Reach, max_episode_steps=20)
    )
    small = {"hidden_sizes": (16, 16), "batch_size": 32, "learning_rate": 3e-3, "gamma": 0.9, "tau": 0.02}
    settings = one_file.Settings(env="Reach-v0", steps=600, eval_every=300, buffer_size=1_000, **small)
    curve = one_file.train(settings)
    assert [step for step, _ in curve] == [0, 300, 600]
    assert curve[0][1] < -4
    assert curve[-1][1] > -2
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert one_file.train(settings) == curve  # the same seed, the same run


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_pendulum_is_swung_up(seed):
    """The settings and thresholds of tests/learning/test_pendulum.py."""
    small = {"hidden_sizes": (64, 64), "batch_size": 64, "learning_rate": 1e-3, "gamma": 0.95, "tau": 0.01}
    curve = one_file.train(one_file.Settings(seed=seed, steps=10_000, eval_episodes=30, buffer_size=10_000, **small))
    assert curve[0][1] < -800
    assert curve[-1][1] > -400


def test_an_environment_that_does_not_fit_is_refused():
    with pytest.raises(SystemExit, match=r"CartPole-v1 needs actions in a Box"):
        one_file.train(one_file.Settings(env="CartPole-v1"))


def test_the_readme_names_it():
    readme = (Path(EXAMPLES).parent / "README.md").read_text()
    assert "[`examples/one_file.py`](examples/one_file.py)" in readme
