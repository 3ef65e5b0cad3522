"""The names that Stable-Baselines3 users type, on this package's engine: `from td3.sb3 import TD3`.

Works with Stable-Baselines3 beside it (its environments, noises, callbacks and loggers are accepted) and without it.
"""

from td3.sb3.environments import DummyVecEnv
from td3.sb3.model import TD3
from td3.sb3.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

__all__ = ["TD3", "DummyVecEnv", "NormalActionNoise", "OrnsteinUhlenbeckActionNoise"]
