"""Variant x autoreset mode x number of environments: how much of a variant took effect, counted in a run."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from scripted import SMALL

import td3
from td3.algorithm.streams import MemberStreams
from td3.errors import ConfigError
from td3.variants import prioritized
from td3.variants.n_step import n_step_batch

ENVS = (1, 64, 4_096)
ROUNDS, LENGTH = 24, 10
GAMMA = 0.5
FULL_RETURN = 1 + GAMMA + GAMMA**2
SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


class Staggered(VectorEnv):
    """Every reward is 1. Episodes end after `LENGTH` steps, the first of each environment after fewer.

    An observation is [environment, episode, step].
    """

    def __init__(self, num_envs, mode):
        self.num_envs, self.mode, self.metadata = num_envs, mode, {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = Box(-np.inf, np.inf, (3,)), Box(-1, 1, (1,))
        self.observation_space, self.action_space = Box(-np.inf, np.inf, (num_envs, 3)), Box(-1, 1, (num_envs, 1))
        self.shown = np.zeros((num_envs, 3), np.float32)
        self.shown[:, 0] = np.arange(num_envs)
        self.over = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        if options is None:
            self.shown[:, 1:] = np.stack((np.zeros(self.num_envs), np.arange(self.num_envs) % LENGTH), 1)
        else:
            self._begin(options["reset_mask"])
        return self.shown.copy(), {}

    def _begin(self, mask):
        self.shown[mask, 1] += 1
        self.shown[mask, 2] = 0

    def step(self, actions):
        resets = self.over if self.mode == NEXT_STEP else np.zeros(self.num_envs, bool)
        self._begin(resets)
        self.shown[~resets, 2] += 1
        self.over = self.shown[:, 2] >= LENGTH
        infos = {}
        over, final = self.over.copy(), self.shown.copy()
        if self.mode == SAME_STEP and over.any():
            infos["final_obs"] = final
            self._begin(over)
        return self.shown.copy(), np.ones(self.num_envs), np.zeros(self.num_envs, bool), over, infos


class Kept(td3.Callback):
    """The replay buffer of a run."""

    def on_training_end(self, trainer):
        self.buffer, self.settings = trainer.buffer, trainer.config.td3


def trained(tmp_path, variant, mode, envs, rounds=ROUNDS, **changed):
    kept, steps = Kept(), envs * rounds
    fields = {**SMALL, "buffer_size": steps, "learning_starts": envs, "utd_ratio": 3 / (2 * envs), "gamma": GAMMA}
    fields |= {"steps": steps, "envs": envs, "eval_env": False, "eval_every": 0, "save_every": 0, "variant": variant}
    td3.train(partial(Staggered, mode=mode), out=tmp_path / "run", callbacks=[kept], **(fields | changed))
    return kept


def returns_of(kept):
    """The reward of each stored transition as the variant samples it."""
    indices = torch.arange(len(kept.buffer)).unsqueeze(0)
    batch = n_step_batch(
        kept.buffer,
        MemberStreams([0]),
        len(kept.buffer),
        original=lambda buffer, random, batch_size: buffer.gather(indices),
        settings=kept.settings,
    )
    return batch.reward[0].numpy()


@pytest.mark.parametrize("envs", ENVS)
@pytest.mark.parametrize("mode", [SAME_STEP, DISABLED])
def test_n_step_sums_all_rewards_but_at_the_end_of_an_episode_and_of_the_buffer(tmp_path, mode, envs):
    kept = trained(tmp_path, "n-step", mode, envs)
    environment, episode, step = kept.buffer.rows[0, : len(kept.buffer), :3].numpy().astype(int).T
    stored = set(zip(environment, episode, step, strict=True))
    followed = [
        (i, e, s + 1) in stored and (i, e, s + 2) in stored for i, e, s in zip(environment, episode, step, strict=True)
    ]
    assert len(stored) == envs * ROUNDS
    np.testing.assert_array_equal(returns_of(kept) == FULL_RETURN, followed)
    assert np.mean(followed) > 0.7


def test_n_step_in_mode_next_step_has_all_rewards_with_one_environment(tmp_path):
    kept = trained(tmp_path, "n-step", NEXT_STEP, 1)
    assert np.mean(returns_of(kept) == FULL_RETURN) > 0.7


@pytest.mark.parametrize("envs", ENVS[1:])
def test_n_step_in_mode_next_step_with_several_environments_is_refused(tmp_path, envs):
    """The reset of one environment moves the rows of all others: with 64, 86 % of returns had one reward."""
    with pytest.raises(ConfigError, match=r"variant n-step .* \(NEXT_STEP\): make it with autoreset_mode=.*SAME_STEP"):
        trained(tmp_path, "n-step", NEXT_STEP, envs)
    assert not (tmp_path / "run").exists()
    trained(tmp_path, "n-step", NEXT_STEP, envs, rounds=2, n_step=1)


def test_n_step_with_chunks_of_several_ray_collectors_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"variant n-step .* Ray .* chunks.*: use other --workers, or --envs 1"):
        td3.train("Rail-v0", out=tmp_path / "run", variant="n-step", workers="ray", envs=2, **{**SMALL, "steps": 60})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("envs", ENVS)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_prioritized_touches_about_as_many_slots_as_are_new(tmp_path, mode, envs, monkeypatch):
    touched, right = [], prioritized._set

    def counted(state, indices, excess):
        touched.append(indices.shape[1])
        right(state, indices, excess)

    monkeypatch.setattr(prioritized, "_set", counted)
    kept = trained(tmp_path, "prioritized", mode, envs, engine="eager")
    batch_size, utd_ratio = kept.settings.batch_size, kept.settings.utd_ratio
    entered = [count for count in touched if count != batch_size]
    assert len(entered) > ROUNDS - 2
    assert max(entered) <= envs + math.ceil(1 / utd_ratio)


@pytest.mark.parametrize("envs", ENVS)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_hindsight_is_refused(tmp_path, mode, envs):
    with pytest.raises(ConfigError, match="variant hindsight needs an environment with goals"):
        trained(tmp_path, "hindsight", mode, envs)
