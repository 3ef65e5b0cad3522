"""Environments, steps and callbacks with a fault in them, as a user's file has it."""

import sys

import gymnasium as gym
import numpy as np
import torch

import td3


class Arm(gym.Env):
    """Reads a sensor that is not there, from its fourth step on."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))
    failing_at = 4

    def __init__(self):
        self.age, self.sensors = 0, {}

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.age += 1
        return np.zeros(2, np.float32), self.read(), self.age % 20 == 0, False, {}

    def read(self):
        return self.sensors["angle"] if self.age >= self.failing_at else 1.0


class AtOnce(Arm):
    failing_at = 1


class Sound(Arm):
    """Has no fault; subclasses do something to the process."""

    failing_at = sys.maxsize


class SetsDevice(Sound):
    def step(self, action):
        torch.set_default_device("meta")
        return super().step(action)


class EntersInferenceMode(Sound):
    def __init__(self):
        super().__init__()
        self.mode = torch.inference_mode()
        self.mode.__enter__()


class ClosesStdout(Sound):
    def step(self, action):
        sys.stdout.close()
        return super().step(action)


class ClosesLikeCtrlC(Sound):
    def close(self):
        raise KeyboardInterrupt


class Failing(td3.Callback):
    def on_env_step(self, trainer):
        if trainer.env_steps == 30:
            self.note()

    def note(self):
        raise ValueError("no paper")


@td3.replace_step(9)
def late(reward, terminated, next_q, gamma, original):
    if (reward == 1).all():  # never in the trial, whose rewards are random
        raise ValueError("all rewards are 1")
    return original(reward, terminated, next_q, gamma)
