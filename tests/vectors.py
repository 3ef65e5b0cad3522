"""Vector environments for tests, each in a few lines: scripted, in every autoreset mode, in arrays or tensors."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from scripted import Scripted


class ScriptedVector(VectorEnv):
    """Scripted environments side by side, which reset as the mode says; environment i has the seed + i."""

    def __init__(
        self, num_envs: int, mode: AutoresetMode = AutoresetMode.SAME_STEP, make: Any = Scripted, **kwargs: Any
    ):
        self.envs, self.num_envs, self.mode = [make(**kwargs) for _ in range(num_envs)], num_envs, mode
        self.metadata = {"autoreset_mode": mode}
        one = self.envs[0]
        self.single_observation_space, self.single_action_space = one.observation_space, one.action_space
        self.observation_space = batch_space(one.observation_space, num_envs)
        self.action_space = batch_space(one.action_space, num_envs)
        self.over = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        seeds = [None] * self.num_envs if seed is None else [seed + i for i in range(self.num_envs)]
        first = [env.reset(seed=seeds[i])[0] if mask[i] else self.shown[i] for i, env in enumerate(self.envs)]
        self.over &= ~mask
        self.shown = np.array(first, np.float32)
        return self.shown.copy(), {}

    def step(self, actions):
        final = np.full((self.num_envs, *self.single_observation_space.shape), np.nan, np.float32)
        rewards, ends = np.zeros(self.num_envs), np.zeros((2, self.num_envs), bool)
        for i, env in enumerate(self.envs):
            if self.over[i]:
                assert self.mode == AutoresetMode.NEXT_STEP, "an episode that ended was stepped"
                self.shown[i], self.over[i] = env.reset()[0], False
                continue
            self.shown[i], rewards[i], *ends[:, i], _ = env.step(actions[i])
            if ends[:, i].any() and self.mode == AutoresetMode.SAME_STEP:
                final[i], self.shown[i] = self.shown[i], env.reset()[0]
            self.over[i] = ends[:, i].any() and self.mode != AutoresetMode.SAME_STEP
        infos = {"final_obs": final} if self.mode == AutoresetMode.SAME_STEP and ends.any() else {}
        return self.shown.copy(), rewards, ends[0], ends[1], infos


class TensorVector(ScriptedVector):
    """The same in tensors on a device."""

    def __init__(
        self, num_envs: int, mode: AutoresetMode = AutoresetMode.SAME_STEP, device: str = "cpu", **kwargs: Any
    ):
        super().__init__(num_envs, mode, **kwargs)
        self.device = torch.device(device)

    def reset(self, *, seed=None, options=None):
        return torch.from_numpy(super().reset(seed=seed, options=options)[0]).to(self.device), {}

    def step(self, actions):
        assert isinstance(actions, torch.Tensor)
        assert actions.device.type == self.device.type
        *result, infos = super().step(actions.cpu().numpy())
        infos = {name: torch.from_numpy(array).to(self.device) for name, array in infos.items()}
        return *(torch.from_numpy(array).to(self.device) for array in result), infos


def scripted_vector(num_envs: int, seed: int) -> VectorEnv:
    """As `td3 train vectors:scripted_vector` makes it."""
    return ScriptedVector(num_envs)


def endless_vector(num_envs: int) -> VectorEnv:
    """Long episodes: what is unfinished at a checkpoint is lost."""
    return ScriptedVector(num_envs, lengths=(500,))


class ManyVector(VectorEnv):
    """Thousands of environments in a few array operations: episodes of 50 steps that end at different times."""

    single_observation_space = gym.spaces.Box(-9, 9, (4,))
    single_action_space = gym.spaces.Box(-1, 1, (2,))

    def __init__(self, num_envs: int):
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs, self.ages = num_envs, np.random.default_rng(0).integers(0, 50, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        return np.zeros((self.num_envs, 4), np.float32), {}

    def step(self, actions):
        self.ages += 1
        truncated = self.ages >= 50
        self.ages[truncated] = 0
        state = np.zeros((self.num_envs, 4), np.float32)
        return state, np.zeros(self.num_envs), np.zeros(self.num_envs, bool), truncated, {"final_obs": state + 1}


def many_vector(num_envs: int) -> VectorEnv:
    """As `td3 train vectors:many_vector` makes it."""
    return ManyVector(num_envs)
