"""A picture task with a known answer, which can only be read from motion: one frame alone does not show it."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.wrappers import FrameStackObservation

import td3
from td3.algorithm.optimizer import JointOptimizer

SIDE, BLOCK, FASTEST = 16, 4, 3


class MovingBlock(gym.Env):
    """A block somewhere on a dark picture moves sideways by -3 to 3 pixels; then its speed is to be named, by a number
    within [-1, 1], and the task ends. Naming it rightly pays 1, and the best return is exactly 1.
    """

    observation_space = Box(0, 255, (SIDE, SIDE), np.uint8)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.speed = int(self.np_random.integers(-FASTEST, FASTEST + 1))
        self.column = int(self.np_random.integers(FASTEST, SIDE - BLOCK - FASTEST + 1))
        self.moved = False
        return self.image(), {}

    def step(self, action):
        if not self.moved:
            self.column, self.moved = self.column + self.speed, True
            return self.image(), 0.0, False, False, {}
        reward = 1 - float((action[0] - self.speed / FASTEST) ** 2)
        return self.image(), reward, True, False, {}

    def image(self):
        image = np.zeros((SIDE, SIDE), np.uint8)
        image[6 : 6 + BLOCK, self.column : self.column + BLOCK] = 255
        return image


def make_moving_block(frames: int = 3) -> gym.Env:
    return FrameStackObservation(MovingBlock(), frames)


gym.register("MovingBlock-v0", entry_point=make_moving_block)
gym.register("MovingBlockOneFrame-v0", entry_point=MovingBlock)
SETTINGS = {
    "steps": 1_400,
    "learning_starts": 400,
    "hidden_sizes": (64, 64),
    "batch_size": 64,
    "buffer_size": 3_000,
    "actor_learning_rate": 2e-3,
    "critic_learning_rate": 2e-3,
    "eval_every": 0,
    "eval_episodes": 50,
    "save_every": 0,
    "threads": 1,
    "device": "cpu",
}
ENOUGH = 0.95
"""Of a best possible 1. Who sees only the last frame gets 7/9 at best: where the block is tells a little."""


def last_return(tmp_path, env="MovingBlock-v0", **fields):
    run = td3.train(env, out=tmp_path / "run", **{**SETTINGS, **fields})
    return run.evaluations(0)[1][-1].mean()


def test_the_speed_of_what_is_seen_is_learned(tmp_path):
    assert last_return(tmp_path) > ENOUGH


@pytest.mark.long
def test_one_frame_alone_does_not_show_it(tmp_path):
    assert last_return(tmp_path, "MovingBlockOneFrame-v0") < 0.85


@pytest.mark.long
def test_an_encoder_that_does_not_learn_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(JointOptimizer, "step_", lambda self, gradient, encoder_gradient: self.critics.step_(gradient))
    assert last_return(tmp_path) < ENOUGH


@pytest.mark.long
@pytest.mark.long
def test_several_seeds_and_environments_learn_it_as_well(tmp_path):
    run = td3.train("MovingBlock-v0", out=tmp_path / "run", **SETTINGS, seeds=3, envs=2)
    assert min(run.evaluations(seed)[1][-1].mean() for seed in run.seeds) > ENOUGH
