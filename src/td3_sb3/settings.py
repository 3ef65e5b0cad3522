"""Settings of a model, checked where Stable-Baselines3 would fail later or not at all."""

import math
from numbers import Integral, Real
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.type_aliases import TrainFreq
from stable_baselines3.common.vec_env import VecEnv

from td3_sb3.errors import SettingError

WHOLE = {"buffer_size": 1, "batch_size": 1, "policy_delay": 1, "n_steps": 1, "learning_starts": 0, "gradient_steps": -1}
"""Settings that count something, and the least of each."""
POSITIVE = ("tau", "gamma", "target_policy_noise", "target_noise_clip")


def check_settings(model: Any) -> None:
    """Refuse numbers that no update can use, in one sentence."""
    for name, least in WHOLE.items():
        given: Any = getattr(model, name, least)
        number = isinstance(given, float | int | np.floating | np.integer) and not isinstance(given, bool)
        if not number or given != given // 1 or given < least:
            raise SettingError(f"{name} must be a whole number of at least {least}, but {given!r} was given.")
        setattr(model, name, int(given))  # 1e4 and numpy's numbers are welcome
    for name in POSITIVE:
        given = getattr(model, name)
        if not isinstance(given, Real) or not math.isfinite(given) or given < 0:
            raise SettingError(f"{name} must be a number of at least 0, but {given!r} was given.")
    rate: Any = model.learning_rate
    if not callable(rate) and not (isinstance(rate, float | int | np.floating | np.integer) and 0 <= rate <= 100):
        raise SettingError(f"learning_rate must be a number from 0 to 100 or a function, but {rate!r} was given.")
    if model.action_noise is not None and not callable(model.action_noise):
        raise SettingError(
            "action_noise must be None or an object to be called, such as NormalActionNoise, "
            f"but {model.action_noise!r} was given."
        )


def plain_train_freq(given: Any) -> Any:
    """`train_freq` with Python's own numbers, as Stable-Baselines3 wants them, whatever kind of number was given."""
    if isinstance(given, TrainFreq):
        return given
    count, unit = tuple(given) if isinstance(given, tuple | list) else (given, "step")
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise SettingError(f"train_freq must be a whole number of at least 1, but {count!r} was given.")
    return int(count), unit


def as_callback(given: Any) -> BaseCallback:
    """A callback as it is; a function of (locals, globals) as a callback, which stops training with False alone."""
    if isinstance(given, BaseCallback):
        return given
    if not callable(given):
        raise SettingError(f"callback must be a callback, a function or a list of them, but {given!r} was given.")
    return ConvertCallback(lambda local_names, global_names: given(local_names, global_names) is not False)


def check_env(env: Any) -> None:
    """Refuse what is no environment, in one sentence."""
    if isinstance(env, VectorEnv):
        raise SettingError(
            "Stable-Baselines3 takes no Gymnasium vector environment: give one environment, or "
            "DummyVecEnv([make, make, ...])."
        )
    looks_like_one = all(hasattr(env, name) for name in ("step", "reset", "observation_space", "action_space"))
    if not isinstance(env, gym.Env | VecEnv) and not looks_like_one:
        raise SettingError(f"env must be an environment or its name, but {type(env).__name__} was given.")
