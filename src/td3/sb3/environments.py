"""Environments as Stable-Baselines3 steps them: `obs, rewards, dones, infos = vec_env.step(actions)`."""

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from td3.environments import TaskSpaces, check_environment, make_environment
from td3.errors import ConfigError, UserError
from td3.policy import Array


def has_sb3() -> bool:
    """Whether Stable-Baselines3 is installed."""
    return importlib.util.find_spec("stable_baselines3") is not None


class DummyVecEnv:
    """Environments one after another, for those who have no Stable-Baselines3: its class of this name, in short.

    An episode that ends is followed at once by a reset. Then `infos[i]["terminal_observation"]` is the true last
    observation, and `infos[i]["TimeLimit.truncated"]` says that only time ran out.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gym.Env[Any, Any]]]) -> None:
        self.envs = [make() for make in env_fns]
        self.num_envs = len(self.envs)
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        self.render_mode = self.envs[0].render_mode
        self._seeds: list[int | None] = [None] * self.num_envs
        self._totals = [(0.0, 0)] * self.num_envs

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seed the next reset of each environment."""
        self._seeds = [None if seed is None else seed + index for index in range(self.num_envs)]
        return self._seeds

    def reset(self) -> Array:
        """Start a new episode everywhere."""
        firsts = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, self._seeds, strict=True)]
        self._seeds = [None] * self.num_envs
        self._totals = [(0.0, 0)] * self.num_envs
        return np.stack(firsts)

    def step(self, actions: Any) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        """One step of every environment."""
        observations, rewards, dones, infos = [], [], [], []
        for index, env in enumerate(self.envs):
            observation, reward, terminated, truncated, info = env.step(np.array(actions[index]))
            total, length = self._totals[index]
            self._totals[index] = (total + float(reward), length + 1)
            info = {**info, "TimeLimit.truncated": truncated and not terminated}
            if terminated or truncated:
                info["terminal_observation"] = np.array(observation)  # a copy: the reset may write over it
                info["episode"] = dict(zip("rl", self._totals[index], strict=True))
                self._totals[index] = (0.0, 0)
                observation, _ = env.reset()
            observations.append(observation)
            rewards.append(float(reward))
            dones.append(terminated or truncated)
            infos.append(info)
        return np.stack(observations), np.array(rewards, np.float32), np.array(dones, bool), infos

    def render(self, mode: str | None = None) -> Any:
        """The first environment's picture, or None where it draws to a window."""
        return self.envs[0].render()

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()


def as_vec_env(env: Any, verbose: int = 0) -> Any:
    """The environment in the form above: by name, a Gymnasium environment, or a vector that already has it."""
    if isinstance(env, str):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pictures are welcome, and not asked for
                env = make_environment(env, render_mode="rgb_array")
        except UserError:
            env = make_environment(env)  # that draws no pictures, or says what is missing
    if isinstance(env, VectorEnv):
        raise ConfigError(
            "td3.sb3 takes no Gymnasium vector environment, as Stable-Baselines3 does not: give one environment, "
            "or DummyVecEnv([make, make, ...])."
        )
    if isinstance(env, gym.Env):
        if not has_sb3():
            return DummyVecEnv([lambda: env])
        from stable_baselines3 import TD3  # its own way of wrapping, with what it says about it

        env = TD3._wrap_env(env, verbose)
    if not all(hasattr(env, name) for name in ("num_envs", "step", "reset", "observation_space", "action_space")):
        raise ConfigError(f"env must be a Gymnasium environment or its name, but {type(env).__name__} was given.")
    inner = env
    while inner is not None:
        if type(inner).__name__ == "VecNormalize":
            raise ConfigError("td3.sb3 does not normalize: take VecNormalize away, or use Stable-Baselines3's own TD3.")
        inner = getattr(inner, "venv", None)
    return env


def checked_spaces(observation_space: Any, action_space: Any) -> TaskSpaces:
    """What a learner needs to know of the spaces; refuses those that TD3 cannot serve."""
    spaces = check_environment(_Still(observation_space, action_space), "the environment")
    if spaces.frames:
        raise ConfigError(
            "td3.sb3 learns from vectors only: for pictures use `td3 train`, or Stable-Baselines3's own TD3."
        )
    return spaces


class _Still(gym.Env[Any, Any]):
    """Spaces in which nothing moves: only they are looked at, the environment itself is not disturbed."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(self.observation_space.shape or (), self.observation_space.dtype), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], 0.0, False, False, {}


class UnitActions(VectorEnv[Array, Array, Array]):
    """A vector of the form above, as the collector steps it, with actions in [-1, 1]: what Stable-Baselines3 stores."""

    def __init__(self, vec_env: Any) -> None:
        self.vec_env, self.num_envs = vec_env, vec_env.num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        space = vec_env.action_space
        self._low, self._high = space.low, space.high
        self.single_observation_space = vec_env.observation_space
        self.single_action_space = Box(-1, 1, space.shape)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.last: dict[str, Any] = {}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start a new episode everywhere."""
        if seed is not None:
            self.vec_env.seed(int(seed[0]))
        return np.asarray(self.vec_env.reset()), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step; `last` keeps what the environments really said, for callbacks."""
        true_actions = np.clip(self._low + 0.5 * (actions + 1) * (self._high - self._low), self._low, self._high)
        observations, rewards, dones, infos = self.vec_env.step(true_actions.astype(np.float32))
        self.last = {
            "actions": true_actions,
            "new_obs": observations,
            "rewards": rewards,
            "dones": dones,
            "infos": infos,
        }
        truncated = np.array([bool(info.get("TimeLimit.truncated")) for info in infos]) & dones
        final = np.empty(self.num_envs, object)
        for index in np.flatnonzero(dones):
            final[index] = np.asarray(infos[index]["terminal_observation"])
        return np.asarray(observations), np.asarray(rewards), dones & ~truncated, truncated, {"final_obs": final}
